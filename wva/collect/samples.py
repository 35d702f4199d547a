"""From the series of one signal to samples with a state: what cannot be believed is never a number.

Classification, in this order. No series: missing. Two series for one pod in an answer, no finite number, below zero,
above the signal's maximum, a time in the future: invalid. A value without a time: missing, since nothing says that
the pod still reports. Then the age decides between fresh, stale and missing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from wva.collect.answers import Series
from wva.model.metrics import MISSING, Freshness, Sample, SampleState
from wva.numbers import FINITE, Real, shown

FUTURE_TOLERANCE_SECONDS: Final = 30.0
"""Clocks of a scraped pod, Prometheus and the controller differ; beyond this a time is not believed."""

_LONGEST_SHOWN_SECONDS: Final = 1e9


@dataclass(frozen=True, slots=True)
class Signal:
    """What a value of a signal may be; ``whole``: it is truncated toward zero."""

    range: Real
    whole: bool = False


SHARE: Final = Signal(Real(0, 1))
AMOUNT: Final = Signal(Real(0, 1e9))
"""Of requests, tokens per request, seconds: no engine has more. A larger number is broken, or an attempt to break a sum
over replicas."""
COUNTED: Final = Signal(Real(0, 1e15))
"""Of anything since an engine started: a million tokens per second for thirty years."""
REQUESTS: Final = Signal(AMOUNT.range, whole=True)


@dataclass(frozen=True, slots=True)
class Reading:
    """The series that one answer holds for one replica: none, one, or (contradicting each other) several."""

    texts: tuple[str | None, ...] = ()

    @staticmethod
    def of(series: list[Series]) -> Reading:
        """Return the reading of the series found for one replica."""
        return Reading(tuple([None if found.value is None else found.value[1] for found in series]))


@dataclass(frozen=True, slots=True)
class Classifier:
    """Turns a value and its time into a sample, at the time ``now`` (seconds since the epoch)."""

    now: float
    freshness: Freshness

    def sample(self, signal: Signal, *, value: Reading, time: Reading) -> Sample:
        """Classify one signal of one replica."""
        return self.moment(time).sample(signal, value)

    def moment(self, time: Reading) -> Moment:
        """Judge the time of a scrape, which all of its values share."""
        if not time.texts:
            return Moment(SampleState.MISSING, None, "no time for the value: the pod no longer reports")
        if len(time.texts) > 1:
            return Moment(SampleState.INVALID, None, f"{len(time.texts)} times for one pod")
        timestamp = FINITE.find(time.texts[0])
        if timestamp is None:
            return Moment(SampleState.INVALID, None, f"the time {_shown(time.texts[0])} is not a number")
        age = self.now - timestamp
        if age < -FUTURE_TOLERANCE_SECONDS:
            return Moment(SampleState.INVALID, timestamp, f"{_seconds(-age)} in the future")
        state = self.freshness.classify(max(0.0, age))
        detail = "" if state is SampleState.FRESH else f"{_seconds(age)} old"
        return Moment(state, timestamp, detail, age if age >= 0 else None)


@dataclass(frozen=True, slots=True)
class Moment:
    """The state that the time of a scrape gives its values, and why that is not fresh.

    ``age_seconds`` is None when it is not known, or below zero.
    """

    state: SampleState
    timestamp: float | None
    detail: str
    age_seconds: float | None = None

    def sample(self, signal: Signal, value: Reading) -> Sample:
        """Classify one value of the scrape."""
        if not value.texts:
            return self._without_value()
        if len(value.texts) > 1:
            return _invalid(f"{len(value.texts)} series for one pod")
        number = signal.range.find(value.texts[0])
        if number is None:
            kind = "out of range" if FINITE.find(value.texts[0]) is not None else "not a number"
            return _invalid(f"{_shown(value.texts[0])} is {kind}")
        if self.state is not SampleState.FRESH and self.state is not SampleState.STALE:
            return Sample(self.state, timestamp=self.timestamp, detail=self.detail)
        return Sample(self.state, float(math.trunc(number)) if signal.whole else number, self.timestamp, self.detail)

    def _without_value(self) -> Sample:
        """No value within the last minute, but perhaps an older one: its age tells people what happened."""
        if self.age_seconds is None:
            return MISSING
        detail = f"last one is {_seconds(self.age_seconds)} old"
        return Sample(SampleState.MISSING, timestamp=self.timestamp, detail=detail)


def _seconds(seconds: float) -> str:
    """Return seconds for people; a time far from any real one does not fill a line with digits."""
    return f"{seconds:.0f} s" if seconds < _LONGEST_SHOWN_SECONDS else "ages"


def _invalid(detail: str) -> Sample:
    return Sample(SampleState.INVALID, detail=detail)


def _shown(text: str | None) -> str:
    return "a histogram" if text is None else shown(text)
