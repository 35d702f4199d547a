"""Step 3: the capacity that a model will need when replicas that are ordered now serve.

``foresee`` takes the needs whose demand is a rate, and sets the fields that ``_as_foreseen`` names. In a model with
roles, it first adds to the demand for decode what prefill does not get through yet (``_of_all_stages``). ``demand``
becomes the demand now: the level, or what short cycles have shown lately if that is more.

``forecast_of`` does this for one model. First it learns how long pods take to start (``_start_ups``), and gathers its
inputs (``_Cycle``). A short cycle is one that the fast lane has woken for this model less than 10 s after the cycle
before. If the fast lane has woken a cycle for other models only, its seconds are no surge of this model, and wait until
they make a slot. Each part is a function, in this order:

3.1. Series (``_series``): the demand of each cycle. While requests wait long, some users give up and are not counted,
     so demand counts as no less than before. While replicas are missing because another writer took them away, users
     try again, so demand counts as no more than before.
3.2. Level and rise (``_outlook``, ``pace``): the demand after the lead time, which a replica takes to be ordered and to
     start. The level is the mean over the longest time before now that differs from the newest cycles by no more than
     chance. So a jump counts in the first cycle that shows it, and steady demand is averaged over many minutes. A short
     cycle that shows a jump counts for itself: WVA averages only what came after it, and the level follows when that
     has lasted for some seconds. A rise or a fall counts only while a line describes it better than a jump does. The
     line of a fall ends now: no further fall is foreseen. A part of the demand that usually ends before a replica has
     started does not count.
3.3. Reserve (``_readiness``, ``warm``): more demand, for rises that often came unforeseen, for replicas that often
     vanished, for levels that are likely to come back now, and for what earlier days had within the lead time after
     this time of day (``_usual``).
3.4. Backlog (``_required``): the capacity that drains the requests which wait now, and those which will wait when new
     replicas serve, within a share of the lead time, but not within less than 30 s. In a cycle that was woken for the
     model, requests in progress beyond what the replicas carry are drained, too, if the replicas are nearly full. The
     replicas that drain a backlog are idle soon after, so for it WVA orders at most ``surge_factor`` times the demand
     that is sure. Where capacities leave room for chance, and nothing piles up, the first cycle of a jump orders what
     is sure to be there, and the next one the rest.
3.5. Hold (``_hold``): no replica goes before demand has been lower for the longest of three times: a start, a reaction,
     and twice the last cycle that was woken for no model. If ``keep_warm`` is shorter, it counts instead. Demand that
     falls on a line is not held. After a short cycle WVA holds the demand it saw minus one standard error.
3.6. What users got (``_correction``, ``served``): if fewer requests than planned were in time although there were
     enough replicas, WVA multiplies all of this by a factor above 1.
3.7. Shrinks on trial (``regret``): if the replicas that a shrink left carried less without the others than they had
     seemed to, no shrink leaves so few again for a while.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from math import inf
from operator import attrgetter
from typing import Final

from msgspec import Struct

from wva.decide import warm
from wva.decide.measure import larger
from wva.decide.measure.need import DemandRate, Need
from wva.decide.pace import Pace, alike, dispersed, pace
from wva.decide.regret import Numbers, asked_for, regretting, tried
from wva.decide.served import corrected, for_objectives
from wva.decide.trust import ModelReadings
from wva.model.in_time import ServedLately, ServedShare
from wva.model.memory import Block, Correction, Foresight, Level, Memory, Slot
from wva.model.metrics import ReplicaMetrics
from wva.model.objectives import Objectives
from wva.model.policy import MAX_KEEP_WARM_SECONDS, MAX_SURGE_FACTOR, Policy
from wva.model.records import replace
from wva.model.roles import DECODE, PREFILL, computes
from wva.model.usual import IDLE, LATELY_SECONDS, UsualDemand
from wva.model.variant import ModelKey, Variant, VariantKey
from wva.numbers import MAX_REPLICAS

_SLOT_SECONDS: Final = 10.0  # cycles shorter than this share a slot; the first slot counts as this long
_LONGEST_REST_SECONDS: Final = 60.0  # demand that is held back while pods come and go counts after this time
_HOLD_CYCLES: Final = 2.0  # a single cycle with less demand removes no replica
_SLACK: Final = 0.05  # share of the demand that a shrink leaves as capacity beyond it
_COVERED: Final = 0.7  # share of the hold that cycles must have covered before a replica goes
_DRAIN_SHARE: Final = 0.25  # share of the lead time within which a backlog is drained
_SHORTEST_DRAIN_SECONDS: Final = 30.0  # to drain a backlog sooner costs replicas that are idle right after
_PATIENCE_SECONDS: Final = 120.0  # few users wait for longer
_LONG_WAIT_SECONDS: Final = 30.0  # users who must wait for so long may give up
_CAUTION: Final = 0.5  # standard errors that are added to the level of demand
_JUMP_SHARE: Final = 0.5  # a jump within a cycle shows only in part, so this share of it is added
_BRIEF_SECONDS: Final = 5.0  # a look has found a longer cycle calm, so the jump is younger: a part does not show
_DOUBT_SHARE: Final = 0.5  # so much of the error of a short cycle counts against a rise
_FULL: Final = 0.9  # replicas that are nearly full have so much of their capacity in use
_WAITING_SECONDS: Final = 1.0  # a shortage has ended when no more wait than arrive in this time
_MARGIN_SECONDS: Final = 30.0
_REACTION_SECONDS: Final = 40.0  # from a change of demand to the start of a pod: scrapes, a cycle, the scaler
_USUAL_START_SECONDS: Final = 120.0
_LONGEST_START_SECONDS: Final = 3600.0
_START_UPS: Final = 10
MOST_TIMES: Final = 16.0
"""WVA orders at most so many times the capacity of the Ready replicas, so a false number has a limited cost.

