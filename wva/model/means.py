"""The mean size of requests, which begins anew when sizes change.

A mean keeps its requests in parts, the newest of which are the shortest. With each reading it compares, at each border
between two parts, the requests after the border with those before. The measure is the deviance of gamma distributions,
for which only the ratio of the two means counts. If sizes differ by chance alone, the deviance divided by their squared
variation is 1 in the mean, and beyond 20 once in many ten thousand readings. If it is larger, sizes have changed at
that border, and the mean drops the requests before it.

The variation is found by comparing neighbouring parts when they are joined. So a change of the mean is no variation.
What several readings have in common, such as requests that each of them saw, counts as variation of the longer parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Final

from msgspec import Struct

LONGEST_TOKENS: Final = 1e8
"""No request has more tokens."""
_MOST: Final = 4200.0
"""A mean is of so many requests at most."""
_SHORTEST: Final = 8.0  # requests in a part, if one reading does not have more
_JOINED: Final = 0.5  # two parts are joined if the requests after them are so many times fewer
_CHANCE: Final = 19.5
_HEAVY: Final = 1.5  # the squared variation of heavy tails; that of exponential sizes is 1
_FEWEST: Final = 30.0
"""What so few requests show is chance, times the squared variation."""
_VARIED_OVER: Final = 8000.0  # requests; parts of each length have their share
_VARIED_AT_FIRST: Final = 1.5  # while fewer are known: times those
_ONE_PAIR: Final = 0.05  # the share of two parts in the variation
_TIMES_VARIED: Final = 8.0
_LEAST_VARIED, _MOST_VARIED = 0.01, 25.0
_SMALLEST: Final = 1e-9

Part = tuple[float, float]
"""How many requests, and the sum of their sizes."""


class Mean(Struct, frozen=True, gc=False):
    """The ``usual`` size of ``many`` requests, in tokens; ``varied`` is the squared variation of sizes.

    ``parts`` are these requests, the oldest first. Recordings of older versions have none.
    """

    usual: float = 0.0
    many: float = 0.0
    varied: float = 1.0
    parts: tuple[Part, ...] = ()

    def with_more(self, total: float, count: float) -> Mean:
        """Return the mean with ``count`` more requests, of ``total`` tokens together."""
        if count <= 0.0 or not 0.0 < total <= LONGEST_TOKENS * count:
            return self
        parts = [part for part in self.parts or ((self.many, self.usual * self.many),) if min(part) > 0.0]
        if parts and parts[-1][0] < _SHORTEST:
            parts[-1] = (parts[-1][0] + count, parts[-1][1] + total)
        else:
            parts.append((count, total))
        varied = max(_LEAST_VARIED, self.varied)
        parts = _newest(parts[_last_change(parts, varied) :])
        many, usual = _sum(parts)
        varied = _joined(parts, varied, many)
        return Mean(usual / many, many, varied, tuple(parts))


def _last_change(parts: Sequence[Part], varied: float) -> int:
    """Return the index of the first part after a change of sizes, 0 if there is none.

    A few very large requests may weigh as much as all others. So an increase counts only if it also shows when the part
    with the largest sizes counts as no larger than the next largest, or, with heavy tails, is left out.
    """
    border, threshold = 0, _CHANCE * varied
    before, before_total = _sum(parts)
    after = after_total = largest = next_largest = largest_count = 0.0
    for index in range(len(parts) - 1, 0, -1):
        count, total = parts[index]
        before, before_total = before - count, before_total - total
        after, after_total = after + count, after_total + total
        size = total / count
        if size > largest:
            largest, next_largest, largest_count = size, largest, count
        else:
            next_largest = max(next_largest, size)
        if after < _FEWEST * varied or before <= 0.0 or before_total <= 0.0:
            continue
        counted_total = after_total
        if after_total * before > before_total * after:
            if after <= largest_count:
                continue
            counted_total -= largest_count * (largest - next_largest)
            if varied > _HEAVY:
                counted_total = after * (after_total - largest_count * largest) / (after - largest_count)
            if counted_total * before <= before_total * after:
                continue
        if (deviance := _deviance((before, before_total), (after, counted_total))) > threshold:
            border, threshold = index, deviance
    return border


def _newest(parts: list[Part]) -> list[Part]:
    """Return the newest parts, with at most as many requests as a mean has."""
    many = 0.0
    for index in range(len(parts) - 1, -1, -1):
        count, total = parts[index]
        many += count
        if many >= _MOST:
            kept = _MOST - (many - count)
            return [(kept, total * kept / count), *parts[index + 1 :]]
    return parts


def _joined(parts: list[Part], varied: float, many: float) -> float:
    """Join neighbours that are short beside what came after them; return the variation with how far they differ."""
    span, after = min(_VARIED_OVER, _VARIED_AT_FIRST * many), 0.0
    for index in range(len(parts) - 1, 1, -1):
        after += parts[index][0]
        older, newer = parts[index - 2 : index]
        merged = (older[0] + newer[0], older[1] + newer[1])
        if merged[0] <= _JOINED * after:
            deviance = min(_deviance(older, newer), _TIMES_VARIED * varied)
            varied += min(_ONE_PAIR, merged[0] / span) * (deviance - varied)
            parts[index - 2 : index] = [merged]
    return min(_MOST_VARIED, varied)


def _deviance(older: Part, newer: Part) -> float:
    """Return how much less likely two parts are with one mean than with two: the deviance of gamma distributions."""
    (older_count, older_total), (newer_count, newer_total) = older, newer
    mean = log(max(_SMALLEST, (older_total + newer_total) / (older_count + newer_count)))
    older_part = older_count * (mean - log(max(_SMALLEST, older_total / older_count)))
    return 2.0 * max(0.0, older_part + newer_count * (mean - log(max(_SMALLEST, newer_total / newer_count))))


def _sum(parts: Sequence[Part]) -> Part:
    """Return the requests of all parts."""
    return sum([count for count, _ in parts]), sum([total for _, total in parts])
