"""From the series of one signal to samples with a state: what cannot be believed is never a number.

Classification, in this order. No series: missing. Two series for one pod in an answer, no finite number, below zero,
above the signal's maximum, a time in the future: invalid. A value without a time: missing, since nothing says that
the pod still reports. Then the age decides between fresh, stale and missing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from wva.collect.answers import Series
from wva.model.metrics import Freshness, Sample, SampleState

FUTURE_TOLERANCE_SECONDS: Final = 30.0
"""Clocks of a scraped pod, Prometheus and the controller differ; beyond this a time is not believed."""

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_MAX_NUMBER_CHARACTERS: Final = 64
_SHOWN_CHARACTERS: Final = 40
_LONGEST_SHOWN_SECONDS: Final = 1e9


@dataclass(frozen=True, slots=True)
class Signal:
    """What a value of a signal may be: at most ``maximum``, truncated toward zero when ``whole``."""

    maximum: float = math.inf
    whole: bool = False


KV_CACHE_USAGE_SIGNAL: Final = Signal(maximum=1.0)
QUEUE_LENGTH_SIGNAL: Final = Signal(maximum=1e9, whole=True)
"""No engine queues more; a larger number is broken or an attempt to break a sum over replicas."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The series that one answer holds for one replica: none, one, or (contradicting each other) several."""

    texts: tuple[str | None, ...] = ()

    @staticmethod
    def of(series: list[Series]) -> Reading:
        """Return the reading of the series found for one replica."""
        return Reading(tuple(None if found.value is None else found.value[1] for found in series))


@dataclass(frozen=True, slots=True)
class Classifier:
    """Turns a value and its time into a sample, at the time ``now`` (seconds since the epoch)."""

    now: float
    freshness: Freshness

    def sample(self, signal: Signal, *, value: Reading, time: Reading) -> Sample:
        """Classify one signal of one replica."""
        if not value.texts:
            return self._without_value(time)
        if len(value.texts) > 1:
            return _invalid(f"{len(value.texts)} series for one pod")
        number = parse_number(value.texts[0])
        if number is None or not math.isfinite(number):
            return _invalid(f"{_shown(value.texts[0])} is not a number")
        if number < 0 or number > signal.maximum:
            return _invalid(f"{_shown(value.texts[0])} is out of range")
        # Adding 0.0 turns a negative zero into a plain one.
        return self._at(float(math.trunc(number)) if signal.whole else number + 0.0, time)

    def _at(self, number: float, time: Reading) -> Sample:
        if not time.texts:
            return Sample(SampleState.MISSING, detail="no time for the value: the pod no longer reports")
        if len(time.texts) > 1:
            return _invalid(f"{len(time.texts)} times for one pod")
        timestamp = parse_number(time.texts[0])
        if timestamp is None or not math.isfinite(timestamp):
            return _invalid(f"the time {_shown(time.texts[0])} is not a number")
        age = self.now - timestamp
        if age < -FUTURE_TOLERANCE_SECONDS:
            return Sample(SampleState.INVALID, timestamp=timestamp, detail=f"{_seconds(-age)} in the future")
        state = self.freshness.classify(max(0.0, age))
        if state is SampleState.MISSING:
            return Sample(state, timestamp=timestamp, detail=f"{_seconds(age)} old")
        return Sample(state, number, timestamp, "" if state is SampleState.FRESH else f"{_seconds(age)} old")

    def _without_value(self, time: Reading) -> Sample:
        """No value within the last minute, but perhaps an older one: its age tells people what happened."""
        timestamp = parse_number(time.texts[0]) if len(time.texts) == 1 else None
        if timestamp is None or not math.isfinite(timestamp) or timestamp > self.now:
            return Sample(SampleState.MISSING)
        detail = f"last one is {_seconds(self.now - timestamp)} old"
        return Sample(SampleState.MISSING, timestamp=timestamp, detail=detail)


def parse_number(text: str | None) -> float | None:
    """Return the number that Prometheus wrote, None for anything else.

    NaN and the infinities are not in the grammar: they are no measurement. Neither is what only Python takes for a
    number, such as ``1_000`` or digits of other scripts.
    """
    if text is None or len(text) > _MAX_NUMBER_CHARACTERS or not _NUMBER.fullmatch(text):
        return None
    return float(text)


def _seconds(seconds: float) -> str:
    """Return seconds for people; a time far from any real one does not fill a line with digits."""
    return f"{seconds:.0f} s" if seconds < _LONGEST_SHOWN_SECONDS else "ages"


def _invalid(detail: str) -> Sample:
    return Sample(SampleState.INVALID, detail=detail)


def _shown(text: str | None) -> str:
    if text is None:
        return "a histogram"
    return repr(text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "...")
