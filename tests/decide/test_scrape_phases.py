"""Decisions of the demand analyzer where Prometheus scrapes each pod at a phase of its own, every 5 to 60 s."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

import pytest

from tests.decide.scraped_loop import ScrapedLoop
from wva.model.decision import Reason

pytestmark = pytest.mark.long_story

OFTEN = 5.0
SEEDS = (0, 1)
END = 540.0


@cache
def one_short(interval: float, seed: int, *, even: bool) -> ScrapedLoop:
    """Return a run at a load for four pods, of which three exist at 0 s."""
    loop = ScrapedLoop(interval, seed, replicas=3, rate=lambda now: 22.0 if now < 0.0 else 32.0, even=even)
    return loop.run(END)


@cache
def replaced(interval: float, seed: int, *, even: bool) -> ScrapedLoop:
    """Return a run at a load for four pods; two of them are replaced."""
    return ScrapedLoop(interval, seed, even=even).run(END, lost=(30.0, 60.0))


@cache
def larger(interval: float, seed: int, *, even: bool) -> ScrapedLoop:
    """Return a run at a load for eight pods, one of which is replaced."""
    return ScrapedLoop(interval, seed, replicas=8, rate=lambda _: 62.0, even=even).run(END, lost=(30.0,))


@pytest.mark.parametrize(
    "interval",
    [15.0, 60.0, *(pytest.param(seconds, marks=pytest.mark.nightly) for seconds in (10.0, 20.0, 30.0, 45.0))],
)
@pytest.mark.parametrize("even", [True, False], ids=["even", "fewest"])
@pytest.mark.parametrize("story", [one_short, replaced, larger])
def test_the_number_does_not_depend_on_the_scrape_interval(
    story: Callable[..., ScrapedLoop], interval: float, *, even: bool
) -> None:
    """From the third minute on it is within one replica of what it is with scrapes every 5 s."""
    for seed in SEEDS:
        loop, often = story(interval, seed, even=even), story(OFTEN, seed, even=even)
        apart = [abs(loop.number(now) - often.number(now)) for now in range(120, int(END), 15)]
        assert max(apart) <= 1, (seed, loop.numbers, often.numbers)


@pytest.mark.parametrize("interval", [30.0, 60.0])
def test_a_rise_is_seen_while_scrapes_are_far_apart(interval: float) -> None:
    """All pods have been scraped after two intervals."""
    loop = ScrapedLoop(interval, replicas=2, rate=lambda now: 13.0 if now < 0.0 else 32.0).run(2.0 * interval)
    assert loop.number(2.0 * interval) >= 4


def changes(loop: ScrapedLoop) -> Sequence[int]:
    """Return the numbers without repetition."""
    numbers = [number for _, number in loop.numbers]
    return [number for place, number in enumerate(numbers) if not place or number != numbers[place - 1]]


def test_samples_that_come_late_change_nothing() -> None:
    """All samples are 90 s late, which no scrape interval explains: WVA keeps the number and says why."""
    loop = ScrapedLoop(15.0, late=90.0).run(END, lost=(30.0,))
    assert changes(loop) == [4]
    for decision in loop.decisions:
        assert decision.reason is Reason.METRICS_STALE
        assert not decision.metrics.available
        assert "0 of " in decision.metrics.message


def test_samples_are_believed_for_two_of_their_own_intervals() -> None:
    """Scrapes are a minute apart and 40 s late, so samples are up to 100 s old."""
    loop = ScrapedLoop(60.0, late=40.0).run(END)
    assert set(changes(loop)) <= {4, 5}
    assert loop.decisions[-1].metrics.message == "4 of 4 replicas report fresh metrics"


def test_a_condition_names_a_long_scrape_interval() -> None:
    """A minute is the longest interval at which WVA follows the load well."""
    often, seldom = ScrapedLoop(60.0).run(END).decisions[-1], ScrapedLoop(90.0).run(END).decisions[-1]
    assert "scrapes" not in often.metrics.message
    assert seldom.metrics.available
    assert "Prometheus scrapes them every 90 s" in seldom.metrics.message
