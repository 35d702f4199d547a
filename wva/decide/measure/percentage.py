"""The percentage analyzer: KV usage and queue length of the replicas in, a need in replicas out.

A replica is saturated when a fresh KV usage reaches K or a fresh queue length reaches Q. What it can still take is its
spare: K less its KV usage, Q less its queue, never below 0. A model should grow when the mean spare of either signal is
below its trigger (k, q), or when all reporting replicas are saturated. So n replicas carry what fills n of them up to
K - k, or Q - q.

How many are needed follows from the usage itself: the ratio that an HPA forms, usage over the usage that the triggers
leave. A full KV cache and a long queue show that there are too few replicas, but not by how many. So a model at most
doubles what serves, and waits until that serves, too.

A sample is the highest value of the last minute. It shows how full a replica has been, not that more replicas have
joined since. So peaks are compared with those of the cycle before:

- if the peaks of the same replicas rise, there is more load than they can take;
- if they fall, the replicas work off a backlog;
- if they stay while new replicas take over, it is not known yet.

New replicas get every new request and fill up at first, so their reports of the first seconds say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

from msgspec import Struct

from wva.decide.amounts import COUNTLESS, rounded_up
from wva.decide.measure.need import REPLICAS, Capacity, Need
from wva.decide.trust import ModelReadings
from wva.decide.wording import replicas as replicas_in_words
from wva.model.capacity import CapacityBasis
from wva.model.memory import Memory, ModelMemory, PodPeak, Shrink
from wva.model.metrics import SAMPLE_WINDOW_SECONDS
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace

FILLING_SECONDS: Final = 20.0
"""A replica that became Ready fills up for this time (seconds): its samples say nothing yet."""

SPACING_SECONDS: Final = 30.0
"""Peaks are kept for this time (seconds) after replicas were asked for, so that a rise in this time still shows."""

REGRET_SECONDS: Final = 600.0
"""A shrink is regretted if the model wants to grow within this time after it (seconds)."""

REGRETTED_SECONDS: Final = 3600.0
"""A regret is remembered for this time (seconds)."""

CLEAR_OF_TRIGGER: Final = 0.85
"""What is below this share of a limit stays below the limit in spite of noise and of one replica less."""

_SAME_GROWTH_SECONDS: Final = 15.0
"""Replicas that become Ready within this time of each other answer the same growth."""

_NOTICEABLE: Final = 0.1
"""The share of a threshold by which a mean has to change; as for an HPA, less is no change."""

_ROUNDING: Final = 1e-9
_ONE: Final = Capacity(1.0, CapacityBasis.OBSERVED)


class Percentage:
    """Measures in replicas."""

    def measure(
        self, models: Sequence[ModelReadings], memory: Memory, policy: Policy, now: float
    ) -> tuple[list[Need], Memory]:
        """Return the needs of models, in their order, and what the next cycle must know."""
        del policy  # each model has its thresholds
        needs, left = [], {entry.key: entry for entry in memory.models}
        for model in models:
            need, left[model.key] = _measure(model, now)
            needs.append(need)
        return needs, replace(memory, models=tuple(left[key] for key in sorted(left)))


class Usage(Struct, frozen=True, gc=False):
    """What some replicas report together.

    ``kv`` and ``queue`` are the fresh samples, ``kv_load`` and ``queue_load`` their sums with no sample above its
    threshold: what is beyond it waits. ``reporting`` replicas have at least one fresh signal, ``saturated`` ones have
    one at its threshold.
    """

    kv: Sequence[float]
    queue: Sequence[float]
    kv_load: float
    queue_load: float
    reporting: int
    saturated: int

    @staticmethod
    def of(pods: Sequence[PodPeak], policy: SaturationPolicy) -> Usage:
        """Add up what replicas report; the order does not matter."""
        full, long = policy.kv_cache_threshold, policy.queue_length_threshold
        kv = [pod.kv_usage for pod in pods if pod.kv_usage is not None]
        queue = [pod.queue_length for pod in pods if pod.queue_length is not None]
        reporting, saturated = len(pods), 0
        if not len(kv) == len(queue) == reporting:
            reporting = len([pod for pod in pods if pod.kv_usage is not None or pod.queue_length is not None])
        if max(kv, default=-1.0) >= full or max(queue, default=-1.0) >= long:
            saturated = len(
                [
                    pod
                    for pod in pods
                    if (pod.kv_usage is not None and pod.kv_usage >= full)
                    or (pod.queue_length is not None and pod.queue_length >= long)
                ]
            )
        kv_load = math.fsum([min(usage, full) for usage in kv] if saturated else kv)
        queue_load = math.fsum([min(waiting, long) for waiting in queue] if saturated else queue)
        return Usage(kv, queue, kv_load, queue_load, reporting, saturated)

    def wish(self, policy: SaturationPolicy) -> str:
        """Return in words why there should be more replicas, empty when there need not be."""
        if not self.reporting:
            return ""
        if self.saturated == self.reporting:
            return f"{self.saturated} of {self.reporting} reporting replicas saturated"
        words = []
        for name, load, count, threshold, trigger in (
            ("KV", self.kv_load, len(self.kv), policy.kv_cache_threshold, policy.kv_spare_trigger),
            ("queue", self.queue_load, len(self.queue), policy.queue_length_threshold, policy.queue_spare_trigger),
        ):
            spare = threshold - load / count if count else math.inf
            if spare < trigger - _ROUNDING:
                words.append(f"mean spare {name} {spare:.4g} below trigger {trigger:.4g} on {replicas_in_words(count)}")
        return " and ".join(words)

    def carried_by(self, policy: SaturationPolicy, clear: float = 1.0) -> int:
        """Return how few replicas could carry what these do; ``clear`` is the share of the KV target that they may use.

        COUNTLESS if no number could.
        """
        kv = (policy.kv_cache_threshold - policy.kv_spare_trigger) * clear
        return max(
            self._filled(self.kv_load, self.kv, kv), self._filled(self.queue_load, self.queue, _queue_target(policy))
        )

    def _filled(self, load: float, samples: Sequence[float], target: float) -> int:
        """Return how many replicas a load fills up to a target, with the share of those that do not tell of it."""
        if not load > 0:
            return 0
        return rounded_up(load * (self.reporting / len(samples)) / target - _ROUNDING) if target > 0 else COUNTLESS

    def missing(self, policy: SaturationPolicy, rise: tuple[float, float] = (0.0, 0.0)) -> int:
        """Return how many replicas more bring both means back to their triggers, after a mean ``rise`` of each.

        A trigger that nothing reaches asks for twice as many.
        """
        needed = 0
        kv = policy.kv_cache_threshold - policy.kv_spare_trigger
        for samples, target, more in ((self.kv, kv, rise[0]), (self.queue, _queue_target(policy), rise[1])):
            used = math.fsum(samples)
            if used > 0:
                usage = used / len(samples) + more
                needed = max(
                    needed,
                    rounded_up(self.reporting * usage / target - _ROUNDING) if target > 0 else 2 * self.reporting,
                )
        return needed - self.reporting


def _queue_target(policy: SaturationPolicy) -> float:
    return policy.queue_length_threshold - policy.queue_spare_trigger


def _measure(model: ModelReadings, now: float) -> tuple[Need, ModelMemory]:
    """Return the need of one model, and what is remembered of it."""
    policy, before = model.policy, model.memory
    pods: list[PodPeak] = []
    since: list[float | None] = []
    serving = in_flight = level = counted = leaving = ready = 0
    youngest = math.inf
    for variant in model.variants:
        progress = variant.progress
        pods += map(PodPeak, [pod.pod for pod in variant.replicas], variant.kv, variant.queue)
        since += [pod.ready_since for pod in variant.replicas]
        # Ready pods beyond the replicas that exist are a matter of caches that disagree.
        serving += min(progress.serving, progress.current)
        level += progress.level
        counted += min(progress.base, progress.serving + progress.in_flight)
        leaving += progress.outstanding
        ready += progress.ready
        if progress.in_flight:
            in_flight += progress.in_flight
            youngest = min(youngest, progress.age_seconds)
    everyone = Usage.of(pods, policy)
    wish = everyone.wish(policy)
    if wish:
        required, deferred = _required(model, everyone, pods, since, serving, in_flight, now)
    else:
        required, deferred = serving if everyone.saturated else min(serving, everyone.carried_by(policy)), ""
    regretted = before.regretted if before.regretted and now - before.regretted.at < REGRETTED_SECONDS else None
    shrunk = before.shrunk
    if shrunk is not None and model.absence is None and (wish or required > counted):
        if now - shrunk.at < REGRET_SECONDS:
            regretted = replace(shrunk, at=now)
        shrunk = None
    load = _load(everyone, policy)
    objection, sufficient = _objection(everyone, load, regretted, policy, serving, leaving)
    need = Need(
        key=model.key,
        unit=REPLICAS,
        demand=load,
        required=float(required),
        sufficient=float(max(required, sufficient)),
        capacities=dict.fromkeys([variant.key for variant in model.variants], _ONE),
        most_added=max(1, level),
        most_removed=1,
        hold=model.absence,
        objection=objection,
        wish=wish,
        summary=_summary(everyone, policy, ready),
        deferred=deferred,
    )
    peaks = before.peaks
    if not peaks or youngest >= SPACING_SECONDS:
        # Replicas that fill up would seem to rise.
        filled = [pod for pod, at in zip(pods, since, strict=True) if at is None or now - at >= FILLING_SECONDS]
        filled.sort(key=_name)
        peaks = tuple(filled if everyone.reporting == len(pods) else [pod for pod in filled if _reports(pod)])
    return need, ModelMemory(before.key, peaks, shrunk, regretted, before.answered)


_name: Final = attrgetter("pod")


def _reports(pod: PodPeak) -> bool:
    return pod.kv_usage is not None or pod.queue_length is not None


def _required(
    model: ModelReadings,
    everyone: Usage,
    pods: Sequence[PodPeak],
    since: Sequence[float | None],
    serving: int,
    in_flight: int,
    now: float,
) -> tuple[int, str]:
    """Return how many replicas a model must have that wants to grow.

    And in words why the wish is not answered now, empty if it is. ``since``: when each pod became Ready. Replicas that
    cannot be judged count as just right.
    """
    policy = model.policy
    times = [-math.inf if at is None else at for at in since]
    reporting = [(pod, at) for pod, at in zip(pods, times, strict=True) if _reports(pod)]
    settled = [(pod, at) for pod, at in reporting if now - at >= FILLING_SECONDS] or reporting
    filled = [pod for pod, _ in settled]
    filling = len(reporting) - len(settled)
    told = everyone if len(settled) == len(pods) else Usage.of(filled, policy)
    newest = _newest(settled, now)
    young = Usage.of(newest, policy) if newest else None
    if young is not None and not filling and not young.wish(policy):
        words = f"but that was before the newest {replicas_in_words(young.reporting)} served, and those have spare"
        return serving, words
    before = {peak.pod: peak for peak in model.memory.peaks}
    pairs = _pairs(filled, before)
    change = _change(filled, before, pairs, policy)
    if change < 0:
        return serving, "but less than in the cycle before: what has piled up is being worked off"
    if change == 0 and (young is not None or filling):
        return serving, "but no more than before the newest replicas served"
    if filling or in_flight:
        # What is coming counts as supply, and its share of the load is still on the others: they are full by as much
        # as shows below their thresholds, and what is beyond is what has piled up meanwhile.
        missing, shown = told.missing(policy) - filling, told.carried_by(policy) - told.reporting - filling
        missing = min(missing, shown) if in_flight or shown <= 0 else missing
    elif young is not None:
        # New replicas get most of the requests, so they look busier than all will be: the others count as just right.
        missing = max(1, young.missing(policy))
    else:
        # What all have held for long will have risen once more by the time that others serve.
        missing = max(1, told.missing(policy, _rises(pairs)))
    if in_flight:
        return serving + min(max(0, missing), in_flight + math.ceil((serving + in_flight) / 2)), ""
    half = filling or young is not None
    return serving + min(missing, math.ceil(serving / 2) if half else max(1, serving)), ""


def _objection(
    usage: Usage, load: float, regretted: Shrink | None, policy: SaturationPolicy, serving: int, leaving: int
) -> tuple[str, int]:
    """Return in words why nothing may shrink, empty when it may, and how many replicas a shrink must leave.

    Usage grows faster than the load per replica. So what is left has to stay clear of the trigger, and of the load at
    which a shrink was regretted.
    """
    if usage.saturated:
        return f"{usage.saturated} of {replicas_in_words(serving)} saturated", serving
    left = serving - leaving - 1
    least = max(1, usage.carried_by(policy, CLEAR_OF_TRIGGER))
    if left < 1:
        return "", 1
    if usage.carried_by(policy) > left:
        kv = policy.kv_cache_threshold - usage.kv_load / left
        if kv < policy.kv_spare_trigger - _ROUNDING:
            return _too_little("KV", left, kv, policy.kv_spare_trigger), least
        queue = policy.queue_length_threshold - usage.queue_load / left
        return _too_little("queue", left, queue, policy.queue_spare_trigger), least
    if least > left:
        limit = (policy.kv_cache_threshold - policy.kv_spare_trigger) * CLEAR_OF_TRIGGER
        words = f"on {replicas_in_words(left)} the mean KV usage would be {usage.kv_load / left:.4g}"
        return f"{words}, above {limit:.4g} and too near to the trigger", least
    if regretted is not None and load > regretted.demand * CLEAR_OF_TRIGGER:
        least = max(least, regretted.replicas + 1)
        if least > left:
            return f"with {replicas_in_words(regretted.replicas)} it was regretted at hardly more load", least
    return "", least


def _too_little(signal: str, left: int, spare: float, trigger: float) -> str:
    words = f"on {replicas_in_words(left)} the mean spare {signal} would be {spare:.4g}"
    return f"{words}, below trigger {trigger:.4g}"


def _load(usage: Usage, policy: SaturationPolicy) -> float:
    """Return how many replicas the usage of KV would fill up to its trigger, as a fraction.

    A queue says how much has piled up rather than how much comes.
    """
    target = policy.kv_cache_threshold - policy.kv_spare_trigger
    return usage.kv_load / target if target > 0 else usage.kv_load


def _summary(usage: Usage, policy: SaturationPolicy, ready: int) -> str:
    words = f"{usage.reporting} of {ready} replicas report, {usage.saturated} saturated"
    if usage.kv:
        words += f", mean spare KV {policy.kv_cache_threshold - usage.kv_load / len(usage.kv):.4g}"
    if usage.queue:
        words += f", mean spare queue {policy.queue_length_threshold - usage.queue_load / len(usage.queue):.4g}"
    return words


def _newest(reporting: Sequence[tuple[PodPeak, float]], now: float) -> list[PodPeak]:
    """Return the replicas that became Ready last, all within a short time, if that is not long ago.

    Until the window of the samples has passed, those of older replicas show the peaks from which the newest were to
    relieve them. Empty when all samples are of one time, or when it is unknown when the replicas became Ready.
    """
    latest = max([at for _, at in reporting], default=-math.inf)
    if now - latest >= SAMPLE_WINDOW_SECONDS:
        return []
    newest = [pod for pod, at in reporting if at >= latest - _SAME_GROWTH_SECONDS]
    return newest if len(newest) < len(reporting) else []


Pairs = list[tuple[float, float]]
"""Values of the same replicas: now, and before."""


def _pairs(pods: Iterable[PodPeak], before: Mapping[str, PodPeak]) -> tuple[Pairs, Pairs]:
    kv: Pairs = []
    queue: Pairs = []
    for pod in pods:
        peak = before.get(pod.pod)
        if peak is None:
            continue
        if pod.kv_usage is not None and peak.kv_usage is not None:
            kv.append((pod.kv_usage, peak.kv_usage))
        if pod.queue_length is not None and peak.queue_length is not None:
            queue.append((pod.queue_length, peak.queue_length))
    return kv, queue


def _change(
    pods: Sequence[PodPeak], before: Mapping[str, PodPeak], pairs: tuple[Pairs, Pairs], policy: SaturationPolicy
) -> int:
    """Return 1 if the peaks have risen or cannot be compared, -1 if they have fallen, 0 if they have stayed.

    KV usage counts up to its threshold, and a queue from its own on. That the older replicas hold less once others have
    joined them does not mean that less has come.
    """
    kv, queue = pairs
    if not kv and not queue:
        return 1
    full, long = policy.kv_cache_threshold, policy.queue_length_threshold
    changes = (
        _share(_mean_change([(min(now, full), min(then, full)) for now, then in kv]), full),
        _share(_mean_change([(max(now, long), max(then, long)) for now, then in queue]), long),
    )
    if max(changes) >= _NOTICEABLE:
        return 1
    joined = any(pod.pod not in before for pod in pods)
    return -1 if min(changes) <= -_NOTICEABLE and not joined else 0


def _share(change: float, threshold: float) -> float:
    """Return a change as a share of a threshold; of a threshold of 0 any change is infinitely much."""
    if threshold > 0:
        return change / threshold
    return math.copysign(math.inf, change) if change else 0.0


def _rises(pairs: tuple[Pairs, Pairs]) -> tuple[float, float]:
    """Return by how much both signals have risen from one cycle to the next, on average; 0 where they fell."""
    kv, queue = pairs
    return (
        _mean_change([(max(now, then), then) for now, then in kv]),
        _mean_change([(max(now, then), then) for now, then in queue]),
    )


def _mean_change(pairs: Pairs) -> float:
    return math.fsum([now - before for now, before in pairs]) / len(pairs) if pairs else 0.0
