"""The mean size of requests, which begins anew when sizes change.

A mean keeps its requests in parts, the newest of which are the shortest. With each reading it compares the requests
after each border between parts with those before. The measure is the deviance of gamma distributions: the mean may be
any, and what counts is the ratio. Divided by the squared variation of sizes it is that of chance: 1 in the mean, beyond
20 once in many ten thousand readings. If it is larger, sizes have changed at that border, and what came before it goes.

The variation follows from neighbouring parts when they are joined. So a change of the mean is no variation. And what
readings have in common, such as requests that several of them saw, counts as variation of the longer parts.
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
    """Return the place of the first part after a change of sizes, 0 if there is none.

    A few requests may weigh as much as all others. So larger sizes must show if the part that has the largest is only
    as large as the next one; and of heavy tails, without that part.
    """
    found, least = 0, _CHANCE * varied
    before, before_total = _sum(parts)
    after = after_total = largest = second = its_count = 0.0
    for place in range(len(parts) - 1, 0, -1):
        count, total = parts[place]
        before, before_total = before - count, before_total - total
        after, after_total = after + count, after_total + total
        size = total / count
        if size > largest:
            largest, second, its_count = size, largest, count
        else:
            second = max(second, size)
        if after < _FEWEST * varied or before <= 0.0 or before_total <= 0.0:
            continue
        shown = after_total
        if after_total * before > before_total * after:
            if after <= its_count:
                continue
            shown -= its_count * (largest - second)
            if varied > _HEAVY:
                shown = after * (after_total - its_count * largest) / (after - its_count)
            if shown * before <= before_total * after:
                continue
        if (deviance := _deviance((before, before_total), (after, shown))) > least:
            found, least = place, deviance
    return found


def _newest(parts: list[Part]) -> list[Part]:
    """Return the newest parts, of so many requests as a mean has at most."""
    many = 0.0
    for place in range(len(parts) - 1, -1, -1):
        count, total = parts[place]
        many += count
        if many >= _MOST:
            kept = _MOST - (many - count)
            return [(kept, total * kept / count), *parts[place + 1 :]]
    return parts


def _joined(parts: list[Part], varied: float, many: float) -> float:
    """Join neighbours that are short beside what came after them; return the variation with what they show of it."""
    over, after = min(_VARIED_OVER, _VARIED_AT_FIRST * many), 0.0
    for place in range(len(parts) - 1, 1, -1):
        after += parts[place][0]
        one, two = parts[place - 2 : place]
        both = (one[0] + two[0], one[1] + two[1])
        if both[0] <= _JOINED * after:
            shown = min(_deviance(one, two), _TIMES_VARIED * varied)
            varied += min(_ONE_PAIR, both[0] / over) * (shown - varied)
            parts[place - 2 : place] = [both]
    return min(_MOST_VARIED, varied)


def _deviance(one: Part, two: Part) -> float:
    """Return how much less likely two parts are with one mean than with two: the deviance of gamma distributions."""
    (first, total), (second, other) = one, two
    mean = log(max(_SMALLEST, (total + other) / (first + second)))
    first_part = first * (mean - log(max(_SMALLEST, total / first)))
    return 2.0 * max(0.0, first_part + second * (mean - log(max(_SMALLEST, other / second))))


def _sum(parts: Sequence[Part]) -> Part:
    """Return the requests of all parts."""
    return sum([count for count, _ in parts]), sum([total for _, total in parts])