A variant without Ready replicas counts as if it had one.
"""
_START_UP_QUANTILE: Final = 0.8
_KEPT_SECONDS: Final = 1200.0
_MOST_LOST: Final = 2.0  # who loses more than half of the replicas at once is not prepared for it
_CLEARLY_MORE: Final = 1.5  # what earlier days had counts if it is so many times the level; days are alike below that
_STEADY_SECONDS: Final = 900.0  # demand that has been alike for so long stays for long enough for any move
_at: Final = attrgetter("at")
_rate: Final = attrgetter("rate")


def foresee(
    needs: Sequence[Need],
    models: Sequence[ModelReadings],
    memory: Memory,
    policy: Policy,
    now: float,
    *,
    woken: bool = False,
    urgent: Collection[ModelKey] = (),
) -> tuple[list[Need], Memory]:
    """Return the needs of the models, in their order, and the memory with what was foreseen.

    A need that is no rate stays as it is. If a model has two needs, the larger one counts from here on. ``woken``: the
    fast lane began the cycle before its time. ``urgent``: the models for which it did so.
    """
    before = {entry.key: entry for entry in memory.foreseen}
    foreseen, entries = [], []
    for need, model in zip(_of_all_stages(needs, models), models, strict=True):
        parts = [need] if need.second is None else [replace(need, second=None), need.second]
        decidable = parts if need.hold is None else []
        indices = [index for index, part in enumerate(decidable) if part.rate is not None and part.hold is None]
        if indices:
            keep_warm = policy.saturation_for(model.key).keep_warm
            ahead, entry = forecast_of(
                parts[indices[0]],
                [variant.progress.variant for variant in model.variants],
                {variant.key: variant.replicas for variant in model.variants},
                before.get(model.key) or Foresight(model.key),
                now=now,
                woken=woken,
                urgent=model.key.whole in urgent,
                keep_warm=inf if keep_warm >= MAX_KEEP_WARM_SECONDS else keep_warm,
                deadline=model.policy.transition_deadline_seconds,
                surge_factor=policy.saturation_for(model.key).surge_factor,
                served=model.served,
                usual=model.usual,
            )
            entries.append(entry)
            parts[indices[0]] = ahead
            for index in indices[1:]:  # both rates are of the same demand, so both get this forecast
                parts[index] = _as_foreseen(parts[index], ahead)
        elif model.key in before:
            entries.append(before[model.key])
        foreseen.append(parts[0] if len(parts) == 1 else larger(parts[0], parts[1], model))
    return foreseen, replace(memory, foreseen=tuple(entries))


def _of_all_stages(needs: Sequence[Need], models: Sequence[ModelReadings]) -> list[Need]:
    """Return the needs, each with the requests that will come to its pods from pods of another role.

    If more requests come to prefill pods than these get through, the rest will come to decode pods once there are more
    prefill pods, as many as their maxima allow. Decode pods that are ordered now are Ready by then.
    """
    stuck: dict[ModelKey, float] = {}
    for need, model in zip(needs, models, strict=True):
        if need.rate is not None and need.hold is None and not computes(model.key.role, DECODE):
            through = _through(need, need.rate, {variant.key: len(variant.replicas) for variant in model.variants})
            maxima = {variant.key: variant.progress.variant.bounds.clamp(MAX_REPLICAS) for variant in model.variants}
            attainable = min(need.demand, _through(need, need.rate, maxima))
            stuck[model.key.whole] = stuck.get(model.key.whole, 0.0) + max(0.0, attainable - through)
    if not any(stuck.values()):
        return list(needs)
    return [
        need if computes(model.key.role, PREFILL) else _with_more(need, stuck.get(model.key.whole, 0.0))
        for need, model in zip(needs, models, strict=True)
    ]


def _with_more(need: Need, demand: float) -> Need:
    """Return a need with more demand, if it is a rate."""
    if not demand or need.rate is None or need.hold is not None:
        return need
    return replace(need, demand=need.demand + demand, rate=replace(need.rate, scraped=need.rate.scraped + demand))


def _through(need: Need, rate: DemandRate, counts: Mapping[VariantKey, int]) -> float:
    """Return how much demand these replicas get through, perhaps late, if that is known; else what they carry."""
    return (rate.answers or need.carried)(counts)


def _as_foreseen(need: Need, ahead: Need) -> Need:
    """Return a need with the forecast of ``ahead``, a need whose demand is the same."""
    forecast = ahead.rate
    rate = (
        need.rate
        and forecast
        and replace(need.rate, error=forecast.error, stays=forecast.stays, lasted=forecast.lasted)
    )
    return replace(need, demand=ahead.demand, required=ahead.required, sufficient=ahead.sufficient, rate=rate)


class _Cycle(Struct, frozen=True, gc=False):
    """What is known of a model before its forecast. Times in seconds, amounts in the unit of the need."""

    demand: float
    rate: DemandRate
    memory: Foresight
    now: float
    seconds: float  # since the cycle before; the first cycle counts as long as the shortest slot
    woken: bool  # whether the fast lane began it, for any model
    urgent: bool  # whether it did so for this model; not in its first cycle, as nothing was known of it before
    start: float  # how long a replica takes to start
    lead: float  # the time from a change of demand until a replica that is ordered for it serves
    until: float  # in how many seconds the replicas under way serve; the lead time if there are none
    serving: float  # what the Ready replicas get through, perhaps late, if that is known; else what they carry
    carried: float  # what the Ready replicas carry within targets
    ordered: float  # the same as ``serving``, for all replicas that are asked for, whether they serve or not
    most: float  # the largest capacity that may be ordered
    ready: Numbers  # the Ready replicas as the API server counts them
    lost: float  # how many times as much they would carry if no replica had vanished since the cycle before
    taken: bool  # whether another writer has taken replicas away lately
    moving: bool  # whether the replicas that serve are about to change, or have just changed

    @property
    def short(self) -> bool:
        """Whether it began because the load of the model had risen, less than 10 s after the cycle before."""
        return self.urgent and self.seconds < _SLOT_SECONDS

    @property
    def regular(self) -> float:
        """How long the last cycle was that the fast lane had woken for no model; 0 before there is one."""
        if self.memory.at is None:
            return 0.0
        return self.memory.regular or self.seconds if self.woken else self.seconds


class _Attainment(Struct, frozen=True, gc=False):
    """The share of requests in time that users got from the pods of a role, beside the share that they shall get."""

    share: ServedShare | None  # of the requests in the time before ``at``; None if that is not known
    at: float
    objectives: Objectives  # what they shall get


class _Series(Struct, frozen=True, gc=False):
    """The demand of the past, and that of this cycle.

    ``_outlook`` finds out whether this cycle shows a jump, and sets ``jumps``. Then ``slots`` and ``left`` change, too.
    """

    before: tuple[Slot, ...]  # the slots without this cycle
    rest: Slot  # demand that earlier cycles counted and that is in none of these slots; 0 seconds long without any
    measured: Slot  # the rest and this cycle together, as measured
    slot: Slot  # the same, as it counts after the corrections of ``_series``
    waits: bool  # whether ``slot`` waits for more cycles before it becomes one of the slots
    shows: bool  # whether this cycle is short, and what it shows counts for itself
    jumps: bool = False  # whether this cycle shows a jump; then the slot ends here, and is partial

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slots after this cycle."""
        if self.waits and not self.jumps:
            return self.before
        return (*self.before, replace(self.slot, early=False, partial=self.jumps))

    @property
    def left(self) -> Slot | None:
        """The rest after this cycle."""
        return self.slot if self.waits and not self.jumps else None


