"""Plans for fleets whose capacity is not the sum of the capacities of their replicas."""

from __future__ import annotations

from collections.abc import Mapping
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.decide.allocate import UNLIMITED, AllocationPolicy, Offer, Want
from wva.decide.measure.need import Capacity, Need
from wva.decide.wants import fitted
from wva.model.memory import CapacityBasis
from wva.model.variant import ModelKey, VariantKey

MODEL, A, B = ModelKey("ns", "m"), VariantKey("ns", "a"), VariantKey("ns", "b")


def planned(
    need: float, *, scale: float | None = None, power: float = 1.0, present: int = 1
) -> Mapping[VariantKey, int]:
    """Return a plan; a replica of A carries 3, one of B 5, and a fleet ``scale`` times the sum to a power."""

    def carries(counts: Mapping[VariantKey, int]) -> float:
        return float((scale or 1.0) * (3.0 * counts.get(A, 0) + 5.0 * counts.get(B, 0)) ** power)

    capacities = {A: Capacity(3.0, CapacityBasis.OBSERVED), B: Capacity(5.0, CapacityBasis.OBSERVED)}
    found = Need(MODEL, "requests/s", need, need, need, capacities, carries=None if scale is None else carries)
    offers = tuple(
        Offer(key, price, each.per_replica, present, present)
        for (key, each), price in zip(capacities.items(), (20.0, 40.0), strict=True)
    )
    return fitted([Want(MODEL, need, offers)], {MODEL: found}, UNLIMITED, AllocationPolicy()).numbers


def test_where_capacities_add_up_the_plan_is_the_allocators() -> None:
    """The plan is the allocator's own, with a function of the capacity and without."""
    assert planned(30.0) == planned(30.0, scale=1.0)


def test_a_fleet_that_carries_less_than_the_sum_gets_more() -> None:
    """The fleet of the plan carries the need by the function."""
    found = planned(30.0, scale=0.5)
    assert 3.0 * found[A] + 5.0 * found[B] >= 60.0


def test_a_fleet_that_carries_more_than_the_sum_gets_less() -> None:
    """The first plan may have too many replicas."""
    found = planned(60.0, scale=2.0)
    assert 30.0 <= 3.0 * found[A] + 5.0 * found[B] < 36.0


def test_a_model_that_wants_what_it_has_is_not_measured() -> None:
    """A need that is not a number asks the allocator for the present capacity; a need of 0 asks for nothing."""
    assert planned(nan, scale=0.5, present=3) == planned(nan, present=3)
    assert planned(0.0, scale=0.5) == {A: 0, B: 0}


def test_a_fleet_that_carries_nothing_is_not_asked_for_again() -> None:
    """No capacity is known to scale the plan by."""
    assert planned(30.0, scale=1e-300, power=2.0) != {}
    assert planned(30.0, scale=-1.0)


@given(st.floats(0.5, 300.0), st.floats(0.6, 1.6), st.floats(0.9, 1.15))
def test_the_plan_carries_the_need(need: float, scale: float, power: float) -> None:
    """Three rounds are enough for the differences that mixed fleets have in practice."""
    found = planned(need, scale=scale, power=power)
    carried = scale * (3.0 * found[A] + 5.0 * found[B]) ** power
    assert carried >= need * 0.999 or carried == pytest.approx(need, rel=0.02)


def test_what_stands_still_covers_nothing_of_what_is_wanted() -> None:
    """Four of B stay; the need is what the others shall carry, and all replicas carry half of the sum."""

    def carries(counts: Mapping[VariantKey, int]) -> float:
        return 0.5 * (3.0 * counts.get(A, 0) + 5.0 * counts.get(B, 0))

    need = Need(MODEL, "requests/s", 12.0, 12.0, 12.0, {}, carries=carries)
    offers = (Offer(A, 20.0, 3.0, 1, 1), Offer(B, 40.0, 0.0, 4, 4))
    assert fitted([Want(MODEL, 12.0, offers)], {MODEL: need}, UNLIMITED, AllocationPolicy()).numbers == {A: 8, B: 4}
