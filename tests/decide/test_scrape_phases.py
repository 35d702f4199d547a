"""Decisions of the demand analyzer where Prometheus scrapes each pod at a phase of its own, every 5 to 60 s."""

from __future__ import annotations

from collections.abc import Sequence

from tests.decide.scraped_loop import ScrapedLoop
from wva.model.decision import Reason

END = 540.0


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


def test_a_condition_names_a_long_scrape_interval() -> None:
    """A minute is the longest interval at which WVA follows the load well."""
    often, seldom = ScrapedLoop(60.0).run(END).decisions[-1], ScrapedLoop(90.0).run(END).decisions[-1]
    assert "scrapes" not in often.metrics.message
    assert seldom.metrics.available
    assert "Prometheus scrapes them every 90 s" in seldom.metrics.message
