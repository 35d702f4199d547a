"""The time between two scrapes of a pod follows from the times of the samples that cycles see."""

from __future__ import annotations

import pytest

from tests.collect.doubles import NOW
from wva.collect.scrape_intervals import LONGEST_SECONDS, ScrapeIntervals

POD = ("ns", "a-0")


def learned(period, *, cycle=15.0, lost=(), cycles=40):
    """Return what is known after some cycles of a pod that is scraped with a period; the scrapes ``lost`` fail."""
    intervals, found = ScrapeIntervals(), None
    for turn in range(cycles):
        now = turn * cycle
        scrapes = [place * period for place in range(int(now // period) + 1) if place not in lost]
        found = intervals.learn(POD, NOW + scrapes[-1] if scrapes else None)
    return found


@pytest.mark.parametrize("period", [30.0, 45.0, 60.0, 100.0])
def test_scrapes_that_are_further_apart_than_cycles_are_noticed(period):
    """The interval is the time between the samples."""
    assert learned(period) == period


@pytest.mark.parametrize(("period", "cycle"), [(5.0, 15.0), (15.0, 15.0), (15.0, 60.0), (60.0, 60.0), (30.0, 120.0)])
def test_cycles_that_each_see_a_new_sample_tell_nothing(period, cycle):
    """The scrapes may be much closer together than the cycles."""
    assert learned(period, cycle=cycle) is None


def test_a_lost_scrape_is_not_taken_for_the_interval():
    """Of the last few times the shortest counts."""
    assert learned(15.0, lost=(38,)) is None
    assert learned(30.0, lost=(18,)) == 30.0


def test_an_interval_is_bounded_and_times_that_go_back_say_nothing():
    """Two Prometheus may answer in turn, and one of them may be behind."""
    assert learned(900.0, cycles=200) == LONGEST_SECONDS
    intervals = ScrapeIntervals()
    assert [intervals.learn(POD, NOW + at) for at in (0.0, 60.0, 45.0, 60.0, 120.0)] == [None, None, None, None, 60.0]


def test_a_pod_that_has_gone_is_forgotten():
    """A pod of the same name begins anew."""
    intervals = ScrapeIntervals()
    for at in (0.0, 0.0, 60.0):
        found = intervals.learn(POD, NOW + at)
    assert found == 60.0
    intervals.keep({POD})
    assert intervals.learn(POD, NOW + 60.0) == 60.0
    intervals.keep(())
    assert intervals.learn(POD, NOW + 120.0) is None
