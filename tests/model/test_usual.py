"""Which days are like today, and what they say about the next hour."""

from __future__ import annotations

from math import isnan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.offices import DAY, HOUR, NIGHT, at_hour, office
from wva.model.usual import PART_SECONDS, DemandDays, UsualDemand
from wva.model.variant import ModelKey

MODEL = ModelKey("ns", "org/model")


def days_of(demand, *, until):
    """Return the days with the demand until so many hours after the first midnight."""
    days = DemandDays()
    for part in range(round(until * 12) + 1):
        at = NIGHT + PART_SECONDS * part
        if (rate := demand(at - 1.0)) is not None:
            days.put(at, rate)
    return days


@pytest.mark.parametrize(("day", "known"), [(1, None), (2, 2), (3, 3), (6, 6), (7, 7), (30, 7)])
def test_two_days_that_were_alike_tell_what_comes(day, known):
    """Before nine the peak is as far away as it is; of more than a week nothing is kept."""
    days = days_of(office, until=day * 24 + 8.5)
    usual = days.usual(MODEL, at_hour(day, 8.5))
    if known is None:
        assert usual is None
        return
    assert (usual.model, usual.at, usual.days) == (MODEL, at_hour(day, 8.5), known)
    assert usual.lately == pytest.approx(1.0)
    now = at_hour(day, 8.5)
    assert usual.within(29 * 60.0, now=now) == pytest.approx(1.0)
    assert usual.within(31 * 60.0, now=now) == pytest.approx(6.0)
    assert usual.within(12 * HOUR, now=now) == pytest.approx(6.0)
    assert usual.within(26 * 60.0, now=now + 299.0) == pytest.approx(6.0)


def test_what_is_known_grows_old():
    """If Prometheus does not answer for ten minutes, the time of day is another one."""
    usual = UsualDemand(MODEL, NIGHT, 1.0, 2, (6.0,) * 13)
    assert usual.within(60.0, now=NIGHT + 599.0) == 6.0
    assert usual.within(60.0, now=NIGHT + 601.0) == 0.0
    assert usual.within(60.0, now=NIGHT - 1.0) == 0.0


def test_a_single_day_may_be_an_exception():
    """A peak that only one of the days had does not count."""
    days = days_of(lambda at: office(at, closed=(0, 1, 3, 4, 5)), until=6 * 24 + 8.5)
    assert max(days.usual(MODEL, at_hour(6, 8.5)).peaks) == pytest.approx(1.0)


def test_the_same_day_of_the_week_before_has_to_show_it_too():
    """On a Saturday the five days before say that people come at nine, and the last Saturday that they do not."""
    saturday, monday = 9, 11
    days = days_of(lambda at: office(at, closed=(2, 3, 9, 10)), until=saturday * 24 + 8.75)
    assert max(days.usual(MODEL, at_hour(saturday, 8.75)).peaks) == pytest.approx(1.0)
    days = days_of(lambda at: office(at, closed=(2, 3, 9, 10)), until=monday * 24 + 8.75)
    assert max(days.usual(MODEL, at_hour(monday, 8.75)).peaks) == pytest.approx(6.0)


def test_a_rise_that_does_not_come_is_not_waited_for():
    """A few minutes after nine an empty office is unlike the days before."""
    days = days_of(lambda at: office(at, closed=(5,)), until=5 * 24 + 10)
    assert max(days.usual(MODEL, at_hour(5, 9.0)).peaks) == pytest.approx(6.0)
    assert days.usual(MODEL, at_hour(5, 9.1)) is None


@pytest.mark.parametrize(("night", "known"), [(1.4, True), (1.6, False), (0.7, True), (0.6, False)])
def test_a_day_is_like_today_if_its_last_minutes_were(night, known):
    """Half as much again at the most, of the last twenty minutes."""
    today = 3 * DAY + NIGHT

    def demand(at):
        return night if at > today else office(at)

    assert (days_of(demand, until=3 * 24 + 8.5).usual(MODEL, at_hour(3, 8.5)) is not None) == known


def test_days_without_a_request_at_night_are_alike():
    """By chance there are one or two."""

    def demand(at):
        return office(at, night=0.02 if at < NIGHT + DAY else 0.0)

    assert max(days_of(demand, until=3 * 24 + 8.5).usual(MODEL, at_hour(3, 8.5)).peaks) == pytest.approx(6.0)


def test_minutes_that_are_not_known_are_like_no_others():
    """One part of it may be missing."""

    def with_gap(minutes):
        gap = at_hour(3, 8.5) - minutes * 60.0
        return days_of(lambda at: None if gap < at < at_hour(3, 8.5) - 300.0 else office(at), until=3 * 24 + 8.5)

    assert with_gap(10).usual(MODEL, at_hour(3, 8.5)) is not None
    assert with_gap(15).usual(MODEL, at_hour(3, 8.5)) is None


@pytest.mark.parametrize(("minutes", "peak"), [(5, 6.0), (90, 6.0)])
def test_a_day_does_not_tell_of_a_time_that_is_missing(minutes, peak):
    """A week ago Prometheus was away from nine on; that is no day without people."""
    gap = at_hour(1, 9.0)
    days = days_of(lambda at: None if gap < at < gap + minutes * 60.0 else office(at), until=8 * 24 + 8.75)
    assert max(days.usual(MODEL, at_hour(8, 8.75)).peaks) == pytest.approx(peak)


def test_a_time_of_which_only_one_day_tells_is_not_known():
    """The others have no samples of it."""
    gaps = [at_hour(day, 8.6) for day in (0, 1)]
    days = days_of(lambda at: None if any(gap < at < gap + HOUR for gap in gaps) else office(at), until=3 * 24 + 8.5)
    assert max(days.usual(MODEL, at_hour(3, 8.5)).peaks[2:]) == 0.0


def test_a_young_history_has_no_last_minutes():
    """One part may be missing, not two."""
    assert days_of(office, until=3 * 24).usual(MODEL, at_hour(3, 8.5)) is None


@given(
    puts=st.lists(st.tuples(st.integers(0, 5000), st.floats(0.0, 1e6, width=32)), max_size=60), at=st.integers(0, 5000)
)
def test_a_part_is_what_was_put_last_or_unknown(puts, at):
    """In any order, and however far apart: of what is older than a week nothing is left."""
    days, expected, newest = DemandDays(), {}, 0
    for number, rate in puts:
        days.put(number * PART_SECONDS, rate)
        newest = max(newest, number)
        if number > newest - 2020:
            expected[number] = rate
    found = days._rate(at)
    wanted = expected.get(at) if at > newest - 2020 else None
    assert isnan(found) if wanted is None else found == wanted
