"""The page about decisions agrees with the code: its examples are computed, its tables compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.builders import variant
from tests.decide import test_departures
from tests.decide.story import Story
from wva.model.policy import SaturationPolicy

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
