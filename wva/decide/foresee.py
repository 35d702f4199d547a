"""Step 3: the capacity that a model will need when replicas that are ordered now serve.

``foresee`` takes the needs whose demand is a rate, and sets the fields that ``_FORESEEN`` names. ``demand`` becomes the
level of step 2 below.

1. Series: the demand of each cycle. While requests wait long, users give up uncounted, so demand counts as no less
   than before.
2. Level and rise (``pace``): the demand after the lead time, which a replica takes to be ordered and to start. The
   level is the mean over the longest time before now that differs from the newest cycles by no more than chance. So a
   jump counts in the first cycle that shows it, and steady demand is averaged over many minutes. A short cycle that
   shows a jump counts for itself: only what came after it is averaged, and the level follows when that is known for
   some seconds. A rise counts only while a line describes it better than a jump does. A part of the demand that
   usually ends before the lead time is over does not count.
3. Reserve (``warm``): more for rises that often came unforeseen, and for levels that are likely to come back now.
4. Backlog: the requests that wait now and those that will wait by then, drained within a share of the lead time. In a
   short cycle these are also the requests in progress beyond what replicas carry, if these are nearly full. What drains
   a backlog is idle soon after, so for it no more is ordered than ``surge_factor`` times the demand that is sure.
5. Hold: no replica goes before demand has been lower for the longest of a start, a reaction, and two cycles. Of what a
   short cycle has shown, one standard error less is held.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, sqrt
from operator import attrgetter
from typing import Final

from wva.decide import warm
from wva.decide.measure import larger
from wva.decide.measure.need import Need
from wva.decide.trust import ModelReadings
from wva.model.memory import Foresight, Memory, Slot
from wva.model.metrics import ReplicaMetrics
from wva.model.policy import MAX_KEEP_WARM_SECONDS, MAX_SURGE_FACTOR, Policy
from wva.model.records import replace
from wva.model.variant import Variant, VariantKey

_SHORTEST_SECONDS: Final = 10.0  # cycles shorter than this share a slot; the first slot counts as this long
_LONGEST_SECONDS: Final = 60.0  # demand that is held back while pods come and go counts after this time
_HOLD_CYCLES: Final = 2.0  # a single cycle with less demand removes no replica
_SLACK: Final = 0.05  # share of the demand that a shrink leaves as capacity beyond it
_COVERED: Final = 0.7  # share of the hold that cycles must have covered before a replica goes
_DRAIN_SHARE: Final = 0.25
_SHORTEST_DRAIN_SECONDS: Final = 30.0  # to drain a backlog sooner costs replicas that are idle right after
_PATIENCE_SECONDS: Final = 120.0  # few users wait for longer
_LONG_WAIT_SECONDS: Final = 30.0  # users who must wait for so long may give up
_CAUTION: Final = 0.5  # standard errors that are added to the level of demand
_JUMP_SHARE: Final = 0.5  # a jump within a cycle shows only in part, so this share of it is added
_BRIEF_SECONDS: Final = 5.0  # at least one look has found a longer cycle calm, so most of the jump does not show in it
_SURE_SHARE: Final = 0.5  # so much of the error of a short cycle counts against a rise
_EARLY_SECONDS: Final = 14.0  # a cycle that is shorter has most probably begun before its time
_FULL: Final = 0.9  # replicas that are nearly full have so much of their capacity in use
_MARGIN_SECONDS: Final = 30.0
_REACTION_SECONDS: Final = 40.0  # from a change of demand to the start of a pod: scrapes, a cycle, the scaler
_USUAL_START_SECONDS: Final = 120.0
_LONGEST_START_SECONDS: Final = 3600.0
_START_UPS: Final = 10
MOST_TIMES: Final = 16.0
"""WVA orders at most so many times the capacity of the Ready replicas, so a false number has a limited cost."""
_START_UP_QUANTILE: Final = 0.8
_KEPT_SECONDS: Final = 1200.0
_DIFFERENT: Final = 2.6  # two means that are so many standard deviations apart show a change
_TREND_SECONDS: Final = (180.0, 360.0, 720.0)
_FEWEST: Final = 6
_CERTAIN: Final = 2.5  # a rise counts if it is so many times its standard error
_STEEPEST: Final = 1.0  # a rise adds at most this share of the level
_SURPRISE: Final = 8.0
_MEMORY: Final = 0.05
_FORESEEN: Final = ("demand", "error", "required", "sufficient", "stays")  # what this step sets
_amount: Final = attrgetter("amount")
_seconds: Final = attrgetter("seconds")
_at: Final = attrgetter("at")
_rate: Final = attrgetter("rate")
_partial: Final = attrgetter("partial")


def foresee(
    needs: Sequence[Need], models: Sequence[ModelReadings], memory: Memory, policy: Policy, now: float
) -> tuple[list[Need], Memory]:
    """Return the needs of the models, in their order, and the memory with what was foreseen.

    A need that is not ``foreseeable`` stays as it is. Of two needs of a model the larger one counts from here on.
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
                surge_factor=policy.saturation_for(model.key).surge_factor,
            )
            kept.append(entry)
            parts[rates[0]] = ahead
            for at in rates[1:]:  # both rates are of the same demand, so both get this forecast
                parts[at] = replace(parts[at], **{name: getattr(ahead, name) for name in _FORESEEN})
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
    surge_factor: float = MAX_SURGE_FACTOR,
) -> tuple[Need, Foresight]:
    """Return the need for the time after the lead time, and what to remember.

    ``keep_warm``: for how many seconds unneeded replicas may stay; infinite: for as long as it pays. ``deadline``:
    after how many seconds a pod that is not Ready no longer counts. ``surge_factor``: how many times the demand may be
    ordered for a backlog, and for the part of a jump that does not show yet.
    """
    if memory.at is not None and now < memory.at:
        # The clock was set back: forget everything that has a time.
        memory = Foresight(need.key, dispersion=memory.dispersion, start_ups=memory.start_ups)
    if not need.foreseeable or now == memory.at:
        return need, memory
    # How long a pod takes to start, in seconds. If in doubt, the longer time counts. Until a start time is known, all
    # Ready pods count, however long ago they started. Kubernetes gives times in whole seconds. No engine starts within
    # one second, so a pod that seems to have done so does not count, nor does one that took a very long time.
    remembered, start_ups = dict(memory.start_ups), {}
    for variant in variants:
        before = remembered.get(variant.key, ())
        since = memory.at - 1.0 if before and memory.at is not None else -inf
        fresh = [
            (pod.ready_since, pod.ready_since - pod.created)
            for pod in replicas.get(variant.key, ())
            if pod.ready_since is not None
            and since < pod.ready_since <= now
            and pod.created is not None
            and 0.0 < pod.ready_since - pod.created < _LONGEST_START_SECONDS
        ]
        start_ups[variant.key] = (*before, *[seconds for _, seconds in sorted(fresh)])[-_START_UPS:]
    unready = [now - variant.oldest_unready_since for variant in variants if variant.oldest_unready_since is not None]
    starts = [age for age in unready if age < _LONGEST_START_SECONDS]
    for times in start_ups.values():
        known = sorted(times or (_USUAL_START_SECONDS,))  # if at most three are known, the longest counts
        starts.append(known[int(_START_UP_QUANTILE * (len(known) - 1) + 0.5)])
    start = min(max(starts, default=_USUAL_START_SECONDS), deadline)
    through = need.answers or need.carried
    ready = {variant.key: len(replicas.get(variant.key, ())) for variant in variants}
    serving, bearing = through(ready), need.carried(ready)
    # 1 Series. A gateway sends many requests to a new pod, and the last scrapes of the other pods are older than that.
    # So demand seems to be more in one cycle, and less in the next. While pods come and go, demand above the usual
    # level is kept as the ``rest`` and counts when this has evened out.
    seconds = _SHORTEST_SECONDS if memory.at is None else now - memory.at
    slots = memory.slots[bisect_right(memory.slots, now - _KEPT_SECONDS, key=_at) :]
    nothing = Slot(now, 0.0, 0.0)
    rest = memory.rest or nothing
    if rest.early and need.unsettled:
        # What short cycles have shown before pods came counts. What comes from now on may have to even out.
        slots, rest = (*slots, replace(rest, early=False)), nothing
    short = not need.unsettled and (rest.early or (seconds < _SHORTEST_SECONDS and not rest.seconds))
    told = slot = Slot(now, rest.seconds + seconds, rest.amount + need.demand * seconds, short)
    uneven, long_wait = False, need.backlog > _LONG_WAIT_SECONDS * serving
    if slots and (need.unsettled or long_wait):
        amount, length, _ = _alike(slots, memory.dispersion)
        usual = amount / length * slot.seconds
        if long_wait:
            # Some users give up, and no counter shows that. So demand counts as no less than before.
            slot = replace(slot, amount=max(slot.amount, usual))
        uneven = need.unsettled and slot.amount > usual and slot.seconds < _LONGEST_SECONDS
    waits = uneven or slot.seconds < _SHORTEST_SECONDS
    former, slots = slots, slots if waits else (*slots, replace(slot, early=False))
    left = slot if waits else None
    # 2 Level and rise
    dispersion = memory.dispersion
    if not waits and len(slots) > 1:
        dispersion = dispersed(dispersion, slots[-2], told)
    whole = len(slots)
    while whole > 1 and slots[whole - 1].seconds < _SHORTEST_SECONDS:
        whole -= 1
    level = pace(slots[:whole], dispersion)
    newest, early, likely = level, 0.0, 0.0
    shows = seconds < _SHORTEST_SECONDS and not uneven
    if shows or whole < len(slots):
        # A short cycle is one that began early, because the load has risen. A rise that is more than chance counts now.
        # A few seconds tell too little to forecast a backlog; what has piled up meanwhile is a reason for caution.
        pieces = (*former, rest) if rest.seconds else former
        if shows:
            pieces = (*pieces, Slot(now, seconds, min(need.demand, need.scraped) * seconds))
        lately = pace(pieces, dispersion)
        newest = max(level, lately, key=_rate)
        early = lately.rate + (lately.error if whole < len(former) else 0.0)
        likely = max(0.0, lately.rate - lately.error)
        if shows and waits and lately.jump and whole == len(former):
            hidden = _JUMP_SHARE * lately.jump if seconds > _BRIEF_SECONDS else 0.0
            early = min(early + hidden, max(lately.rate, surge_factor * likely))
            slots, left = (*former, replace(slot, early=False, partial=True)), None
    lead = _REACTION_SECONDS + start
    certain = max(0.0, level.rate - level.error)
    levels = warm.seen(memory.levels, level.rate, now=now, shortest=lead)
    usual = warm.lasting(levels, level.rate, now=now, seconds=start)
    if usual < level.rate:
        level = Pace(usual, level.error, 0.0, 0.0)
    # 3 Reserve
    foreseen = level.at(lead) + _CAUTION * level.error
    blocks = warm.observed(memory.blocks, foreseen=foreseen, rate=certain, now=now, seconds=lead)
    surprise = warm.reserve(blocks, foreseen=foreseen, now=now)
    soon = lead + _MARGIN_SECONDS
    worth = warm.worth_keeping(levels, surprise, now=now, seconds=soon, longest=keep_warm)
    reserved, keep = max(early, foreseen, worth), max(likely, foreseen, worth)
    # 4 Backlog: the requests that will wait when the replicas under way serve (at least those that wait now), and those
    # that will wait when replicas that are ordered now serve. Replicas may get through more than they carry within
    # targets; only demand beyond that piles up. What engines refuse does not wait. It counts in full, perhaps several
    # times, so no more is added for a jump in it either.
    asked = [one.spec_replicas if one.status_desired is None else one.status_desired for one in variants]
    coming = through({variant.key: count for variant, count in zip(variants, asked, strict=True)})
    until = max(0.0, start - max(unready)) if unready else lead
    let_in = level.rate - need.refused
    first = max(0.0, need.backlog + (let_in - serving) * min(until, _PATIENCE_SECONDS))
    later = max(0.0, first + (let_in - max(serving, coming)) * (lead - until))
    waiting = max(need.backlog, first)
    drain = max(_DRAIN_SHARE * lead, _SHORTEST_DRAIN_SECONDS)
    present = foreseen + _JUMP_SHARE * max(0.0, level.jump - need.refused) + later / drain
    if early:
        present = max(present, early + need.backlog / drain)
    # What another writer takes away comes back with the next write of the scaler. More replicas would not come sooner,
    # and this writer would take them away, too. So what piles up meanwhile asks for none.
    taken = [variant.taken_at for variant in variants if variant.taken_at is not None]
    cut = now - max(taken, default=-inf) < lead + _PATIENCE_SECONDS
    if cut:
        present, waiting = foreseen, 0.0
    moving = cut or need.unsettled or unready or coming > serving
    began_early = memory.at is not None and seconds < _EARLY_SECONDS
    if began_early and need.backlog and not moving and level.rate + level.error > _FULL * bearing:
        # This cycle began because more is in progress than replicas carry. They are nearly full by their rate, too. So
        # what is too much has piled up, whatever the rate of these few seconds says.
        over = need.in_progress - need.ceiling
        present = max(present, bearing + over / drain) if over > 0 else present
    required = max(reserved, min(present, surge_factor * max(likely, foreseen - level.error)))
    required = min(required, MOST_TIMES * need.carried({key: max(1, count) for key, count in ready.items()}))
    # 5 Hold
    cycle = 0.0 if memory.at is None else now - memory.at
    hold = min(keep_warm, max(start, _REACTION_SECONDS, _HOLD_CYCLES * cycle))
    kept = (*[entry for entry in memory.reserved if entry[0] > now - hold and entry[1] > keep], (now, keep))
    begun = now if memory.begun is None else memory.begun
    sufficient, slack = inf, 1.0 + _SLACK
    stays = [(inf, f"nothing shrinks before demand is known for {hold * _COVERED:.0f} s")]
    # A short cycle began because the load had risen, so what it shows is no reason to shrink.
    shown = told.amount / told.seconds if seconds < _SHORTEST_SECONDS else 0.0
    if now - begun >= hold * _COVERED:
        sufficient = max(required, foreseen + waiting / drain, shown * slack, kept[0][1] * slack)
        stays = [
            (reserved * slack, "demand often rises to what they carry, so replicas stay while that is likely"),
            (kept[0][1] * slack, f"replicas stay for {hold:.0f} s after demand has fallen"),
        ]
    present = max(present, foreseen * slack, shown * slack, foreseen + waiting / drain)
    need = replace(
        need,
        demand=newest.rate,
        # That the load has risen is known, as the short cycle began by that. So less may be chance.
        error=newest.error * (_SURE_SHARE if shows else 1.0),
        required=required,
        sufficient=sufficient,
        stays=((present, ""), *stays) if stays[-1][0] > present else (),
    )
    started = tuple(sorted(start_ups.items()))
    return need, Foresight(need.key, begun, now, slots, left, dispersion, kept, blocks, levels, started)


