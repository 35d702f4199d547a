"""The page about decisions agrees with the code: its examples are computed, its tables compared."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.builders import variant
from tests.decide import test_departures
from tests.decide.story import Story
from wva.decide.limit import Claim, GpuBudget, limit
from wva.decide.optimize.cost_aware import Candidate, grow, shrink
from wva.decide.optimize.greedy import Need, share
from wva.model.inventory import AcceleratorPool, Inventory
from wva.model.policy import SaturationPolicy
from wva.model.service import LOWEST_PRIORITY
from wva.model.variant import ModelKey, VariantKey

PAGE = (Path(__file__).parents[2] / "docs" / "decisions.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"\| Pod \|.*?\n\|[-|]+\n(.*?)\n\n.*?```\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize(("table", "result"), EXAMPLES, ids=["growth", "shrink", "sized growth"])
def test_worked_example(table, result):
    """The decisions printed below a table are those for the replicas in it."""
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
    """A change of the page's form must not silence the test above."""
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


def test_cost_aware_example():
    """Growth and shrinking of the variants in the table."""
    rows, result = tables("Cost-aware")
    variants = [
        Candidate(VariantKey("ns", name), float(cost), float(carries), int(count), minimum=1, maximum=int(most))
        for name, cost, carries, count, most in rows
    ]
    lines = []
    for name, change in (("grow", grow), ("shrink", shrink)):
        numbers = ", ".join(f"{one.key.name} {one.number}" for one in change(variants, 500.0))
        lines.append(f"{name}: {numbers}")
    assert lines == result


def test_greedy_example():
    """What the models in the table get of a few GPUs."""
    rows, result = tables("Greedy by score")
    needs = [
        Need(
            ModelKey("ns", name),
            float(missing),
            (Candidate(VariantKey("ns", name), 10.0, 100.0, int(count), accelerator="A100"),),
            LOWEST_PRIORITY / int(priority),
        )
        for name, missing, priority, count in rows
    ]
    lines = []
    for free in (3, 5):
        numbers = (f"{model.model_id} {after[0].number}" for model, after in share(needs, {"A100": free}).items())
        lines.append(f"{free} GPUs free: {', '.join(numbers)}")
    assert lines == result


def test_limiter_example():
    """What the wishes in the table become."""
    rows, result = tables("GPU limiter")
    draft = Story().cycle(variant(), a=[(0.5, 0)])["a"]
    claims = []
    for name, gpus, count, wanted, spare in rows:
        wish = variant(name, replicas=int(count), gpus_per_replica=int(gpus))
        decision = replace(
            draft, key=wish.key, current=int(count), desired=int(wanted), spare_capacity=float(spare), steps=()
        )
        claims.append(Claim(decision, wish))
    budget = GpuBudget(Inventory.of([AcceleratorPool("A100", 10, 5)]))
    lines = []
    for decision in limit(claims, budget):
        limits = "".join(f", limited by {step.limited_by}" for step in decision.limits)
        lines.append(f"{decision.key.name}: {decision.desired}{limits}")
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