class _Outlook(Struct, frozen=True, gc=False):
    """The demand per second that a series shows."""

    series: _Series
    dispersion: float
    level: Pace  # of the whole slots, without what usually ends before a replica has started
    certain: float  # the level less one standard error, with the demand that usually ends
    newest: Pace  # the level, or what short cycles have shown lately if that is more
    shown: float  # what short cycles have shown lately, plus the part of a jump that does not show; 0 without any
    likely: float  # what short cycles have shown lately, less one standard error; 0 without any
    levels: tuple[Level, ...]


class _Held(Struct, frozen=True, gc=False):
    """What a shrink must leave."""

    history: tuple[tuple[float, float], ...]  # when, and for what demand there had to be replicas; the highest first
    sufficient: float  # the capacity that a shrink must leave
    stays: tuple[tuple[float, str], ...]  # the same in parts, each with its reason: ``DemandRate.stays``


class _Readiness(Struct, frozen=True, gc=False):
    """The demand for which there have to be replicas, apart from what waits."""

    foreseen: float  # at the end of the lead time
    reserved: float  # with the reserve, and with what short cycles have shown
    held: float  # the same, but what short cycles have shown counts less one standard error
    usual: float  # what earlier days had within the lead time, where that is clearly more than now; else 0
    present: float  # ``reserved`` without what earlier days had
    blocks: tuple[Block, ...]


