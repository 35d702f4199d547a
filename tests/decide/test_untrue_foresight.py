"""What WVA foresees and orders if clocks, prices or old levels of demand are wrong."""

from __future__ import annotations

from math import inf, isfinite

import pytest

from tests.builders import NOW, variant
from tests.decide.measure.pods import NONE, PodsOfModel, ReportingPod, fresh
from tests.decide.test_foresee import CYCLE, NOTHING_SEEN, A, needed, pods
from wva.decide.foresee import MOST_TIMES
from wva.decide.foresee import forecast_of as foresee
from wva.decide.pipeline import decide
from wva.decide.warm import FORGET_SECONDS, updated_levels
from wva.model.memory import Level, Memory
from wva.model.optimizers import Analyzer
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import Snapshot
from wva.model.vllm_parameters import VllmParameters

HOUR = 3600.0
POLICY = Policy(saturation=SaturationPolicy(analyzer_name=Analyzer.DEMAND))


def test_a_clock_that_jumps_back_begins_the_hold_anew() -> None:
    """No replica goes until WVA has seen a whole hold, even before the clock is back at its old time."""
    memory, found = NOTHING_SEEN, []
    for turn in range(80):
        now = NOW + CYCLE * turn - (HOUR if turn >= 40 else 0.0)
        need, memory = foresee(
            needed(10.0 if turn < 40 else 2.0), [variant("a", replicas=4)], {A: pods(4)}, memory, now=now
        )
        found.append(need)
    assert isfinite(found[39].sufficient)
    assert found[40].sufficient == found[44].sufficient == inf
    assert found[60].sufficient < 5.0
    assert found[60].required == pytest.approx(2.0, rel=0.2)


def test_no_replica_goes_when_the_clock_jumps_back() -> None:
    """WVA does not know the demand in the cycle of the jump, and then waits until it has seen a hold again."""
    model, memory, desired = PodsOfModel([ReportingPod(f"a-{place}", NOW - 7200.0) for place in range(6)]), Memory(), []
    variants = [replace(variant("a", replicas=6), parameters=VllmParameters())]
    for turn in range(70):
        model.serve(60.0 if turn < 40 else 3.0, CYCLE)
        back = HOUR if turn >= 40 else 0.0
        told = [
            replace(
                pod.told(),
                counters=replace(pod.counters, at=pod.counters.at - back),
                kv_usage=fresh(0.5 if turn < 40 else 0.01),
                queue_length=fresh(0.0),
            )
            for pod in model.pods
        ]
        (decision,), memory = decide(Snapshot.of(variants, told), memory, POLICY, model.now - back)
        desired.append(decision.desired)
    assert min(desired[30:45]) >= 6
    assert desired[-1] < 6


def test_levels_that_were_left_long_ago_are_forgotten() -> None:
    """The memory does not grow with the highest demand of the past."""
    high = updated_levels((), 1e6, now=NOW, shortest=100.0)
    left = updated_levels(high, 2.0, now=NOW + 60.0, shortest=100.0)
    assert len(left) == len(high)
    kept = updated_levels(left, 2.0, now=NOW + 59.0 + FORGET_SECONDS, shortest=100.0)
    gone = updated_levels(left, 2.0, now=NOW + 61.0 + FORGET_SECONDS, shortest=100.0)
    assert len(kept) == len(high)
    assert max(level.value for level in gone) <= 2.5
    assert all(isinstance(level, Level) and level.left is None for level in gone)


@pytest.mark.parametrize("cost", [10.0, 1e-3, 1e-9])
def test_a_variant_that_seems_to_carry_next_to_nothing_is_not_ordered_by_the_thousand(cost: float) -> None:
    """WVA judges a variant that it never measured by its price, which may be in another unit."""
    variants = [
        replace(variant("a", replicas=2, maximum=2), parameters=VllmParameters()),
        replace(variant("b"), cost=cost, parameters=VllmParameters()),
    ]
    model, memory, decisions = [ReportingPod("a-0"), ReportingPod("a-1")], Memory(), ()
    for turn in range(1, 50):
        now = NOW + CYCLE * turn
        for pod in model:
            pod.serve(2.0 if turn < 45 else 14.0, CYCLE)
        idle = ReportingPod("b-0", counters=replace(NONE, at=now)).told("b")
        told = [
            replace(each, kv_usage=fresh(0.1), queue_length=fresh(0.0))
            for each in (*map(ReportingPod.told, model), idle)
        ]
        decisions, memory = decide(Snapshot.of(variants, told), memory, POLICY, now)
    numbers = {decision.key.name: decision.desired for decision in decisions}
    assert numbers["a"] == 2
    assert 1 <= numbers["b"] <= MOST_TIMES * 3
