"""HYBRID: WVA compares two needs as shares of the present capacity, and the larger one counts."""

from __future__ import annotations

import math

import pytest

from tests.builders import NAMESPACE, NOW, variant
from tests.decide.story import BUSY, snapshot
from wva.decide.foresee import foresee
from wva.decide.measure import larger
from wva.decide.measure.need import REPLICAS, Capacity, DemandRate, Need
from wva.decide.trust import believe
from wva.model.decision import Reason
from wva.model.memory import CapacityBasis, Memory
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.trouble import Absence
from wva.model.variant import ModelKey, VariantKey

KEY = VariantKey(NAMESPACE, "a")
GONE = Absence(Reason.METRICS_MISSING, "nothing is known")


def need(required, sufficient, *, carries=1.0, **fields):
    """Return the need of a model of which a replica carries so much."""
    capacity = Capacity(carries, CapacityBasis.OBSERVED)
    unit = fields.pop("unit", "units")
    return Need(ModelKey(NAMESPACE, "m"), unit, required, required, sufficient, {KEY: capacity}, **fields)


@pytest.fixture
def four():
    """Return a model of four replicas."""
    seen = snapshot(variant(replicas=4), a=[BUSY] * 4)
    (model,), _ = believe(seen, Memory(), Policy(), NOW)
    return model


def test_who_needs_the_larger_share_leads(four):
    """The first need asks for six replicas in place of four: more than 45 of 40 requests/s, and less than 70."""
    first = need(6.0, 6.0)
    assert larger(first, need(45.0, 50.0, carries=10.0), four).required == 6.0
    leading = larger(first, need(70.0, 70.0, carries=10.0), four)
    assert (leading.required, leading.capacities[KEY].per_replica) == (70.0, 10.0)


def test_a_shrink_must_leave_what_both_want_to_be_left(four):
    """The first need leaves two replicas, the second 30 requests/s of 40: three replicas stay."""
    found = larger(need(1.0, 2.0), need(10.0, 30.0, carries=10.0), four)
    assert found.sufficient == pytest.approx(3.0)


def test_either_may_object_to_a_shrink(four):
    """The words of the first need come first."""
    free = need(1.0, 2.0)
    assert larger(free, replace(free, objection="the second"), four).objection == "the second"
    assert larger(replace(free, objection="the first"), replace(free, objection="x"), four).objection == "the first"


def test_the_smaller_number_of_replicas_goes(four):
    """None means that no limit applies."""
    free = need(1.0, 2.0)
    assert larger(free, free, four).most_removed is None
    assert larger(replace(free, most_removed=3), free, four).most_removed == 3
    assert larger(replace(free, most_removed=3), replace(free, most_removed=1), four).most_removed == 1


def test_replicas_that_do_not_report_are_recalled_only_by_both(four):
    """A shrink needs reports of both analyzers: the memory of one is no report for the other."""
    quiet, busy = need(3.0, 3.0), need(5.0, 20.0, carries=10.0)
    for first, second in ((quiet, busy), (busy, quiet)):
        for recalled in (False, True):
            found = larger(replace(first, recalls=recalled), replace(second, recalls=True), four)
            assert found.recalls is recalled
            assert larger(replace(first, recalls=True), replace(second, recalls=recalled), four).recalls is recalled


def test_a_second_need_that_says_nothing_is_none(four):
    """A second need without known capacities does not count, but the decision shows its words."""
    first = need(3.0, 3.0, summary="measured")
    for second in (need(90.0, 90.0, hold=GONE), need(90.0, 90.0, carries=0.0)):
        found = larger(first, replace(second, summary="not known"), four)
        assert found == replace(first, summary="measured; Hybrid mode: not known")


def test_without_the_first_nothing_is_decided(four):
    """Without the first need WVA decides nothing, and the reason says that nothing was measured."""
    assert larger(need(3.0, 3.0, hold=GONE), need(90.0, 90.0, carries=10.0), four).hold == GONE


def test_a_shrink_is_in_the_unit_that_knows_what_each_replica_carries(four):
    """If the first need counts replicas only, the strongest replica might go first. While it wants more, it leads."""
    counted, known = need(1.0, 2.0, unit=REPLICAS), need(10.0, 20.0, carries=10.0)
    assert larger(counted, known, four).unit == "units"
    assert larger(counted, known, four).sufficient == pytest.approx(20.0)
    assert larger(need(5.0, 5.0, unit=REPLICAS), known, four).unit == REPLICAS
    assert larger(replace(counted, wish="more"), known, four).unit == REPLICAS


def ahead(first, second, memory, model, now):
    """Return the need that counts after step 3, and the memory."""
    (found,), memory = foresee([replace(first, second=second)], [model], memory, Policy(), now)
    return found, memory


def test_each_need_is_foreseen_in_every_cycle_whoever_leads(four):
    """Each need keeps its past even while the other one is larger; nothing may go before the past is long enough."""
    rate = need(10.0, 10.0, carries=10.0, rate=DemandRate())
    counted, memory = need(6.0, 6.0, unit=REPLICAS), Memory()
    for turn in range(3):
        found, memory = ahead(counted, rate, memory, four, NOW + 15.0 * turn)
        assert (found.unit, found.sufficient) == (REPLICAS, math.inf)
    assert len(memory.foreseen[0].slots) == 3
    held, after = ahead(replace(counted, hold=GONE), rate, memory, four, NOW + 60.0)
    assert (held.hold, after.foreseen) == (GONE, memory.foreseen)


def test_two_rates_of_a_model_are_the_same_demand(four):
    """What step 3 foresees of the first need also holds for the second, which has a capacity of its own."""
    first, second = (need(30.0, 30.0, carries=each, rate=DemandRate()) for each in (20.0, 5.0))
    found, memory = ahead(first, second, Memory(), four, NOW)
    alone, _ = foresee([first], [four], Memory(), Policy(), NOW)
    assert (found.required, found.capacities) == (alone[0].required, second.capacities)
    assert len(memory.foreseen) == 1
