"""What the past says about capacity beyond the demand: unexpected rises, and levels that come back."""

from __future__ import annotations

from math import inf, isfinite

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.decide.warm import CHEAPEST, WORTH, lasting, observed, priced, reserve, staying, updated_levels, worth_keeping
from wva.model.in_time import ServedShare
from wva.model.memory import Block, LatePrice, Level


def blocks(*peaks: float, foreseen: float = 10.0) -> tuple[Block, ...]:
    """Return blocks of 100 s with these peaks, and the one that has just begun."""
    ended = [Block(100.0 * place, foreseen, peak) for place, peak in enumerate(peaks)]
    return (*ended, Block(100.0 * len(peaks), foreseen, foreseen))


def test_a_block_is_as_long_as_a_start() -> None:
    """A block keeps the highest demand in it, and the demand that was foreseen at its begin."""
    found: tuple[Block, ...] = ()
    for at, rate in ((0.0, 5.0), (50.0, 9.0), (99.0, 7.0), (100.0, 6.0)):
        found = observed(found, foreseen=rate + 1.0, rate=rate, now=at, seconds=100.0)
    assert found == (Block(0.0, 6.0, 9.0), Block(100.0, 7.0, 6.0))
    for at in range(200, 20_000, 100):
        found = observed(found, foreseen=1.0, rate=1.0, now=float(at), seconds=100.0)
    assert len(found) == 120


def test_rises_that_happen_often_enough_are_reserved_for() -> None:
    """A rise that happened once is chance; WVA keeps a reserve for a rise that one in ten blocks has."""
    assert reserve(blocks(), foreseen=10.0, now=0.0) == 10.0
    assert reserve(blocks(*[10.0] * 9, 15.0), foreseen=10.0, now=1000.0) == 10.0
    assert reserve(blocks(*[10.0] * 8, 15.0, 14.0), foreseen=10.0, now=1000.0) == pytest.approx(14.0)
    assert reserve(blocks(*[10.0] * 60, 15.0, 14.0), foreseen=10.0, now=6200.0) == 10.0


def test_a_reserve_for_what_is_rare_costs_more_than_cheap_lateness() -> None:
    """Two of 24 blocks rise: that is one in twelve."""
    past = blocks(*[10.0] * 22, 15.0, 14.0)
    assert reserve(past, foreseen=10.0, now=2400.0) == pytest.approx(14.0)
    assert reserve(past, foreseen=10.0, now=2400.0, worth=5.0) == 10.0


def looks(price: LatePrice, share: float | None, hours: float, requests: float = 1000.0) -> LatePrice:
    """Return the price after looks every two minutes, if this share of the requests is in time."""
    begun = price.looked or 1e9
    for turn in range(1, int(hours * 30.0) + 1):
        got = None if share is None else ServedShare(requests, share)
        price = priced(price, got, at=begun + 120.0 * turn, in_time=0.99)
    return price


def test_lateness_costs_less_while_fewer_are_late_than_may_be() -> None:
    """A third of an hour without late requests makes it cheaper by two thirds; when more are late it becomes dear."""
    assert looks(LatePrice(), 1.0, 1.0 / 3.0).worth == pytest.approx(WORTH / 2.7, rel=0.1)
    calm = looks(LatePrice(), 0.999, 2.0)
    assert calm.worth == CHEAPEST
    assert looks(calm, 0.9, 0.5).worth == WORTH
    assert looks(LatePrice(), 0.99, 3.0).worth == pytest.approx(WORTH)


def test_what_is_not_known_changes_no_price() -> None:
    """No look, no request, a look that overlaps the one before; and a gap of days counts for one look."""
    calm = looks(LatePrice(), 1.0, 0.2)
    assert looks(calm, None, 5.0) == calm
    assert looks(calm, 1.0, 5.0, requests=0.0) == calm
    assert priced(calm, ServedShare(10.0, 0.0), at=calm.looked + 60.0, in_time=0.99) == calm
    gap = priced(calm, ServedShare(1000.0, 1.0), at=calm.looked + 200_000.0, in_time=0.99)
    assert gap.worth > 0.9 * calm.worth - 1e-9


@given(
    st.lists(st.tuples(st.floats(0.0, 1e6), st.floats(0.0, 1.0), st.floats(0.0, 1e6)), max_size=20), st.floats(0.5, 1.0)
)
def test_any_looks_give_a_price_within_its_bounds(found: list[tuple[float, float, float]], in_time: float) -> None:
    """Whatever is seen, in whatever order."""
    price = LatePrice()
    for requests, share, at in found:
        price = priced(price, ServedShare(requests, share), at=at, in_time=in_time)
        assert CHEAPEST <= price.worth <= WORTH


def test_at_a_new_level_other_levels_tell_and_are_believed_less() -> None:
    """At a level of demand that is new, the reserve is a quarter at most."""
    past = blocks(*[15.0] * 5)
    assert reserve(past, foreseen=10.0, now=500.0) == pytest.approx(15.0)
    assert reserve(past, foreseen=100.0, now=500.0) == pytest.approx(125.0)


