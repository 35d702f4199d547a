"""What users got against what was planned: if too few are in time although replicas suffice, WVA asks for more.

What a replica carries follows from what the engines report. Some causes of late requests do not show there: short
answers that wait for the prompts of others, pods that are slower than their siblings, a gateway that sends too many
requests to one pod. So WVA compares the share of requests in time, which ``collect.in_time`` measures, with the
objective. It changes the factor by which it asks for more in small steps.

Only calm times count: the replicas have carried what the model seemed to need for a while, and demand has not risen. If
more requests are late then than chance explains, the present replicas are too few. A raise asks for somewhat more than
these replicas. It is kept for an hour, and then lowered in small steps while far fewer requests are late than may be.
When requests become longer, they are late before their sizes show it. So a raise is taken back if the replicas turn out
to be too few anyway within two minutes after it.

Some requests are late however many replicas there are: a long prompt takes its time. Raises that have made a fleet
clearly larger, but have not made fewer requests late, are taken back, and none is tried for some hours.
"""

from __future__ import annotations

from typing import Final

from wva.model.in_time import LATELY_SECONDS, ServedShare, by_chance
from wva.model.memory import Correction, Foresight, LatePrice
from wva.model.objectives import Objectives
from wva.model.records import replace

_SETTLED_SECONDS: Final = 30.0  # requests that end in the time of a look began before it
_RISEN: Final = 1.25  # demand that is so many times as high as when it was calm last has risen
_RISE_SECONDS: Final = 480.0  # for so long after a rise replicas come, and their caches are cold
_UNSEEN_SECONDS: Final = 120.0  # a shortage that shows so soon after a raise is what made requests late
_LEAST_STEP: Final = 0.05
_LARGEST_STEP: Final = 0.5
_MOST: Final = 4.0
_HOLD_SECONDS: Final = 3600.0
_LOWER_STEP: Final = 0.05
_KEPT: Final = 0.95  # of what earlier looks have shown, with each look
_JUDGED: Final = 1.25  # raises are judged when the fleet is so many times as large
_WORTHWHILE: Final = 0.7  # the odds of late requests must fall at least with this power of the size of the fleet
_VAIN_SECONDS: Final = 6.0 * 3600.0
_OTHER: Final = 1.5  # objectives that differ by more are other ones; the steps of a nearest one differ by as much


def for_objectives(memory: Foresight, objectives: Objectives, now: float) -> Foresight:
    """Return the memory without what was learned for clearly other objectives.

    What users got of those says nothing of these: neither a factor nor a raise that was in vain, nor the requests that
    were late. Looks count again when they begin after now.
    """
    learned = memory.objectives
    if learned is None:
        return replace(memory, objectives=objectives)
    times = (
        (learned.ttft_seconds, objectives.ttft_seconds),
        (learned.itl_seconds, objectives.itl_seconds),
    )
    if learned.in_time == objectives.in_time and all(max(pair) <= _OTHER * min(pair) for pair in times):
        return memory
    before = memory.correction
    fresh = Correction(calm=before.calm, short=before.short, demand=before.demand, looked=now)
    return replace(memory, correction=fresh, price=LatePrice(looked=now), objectives=objectives)


def corrected(
    before: Correction,
    share: ServedShare | None,
    *,
    at: float,
    in_time: float,
    room: float | None,
    demand: float,
    now: float,
) -> Correction:
    """Return the correction after a cycle: the factor, and what to remember.

    ``share`` is the share in time in the ``LATELY_SECONDS`` before ``at``, None if that is not known. ``in_time`` is
    the share that shall be in time. ``room``: how many times the need of the model its replicas carry, None if they do
    not carry it. ``demand`` is what arrives now, per second.
    """
    calm = 0.0 if before.calm is None else before.calm
    if before.calm is None or demand > _RISEN * before.demand:
        calm, before = max(calm, now + _RISE_SECONDS), replace(before, demand=demand)
    elif _RISEN * demand < before.demand:
        before = replace(before, demand=demand)
    if room is None:
        if before.judged and now - before.raised <= _UNSEEN_SECONDS:
            before = replace(before, factor=before.first, judged=0.0)
        calm = max(calm, now + _SETTLED_SECONDS)
        return replace(before, calm=calm, short=True, room=None, requests=0.0, missed=0.0, sized=0.0)
    room = room if before.room is None else min(before.room, room)
    entry = replace(before, calm=calm, short=False, room=room)
    since = at - LATELY_SECONDS
    if share is None or since < max(before.looked, calm):
        return entry
    requests = _KEPT * entry.requests + share.requests
    late = share.requests * (1.0 - share.share)
    missed, sized = _KEPT * entry.missed + late, _KEPT * entry.sized + late * room
    entry = replace(entry, looked=at, room=None, requests=requests, missed=missed, sized=sized)
    allowed = (1.0 - in_time) * requests
    chance = by_chance(allowed)
    if missed > allowed + chance:
        return _raised(entry, now)
    if missed < allowed - chance and entry.factor > 1.0 and now - entry.raised > _HOLD_SECONDS:
        lower = max(1.0, entry.factor * (1.0 - _LOWER_STEP))
        return replace(entry, factor=lower, judged=0.0, requests=0.0, missed=0.0, sized=0.0)
    return entry


def _raised(entry: Correction, now: float) -> Correction:
    """Return the correction after a look in which too many were late: a larger factor, or an end of vain raises."""
    size, late = entry.sized / entry.missed, entry.missed / entry.requests
    entry = replace(entry, requests=0.0, missed=0.0, sized=0.0)
    if now < entry.vain:
        return entry
    if entry.judged and size >= _JUDGED * entry.judged:
        if _odds(late) > _odds(entry.late) * (entry.judged / size) ** _WORTHWHILE:
            return replace(entry, factor=entry.first, judged=0.0, vain=now + _VAIN_SECONDS)
        entry = replace(entry, judged=0.0)
    if not entry.judged:
        entry = replace(entry, judged=size, first=entry.factor, late=late)
    step = 1.0 + min(_LARGEST_STEP, max(_LEAST_STEP, late))
    return replace(entry, factor=min(_MOST, max(entry.factor, size * step)), raised=now)


def _odds(share: float) -> float:
    return share / max(1.0 - share, 1e-9)
