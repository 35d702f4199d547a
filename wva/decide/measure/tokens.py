"""The token analyzer: what the replicas of a model hold and queue, against what they carry. All amounts in tokens.

``tokens_readings`` says what they hold, ``tokens_learning`` what they carry. Here follows what the model needs. The
formulas are those of docs/token-analyzer.md#the-formulas.

Growth needs some evidence. A shrink needs all of it: every replica must be judged, and no change may be on its way. A
replica that cannot be judged counts as busy as the others, never as idle.

A process may know nothing of a model yet, because it has just taken over or because the model is new. Then it lacks the
learned k2, and would take engines that are limited by computation for larger than they are. So for
``RELEARNING_SECONDS`` nothing shrinks, estimates from arguments are left out, and growth takes one replica at a time.
Afterwards an estimate, or a k2 seen less than ``FIRM_OBSERVATIONS`` times, still moves one replica at a time, up and
down.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from wva.decide.amounts import AMPLE
from wva.decide.measure.need import Capacity, Need
from wva.decide.measure.tokens_learning import learn
from wva.decide.measure.tokens_readings import VariantTokens, gap, queued, read, totals
from wva.decide.trust import ModelReadings, absence
from wva.decide.wording import replicas as replicas_in_words
from wva.model.absence import Absence
from wva.model.capacity import CapacityBasis, LearnedCapacity
from wva.model.decision import Reason
from wva.model.memory import Memory
from wva.model.metrics import ReplicaMetrics
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace

UNIT: Final = "tokens"
RELEARNING_SECONDS: Final = 300.0
FIRM_OBSERVATIONS: Final = 3

_DRAINING: Final = 0.9
"""A queue below this share of the last minute's peak is getting shorter."""


class Tokens:
    """Measures in tokens."""

    def measure(
        self, models: Sequence[ModelReadings], memory: Memory, policy: Policy, now: float
    ) -> tuple[list[Need], Memory]:
        """Return the needs of models, in their order, and what the next cycle must know."""
        del policy  # each model has its thresholds
        measured = [_measured(model, memory.capacity.of(model.key), now) for model in models]
        learned = memory.capacity.updated([lesson for _, lesson in measured], now=now)
        return [need for need, _ in measured], replace(memory, capacity=learned)