class _Required(Struct, frozen=True, gc=False):
    """The capacity that is needed, also to drain what waits."""

    required: float  # what there must be
    with_backlog: float  # what the present demand asks for, with all that will wait
    drained: float  # what the foreseen demand asks for, with what waits when the replicas under way serve


def forecast_of(
    need: Need,
    variants: Sequence[Variant],
    replicas: Mapping[VariantKey, Sequence[ReplicaMetrics]],
    memory: Foresight,
    *,
    now: float,
    woken: bool = False,
    urgent: bool = False,
    keep_warm: float = inf,
    deadline: float = inf,
    surge_factor: float = MAX_SURGE_FACTOR,
    served: ServedLately | None = None,
    usual: UsualDemand | None = None,
) -> tuple[Need, Foresight]:
    """Return the need for the time after the lead time, and what to remember.

    ``woken``: the fast lane began the cycle before its time; ``urgent``: for this model. ``keep_warm``: for how many
    seconds unneeded replicas may stay; infinite: for as long as it pays; 0: they may go in the cycle that shows less
    demand. ``deadline``: after how many seconds a pod that is not Ready no longer counts. ``surge_factor``: how many
    times the demand may be ordered for a backlog, and for the part of a jump that does not show yet. ``usual``: what
    earlier days had after this time of day.
    """
    if memory.at is not None and now < memory.at:
        # The clock was set back: forget everything that has a time.
        memory = Foresight(need.key, dispersion=memory.dispersion, start_ups=memory.start_ups)
    if need.rate is None or now == memory.at:
        return need, memory
    attainment = _attainment(need, served)
    if attainment is not None:
        memory = for_objectives(memory, attainment.objectives, now)
    start_ups = _start_ups(variants, replicas, memory, now)
    ready = {variant.key: len(replicas.get(variant.key, ())) for variant in variants}
    cycle = _cycle(
        need, need.rate, variants, ready, memory, start_ups, now=now, woken=woken, urgent=urgent, deadline=deadline
    )
    outlook = _outlook(cycle, _series(cycle), surge_factor)
    price = (
        memory.price
        if attainment is None
        else warm.priced(memory.price, attainment.share, at=attainment.at, in_time=attainment.objectives.in_time)
    )
    readiness = _readiness(cycle, outlook, price.worth, keep_warm, usual)
    capacity = _required(cycle, outlook, readiness, surge_factor)
    held = _hold(cycle, outlook, readiness, capacity, keep_warm)
    correction = _correction(cycle, outlook, readiness, attainment)
    factor = correction.factor
    # A short cycle began because the load of the model had risen. So less of what it shows may be chance.
    error = outlook.newest.error * (_DOUBT_SHARE if outlook.series.shows else 1.0)
    need = replace(
        need,
        demand=outlook.newest.rate,
        required=min(capacity.required * factor, cycle.most),
        sufficient=held.sufficient * factor,
        summary=f"{need.summary}{_usual_words(readiness.usual, usual)}{_correction_words(factor)}",
        rate=replace(
            need.rate,
            error=error,
            stays=tuple([(amount * factor, words) for amount, words in held.stays]),
            lasted=inf if outlook.level.lasted > _STEADY_SECONDS else outlook.level.lasted / cycle.lead,
        ),
    )
    asked = asked_for(variants)
    trial, regret = tried(memory, asked, demand=need.demand, carries=need.carried, now=now)
    need = regretting(need, regret, now)
    memory = Foresight(
        need.key,
        _begun(cycle),
        now,
        outlook.series.slots,
        outlook.series.left,
        outlook.dispersion,
        held.history,
        readiness.blocks,
        outlook.levels,
        tuple(sorted(start_ups.items())),
        cycle.regular,
        correction,
        asked,
        trial,
        regret,
        price,
        cycle.ready,
        memory.objectives,
    )
    return need, memory


