"""What the past says about capacity beyond the demand: how far it rises unforeseen, and which levels come back when.

Surprises: time is cut into blocks as long as a replica takes to start. Of each block is kept what was foreseen at its
begin and the highest demand in it. A reserve of one replica costs its price all the time, and saves ``WORTH`` times
that while it is missed, so it pays for rises that at least one of ``WORTH`` blocks has. What happened once may be
chance: it takes two. Blocks that began at a similar demand tell most; where there are too few of them, all do.

Levels: of each level that demand has left is kept after how long it came back, as serverless platforms do for functions
(Shahrad et al., Serverless in the Wild, 2020). The chance that it comes back while a replica would start follows from
the returns that took at least as long as it is away now. A level is worth its price while one of ``WORTH`` such times
brings it back. A spike that came once has no returns and is worth nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor, log, sqrt
from typing import Final

from wva.model.demand import LEVEL_STEP, Block, Level
from wva.model.records import replace

WORTH: Final = 15.0
"""How many times its price a replica saves while it is missed."""
_BLOCKS: Final = 120
_HALF_LIFE_SECONDS: Final = 7200.0
_SIMILAR: Final = 1.35
_FEWEST: Final = 3.0
_LARGEST: Final = 1.25
"""The highest ratio that is believed at a level of demand that is new."""
_LOWEST: Final = 0.05
_LEFT: Final = 0.8
"""Below this share of a level it is left."""
_KEPT: Final = 8
_PATTERN: Final = 2
"""So many returns make a pattern, and so many surprises are none."""
_SPELLS: Final = 3
"""So many stays at a level tell how long it lasts."""
FORGET_SECONDS: Final = 14.0 * 86_400.0
"""A level that has been away for so long is forgotten: what returns each week has returned twice by then."""
_OFTEN: Final = 0.3
_SHARPEST_SECONDS: Final = 45.0
_SHARPEST_SHARE: Final = 0.08
_NEVER: Final = 0.3
"""Weight of the thought that it does not come back, in returns."""


def observed(blocks: Sequence[Block], *, foreseen: float, rate: float, now: float, seconds: float) -> tuple[Block, ...]:
    """Return the blocks with the demand of a cycle."""
    if not blocks or now - blocks[-1].begun >= seconds:
        return (*blocks[1 - _BLOCKS :], Block(now, foreseen, rate))
    return (*blocks[:-1], replace(blocks[-1], peak=max(blocks[-1].peak, rate)))


def reserve(blocks: Sequence[Block], *, foreseen: float, now: float) -> float:
    """Return the demand to be ready for, at least what is foreseen."""
    past = [(one, float(0.5 ** ((now - one.begun) / _HALF_LIFE_SECONDS))) for one in blocks[:-1]]
    similar = [pair for pair in past if foreseen / _SIMILAR <= pair[0].foreseen <= foreseen * _SIMILAR]
    known = sum([weight for _, weight in similar]) >= _FEWEST
    ratio = _exceeded(similar if known else past)
    return foreseen * (ratio if known else min(ratio, _LARGEST))


def _exceeded(blocks: Sequence[tuple[Block, float]]) -> float:
    """Return the largest ratio of peak to foreseen that enough blocks have reached; at least 1."""
    share, seen = sum([weight for _, weight in blocks]) / WORTH, 0.0
    ratios = sorted([(one.peak / max(one.foreseen, 1e-9), weight) for one, weight in blocks], reverse=True)
    for number, (ratio, weight) in enumerate(ratios, start=1):
        seen += weight
        if ratio <= 1.0:
            break
        if number >= _PATTERN and seen >= share:
            return ratio
    return 1.0


def seen(levels: Sequence[Level], rate: float, *, now: float, shortest: float) -> tuple[Level, ...]:
    """Return the levels after a cycle with this demand. A level that came back within ``shortest`` was not away."""
    known = {level.number: level for level in levels}
    reached = floor(log(max(rate, _LOWEST)) / log(LEVEL_STEP))
    for number in range(ceil(log(_LOWEST) / log(LEVEL_STEP)), reached + 1):
        level = known.get(number)
        if level is None:
            known[number] = Level(number, now)
        elif level.left is not None:
            away = now - level.left
            returns = (*level.returns, away)[-_KEPT:] if away >= shortest else level.returns
            known[number] = replace(level, reached=now, left=None, returns=returns)
    for number, level in known.items():
        if number >= reached and level.left is None and rate < _LEFT * level.value:
            known[number] = replace(level, left=now, stays=(*level.stays, now - level.reached)[-_KEPT:])
    there = [known[number] for number in sorted(known)]
    return tuple([level for level in there if level.left is None or now - level.left < FORGET_SECONDS])


def lasting(levels: Sequence[Level], rate: float, *, now: float, seconds: float) -> float:
    """Return the part of a demand that usually lasts for some seconds more: spells that are shorter are over by then.

    What has lasted for longer than any spell of its level is none.
    """
    for level in levels:
        if level.left is None and len(level.stays) >= _SPELLS and level.value <= rate:
            since = now - level.reached
            longer = [stay for stay in level.stays if stay > since]
            if sum([stay >= since + seconds for stay in longer]) < _OFTEN * len(longer):
                return level.value
    return rate


def worth_keeping(levels: Sequence[Level], reserved: float, *, now: float, seconds: float, longest: float) -> float:
    """Return the demand to be ready for.

    That is the highest level that returns within ``seconds`` often enough and was left less than ``longest`` ago; and
    of what is ``reserved`` without knowing times, what is not known to come back later.
    """
    kept = 0.0
    for level in levels:
        if level.left is None or len(level.returns) < _PATTERN:
            continue
        away = now - level.left
        if away <= longest and _chance(level.returns, away, seconds) * WORTH >= 1.0:
            kept = level.value * sqrt(LEVEL_STEP)
        else:
            reserved = min(reserved, max(kept, level.value))
    return max(kept, reserved)


def _chance(returns: Sequence[float], away: float, seconds: float) -> float:
    """Return how likely a level that is away for so long comes back within ``seconds``."""
    mean = sum(returns) / len(returns)
    deviation = sqrt(sum([(each - mean) ** 2 for each in returns]) / (len(returns) - 1))
    within = after = 0.0
    for each in returns:
        width = max(_SHARPEST_SECONDS, _SHARPEST_SHARE * each) + deviation
        low, high = each - width, each + width
        after += max(0.0, high - max(low, away)) / (high - low)
        within += max(0.0, min(high, away + seconds) - max(low, away)) / (high - low)
    return within / (after + _NEVER)