def visits(times: list[tuple[float, float]]) -> tuple[Level, ...]:
    """Return the levels after a demand of 2 that went to 10 in these times; WVA looks every 10 s."""
    levels: tuple[Level, ...] = ()
    for turn in range(int(times[-1][1] / 10.0) + 20):
        now = 10.0 * turn
        rate = 10.0 if any(begun <= now < ended for begun, ended in times) else 2.0
        levels = updated_levels(levels, rate, now=now, shortest=100.0)
    return levels


def top(levels: tuple[Level, ...]) -> Level:
    """Return the highest level below 10."""
    return max([level for level in levels if level.value <= 10.0], key=lambda level: level.number)


def test_a_level_remembers_when_it_was_left_and_came_back() -> None:
    """Demand counts as away only after a time that is longer than a start."""
    level = top(visits([(0.0, 300.0), (350.0, 600.0), (1600.0, 1900.0)]))
    assert level.returns == (1000.0,)
    assert level.stays == (300.0, 250.0, 300.0)
    assert level.left == 1900.0


def test_a_level_is_kept_around_the_time_when_it_comes_back() -> None:
    """Two returns make a pattern; long before and long after the next one, the level is not worth its price."""
    levels = visits([(1200.0 * turn, 1200.0 * turn + 300.0) for turn in range(4)])
    left = top(levels).left or 0.0

    def kept(away: float, longest: float = inf) -> float:
        return worth_keeping(levels, 2.0, now=left + away, seconds=150.0, longest=longest)

    assert kept(100.0) == 2.0
    assert kept(850.0) > 9.0
    assert kept(5000.0) == 2.0
    assert kept(850.0, longest=600.0) == 2.0


def test_a_level_that_came_once_is_not_kept_and_bounds_no_reserve() -> None:
    """Without a return, WVA knows nothing of the times of a level."""
    levels = visits([(600.0, 900.0)])
    assert worth_keeping(levels, 8.0, now=1500.0, seconds=150.0, longest=inf) == 8.0


def test_a_reserve_for_what_comes_later_is_cut() -> None:
    """A reserve knows no times, so WVA keeps none for a level that is known to come back later."""
    levels = visits([(1200.0 * turn, 1200.0 * turn + 300.0) for turn in range(4)])
    assert worth_keeping(levels, 9.9, now=(top(levels).left or 0.0) + 100.0, seconds=150.0, longest=inf) < 3.0


def test_spells_that_are_over_before_a_start_do_not_count() -> None:
    """After three short stays WVA expects the next stay to be short, too."""
    levels = visits([(1000.0 * turn, 1000.0 * turn + 30.0) for turn in range(1, 5)])
    there = updated_levels(levels, 10.0, now=9000.0, shortest=100.0)
    assert lasting(there, 10.0, now=9000.0, seconds=120.0) < 3.0
    assert lasting(there, 10.0, now=9000.0, seconds=20.0) == 10.0
    assert lasting(there, 2.0, now=9000.0, seconds=120.0) == 2.0


def test_what_has_lasted_for_longer_than_any_spell_is_none() -> None:
    """Earlier stays were short, but the present demand has lasted longer than any of them."""
    levels = visits([(1000.0 * turn, 1000.0 * turn + 30.0) for turn in range(1, 5)])
    there = updated_levels(levels, 10.0, now=9000.0, shortest=100.0)
    assert lasting(there, 10.0, now=9020.0, seconds=120.0) < 3.0
    assert lasting(there, 10.0, now=9060.0, seconds=120.0) == 10.0


@given(st.lists(st.floats(0.0, 1e9), min_size=1, max_size=60), st.floats(1.0, 4000.0))
def test_any_demand_gives_numbers_and_few_levels(rates: list[float], seconds: float) -> None:
    """The number of levels depends on the highest demand only."""
    levels: tuple[Level, ...] = ()
    for turn, rate in enumerate(rates):
        now = seconds * turn
        levels = updated_levels(levels, rate, now=now, shortest=100.0)
        assert isfinite(worth_keeping(levels, rate, now=now, seconds=150.0, longest=inf))
        assert lasting(levels, rate, now=now, seconds=120.0) <= rate
    assert len(levels) <= 135
    assert all(len(level.returns) <= 8 and len(level.stays) <= 8 for level in levels)


def test_demand_stays_that_has_been_there_for_long():
    """The part of it that has: at most the next level above the highest that has lasted."""
    there = (Level(0, 0.0), Level(10, 0.0), Level(12, 90.0), Level(14, 0.0, left=50.0))
    assert staying(there, 8.0, now=100.0, seconds=60.0) == pytest.approx(1.2**11)
    assert staying(there, 3.0, now=100.0, seconds=60.0) == 3.0
    assert staying(there, 8.0, now=160.0, seconds=60.0) == 8.0
    assert staying((), 8.0, now=100.0, seconds=60.0) == 0.0