def _usual_words(demand: float, usual: UsualDemand | None) -> str:
    """Return what earlier days had in words, to follow the figures of a need; nothing if it does not count."""
    if usual is None or not demand:
        return ""
    return f"; on the {usual.days} earlier days that were like today, demand soon rose to {demand:.3g}"


def _correction_words(factor: float) -> str:
    """Return the factor in words, to follow the figures of a need; nothing if it is 1."""
    return f"; users got less than was planned, so {factor:.3g} times as much is asked for" if factor > 1.0 else ""


def _correction(cycle: _Cycle, outlook: _Outlook, readiness: _Readiness, attainment: _Attainment | None) -> Correction:
    """3.6 What users got: return by which factor WVA asks for more than seems to be needed.

    Requests that still wait after a shortage are late because of it, so the shortage lasts until they are gone.
    """
    rate, before = cycle.rate, cycle.memory.correction
    if attainment is None:
        return before
    short = cycle.carried < max(outlook.newest.rate, readiness.present) or rate.refused or cycle.taken
    draining = before.short and rate.backlog > _WAITING_SECONDS * cycle.carried
    room = None if short or draining else cycle.carried / max(readiness.present, 1e-9)
    return corrected(
        before,
        attainment.share,
        at=attainment.at,
        in_time=attainment.objectives.in_time,
        room=room,
        demand=outlook.newest.rate,
        now=cycle.now,
    )


def _start_ups(
    variants: Sequence[Variant],
    replicas: Mapping[VariantKey, Sequence[ReplicaMetrics]],
    memory: Foresight,
    now: float,
) -> dict[VariantKey, tuple[float, ...]]:
    """Return how long the last pods of each variant took to start, in seconds, the newest last.

    Until a start time is known, all Ready pods count, however long ago they started. A pod that took a very long time
    does not count.
    """
    remembered, start_ups = dict(memory.start_ups), {}
    for variant in variants:
        before = remembered.get(variant.key, ())
        since = memory.at - 1.0 if before and memory.at is not None else -inf
        fresh = [
            (pod.ready_since, pod.start_seconds)
            for pod in replicas.get(variant.key, ())
            if pod.ready_since is not None
            and since < pod.ready_since <= now
            and pod.start_seconds is not None
            and pod.start_seconds < _LONGEST_START_SECONDS
        ]
        start_ups[variant.key] = (*before, *[seconds for _, seconds in sorted(fresh)])[-_START_UPS:]
    return start_ups


def _cycle(
    need: Need,
    rate: DemandRate,
    variants: Sequence[Variant],
    ready: Mapping[VariantKey, int],
    memory: Foresight,
    start_ups: Mapping[VariantKey, Sequence[float]],
    *,
    now: float,
    woken: bool,
    urgent: bool,
    deadline: float,
) -> _Cycle:
    """Return what is known of a model; ``ready`` are its Ready replicas."""
    unready = [now - variant.oldest_unready_since for variant in variants if variant.oldest_unready_since is not None]
    # If in doubt, the longer time to start counts.
    starts = [age for age in unready if age < _LONGEST_START_SECONDS]
    for times in start_ups.values():
        ascending = sorted(times or (_USUAL_START_SECONDS,))  # if at most three are known, the longest counts
        starts.append(ascending[int(_START_UP_QUANTILE * (len(ascending) - 1) + 0.5)])
    start = min(max(starts, default=_USUAL_START_SECONDS), deadline)
    lead = _REACTION_SECONDS + start
    # While a capacity is uncertain, only demand beyond what replicas get through late is sure to pile up.
    asked = dict(asked_for(variants))
    ready_numbers: Numbers = tuple(sorted([(variant.key, variant.ready_replicas) for variant in variants]))
    serving = _through(need, rate, ready)
    ordered = _through(need, rate, asked)
    taken_at = [variant.taken_at for variant in variants if variant.taken_at is not None]
    taken = now - max(taken_at, default=-inf) < lead + _PATIENCE_SECONDS
    return _Cycle(
        demand=need.demand,
        rate=rate,
        memory=memory,
        now=now,
        seconds=_SLOT_SECONDS if memory.at is None else now - memory.at,
        woken=woken,
        urgent=urgent and memory.at is not None,
        start=start,
        lead=lead,
        until=max(0.0, start - max(unready)) if unready else lead,
        serving=serving,
        carried=need.carried(ready),
        ordered=ordered,
        most=MOST_TIMES * need.carried({key: max(1, count) for key, count in ready.items()}),
        ready=ready_numbers,
        lost=1.0 if taken else _lost(need, memory.ready, ready_numbers, asked),
        taken=taken,
        moving=taken or rate.unsettled or bool(unready) or ordered > serving,
    )


