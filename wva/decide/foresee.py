"""Step 3: the capacity that a model will need when replicas that are ordered now serve.

In: a ``Need`` whose demand is a rate, and what is remembered of the model. Out: the need with ``required``,
``sufficient``, ``demand`` (the level that is believed) and ``error``, and the memory. The same for all analyzers.

1. Series: what was asked for in each cycle; while users wait so long that they give up unseen, what it was before.
2. Level and rise (``forecast``): the demand after the lead time, which is what a replica takes to start and to be
   asked for. Spells of demand that are over by then are not chased.
3. Reserve (``warm``): rises that were not foreseen often enough, and levels that come back at this time.
4. Backlog: what waits and what will wait until then, drained within a share of the lead time.
5. Hold: nothing goes before a demand has been away for as long as a start takes, a reaction, and two cycles.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import Final

from wva.decide import warm
from wva.decide.forecast import KEPT_SECONDS, Pace, dispersed, mean, pace
from wva.decide.measure import larger
from wva.decide.measure.need import Need
from wva.decide.trust import ModelReadings
from wva.model.demand import Foresight, Slot
from wva.model.memory import Memory
from wva.model.metrics import ReplicaMetrics
from wva.model.policy import MAX_KEEP_WARM_SECONDS, Policy
from wva.model.records import replace
from wva.model.variant import Variant, VariantKey

_SHORTEST_SECONDS: Final = 10.0
"""Cycles that are shorter share a slot; the first demand is the mean of so long a time."""
_LONGEST_SECONDS: Final = 60.0
"""Demand while pods come and go is told after so long a time at the latest."""
_HOLD_CYCLES: Final = 2.0
"""Nothing goes for what a single cycle shows."""
_SLACK: Final = 0.05
"""Share of the demand that a shrink leaves as capacity beyond it."""
_COVERED: Final = 0.7
"""Share of the hold that must have been seen before anything goes."""
_DRAIN_SHARE: Final = 0.25
_PATIENCE_SECONDS: Final = 120.0
"""Users do not wait much longer than this."""
_LONG_WAIT_SECONDS: Final = 30.0
"""Users who must wait for so long may give up."""
_CAUTION: Final = 0.5
"""Standard errors that are added to the level of demand."""
_JUMP_SHARE: Final = 0.5
"""A jump within a cycle shows in a part of it only: this share of it comes on top."""
_MARGIN_SECONDS: Final = 30.0
_REACTION_SECONDS: Final = 40.0
"""From a change of demand to the start of a pod: scrapes, a cycle, the scaler."""
_USUAL_START_SECONDS: Final = 120.0
_LONGEST_START_SECONDS: Final = 3600.0
_START_UPS: Final = 10
MOST_TIMES: Final = 16.0
"""Nothing is ordered beyond so many times what Ready replicas carry: as far as an HPA goes by itself in a minute, four
doublings. So a number that is not true costs a known amount."""
_START_UP_QUANTILE: Final = 0.8
_at: Final = attrgetter("at")


def foresee(
    needs: Sequence[Need], models: Sequence[ModelReadings], memory: Memory, policy: Policy, now: float
) -> tuple[list[Need], Memory]:
    """Return the needs of the models, in their order, and the memory with what was foreseen.

    A need that is not ``foreseeable`` stays as it is. Of two needs of a model the larger one counts from here on.
    ``now`` is in seconds since the epoch.
    """
    before = {entry.key: entry for entry in memory.foreseen}
    found, kept = [], []
    for need, model in zip(needs, models, strict=True):
        parts = [need] if need.second is None else [replace(need, second=None), need.second]
        rates = [at for at, part in enumerate(parts) if part.foreseeable and part.hold is None and need.hold is None]
        if rates:
            keep_warm = policy.saturation_for(model.key).keep_warm
            ahead, entry = foreseen(
                parts[rates[0]],
                [each.progress.variant for each in model.variants],
                {each.key: each.replicas for each in model.variants},
                before.get(model.key) or Foresight(model.key),
                now=now,
                keep_warm=inf if keep_warm >= MAX_KEEP_WARM_SECONDS else keep_warm,
                deadline=model.policy.transition_deadline_seconds,
            )
            kept.append(entry)
            parts[rates[0]] = ahead
            for at in rates[1:]:  # two rates of one model are the same demand: what is foreseen of it holds for both
                parts[at] = replace(
                    parts[at],
                    required=ahead.required,
                    sufficient=ahead.sufficient,
                    demand=ahead.demand,
                    error=ahead.error,
                    stays=ahead.stays,
                )
        elif model.key in before:
            kept.append(before[model.key])
        found.append(parts[0] if len(parts) == 1 else larger(parts[0], parts[1], model))
    return found, replace(memory, foreseen=tuple(kept))


def foreseen(
    need: Need,
    variants: Sequence[Variant],
    replicas: Mapping[VariantKey, Sequence[ReplicaMetrics]],
    memory: Foresight,
    *,
    now: float,
    keep_warm: float = inf,
    deadline: float = inf,
) -> tuple[Need, Foresight]:
    """Return the need with what the future asks for, and what to remember.

    ``keep_warm``: for how many seconds replicas may stay that demand does not need; infinite: as long as it pays.
    ``deadline``: after how many seconds a pod that is not Ready is not counted on any more.
    """
    if memory.at is not None and now < memory.at:
        # The clock was set back: what has a time begins anew.
        memory = Foresight(need.key, dispersion=memory.dispersion, start_ups=memory.start_ups)
    if not need.foreseeable or now == memory.at:
        return need, memory
    start_ups = _start_ups(variants, replicas, memory, now)
    start = min(_start(variants, start_ups, now), deadline)
    through = need.answers or need.carried
    ready = [(variant, replicas.get(variant.key, ())) for variant in variants]
    serving = through({variant.key: len(pods) for variant, pods in ready})
    slots, rest, told = _series(need, memory, serving, now)
    dispersion = memory.dispersion
    if rest is None and len(slots) > 1:
        dispersion = dispersed(dispersion, slots[-2], told)
    level = pace(slots, dispersion)
    lead = _REACTION_SECONDS + start
    certain = max(0.0, level.rate - level.error)
    levels = warm.seen(memory.levels, level.rate, now=now, shortest=lead)
    usual = warm.lasting(levels, level.rate, now=now, seconds=start)
    if usual < level.rate:
        level = Pace(usual, level.error, 0.0, 0.0, level.mean)
    foreseen = level.at(lead) + _CAUTION * level.error
    blocks = warm.observed(memory.blocks, foreseen=foreseen, rate=certain, now=now, seconds=lead)
    surprise = warm.reserve(blocks, foreseen=foreseen, now=now)
    soon = lead + _MARGIN_SECONDS
    reserved = max(foreseen, warm.worth_keeping(levels, surprise, now=now, seconds=soon, longest=keep_warm))
    waiting, later = _backlogs(need, variants, serving, level.rate, start, now)
    drain = _DRAIN_SHARE * lead
    present = foreseen + _JUMP_SHARE * level.jump + later / drain
    required = max(reserved, present)
    required = min(required, MOST_TIMES * need.carried({one.key: max(1, len(pods)) for one, pods in ready}))
    cycle = 0.0 if memory.at is None else now - memory.at
    hold = min(keep_warm, max(start, _REACTION_SECONDS, _HOLD_CYCLES * cycle))
    kept = (*[entry for entry in memory.reserved if entry[0] > now - hold and entry[1] > reserved], (now, reserved))
    begun = now if memory.begun is None else memory.begun
    sufficient, slack = inf, 1.0 + _SLACK
    stays: tuple[tuple[float, str], ...] = (
        (inf, f"nothing shrinks before demand is known for {hold * _COVERED:.0f} s"),
    )
    if now - begun >= hold * _COVERED:
        sufficient = max(required, foreseen + waiting / drain, kept[0][1] * slack)
        stays = (
            (reserved * slack, "demand often rises to what they carry, so replicas stay while that is likely"),
            (kept[0][1] * slack, f"replicas stay for {hold:.0f} s after demand has fallen"),
        )
    present = max(present, foreseen * slack, foreseen + waiting / drain)
    stays = ((present, ""), *stays) if stays[-1][0] > present else ()
    need = replace(need, demand=level.rate, error=level.error, required=required, sufficient=sufficient, stays=stays)
    return need, Foresight(need.key, begun, now, slots, rest, dispersion, kept, blocks, levels, start_ups)


def _series(need: Need, memory: Foresight, serving: float, now: float) -> tuple[tuple[Slot, ...], Slot | None, Slot]:
    """Return what was asked for until now, the rest of it that is told later, and the newest slot as it was told.

    A gateway sends all requests to a pod that is new, at times that the last scrapes of others do not reach: they seem
    to be more, and less a cycle later. So what is more than usual while pods come and go waits until it has evened out.
    """
    seconds = _SHORTEST_SECONDS if memory.at is None else now - memory.at
    before = memory.rest or Slot(now, 0.0, 0.0)
    slot = Slot(now, before.seconds + seconds, before.amount + need.demand * seconds)
    slots = memory.slots[bisect_right(memory.slots, now - KEPT_SECONDS, key=_at) :]
    uneven, told = False, slot
    if slots and (need.unsettled or need.backlog > _LONG_WAIT_SECONDS * serving):
        usual = mean(slots, memory.dispersion) * slot.seconds
        if need.backlog > _LONG_WAIT_SECONDS * serving:
            # Users give up, and what arrives is not told: it is not less than it was.
            slot = replace(slot, amount=max(slot.amount, usual))
        uneven = need.unsettled and slot.amount > usual and slot.seconds < _LONGEST_SECONDS
    if uneven or slot.seconds < _SHORTEST_SECONDS:
        return slots, slot, told
    return (*slots, slot), None, told


def _backlogs(
    need: Need,
    variants: Sequence[Variant],
    serving: float,
    rate: float,
    start: float,
    now: float,
) -> tuple[float, float]:
    """Return what will wait when the replicas under way serve, and when those do that are ordered now.

    The first is at least what waits now. Where replicas get through more than they carry within targets, requests pile
    up only beyond that.
    """
    coming = (need.answers or need.carried)(
        {
            variant.key: variant.spec_replicas if variant.status_desired is None else variant.status_desired
            for variant in variants
        }
    )
    lead = _REACTION_SECONDS + start
    ages = [now - variant.oldest_unready_since for variant in variants if variant.oldest_unready_since is not None]
    until = max(0.0, start - max(ages)) if ages else lead
    first = max(0.0, need.backlog + (rate - serving) * min(until, _PATIENCE_SECONDS))
    return max(need.backlog, first), max(0.0, first + (rate - max(serving, coming)) * (lead - until))


def _start_ups(
    variants: Sequence[Variant], replicas: Mapping[VariantKey, Sequence[ReplicaMetrics]], memory: Foresight, now: float
) -> tuple[tuple[VariantKey, tuple[float, ...]], ...]:
    """Return how long the last pods of each variant took to start, with those that became Ready since the last cycle.

    Until one is known, all Ready pods count, however long ago they started. Kubernetes tells times in whole seconds; no
    engine starts within one, so a pod that seems to tells nothing.
    """
    known = dict(memory.start_ups)
    for variant in variants:
        before = known.get(variant.key, ())
        since = memory.at - 1.0 if before and memory.at is not None else -inf
        fresh = [
            (pod.ready_since, pod.ready_since - pod.created)
            for pod in replicas.get(variant.key, ())
            if pod.ready_since is not None
            and since < pod.ready_since <= now
            and pod.created is not None
            and 0.0 < pod.ready_since - pod.created < _LONGEST_START_SECONDS
        ]
        known[variant.key] = (*before, *[seconds for _, seconds in sorted(fresh)])[-_START_UPS:]
    return tuple(sorted({variant.key: known[variant.key] for variant in variants}.items()))


def _start(
    variants: Sequence[Variant], start_ups: tuple[tuple[VariantKey, tuple[float, ...]], ...], now: float
) -> float:
    """Return how long a pod takes to start, in seconds: rather too long than too short."""
    # A pod that has not started for longer than that will not: it says nothing of those that are ordered now.
    ages = [now - variant.oldest_unready_since for variant in variants if variant.oldest_unready_since is not None]
    found = [age for age in ages if age < _LONGEST_START_SECONDS]
    for _, seconds in start_ups:
        known = sorted(seconds or (_USUAL_START_SECONDS,))  # of up to three that are known the longest counts
        found.append(known[int(_START_UP_QUANTILE * (len(known) - 1) + 0.5)])
    return max(found, default=_USUAL_START_SECONDS)
