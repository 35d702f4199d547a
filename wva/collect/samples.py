"""Turns the series of one signal into samples with a state; a value that cannot be believed never becomes a number.

Classification, in this order. No series: missing. Two series for one pod in an answer, no finite number, below zero,
above the signal's maximum, a time in the future: invalid. A value without a time: missing, since nothing says that
the pod still reports. Then the age decides between fresh, stale and missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from wva.model.metrics import MISSING, Freshness, Sample, SampleState
from wva.numbers import FINITE, Real, shown
from wva.prometheus.answers import InstantSeries

FUTURE_TOLERANCE_SECONDS: Final = 30.0
"""Clocks of a scraped pod, Prometheus and the controller differ; beyond this a time is not believed."""
_LONGEST_SHOWN_SECONDS: Final = 1e9

Texts: TypeAlias = tuple[str | None, ...]
"""The values in one answer for one replica: none, one, or several that contradict each other.

None stands for a histogram.
"""


def texts_of(series: Iterable[InstantSeries]) -> Texts:
    """Return the values of the series that were found for one replica."""
    return tuple([None if found.value is None else found.value[1] for found in series])


@dataclass(frozen=True, slots=True)
class SignalRange:
    """The range of the values of a signal; ``whole``: a value is truncated toward zero."""

    range: Real
    whole: bool = False


SHARE: Final = SignalRange(Real(0, 1))
AMOUNT: Final = SignalRange(Real(0, 1e9))
"""Of requests, tokens per request, seconds: no engine has more. A larger number is broken, or an attempt to break a sum
over replicas."""
COUNTED: Final = SignalRange(Real(0, 1e15))
"""Of anything since an engine started: a million tokens per second for thirty years."""
REQUESTS: Final = SignalRange(AMOUNT.range, whole=True)


@dataclass(frozen=True, slots=True)
class Classifier:
    """Turns a value and its time into a sample, at the time ``now`` (seconds since the epoch)."""

    now: float
    freshness: Freshness

    def sample(self, kind: SignalRange, *, value: Texts, time: Texts) -> Sample:
        """Classify one signal of one replica."""
        return self.scrape(time).sample(kind, value)

    def scrape(self, time: Texts) -> ScrapeTime:
        """Judge the time of a scrape, which all of its values share."""
        if not time:
            return ScrapeTime(SampleState.MISSING, None, "no time for the value: the pod no longer reports")
        if len(time) > 1:
            return ScrapeTime(SampleState.INVALID, None, f"{len(time)} times for one pod")
        timestamp = FINITE.find(time[0])
        if timestamp is None:
            return ScrapeTime(SampleState.INVALID, None, f"the time {_shown(time[0])} is not a number")
        age = self.now - timestamp
        if age < -FUTURE_TOLERANCE_SECONDS:
            return ScrapeTime(SampleState.INVALID, timestamp, f"{_seconds(-age)} in the future")
        state = self.freshness.classify(max(0.0, age))
        detail = "" if state is SampleState.FRESH else f"{_seconds(age)} old"
        return ScrapeTime(state, timestamp, detail, age if age >= 0 else None)


@dataclass(frozen=True, slots=True)
class ScrapeTime:
    """The state that the time of a scrape gives its values, and in ``detail`` why that is not fresh.

    ``age_seconds`` is None when it is not known, or below zero.
    """

    state: SampleState
    timestamp: float | None
    detail: str
    age_seconds: float | None = None

    def sample(self, kind: SignalRange, value: Texts) -> Sample:
        """Classify one value of the scrape."""
        if not value:
            if self.age_seconds is None:
                return MISSING
            # The last minute has no value, but there is an older one, whose age tells people what happened.
            detail = f"last one is {_seconds(self.age_seconds)} old"
            return Sample(SampleState.MISSING, timestamp=self.timestamp, detail=detail)
        if len(value) > 1:
            return Sample(SampleState.INVALID, detail=f"{len(value)} series for one pod")
        number = kind.range.find(value[0])
        if number is None:
            problem = "out of range" if FINITE.find(value[0]) is not None else "not a number"
            return Sample(SampleState.INVALID, detail=f"{_shown(value[0])} is {problem}")
        if self.state is not SampleState.FRESH and self.state is not SampleState.STALE:
            return Sample(self.state, timestamp=self.timestamp, detail=self.detail)
        return Sample(self.state, float(math.trunc(number)) if kind.whole else number, self.timestamp, self.detail)


def _seconds(seconds: float) -> str:
    """Return seconds for people; a time far from any real one does not fill a line with digits."""
    return f"{seconds:.0f} s" if seconds < _LONGEST_SHOWN_SECONDS else "ages"


def _shown(text: str | None) -> str:
    return "a histogram" if text is None else shown(text)