def _lost(need: Need, before: Numbers, ready: Numbers, asked: Mapping[VariantKey, int]) -> float:
    """Return how many times as much the Ready replicas would carry if none had vanished, at most twice as much.

    A replica has vanished if it was Ready in the cycle before, and is still asked for.
    """
    before_counts, ready_counts = dict(before), dict(ready)
    without_loss = {
        key: max(count, min(before_counts.get(key, 0), asked.get(key, 0))) for key, count in ready_counts.items()
    }
    if without_loss == ready_counts:
        return 1.0
    carried = need.carried(ready_counts)
    return min(_MOST_LOST, need.carried(without_loss) / carried) if carried > 0.0 else _MOST_LOST


def _series(cycle: _Cycle) -> _Series:
    """3.1 Series: return the demand of the past with that of this cycle.

    A gateway sends many requests to a new pod, and the last scrapes of the other pods are older than that. So demand
    seems to be more in one cycle, and less in the next. While pods come and go, demand above the usual level is kept as
    the rest, and counts when this has evened out.
    """
    rate, memory, now = cycle.rate, cycle.memory, cycle.now
    slots = memory.slots[bisect_right(memory.slots, now - _KEPT_SECONDS, key=_at) :]
    nothing = Slot(now, 0.0, 0.0)
    rest = memory.rest or nothing
    if rest.early and rate.unsettled:
        # What short cycles have shown before pods came counts. The demand from now on may have to even out.
        slots, rest = (*slots, replace(rest, early=False)), nothing
    # The rest stays marked while short cycles go on, unless pods come or go.
    early = not rate.unsettled and (rest.early or (cycle.short and not rest.seconds))
    measured = slot = Slot(now, rest.seconds + cycle.seconds, rest.amount + cycle.demand * cycle.seconds, early)
    uneven, long_wait = False, rate.backlog > _LONG_WAIT_SECONDS * cycle.serving
    if slots and (rate.unsettled or long_wait or cycle.taken):
        amount, length, _ = alike(slots, memory.dispersion)
        usual = amount / length * slot.seconds
        if cycle.taken and cycle.serving * slot.seconds < usual:
            # Users who are turned away or give up try again, and no counter tells a second try from a new request.
            slot = replace(slot, amount=min(slot.amount, usual))
        if long_wait:
            # Some users give up, and no counter shows that. So demand counts as no less than before.
            slot = replace(slot, amount=max(slot.amount, usual))
        uneven = rate.unsettled and slot.amount > usual and slot.seconds < _LONGEST_REST_SECONDS
    waits = uneven or slot.seconds < _SLOT_SECONDS
    slot = replace(slot, partial=uneven or rest.partial)
    return _Series(slots, rest, measured, slot, waits, cycle.short and not uneven)


def _outlook(cycle: _Cycle, series: _Series, surge_factor: float) -> _Outlook:
    """3.2 Level and rise: return the demand that the series shows."""
    slots, dispersion = series.slots, cycle.memory.dispersion
    if not series.waits and len(slots) > 1:
        dispersion = dispersed(dispersion, slots[-2], series.measured)
    # Slots at the end that are shorter than ``_SLOT_SECONDS`` end with a jump. ``_lately`` is about them and about
    # short cycles.
    whole = len(slots)
    while whole > 1 and slots[whole - 1].seconds < _SLOT_SECONDS:
        whole -= 1
    # Users who give up in a surge come again, and when that ends, demand seems to fall. So a fall counts only in calm
    # times.
    calm = cycle.memory.correction.calm
    level = newest = pace(slots[:whole], dispersion, falls=calm is not None and calm <= cycle.now)
    shown = likely = 0.0
    if series.shows or whole < len(slots):
        lately = _lately(cycle, series, dispersion)
        newest = max(level, lately, key=_rate)
        # After a jump only some seconds are known, so one standard error is added for caution.
        shown = lately.rate + (lately.error if whole < len(series.before) else 0.0)
        likely = max(0.0, lately.rate - lately.error)
        if series.shows and series.waits and lately.jump and whole == len(series.before):
            hidden = _JUMP_SHARE * lately.jump if cycle.seconds > _BRIEF_SECONDS else 0.0
            # The part that does not show is bounded here; ``_required`` bounds what waits.
            shown = min(shown + hidden, max(lately.rate, surge_factor * likely))
            series = replace(series, jumps=True)
    certain = max(0.0, level.rate - level.error)
    levels = warm.updated_levels(cycle.memory.levels, level.rate, now=cycle.now, shortest=cycle.lead)
    usual = warm.lasting(levels, level.rate, now=cycle.now, seconds=cycle.start)
    if usual < level.rate:
        level = Pace(usual, level.error, 0.0, 0.0, level.lasted)
    return _Outlook(series, dispersion, level, certain, newest, shown, likely, levels)


