"""What the past says about demand that was not foreseen: how far demand rises, and which levels come back when.

Surprises: time is cut into blocks, each as long as the lead time. A block keeps the demand that was foreseen when it
began, and the highest demand in it. A replica in reserve costs its price all the time, and saves ``WORTH`` times its
price while it is needed. So it pays for a rise that at least one of ``WORTH`` blocks shows. A single rise may be
chance, so two blocks must show it. Only blocks that began at a similar demand count; if there are too few of them, all
blocks count.

How much a missed replica costs depends on what users got. While fewer requests are late than the objective allows, a
late one costs less, down to ``CHEAPEST`` times the price of a replica, and the reserve is for rises that are more
frequent. While more are late, it becomes dearer again, up to ``WORTH`` (``priced``).

Levels: when demand leaves a level and comes back, WVA keeps the time between, as serverless platforms do for functions
(Shahrad et al., Serverless in the Wild, 2020). From the returns that took at least as long as the level has now been
away, WVA derives the chance that it comes back within the lead time and half a minute. Replicas for a level stay while
this chance is at least one in ``WORTH``. A spike that came once has no returns, so no replica stays for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, exp, floor, log, sqrt
from typing import Final

from wva.model.in_time import LATELY_SECONDS, ServedShare
from wva.model.memory import LEVEL_STEP, Block, LatePrice, Level
from wva.model.records import replace

WORTH: Final = 15.0
"""How many times its price a replica saves while it is missed, at most."""
CHEAPEST: Final = 4.0
"""The same, at least."""
_PER_HOUR: Final = 3.0  # the logarithm of the price falls so if nobody is late, and rises so if twice too many are
_DEAREST: Final = 3.0  # more late requests than four times the allowed ones do not make it rise faster
_LOOK_SECONDS: Final = 3600.0  # what users got counts half after looks at so many seconds
_FEWEST_LATE: Final = 1e-4
_BLOCKS: Final = 120
_HALF_LIFE_SECONDS: Final = 7200.0
_SIMILAR: Final = 1.35
_FEWEST: Final = 3.0
_LARGEST: Final = 1.25  # the highest ratio that counts at a level of demand that is new
_LOWEST: Final = 0.05
_LEFT: Final = 0.8  # demand below this share of a level has left it
_KEPT: Final = 8
_PATTERN: Final = 2  # fewer returns or surprises than this are chance
_SPELLS: Final = 3  # how long a level lasts is known from so many stays at it
FORGET_SECONDS: Final = 14.0 * 86_400.0
"""A level that has been away for so long is forgotten. One that returns each week has returned twice by then."""
_OFTEN: Final = 0.3
_SHARPEST_SECONDS: Final = 45.0
_SHARPEST_SHARE: Final = 0.08
_NEVER: Final = 0.3  # the case that a level never comes back weighs as much as so many returns


def observed(blocks: Sequence[Block], *, foreseen: float, rate: float, now: float, seconds: float) -> tuple[Block, ...]:
    """Return the blocks with the demand of one more cycle."""
    if not blocks or now - blocks[-1].begun >= seconds:
        return (*blocks[1 - _BLOCKS :], Block(now, foreseen, rate))
    return (*blocks[:-1], replace(blocks[-1], peak=max(blocks[-1].peak, rate)))


def priced(before: LatePrice, share: ServedShare | None, *, at: float, in_time: float) -> LatePrice:
    """Return what a missed replica costs after a look at what users got in the ``LATELY_SECONDS`` before ``at``.

    ``share`` is None if that is not known. ``in_time`` is the share of requests that shall be in time.
    """
    if share is None or share.requests <= 0.0 or at - LATELY_SECONDS < before.looked:
        return before
    decay = 0.5 ** (LATELY_SECONDS / _LOOK_SECONDS)
    requests = decay * before.requests + share.requests
    late = decay * before.late + share.requests * (1.0 - share.share)
    excess = late / requests / max(1.0 - in_time, _FEWEST_LATE) - 1.0
    factor = exp(_PER_HOUR * LATELY_SECONDS / 3600.0 * min(excess, _DEAREST))
    return LatePrice(min(WORTH, max(CHEAPEST, before.worth * factor)), at, requests, late)


def reserve(blocks: Sequence[Block], *, foreseen: float, now: float, worth: float = WORTH) -> float:
    """Return the demand to be ready for, at least what is foreseen.

    ``worth``: how many times its price a replica saves while it is missed.
    """
    past = [(block, float(0.5 ** ((now - block.begun) / _HALF_LIFE_SECONDS))) for block in blocks[:-1]]
    similar = [pair for pair in past if foreseen / _SIMILAR <= pair[0].foreseen <= foreseen * _SIMILAR]
    enough_similar = sum([weight for _, weight in similar]) >= _FEWEST
    counted = similar if enough_similar else past
    # The largest ratio of peak to foreseen that enough blocks have reached, at least 1
    ratio, reached_by, share = 1.0, 0.0, sum([weight for _, weight in counted]) / worth
    ratios = sorted([(block.peak / max(block.foreseen, 1e-9), weight) for block, weight in counted], reverse=True)
    for number, (reached, weight) in enumerate(ratios, start=1):
        reached_by += weight
        if reached <= 1.0 or (number >= _PATTERN and reached_by >= share):
            ratio = max(1.0, reached)
            break
    return foreseen * (ratio if enough_similar else min(ratio, _LARGEST))


def updated_levels(levels: Sequence[Level], rate: float, *, now: float, shortest: float) -> tuple[Level, ...]:
    """Return the levels after a cycle with this demand. A return within ``shortest`` seconds does not count as one."""
    by_number = {level.number: level for level in levels}
    reached = floor(log(max(rate, _LOWEST)) / log(LEVEL_STEP))
    for number in range(ceil(log(_LOWEST) / log(LEVEL_STEP)), reached + 1):
        level = by_number.get(number)
        if level is None:
            by_number[number] = Level(number, now)
        elif level.left is not None:
            away = now - level.left
            returns = (*level.returns, away)[-_KEPT:] if away >= shortest else level.returns
            by_number[number] = replace(level, reached=now, left=None, returns=returns)
    for number, level in by_number.items():
        if number >= reached and level.left is None and rate < _LEFT * level.value:
            by_number[number] = replace(level, left=now, stays=(*level.stays, now - level.reached)[-_KEPT:])
    remaining = [by_number[number] for number in sorted(by_number)]
    return tuple([level for level in remaining if level.left is None or now - level.left < FORGET_SECONDS])


def lasting(levels: Sequence[Level], rate: float, *, now: float, seconds: float) -> float:
    """Return the part of a demand that usually lasts for some seconds more.

    If a level has lasted for longer than all its former stays, all of it counts.
    """
    for level in levels:
        if level.left is None and len(level.stays) >= _SPELLS and level.value <= rate:
            since = now - level.reached
            longer = [stay for stay in level.stays if stay > since]
            if sum([stay >= since + seconds for stay in longer]) < _OFTEN * len(longer):
                return level.value
    return rate


def staying(levels: Sequence[Level], rate: float, *, now: float, seconds: float) -> float:
    """Return the part of a demand that has been there for some seconds."""
    values = [level.value for level in levels if level.left is None and now - level.reached >= seconds]
    return min(rate, max(values, default=0.0) * LEVEL_STEP)


def worth_keeping(levels: Sequence[Level], reserved: float, *, now: float, seconds: float, longest: float) -> float:
    """Return the demand to be ready for: the larger of two.

    One is the highest level that returns within ``seconds`` often enough and was left less than ``longest`` ago. The
    other is the part of ``reserved`` that is not known to come back later.
    """
    returning = 0.0
    for level in levels:
        returns = level.returns
        if level.left is None or len(returns) < _PATTERN:
            continue
        # The chance that the level comes back within ``seconds``, after it has been away for so long
        away, mean = now - level.left, sum(returns) / len(returns)
        deviation = sqrt(sum([(interval - mean) ** 2 for interval in returns]) / (len(returns) - 1))
        within = after = 0.0
        for interval in returns:
            width = max(_SHARPEST_SECONDS, _SHARPEST_SHARE * interval) + deviation
            low, high = interval - width, interval + width
            after += max(0.0, high - max(low, away)) / (high - low)
            within += max(0.0, min(high, away + seconds) - max(low, away)) / (high - low)
        if away <= longest and within / (after + _NEVER) * WORTH >= 1.0:
            returning = level.value * sqrt(LEVEL_STEP)
        else:
            reserved = min(reserved, max(returning, level.value))
    return max(returning, reserved)