@dataclass(frozen=True, slots=True)
class Pace:
    """Demand per second."""

    rate: float  # now
    error: float  # one standard error of the rate
    rise: float  # per second
    jump: float  # how far the newest cycle was above the one before, where that is more than chance, else 0

    def at(self, seconds: float) -> float:
        """Return the demand expected after some seconds; never less than now."""
        return self.rate + min(self.rise * seconds, _STEEPEST * self.rate)


def pace(slots: Sequence[Slot], dispersion: float) -> Pace:
    """Return the pace after these slots, at least one. ``dispersion``: variance of a count over its mean."""
    amount, seconds, taken = _alike(slots, dispersion)
    # Find the steepest rise, and for how many seconds it has lasted. Its line must rise by more than chance, and
    # describe its window better than a jump between two means does.
    rise, lasted, end = 0.0, 0.0, slots[-1].at
    inside = [slot for slot in slots if slot.at - slot.seconds > end - _TREND_SECONDS[-1] - 1.0]
    begun = [slot.at - slot.seconds for slot in inside]
    all_times = [slot.at - slot.seconds / 2.0 - end for slot in inside]
    all_rates = [slot.amount / slot.seconds for slot in inside]
    for window in _TREND_SECONDS:
        first = bisect_right(begun, end - window - 1.0)
        length, count = sum(map(_seconds, inside[first:])), len(inside) - first
        if count < _FEWEST or length < 0.8 * window:
            break
        times, rates = all_times[first:], all_rates[first:]
        middle, usual = sum(times) / count, sum(rates) / count
        spread = sum([(at - middle) ** 2 for at in times])
        slope = sum([(at - middle) * (rate - usual) for at, rate in zip(times, rates, strict=True)]) / spread
        deviation = sqrt(12.0 * dispersion * max(usual, 1.0 / length) / length) / length
        if slope <= max(rise, _CERTAIN * deviation):
            continue
        left_by_line = sum([(rate - usual) ** 2 for rate in rates]) - slope * slope * spread
        total, squares, before, left_by_jump = sum(rates), sum([rate * rate for rate in rates]), 0.0, inf
        for place in range(1, count):
            before += rates[place - 1]
            left = squares - before * before / place - (total - before) ** 2 / (count - place)
            left_by_jump = min(left_by_jump, left)
        if left_by_line < left_by_jump:
            rise, lasted = slope, length
    # A mean is the demand in the middle of its time, so half of the rise is added. The rise may be younger.
    rate = amount / seconds + rise * min(seconds, lasted) / 2.0
    jump = 0.0
    if taken == 1 and len(slots) > 1 and not slots[-2].partial:  # the slot after a partial one shows all of a jump
        jump = max(0.0, rate - slots[-2].amount / slots[-2].seconds)
    return Pace(rate, sqrt(dispersion * max(rate, 0.5 / seconds) / seconds), rise, jump)


