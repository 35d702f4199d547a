"""The level of demand, and how fast it rises, from the demand of the last minutes."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.decide.pace import dispersed, pace
from wva.model.memory import Slot


def slots(rates: Sequence[float], seconds: float = 15.0) -> list[Slot]:
    """Return slots of these rates, one after another."""
    return [Slot(seconds * (place + 1), seconds, rate * seconds) for place, rate in enumerate(rates)]


def test_steady_demand_is_the_mean_of_all() -> None:
    """The mean averages what differs by chance only, so the error falls with the time."""
    found = pace(slots([4.0, 5.0, 3.0, 4.0] * 10), 1.0)
    assert found.rate == pytest.approx(4.0)
    assert found.error == pytest.approx((4.0 / 600.0) ** 0.5)
    assert (found.rise, found.jump) == (0.0, 0.0)


def test_a_jump_begins_anew() -> None:
    """Only the slot that shows the jump counts, and the forecast tells how far it is above the slot before."""
    found = pace(slots([4.0] * 20 + [40.0]), 1.0)
    assert (found.rate, found.jump, found.rise) == (40.0, 36.0, 0.0)


def test_a_fall_is_no_negative_jump() -> None:
    """Only a rise can have a part that has not shown yet."""
    found = pace(slots([40.0] * 20 + [4.0]), 1.0)
    assert (found.rate, found.jump) == (4.0, 0.0)


def test_a_line_that_falls_leads_to_now_and_no_further() -> None:
    """The mean is that of the middle, so half of the fall is taken off it; what falls may stop falling at any time."""
    line = pace(slots([60.0 - place for place in range(40)]), 1.0, falls=True)
    assert line.rise == pytest.approx(-1.0 / 15.0, rel=0.05)
    assert line.rate == pytest.approx(20.5, rel=0.03)
    assert line.at(1e9) == line.rate
    assert pace(slots([30.0] * 20 + [10.0] * 20), 1.0, falls=True).rise == 0.0
    assert pace(slots([60.0 - place for place in range(40)]), 1.0).rise == 0.0


def test_a_fall_ends_where_demand_stays() -> None:
    """A burst that becomes smaller and stops looks like a line; its end would be below zero."""
    burst = pace(slots([20.0] * 10 + [18.0, 17.0, 15.0, 12.0, 9.0, 1.7, 1.7, 2.5, 2.7, 2.3]), 1.3, falls=True)
    assert (burst.rise, burst.rate) == (0.0, pytest.approx(2.3))


def test_a_line_is_a_rise_and_a_step_is_none() -> None:
    """A line must describe the last minutes better than a jump does."""
    line = pace(slots([10.0 + place for place in range(40)]), 1.0)
    assert line.rise == pytest.approx(1.0 / 15.0, rel=0.05)
    assert line.at(60.0) == pytest.approx(line.rate + 4.0, rel=0.05)
    assert line.at(1e9) == pytest.approx(2.0 * line.rate)
    assert pace(slots([10.0] * 20 + [30.0] * 20), 1.0).rise == 0.0


@pytest.mark.parametrize("lengths", [[60.0] * 20, [30.0] * 40, [30.0] * 36 + [38.0, 38.0, 30.0, 60.0]])
def test_a_rise_is_seen_however_long_the_cycles_are(lengths: list[float]) -> None:
    """Three minutes have too few slots of a minute for a line; the windows of six and twelve minutes have enough."""
    found, at = [], 0.0
    for seconds in lengths:
        at += seconds
        found.append(Slot(at, seconds, (10.0 + (at - seconds / 2.0) / 60.0) * seconds))
    assert pace(found, 1.0).rise == pytest.approx(1.0 / 60.0, rel=0.05)


def test_a_rise_adds_to_the_level_for_as_long_as_it_has_lasted() -> None:
    """Minutes that differ by chance may seem to rise in the end; the level of ten minutes is not ten minutes old."""
    lately = [6.2, 7.6, 7.9, 7.3, 7.5, 8.1, 8.5, 8.7, 8.4, 8.3, 8.2, 9.5]
    found = pace(slots([8.0] * 28 + lately), 1.07)
    assert found.rise > 0.0
    assert 8.0 < found.rate < 10.0


def test_dispersion_follows_what_chance_does_not_explain() -> None:
    """The dispersion is 1 for pure chance, rises with bursts, and learns nothing from a few requests."""
    calm, wild = slots([4.0, 4.0]), slots([4.0, 40.0])
    assert dispersed(3.0, *calm) < 3.0
    assert dispersed(1.0, *calm) == 1.0
    assert dispersed(1.0, *wild) > 1.3
    assert dispersed(2.0, *slots([0.01, 0.02])) == 2.0


def test_spells_raise_the_dispersion_until_they_are_usual_and_a_single_jump_does_not() -> None:
    """One jump raises the dispersion by a third at most. If each cycle jumps, jumps are soon normal."""
    jump = slots([0.0, 25.0])
    assert dispersed(1.0, *jump) < 1.4
    dispersion = 1.0
    for _ in range(40):
        dispersion = dispersed(dispersion, *jump)
    spells = slots([25.0, 0.0] * 10)
    assert pace(spells, 1.0).rate == 0.0
    assert pace(spells, dispersion).rate == pytest.approx(12.5)


@given(st.lists(st.floats(0.0, 1e9), min_size=1, max_size=90), st.floats(0.1, 1e4), st.floats(1.0, 8.0))
def test_any_past_gives_numbers(rates: list[float], seconds: float, dispersion: float) -> None:
    """Every number is finite and not negative, and the forecast is never below the present demand."""
    found = pace(slots(rates, seconds), dispersion)
    assert all(isfinite(value) and value >= 0.0 for value in (found.rate, found.error, found.rise, found.jump))
    assert found.at(100.0) >= found.rate