def _lately(cycle: _Cycle, series: _Series, dispersion: float) -> Pace:
    """Return the pace with what short cycles show: all slots, the rest, and this cycle if it counts for itself.

    A rest that has to even out does not count yet. This cycle counts with no more demand than came between the last two
    scrapes of each pod.
    """
    pieces = series.before
    if series.rest.seconds and not series.rest.partial:
        pieces = (*pieces, series.rest)
    if series.shows:
        pieces = (*pieces, Slot(cycle.now, cycle.seconds, min(cycle.demand, cycle.rate.scraped) * cycle.seconds))
    return pace(pieces, dispersion)


def _attainment(need: Need, served: ServedLately | None) -> _Attainment | None:
    """Return what users got of the pods of a need; None without an objective."""
    aim = next(iter(need.aims.values()), None)
    if aim is None:
        return None
    share = None if served is None else served.of(need.key.role)
    return _Attainment(share, 0.0 if served is None else served.at, aim.objectives)


def _usual(cycle: _Cycle, outlook: _Outlook, usual: UsualDemand) -> float:
    """Return the demand that earlier days had within the lead time, 0 if it is not clearly more than now.

    The requests of a model are counted at all pods that serve it, and those of a model in roles at the pods of each
    role. So the part of it counts that these variants have had lately. While there were no requests, all of it counts,
    but not for a role.
    """
    begun = usual.at - LATELY_SECONDS
    own = [slot for slot in outlook.series.slots if begun < slot.at <= usual.at]
    part = 0.0 if cycle.memory.key.role else 1.0
    if usual.lately > IDLE:
        seconds, amount = sum([slot.seconds for slot in own]), sum([slot.amount for slot in own])
        part = min(1.0, amount / (seconds * usual.lately)) if own else 0.0
    highest = part * usual.within(cycle.lead + _MARGIN_SECONDS, now=cycle.now)
    return highest if highest > _CLEARLY_MORE * outlook.level.rate else 0.0


def _readiness(
    cycle: _Cycle, outlook: _Outlook, worth: float, keep_warm: float, earlier: UsualDemand | None
) -> _Readiness:
    """3.3 Reserve: return the demand to be ready for, if a missed replica costs ``worth`` times its price.

    What earlier days had was foreseen, so it is no surprise when it comes.
    """
    level, now, lead = outlook.level, cycle.now, cycle.lead
    foreseen = level.at(lead) + _CAUTION * level.error
    usual = 0.0 if earlier is None or keep_warm < inf else _usual(cycle, outlook, earlier)
    # A loss of replicas counts like that much more demand.
    rate = cycle.lost * outlook.certain
    blocks = warm.observed(cycle.memory.blocks, foreseen=max(foreseen, usual), rate=rate, now=now, seconds=lead)
    surprise = warm.reserve(blocks, foreseen=foreseen, now=now, worth=worth)
    soon = lead + _MARGIN_SECONDS
    worthwhile = warm.worth_keeping(outlook.levels, surprise, now=now, seconds=soon, longest=keep_warm)
    expected = max(foreseen, worthwhile)
    return _Readiness(
        foreseen,
        max(outlook.shown, expected, usual),
        max(outlook.likely, expected, usual),
        usual,
        max(outlook.shown, expected),
        blocks,
    )


