"""Plans for a foreseen demand when replicas do not start: the numbers and the words."""

from __future__ import annotations

import pytest

from tests.builders import NOW, variant
from tests.decide.story import BUSY, snapshot
from tests.decide.test_replacements import MEASURED, POLICY, A, B, SteadyAnalyzer
from wva.decide.measure import ANALYZERS
from wva.decide.measure.need import Capacity
from wva.decide.pipeline import decide
from wva.model.decision import Reason
from wva.model.memory import Memory, VariantMemory
from wva.model.optimizers import Analyzer

DEADLINE = 600.0
"""Seconds until a change counts as unfinished for too long."""


@pytest.fixture
def cycle(monkeypatch):
    """Return a function that runs one cycle with a demand; a replica of ``a`` carries 3, one of ``b`` 9."""

    def run(*variants, demand):
        capacities = {A: Capacity(3.0, MEASURED), B: Capacity(9.0, MEASURED)}
        monkeypatch.setitem(ANALYZERS, Analyzer.DEMAND, SteadyAnalyzer(demand, capacities))
        loads = {each.key.name: [BUSY] * each.ready_replicas for each in variants}
        # Each new number starts the clock anew.
        entries = [VariantMemory(each.key, each.current_replicas, NOW - 30, each.ready_replicas) for each in variants]
        decisions, _ = decide(snapshot(*variants, **loads), Memory(tuple(entries)), POLICY, NOW)
        return {decision.key.name: decision for decision in decisions}

    return run


def starting(count, *, ready=1, age=DEADLINE):
    """Return the cheap variant; the oldest of its replicas has been starting for this many seconds."""
    since = NOW - age
    return variant("a", replicas=count, ready_replicas=ready, cost=20, desired=count, oldest_unready_since=since)


def test_replicas_that_are_under_way_for_less_than_the_deadline_keep_no_variant_from_growing(cycle):
    """WVA counts the capacity of starting replicas, so it knows what is missing."""
    found = cycle(starting(4, age=DEADLINE - 1), variant("b", cost=80), demand=40.0)
    assert found["a"].desired > 4


def test_a_variant_whose_pods_do_not_start_in_time_gets_no_more_than_four_times_what_serves(cycle):
    """The sibling grows instead, though it is dearer."""
    found = cycle(starting(4), variant("b", cost=80), demand=40.0)
    assert (found["a"].desired, found["b"].reason) == (4, Reason.SCALE_UP)


def test_one_pod_that_does_not_start_stops_no_large_variant(cycle):
    """Nine replicas serve, so WVA expects the next ones to start as well."""
    found = cycle(starting(10, ready=9), variant("b", cost=80), demand=60.0)
    assert found["a"].reason is Reason.SCALE_UP


def test_alone_it_ends_there_too(cycle):
    """The variant has no sibling: it stops at the same number, and its message says why."""
    found = cycle(starting(4), demand=40.0)["a"]
    assert (found.desired, found.reason) == (4, Reason.NO_CANDIDATE)
    assert "a: 3 replicas stuck" in found.message


def test_what_grows_while_replicas_start_is_the_cheapest_not_the_only_one_left(cycle):
    """If capacities are known, starting replicas do not keep a variant from growing."""
    message = cycle(starting(2, age=30.0), variant("b", cost=80), demand=20.0)["a"].message
    assert message.endswith("11 replicas more, the cheapest numbers have more of a (cost 20)")
