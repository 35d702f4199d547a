"""Shrinks on trial: replicas that carry less alone than was believed while others served beside them."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders import NOW, variant
from wva.decide.foresee import forecast_of
from wva.decide.measure.need import Capacity, DemandRate, Need
from wva.decide.regret import WORDS, asked_for, regretting, tried
from wva.model.memory import CapacityBasis, Foresight, Regret, ShrinkTrial
from wva.model.records import replace
from wva.model.variant import ModelKey, VariantKey

MODEL, A, B = ModelKey("ns", "m"), VariantKey("ns", "a"), VariantKey("ns", "b")
HOUR = 3600.0
FEW = ((A, 2), (B, 1))
MANY = ((A, 5), (B, 1))
ROOM = 12.0 / 9.0


def carrying(each):
    """Return what replicas carry together if each carries so much."""
    return lambda counts: each * sum(counts.values())


def cycle(memory, asked, *, each, now, demand=9.0):
    """Return the memory after a cycle in which a replica seems to carry so much."""
    trial, regret = tried(memory, asked, demand=demand, carries=carrying(each), now=now)
    return replace(memory, asked=asked, trial=trial, regret=regret)


def shrunk(*, each=4.0, memory=None, now=NOW, to=FEW):
    """Return the memory when five and one replicas have shrunk to fewer that seem to carry so much each."""
    memory = Foresight(MODEL) if memory is None else memory
    return cycle(cycle(memory, MANY, each=each, now=now - 15.0), to, each=each, now=now)


def needed(demand=9.0, *, each=4.0, sufficient=9.5):
    """Return a need of requests/s."""
    capacities = {key: Capacity(each, CapacityBasis.OBSERVED) for key in (A, B)}
    return Need(MODEL, "requests/s", demand, demand, sufficient, capacities, DemandRate())


def test_a_shrink_is_on_trial():
    """What the replicas that are left seemed to carry is remembered."""
    assert shrunk().trial == ShrinkTrial(FEW, NOW, 12.0)
    assert shrunk().regret is None


def test_replicas_that_carry_less_alone_are_regretted():
    """They seemed to carry a demand, and do not."""
    memory = cycle(shrunk(), FEW, each=2.0, now=NOW + 120.0)
    assert memory.regret == Regret(FEW, 12.0 / 9.0, NOW + 120.0)
    assert memory.trial is None


@pytest.mark.parametrize(
    ("each", "demand", "after"),
    [(2.0, 12.5, 120.0), (2.9, 8.6, 120.0), (3.0, 9.0, 120.0), (2.0, 9.0, 900.0), (4.0, 9.0, 120.0)],
    ids=["the demand has risen", "they still carry it", "just enough", "a quarter of an hour later", "as believed"],
)
def test_else_nothing_is_regretted(each, demand, after):
    """A demand that is higher than what the replicas seemed to carry says nothing against the shrink."""
    assert cycle(shrunk(), FEW, each=each, now=NOW + after, demand=demand).regret is None


def test_a_capacity_that_is_known_a_little_better_is_no_regret():
    """It is a fifth less, and the demand is between what it was and what it is."""
    assert cycle(shrunk(), FEW, each=3.2, now=NOW + 120.0, demand=11.0).regret is None


def test_a_growth_is_not_on_trial():
    """Neither is a move from one variant to another."""
    memory = cycle(Foresight(MODEL), FEW, each=4.0, now=NOW)
    for asked in (MANY, ((A, 1), (B, 2)), FEW):
        assert cycle(memory, asked, each=4.0, now=NOW + 15.0).trial is None


def test_nothing_is_known_in_the_first_cycle():
    """A controller that starts has seen no shrink."""
    assert cycle(Foresight(MODEL), FEW, each=4.0, now=NOW).trial is None


@pytest.mark.parametrize(("times", "seconds"), [(1, HOUR), (2, 2 * HOUR), (3, 4 * HOUR), (4, 6 * HOUR), (50, 6 * HOUR)])
def test_a_shrink_leaves_more_for_a_while(times, seconds):
    """For an hour, and for twice as long each time that it is regretted again."""
    regret = Regret(FEW, ROOM, NOW, times)
    need = regretting(needed(), regret, NOW + seconds - 1.0)
    assert need.sufficient > need.carried(dict(FEW)) == 12.0
    assert need.sufficient < need.carried({A: 3, B: 1})
    assert need.rate is not None
    assert need.rate.stays == ((9.5, ""), (need.sufficient, WORDS))
    assert regretting(needed(), regret, NOW + seconds) == needed()


@pytest.mark.parametrize(("demand", "each"), [(6.0, 4.0), (9.0, 6.0)], ids=["a lower demand", "quicker replicas"])
def test_where_they_seem_to_carry_much_more_than_needed_as_few_are_enough(demand, each):
    """They seemed to carry a third more than the demand when it was too much, and now it is twice of it."""
    need = needed(demand, each=each)
    assert regretting(need, Regret(FEW, ROOM, NOW), NOW + 60.0) == need


def test_a_hold_that_leaves_more_stays():
    """Its reasons are told before."""
    need = needed(sufficient=20.0)
    assert regretting(need, Regret(FEW, ROOM, NOW), NOW + 60.0) == need
    held = replace(needed(), rate=DemandRate(stays=((9.0, ""), (10.0, "why"))))
    found = regretting(held, Regret(FEW, ROOM, NOW), NOW + 60.0).rate
    assert found is not None
    assert [words for _, words in found.stays] == ["", "why", WORDS]


def test_what_is_regretted_again_counts_on():
    """Fewer of the same count, too. More replicas that are not enough either are another regret."""
    memory = replace(shrunk(), regret=Regret(FEW, 1.2, NOW - 2 * HOUR, 2))
    assert cycle(memory, FEW, each=2.0, now=NOW + 60.0).regret == Regret(FEW, ROOM, NOW + 60.0, 3)
    memory = replace(shrunk(), regret=Regret(FEW, 1.5, NOW - 2 * HOUR, 2))
    assert cycle(memory, FEW, each=2.0, now=NOW + 60.0).regret == Regret(FEW, 1.5, NOW + 60.0, 3)
    more = ((A, 3), (B, 1))
    memory = replace(shrunk(to=more), regret=Regret(FEW, 1.2, NOW - 2 * HOUR, 2))
    assert cycle(memory, more, each=2.0, now=NOW + 60.0).regret == Regret(more, 16.0 / 9.0, NOW + 60.0)


@given(st.floats(0.0, 1e6), st.floats(0.0, 1e3), st.floats(0.0, 1e6), st.floats(0.0, 1e9), st.integers(1, 1000))
def test_a_regret_only_keeps_replicas(demand, each, sufficient, age, times):
    """It asks for none, and takes nothing away."""
    need = needed(demand, each=each, sufficient=sufficient)
    found = regretting(need, Regret(FEW, ROOM, NOW, times), NOW + age)
    assert found.sufficient >= need.sufficient
    assert found.required == need.required


def test_caches_that_requests_share_are_not_tried_out_again_and_again():
    """Three replicas carry 4 requests/s each, two only 2 each, for they find less in their caches."""
    memory, number, numbers = Foresight(MODEL), 3, []
    for turn in range(200):
        now, each = NOW + 15.0 * turn, 4.0 if number >= 3 else 2.0
        need = replace(needed(6.5, each=each), capacities={A: Capacity(each, CapacityBasis.OBSERVED)})
        need, memory = forecast_of(need, [variant("a", replicas=number)], {A: ()}, memory, now=now, keep_warm=inf)
        if need.required > number * each:
            number = 3
        elif need.sufficient <= 2 * each:
            number = 2
        numbers.append(number)
    changes = sum(before != after for before, after in pairwise(numbers))
    assert changes <= 2
    assert numbers[-1] == 3


def test_the_numbers_that_are_asked_for():
    """Those of the status, else what exists."""
    some = [variant("b", replicas=3, desired=2, spec_replicas=4), variant("a", replicas=1)]
    assert asked_for(some) == ((A, 1), (B, 2))