def _required(cycle: _Cycle, outlook: _Outlook, readiness: _Readiness, surge_factor: float) -> _Required:
    """3.4 Backlog: return the capacity that is needed, so that what waits is drained, too.

    Requests that engines refuse do not wait. They count in full, perhaps several times, so nothing is added for a jump
    in them. Where capacities leave room for chance, and replicas get through what comes, a jump that only one cycle has
    shown counts less one standard error, and nothing is added for the part that does not show.
    """
    rate, level, foreseen = cycle.rate, outlook.level, readiness.foreseen
    drain = max(_DRAIN_SHARE * cycle.lead, _SHORTEST_DRAIN_SECONDS)
    waiting, later = _backlogs(cycle, level.rate - rate.refused)
    unhurried = rate.roomy and not later
    hidden = 0.0 if unhurried else _JUMP_SHARE * max(0.0, level.jump - rate.refused)
    with_backlog = foreseen + hidden + later / drain
    if outlook.shown:
        with_backlog = max(with_backlog, outlook.shown + rate.backlog / drain)
    if cycle.taken:
        # What another writer takes away comes back with the next write of the scaler. More replicas would not come
        # sooner, and the other writer would take them away, too. So what piles up meanwhile asks for no replicas.
        with_backlog, waiting = foreseen, 0.0
    piled_up = _piled_up(cycle, level)
    if piled_up > 0:
        with_backlog = max(with_backlog, cycle.carried + piled_up / drain)
    sure = max(outlook.likely, foreseen - level.error)
    required = max(readiness.reserved, min(with_backlog, surge_factor * sure))
    if unhurried and level.jump:
        required = max(0.0, required - (1.0 + _CAUTION) * level.error)
    return _Required(min(required, cycle.most), with_backlog, foreseen + waiting / drain)


def _piled_up(cycle: _Cycle, level: Pace) -> float:
    """Return the requests in progress beyond those that the replicas carry, in a cycle woken for the model; else 0.

    Such a cycle began because the model had, or would soon have, more in progress than its replicas carry. If requests
    wait, no replicas come or go, and the replicas are nearly full by their rate, too, then the difference has piled up,
    whatever the rate of these few seconds says.
    """
    rate = cycle.rate
    if cycle.urgent and rate.backlog and not cycle.moving and level.rate + level.error > _FULL * cycle.carried:
        return max(0.0, rate.in_progress - rate.ceiling)
    return 0.0


def _backlogs(cycle: _Cycle, let_in: float) -> tuple[float, float]:
    """Return the requests that will wait at two times, if ``let_in`` per second are let in.

    The first time is when the replicas under way serve; at least the requests that wait now count. The second is when
    replicas that are ordered now serve.
    """
    backlog, until = cycle.rate.backlog, cycle.until
    first = max(0.0, backlog + (let_in - cycle.serving) * min(until, _PATIENCE_SECONDS))
    later = max(0.0, first + (let_in - max(cycle.serving, cycle.ordered)) * (cycle.lead - until))
    return max(backlog, first), later


def _begun(cycle: _Cycle) -> float:
    """Return when the demand was known first."""
    return cycle.now if cycle.memory.begun is None else cycle.memory.begun


def _hold(cycle: _Cycle, outlook: _Outlook, readiness: _Readiness, capacity: _Required, keep_warm: float) -> _Held:
    """3.5 Hold: return what a shrink must leave.

    The history keeps only demand that is higher than now, so its first entry is the highest of the hold. Demand that
    usually ends before a replica has started asks for no new replica, but the replicas that serve it stay until it has
    ended.
    """
    now, memory, slack, series = cycle.now, cycle.memory, 1.0 + _SLACK, outlook.series
    hold = min(keep_warm, max(cycle.start, _REACTION_SECONDS, _HOLD_CYCLES * cycle.regular))
    # Demand that falls on a line is not lower by chance, so what was needed before is not held.
    since = now if outlook.level.rise < 0.0 else now - hold
    higher = [entry for entry in memory.reserved if entry[0] > since and entry[1] > readiness.held]
    held_history = (*higher, (now, readiness.held))
    highest = held_history[0][1] * slack
    # A short cycle began because the load of a model had risen, so what it shows is no reason to shrink.
    measured = series.measured.amount / series.measured.seconds if cycle.short else 0.0
    staying = warm.staying(outlook.levels, outlook.certain, now=now, seconds=hold)
    present = max(capacity.with_backlog, readiness.foreseen * slack, measured * slack, capacity.drained, staying)
    if now - _begun(cycle) < hold * _COVERED:
        sufficient, stays = inf, [(inf, f"nothing shrinks before demand is known for {hold * _COVERED:.0f} s")]
    else:
        sufficient = max(capacity.required, capacity.drained, measured * slack, highest, staying)
        words = "demand often rises to what they carry, so replicas stay while that is likely"
        if readiness.usual > readiness.present:
            words = "on earlier days demand soon rose to what they carry, so replicas stay for that"
        stays = [
            (readiness.reserved * slack, words),
            (highest, f"replicas stay for {hold:.0f} s after demand has fallen"),
        ]
    return _Held(held_history, sufficient, ((present, ""), *stays) if stays[-1][0] > present else ())
