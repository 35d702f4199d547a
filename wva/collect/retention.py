"""How far back requests are counted: a retention period, rounded up to one of a few windows.

Each window in use costs one query per hundred namespaces. If WVA did not round, each tenant could choose another
period, and the number of queries would have no limit. A rounded period is never shorter than the configured one, so WVA
never takes a model for idle too early. The default of ten minutes is a window itself.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

_MINUTE: Final = 60
_HOUR: Final = 60 * _MINUTE
_DAY: Final = 24 * _HOUR
_LONGEST_GAP_SECONDS: Final = 5 * _MINUTE
_LEAST_PARTS: Final = 10
_MOST_PARTS: Final = 48


@dataclass(frozen=True, slots=True)
class Window:
    """A time before now in which requests are counted, in whole seconds."""

    seconds: int

    @property
    def parts(self) -> int:
        """Into how many parts the window is divided to check that samples cover all of it."""
        return min(max(self.seconds // _LONGEST_GAP_SECONDS, _LEAST_PARTS), _MOST_PARTS)

    @property
    def part_seconds(self) -> int:
        """Length of one part."""
        return self.seconds // self.parts

    @property
    def gap_seconds(self) -> int:
        """The longest time without a sample that leaves a window covered: two scrapes, or a restart of the pods."""
        shortest = min(_MINUTE, self.seconds // 2)
        return max(self.part_seconds, min(max(self.seconds // 4, shortest), _LONGEST_GAP_SECONDS))


WINDOWS: Final = tuple(
    Window(seconds)
    for seconds in (
        *(10, 30, _MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
        *(_HOUR, 2 * _HOUR, 4 * _HOUR, 8 * _HOUR, 12 * _HOUR, _DAY, 2 * _DAY, 4 * _DAY, 7 * _DAY),
    )
)
LONGEST_SECONDS: Final = WINDOWS[-1].seconds


def window_of(retention_seconds: float) -> Window | None:
    """Return the shortest window that is at least so long; None when the period is longer than all of them."""
    position = bisect_left(WINDOWS, retention_seconds, key=lambda window: window.seconds)
    return WINDOWS[position] if position < len(WINDOWS) else None
