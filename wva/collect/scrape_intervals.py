"""Learns from the times of samples how far apart the scrapes of each pod are.

A cycle sees the newest sample of a pod. The time between two samples that cycles see is the scrape interval or a
multiple of it: a scrape may be lost, and cycles that are further apart than scrapes miss some. So the time between two
samples counts only if a cycle in between has found no new sample, and if no shorter time was seen lately.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple, TypeAlias

LONGEST_SECONDS: Final = 150.0
"""Scrapes that are further apart count as so far apart (seconds)."""
_GAPS: Final = 3
_LONGER: Final = 1.5

PodName: TypeAlias = tuple[str, str]
"""Namespace and name."""


class _NewestSample(NamedTuple):
    """The newest sample of a pod, whether it was seen again, and the last gaps in seconds, newest last."""

    at: float
    again: bool = False
    gaps: tuple[tuple[float, bool], ...] = ()


class ScrapeIntervals:
    """What is known of the scrape intervals of pods."""

    def __init__(self) -> None:
        """Know nothing."""
        self._newest: dict[PodName, _NewestSample] = {}

    def learn(self, pod: PodName, at: float | None) -> float | None:
        """Take the time of a pod's newest sample (seconds since the epoch); return its interval in seconds.

        The interval is None while it is not known, and while each cycle sees a new sample.
        """
        newest = self._newest.get(pod)
        if newest is None:
            if at is not None:
                self._newest[pod] = _NewestSample(at)
            return None
        if at is None or at <= newest.at:
            newest = newest._replace(again=True)
        else:
            gap = min(LONGEST_SECONDS, at - newest.at)
            newest = _NewestSample(at, gaps=(*newest.gaps, (gap, newest.again))[-_GAPS:])
        self._newest[pod] = newest
        shortest = min([gap for gap, _ in newest.gaps], default=0.0)
        interval = min([gap for gap, again in newest.gaps if again], default=None)
        return interval if interval is not None and interval <= _LONGER * shortest else None

    def keep(self, pods: Collection[PodName]) -> None:
        """Forget all other pods."""
        self._newest = {pod: newest for pod, newest in self._newest.items() if pod in pods}