def _measured(model: ModelReadings, learned: LearnedCapacity | None, now: float) -> tuple[Need, LearnedCapacity]:
    """Return what a model needs, and what is known of it afterwards. ``learned`` is what the last cycle left."""
    known = (learned or LearnedCapacity(model.key, now)).without_old(now)
    relearning = now - known.since < RELEARNING_SECONDS
    reports = sorted((*model.variants, *model.asleep), key=lambda report: report.key)
    pods = [pod for report in reports for pod in report.replicas]
    variants, typical = read(reports)
    variants, lesson = learn(known, variants, typical, model.policy, derive=not relearning, now=now)
    # What is asked of the model, and what it carries: now, and when all that is on its way serves
    waiting, doubt = queued(model.queue, typical)
    demands = totals(variants, lambda reading: reading.demand)
    demand = math.fsum([*demands, waiting])
    ready = sum([each.progress.serving for each in variants])
    supply = math.fsum([each.progress.serving * each.carried.tokens for each in variants])
    coming = [each.progress.serving + each.progress.in_flight for each in variants]
    anticipated = math.fsum([count * each.carried.tokens for count, each in zip(coming, variants, strict=True)])
    # What is missing of it, and what is to spare
    hold = _absence(model, pods, variants, waiting)
    objection = _objection(pods, variants, doubt, relearning=relearning) if hold is None else hold.message
    unfirm = [each for each in variants if each.progress.serving and each.carried.observations < FIRM_OBSERVATIONS]
    unsure = relearning or any(each.carried.basis is not CapacityBasis.KV_CACHE for each in unfirm)
    short = 0.0
    if hold is None and not _blind(variants, relearning=relearning):
        short = missing(demand=_growth(variants, demands, waiting), anticipated=anticipated, policy=model.policy)
        smallest = min([each.carried.tokens for each in variants if each.carried.tokens > 0], default=math.inf)
        short = min(short, smallest) if unsure else short
    peak = math.fsum([*totals(variants, lambda reading: reading.peak_demand), waiting])
    free = 0.0 if objection else left_over(demand=peak, supply=supply, policy=model.policy)
    # A shrink that is under way goes on while it leaves what a new one would have to leave; or, where it is not known
    # whether one might begin, while it leaves what the demand needs.
    least = demand / (model.policy.scale_up_threshold or 1.0) if objection else supply - free
    required = anticipated + short if short > 0 else min(least, anticipated)
    judged = sum([len(each.readings) for each in variants])
    summary = f"{judged} of {replicas_in_words(ready)} judged, demand {demand:.0f} tokens"
    summary += f" of {supply:.0f} (utilization {demand / supply:.3g})" if supply else ", no supply"
    need = Need(
        model.key,
        UNIT,
        demand,
        required,
        max(required, supply - free) if free > 0 else math.inf,
        {each.progress.variant.key: Capacity(float(each.carried.tokens), each.carried.basis) for each in variants},
        most_added=1 if unsure else None,
        most_removed=1 if unfirm else max(1, ready // 2),
        hold=hold,
        objection=objection,
        wish=f"{short:.4g} {UNIT} missing ({summary})" if short > 0 else "",
        summary=summary if hold is None else hold.message,
    )
    return need, lesson


def missing(*, demand: float, anticipated: float, policy: SaturationPolicy) -> float:
    """Return what is missing to stay below U, given the replicas there are and those on their way; U = 0: nothing."""
    threshold = policy.scale_up_threshold
    return max(0.0, min(demand / threshold, AMPLE) - anticipated) if threshold > 0 else 0.0


def left_over(*, demand: float, supply: float, policy: SaturationPolicy) -> float:
    """Return what could go of what serves before the utilization reaches D; D = 0: nothing."""
    boundary = policy.scale_down_boundary
    return max(0.0, supply - min(demand / boundary, AMPLE)) if boundary > 0 else 0.0


def _growth(variants: Sequence[VariantTokens], demands: Sequence[float], waiting_outside: float) -> float:
    """Return the demand that growth answers: what is held, and of what waits no more than that.

    More has piled up while replicas were too few or still loading, and will be worked off: answering all of it at once
    buys a fleet for a queue that is gone when the fleet is there. A queue in the replicas that is already getting
    shorter counts for nothing. While nothing is held at all, all that waits counts.
    """
    readings = [reading for variant in variants for reading in variant.readings]
    peak, now = sum(reading.queue for reading in readings), sum(reading.waiting for reading in readings)
    held = math.fsum(totals(variants, lambda reading: reading.held))
    inside = 0.0 if now < peak * _DRAINING else math.fsum(demands) - held
    waiting = max(0.0, inside) + waiting_outside
    return held + (min(waiting, held) if held > 0 else waiting)


def _absence(
    model: ModelReadings, pods: Sequence[ReplicaMetrics], variants: Sequence[VariantTokens], waiting: float
) -> Absence | None:
    """Return why nothing can be said, None when something can: what waits asks for replicas even without any."""
    absent = absence(pods, failure=model.failure)
    if absent is None and not any(each.readings for each in variants):
        words = f"none of {replicas_in_words(len(pods))} can be judged in tokens; {gap(pods)}"
        absent = Absence(Reason.METRICS_INCOMPLETE, words)
    return None if absent is not None and absent.reason is Reason.NO_READY_REPLICAS and waiting > 0 else absent


def _objection(
    pods: Sequence[ReplicaMetrics], variants: Sequence[VariantTokens], doubt: str, *, relearning: bool
) -> str:
    """Return in words what speaks against fewer replicas beside the numbers, empty for nothing."""
    if relearning:
        return f"capacity is being learned again; nothing shrinks for {RELEARNING_SECONDS:g} s"
    unread = sum(each.unread for each in variants)
    if unread:
        ready = sum(each.progress.serving for each in variants)
        return f"{unread} of {replicas_in_words(ready)} unread; {gap(pods)}"
    if any(not each.progress.countable or each.progress.in_flight for each in variants):
        return "replicas are on their way"
    readings = [reading for each in variants for reading in each.readings]
    if any(reading.workload is None and max(reading.queue, reading.waiting) > 0 for reading in readings):
        return "the length of the waiting requests is not known"
    return doubt


def _blind(variants: Sequence[VariantTokens], *, relearning: bool) -> bool:
    """Whether replicas of unknown capacity are on their way, or unseen while learning.

    Or none serves yet: what is on its way has to do until it is known what it does.
    """
    serving = any(each.progress.serving for each in variants)
    if any(each.progress.in_flight and not (serving and each.carried.tokens > 0) for each in variants):
        return True
    unseen = [each.progress for each in variants if not each.readings]
    return relearning and any(progress.serving or progress.in_flight for progress in unseen)