def _alike(slots: Sequence[Slot], dispersion: float) -> tuple[float, float, int]:
    """Return the amount, the seconds and the number of the last slots that differ by no more than chance.

    A partial slot before the last is none of them: it shows less than the demand after its jump.
    """
    last = slots[-1]
    amount, seconds, taken = last.amount, last.seconds, 1
    while taken < len(slots):
        block = slots[max(0, len(slots) - 2 * taken) : len(slots) - taken]
        more, longer = sum(map(_amount, block)), sum(map(_seconds, block))
        pooled = max(amount + more, 1.0) / (seconds + longer)
        deviation = sqrt(dispersion * pooled * (1.0 / seconds + 1.0 / longer))
        changed = abs(amount / seconds - more / longer) > _DIFFERENT * deviation
        if changed or any(map(_partial, block)):
            break
        amount, seconds, taken = amount + more, seconds + longer, taken + len(block)
    return amount, seconds, taken


def dispersed(before: float, old: Slot, new: Slot) -> float:
    """Return the dispersion after one more slot: how far it differs from the one before, compared with pure chance."""
    pooled = (old.amount + new.amount) / (old.seconds + new.seconds)
    if pooled * min(old.seconds, new.seconds) < 1.0:
        return before
    gap = new.amount / new.seconds - old.amount / old.seconds
    surprise = gap * gap / (pooled * (1.0 / old.seconds + 1.0 / new.seconds))
    return max(1.0, before + _MEMORY * (min(_SURPRISE * before, surprise) - before))
