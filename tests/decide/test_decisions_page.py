"""The page about decisions agrees with the code: its examples are computed, its tables compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.builders import variant
from tests.decide import test_departures
from tests.decide.story import Story
from wva.decide.allocate import AllocationPolicy, Offer, SharingRule, Stock, Want, allocate
from wva.model.inventory import Inventory
from wva.model.policy import SaturationPolicy
from wva.model.service import LOWEST_PRIORITY
from wva.model.variant import ModelKey, VariantKey

PAGE = (Path(__file__).parents[2] / "docs" / "decisions.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"\| Pod \|.*?\n\|[-|]+\n(.*?)\n\n.*?```\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("table", "result"), EXAMPLES, ids=["growth", "shrink", "sized growth"])
def test_worked_example(table, result):
    """The decisions below a table of the page are the decisions on the replicas in the table."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    loads = {name: [] for _, name, *_ in rows}
    for _, name, _, kv, queue in rows:
        loads[name].append((float(kv), float(queue)))
    costs = {name: float(cost) for _, name, cost, *_ in rows}
    variants = [variant(name, replicas=len(loads[name]), cost=costs[name]) for name in loads]
    decisions = Story().cycle(*variants, **loads)
    lines = []
    for name, decision in decisions.items():
        line = f"{name}: {decision.current} -> {decision.desired} {decision.reason.value}"
        lines.append(line if decision.desired == decision.current else f"{line}: {decision.message}")
    assert lines == result.splitlines()


def test_all_examples_are_found():
    """If the form of the page changes, the test above must not become empty."""
    assert len(EXAMPLES) == 3


def tables(title):
    """Return the rows of the tables and the last code block of a chapter."""
    chapter = re.search(rf"^## {title}\n(.*?)(?=^## )", PAGE, re.DOTALL | re.MULTILINE)[1]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in chapter.split("### Example")[1].splitlines()
        if line.startswith("| ")
    ]
    return rows[1:], re.findall(r"```\n(.*?)```", chapter, re.DOTALL)[-1].splitlines()


def test_cheapest_plan_example():
    """Growth and shrinking of the variants in the table."""
    rows, result = tables("The cheapest plan")
    lines = []
    for name, need in (("grow", 1300.0), ("shrink", 300.0)):
        offers = []
        for variant_name, cost, carries, count, most in rows:
            floor, ceiling = (int(count), int(most)) if name == "grow" else (1, int(count))
            key = VariantKey("ns", variant_name)
            offers.append(Offer(key, float(cost), float(carries), int(count), int(count), floor, ceiling))
        plan = allocate([Want(ModelKey("ns", "m"), need, tuple(offers), keeps_one=True)])
        lines.append(f"{name}: {', '.join(f'{offer.key.name} {plan.numbers[offer.key]}' for offer in offers)}")
    assert lines == result


def shared(rows, free, sharing):
    """Return what the models in a table get of so many GPUs."""
    wants = []
    for name, missing, priority, count in rows:
        offer = Offer(VariantKey("ns", name), 10.0, 100.0, int(count), int(count), limits=("A100",))
        importance = LOWEST_PRIORITY / int(priority)
        need = int(count) * 100.0 + float(missing)
        wants.append(Want(ModelKey("ns", name), need, (offer,), int(priority), importance))
    stock = Stock({"A100": free}, Inventory())
    return allocate(wants, stock, AllocationPolicy(sharing)).numbers


def test_example_of_scarce_gpus():
    """What the models in the table get of a few GPUs."""
    rows, result = tables("Scarce GPUs")
    lines = []
    for rule in (SharingRule.PRIORITY, SharingRule.SCORE):
        numbers = shared(rows, 5, rule)
        found = ", ".join(f"{name} {numbers[VariantKey('ns', name)]}" for name, *_ in rows)
        lines.append(f"{rule.value.lower()}: {found}")
    assert lines == result


def test_parameters_have_the_defaults_of_the_code():
    """Names as in the ConfigMap, values as in the policy."""
    table = dict(re.findall(r"\| `(\w+)` \| \w? ?\| (\S+) \|", PAGE))
    policy = SaturationPolicy()
    assert float(table["kvCacheThreshold"]) == policy.kv_cache_threshold
    assert float(table["queueLengthThreshold"]) == policy.queue_length_threshold
    assert float(table["kvSpareTrigger"]) == policy.kv_spare_trigger
    assert float(table["queueSpareTrigger"]) == policy.queue_spare_trigger
    assert table["transitionDeadline"] == f"{policy.transition_deadline_seconds / 60:g}m"


def test_every_departure_has_a_test():
    """The rows of the table and those of the tests are the same."""
    rows = set(re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE))
    tested = {match[1] for name in dir(test_departures) if (match := re.match(r"test_row_(\d+)_", name))}
    assert rows == tested
