"""The percentage analyzer: KV usage and queue length of the replicas in, a need in replicas out.

docs/decisions.md says when a model grows and shrinks. The number of replicas follows from the ratio that an HPA forms:
usage over the usage that the triggers allow. A full KV cache and a long queue show that there are too few replicas, but
not how many are missing. So a model at most doubles its serving replicas, and waits until the new ones serve, too.

A sample is the highest value of the last minute. It shows how full a replica has been, not that more replicas have
joined since. So the peaks of each replica are compared with those of the last cycle that saw an older scrape of it (a
cycle that begins before the next scrape sees nothing new):

- if the peaks of the same replicas rise, there is more load than they can take;
- if they fall, the replicas work off a backlog;
- if they stay while new replicas take over requests, it is not known yet whether load has risen.

New replicas get every new request and fill up at first, so their reports of the first seconds say nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import attrgetter
from typing import Final

from msgspec import Struct

from wva.decide.amounts import COUNTLESS, rounded_up
from wva.decide.amounts import replicas as replicas_in_words
from wva.decide.measure.need import REPLICAS, Capacity, Need
from wva.decide.trust import ModelReadings
from wva.model.memory import CapacityBasis, Memory, ModelMemory, PodPeak, Shrink
from wva.model.metrics import SAMPLE_WINDOW_SECONDS, ReplicaMetrics
from wva.model.policy import Policy, SaturationPolicy
from wva.model.records import replace

FILLING_SECONDS: Final = 20.0
"""A replica that became Ready fills up for this time (seconds): its samples say nothing yet."""
SPACING_SECONDS: Final = 30.0
"""Peaks are kept for this time (seconds) after replicas were asked for, so that a rise in this time still shows."""
REGRET_SECONDS: Final = 600.0  # a shrink is regretted if the model wants to grow within this time after it (seconds)
REGRETTED_SECONDS: Final = 3600.0  # a regret is remembered for this time (seconds)
CLEAR_OF_TRIGGER: Final = 0.85
"""Usage below this share of a limit stays below the limit in spite of noise and of one replica less."""
_SAME_GROWTH_SECONDS: Final = 15.0  # replicas that become Ready within this time of each other answer the same growth
_NOTICEABLE: Final = 0.1  # a mean changes if it differs by this share of a threshold; an HPA ignores less, too
_ROUNDING: Final = 1e-9
_ONE: Final = Capacity(1.0, CapacityBasis.OBSERVED)
_name: Final = attrgetter("pod")


class SignalUse(Struct, frozen=True, gc=False):
    """What some replicas report of one signal."""

    name: str
    samples: Sequence[float]  # the fresh ones
    load: float  # their sum; each counts up to the threshold, because load beyond it waits
    threshold: float
    trigger: float
    target: float  # the threshold less the trigger

    def spare(self, replicas: int) -> float:
        """Return the mean spare if so many replicas have this load."""
        return self.threshold - self.load / replicas


class Usage(Struct, frozen=True, gc=False):
    """What some replicas report together."""

    kv: SignalUse
    queue: SignalUse
    reporting: int  # replicas with at least one fresh signal
    saturated: int  # replicas with a signal at its threshold

    @staticmethod
    def of(pods: Sequence[PodPeak], policy: SaturationPolicy) -> Usage:
        """Add up what replicas report; the order does not matter."""
        full, long = policy.kv_cache_threshold, policy.queue_length_threshold
        kv = [pod.kv_usage for pod in pods if pod.kv_usage is not None]
        queue = [pod.queue_length for pod in pods if pod.queue_length is not None]
        reporting, saturated = len(pods), 0
        if not len(kv) == len(queue) == reporting:
            reporting = sum([_reports(pod) for pod in pods])
        if max(kv, default=-1.0) >= full or max(queue, default=-1.0) >= long:
            signals = [(pod.kv_usage, pod.queue_length) for pod in pods]
            saturated = sum([(u is not None and u >= full) or (q is not None and q >= long) for u, q in signals])
        kv_load = math.fsum([min(usage, full) for usage in kv] if saturated else kv)
        queue_load = math.fsum([min(waiting, long) for waiting in queue] if saturated else queue)
        k, q = policy.kv_spare_trigger, policy.queue_spare_trigger
        return Usage(
            SignalUse("KV", kv, kv_load, full, k, full - k),
            SignalUse("queue", queue, queue_load, long, q, long - q),
            reporting,
            saturated,
        )

    def wish(self) -> str:
        """Return in words why there should be more replicas, empty if there are enough."""
        if self.reporting and self.saturated == self.reporting:
            return f"{self.saturated} of {self.reporting} reporting replicas saturated"
        words = []
        for signal in (self.kv, self.queue):
            count = len(signal.samples)
            if count and signal.spare(count) < signal.trigger - _ROUNDING:
                spare = f"mean spare {signal.name} {signal.spare(count):.4g} below trigger {signal.trigger:.4g}"
                words.append(f"{spare} on {replicas_in_words(count)}")
        return " and ".join(words)

    def carried_by(self, clear: float = 1.0) -> int:
        """Return the fewest replicas that could carry this load; ``clear`` is the share of the KV target they may use.

        Replicas that do not report a signal count as full as the others. The result is COUNTLESS if no number could.
        """
        count = 0
        for signal, target in ((self.kv, self.kv.target * clear), (self.queue, self.queue.target)):
            if signal.load > 0:
                share = self.reporting / len(signal.samples)
                count = max(count, rounded_up(signal.load * share / target - _ROUNDING) if target > 0 else COUNTLESS)
        return count

    def missing(self, rise: tuple[float, float] = (0.0, 0.0)) -> int:
        """Return how many replicas more bring both means back to their triggers, after a mean ``rise`` of each.

        If a trigger leaves no usage at all, the model asks for twice as many.
        """
        count = 0
        for signal, signal_rise in ((self.kv, rise[0]), (self.queue, rise[1])):
            used = math.fsum(signal.samples)
            if used > 0:
                wanted, twice = self.reporting * (used / len(signal.samples) + signal_rise), 2 * self.reporting
                count = max(count, rounded_up(wanted / signal.target - _ROUNDING) if signal.target > 0 else twice)
        return count - self.reporting

    def objection(self, demand: float, regretted: Shrink | None, serving: int, leaving: int) -> tuple[str, int]:
        """Return in words why none of the replicas may go, empty when one may, and how many a shrink must leave.

        Usage grows faster than the load per replica. So the usage after a shrink has to stay clear of the trigger, and
        the demand clear of the one at which a shrink was regretted.
        """
        if self.saturated:
            return f"{self.saturated} of {replicas_in_words(serving)} saturated", serving
        left = serving - leaving - 1
        least = max(1, self.carried_by(CLEAR_OF_TRIGGER))
        if left < 1:
            return "", 1
        on_left = f"on {replicas_in_words(left)} the mean"
        if self.carried_by() > left:
            short = self.kv if self.kv.spare(left) < self.kv.trigger - _ROUNDING else self.queue
            words = f"{on_left} spare {short.name} would be {short.spare(left):.4g}"
            return f"{words}, below trigger {short.trigger:.4g}", least
        if least > left:
            words = f"{on_left} KV usage would be {self.kv.load / left:.4g}"
            return f"{words}, above {self.kv.target * CLEAR_OF_TRIGGER:.4g} and too near to the trigger", least
        if regretted is not None and demand > regretted.demand * CLEAR_OF_TRIGGER:
            least = max(least, regretted.replicas + 1)
            if least > left:
                return f"with {replicas_in_words(regretted.replicas)} it was regretted at hardly more load", least
        return "", least


def measure(
    models: Sequence[ModelReadings], memory: Memory, _policy: Policy, now: float, _observations: object
) -> tuple[list[Need], Memory]:
    """Return the needs of models in replicas, in their order, and the memory with their peaks and shrinks."""
    needs, memories = [], {entry.key: entry for entry in memory.models}
    for model in models:
        policy, before = model.policy, model.memory
        pods: list[PodPeak] = []
        since: list[float] = []
        serving = in_flight = level = counted = leaving = ready = 0
        youngest = math.inf
        for variant in model.variants:
            progress = variant.progress
            names = [pod.pod for pod in variant.replicas]
            pods += map(PodPeak, names, variant.kv, variant.queue, _scraped(variant.replicas))
            since += [-math.inf if pod.ready_since is None else pod.ready_since for pod in variant.replicas]
            # While caches disagree, there can be more Ready pods than replicas.
            serving += min(progress.serving, progress.current)
            level += progress.level
            counted += min(progress.base, progress.serving + progress.in_flight)
            leaving += progress.outstanding
            ready += progress.ready
            if progress.in_flight:
                in_flight += progress.in_flight
                youngest = min(youngest, progress.age_seconds)
        usage = Usage.of(pods, policy)
        wish, deferred = usage.wish(), ""
        if wish:
            dated = list(zip(pods, since, strict=True))
            required, deferred = _required(model, usage, dated, serving, in_flight, now)
        else:
            required = serving if usage.saturated else min(serving, usage.carried_by())
        regretted = before.regretted if before.regretted and now - before.regretted.at < REGRETTED_SECONDS else None
        shrunk = before.shrunk
        if shrunk is not None and model.absence is None and (wish or required > counted):
            if now - shrunk.at < REGRET_SECONDS:
                regretted = replace(shrunk, at=now)
            shrunk = None
        # The demand is how many replicas the KV usage fills up to its trigger. The queue is left out: it says how much
        # has piled up, not how much arrives.
        demand = usage.kv.load / usage.kv.target if usage.kv.target > 0 else usage.kv.load
        objection, sufficient = usage.objection(demand, regretted, serving, leaving)
        summary = f"{usage.reporting} of {ready} replicas report, {usage.saturated} saturated"
        for signal in (usage.kv, usage.queue):
            count = len(signal.samples)
            summary += f", mean spare {signal.name} {signal.spare(count):.4g}" if count else ""
        needs.append(
            Need(
                key=model.key,
                unit=REPLICAS,
                demand=demand,
                required=float(required),
                sufficient=float(max(required, sufficient)),
                capacities=dict.fromkeys([variant.key for variant in model.variants], _ONE),
                most_added=max(1, level),
                most_removed=1,
                hold=model.absence,
                objection=objection,
                wish=wish,
                summary=summary,
                deferred=deferred,
            )
        )
        peaks, earlier = before.peaks, before.earlier
        if not peaks or youngest >= SPACING_SECONDS:
            # The peaks of replicas that still fill up would rise without more load.
            filled = [pod for pod, at in zip(pods, since, strict=True) if now - at >= FILLING_SECONDS]
            filled.sort(key=_name)
            peaks = tuple(filled if usage.reporting == len(pods) else [pod for pod in filled if _reports(pod)])
            earlier = tuple([peak for peak in _older(before, peaks) if peak is not None])
        memories[model.key] = ModelMemory(before.key, peaks, shrunk, regretted, before.answered, earlier)
    return needs, replace(memory, models=tuple(memories[key] for key in sorted(memories)))


def _scraped(replicas: Sequence[ReplicaMetrics]) -> list[float | None]:
    """Return when each replica was scraped last: the later time of its samples, which mostly have one time."""
    kv, queue = [pod.kv_usage.timestamp for pod in replicas], [pod.queue_length.timestamp for pod in replicas]
    return kv if kv == queue else list(map(_later, kv, queue))


def _later(one: float | None, other: float | None) -> float | None:
    return one if other is None or (one is not None and one > other) else other


def _older(memory: ModelMemory, pods: Sequence[PodPeak]) -> Sequence[PodPeak | None]:
    """Return for each of these peaks the last remembered one of an older scrape of its pod, None without one."""
    # Mostly the same pods were there a cycle ago, in the same order, and all have been scraped since.
    if len(memory.peaks) == len(pods) and all(map(_precedes, memory.peaks, pods)):
        return memory.peaks
    remembered: dict[str, list[PodPeak]] = {}
    for peak in (*memory.peaks, *memory.earlier):
        remembered.setdefault(peak.pod, []).append(peak)
    return [next((peak for peak in remembered.get(new.pod, ()) if _precedes(peak, new)), None) for new in pods]


def _precedes(old: PodPeak, new: PodPeak) -> bool:
    """Tell whether a peak is of an older scrape of the same pod, or if a time is not known."""
    return old.pod == new.pod and (new.at is None or old.at is None or old.at < new.at)


def _reports(pod: PodPeak) -> bool:
    return pod.kv_usage is not None or pod.queue_length is not None


def _required(
    model: ModelReadings, usage: Usage, dated: Sequence[tuple[PodPeak, float]], serving: int, in_flight: int, now: float
) -> tuple[int, str]:
    """Return how many replicas a model that wants to grow must have, and in words why it gets none now, or "".

    ``dated``: the pods, each with the time when it became Ready. Replicas that cannot be judged count as just right.
    """
    policy = model.policy
    reporting = [(pod, at) for pod, at in dated if _reports(pod)]
    settled = [(pod, at) for pod, at in reporting if now - at >= FILLING_SECONDS] or reporting
    filled = [pod for pod, _ in settled]
    filling = len(reporting) - len(settled)
    judged = usage if len(settled) == len(dated) else Usage.of(filled, policy)
    # The newest replicas became Ready at about the same time. Until the window of the samples has passed, the samples
    # of older replicas show peaks from before the newest served.
    latest = max([at for _, at in settled], default=-math.inf)
    newest = [pod for pod, at in settled if at >= latest - _SAME_GROWTH_SECONDS]
    young = None
    if now - latest < SAMPLE_WINDOW_SECONDS and len(newest) < len(settled):
        young = Usage.of(newest, policy)
        if not filling and not young.wish():
            words = f"but that was before the newest {replicas_in_words(young.reporting)} served, and those have spare"
            return serving, words
    # Have the peaks of the same replicas risen since their scrapes before? KV usage counts up to its threshold, and a
    # queue only beyond its threshold.
    older = _older(model.memory, filled)
    compared = [(new, old) for new, old in zip(filled, older, strict=True) if old is not None]
    kv = _known([(new.kv_usage, old.kv_usage) for new, old in compared])
    queue = _known([(new.queue_length, old.queue_length) for new, old in compared])
    full, long = policy.kv_cache_threshold, policy.queue_length_threshold
    changes = (
        _share(_mean_change([(min(new, full), min(old, full)) for new, old in kv]), full),
        _share(_mean_change([(max(new, long), max(old, long)) for new, old in queue]), long),
    )
    if (kv or queue) and max(changes) < _NOTICEABLE:
        # Older replicas hold less once others have joined them. That does not mean that less arrives.
        if min(changes) <= -_NOTICEABLE and len(compared) == len(filled):
            return serving, "but less than in the cycle before: what has piled up is being worked off"
        if young is not None or filling:
            return serving, "but no more than before the newest replicas served"
    if filling or in_flight:
        # Replicas under way count as supply, but the others still have their share of the load. So only load up to the
        # thresholds counts: load beyond them has piled up meanwhile.
        missing, capped = judged.missing() - filling, judged.carried_by() - judged.reporting - filling
        missing = min(missing, capped) if in_flight or capped <= 0 else missing
    elif young is not None:
        # New replicas get most of the requests, so they look busier than all will be: the others count as just right.
        missing = max(1, young.missing())
    else:
        # All have served for long. The load will rise as much again until new replicas serve.
        rises = [_mean_change([(max(new, old), old) for new, old in pairs]) for pairs in (kv, queue)]
        missing = max(1, judged.missing((rises[0], rises[1])))
    if in_flight:
        return serving + min(max(0, missing), in_flight + math.ceil((serving + in_flight) / 2)), ""
    half = filling or young is not None
    # With fewer than the serving replicas, an unfinished shrink would go on while the model wants to grow.
    return serving + max(0, min(missing, math.ceil(serving / 2) if half else max(1, serving))), ""


def _known(pairs: Sequence[tuple[float | None, float | None]]) -> list[tuple[float, float]]:
    return [(new, old) for new, old in pairs if new is not None and old is not None]


def _share(change: float, threshold: float) -> float:
    """Return a change as a share of a threshold; if the threshold is 0, any change is infinite."""
    if threshold > 0:
        return change / threshold
    return math.copysign(math.inf, change) if change else 0.0


def _mean_change(pairs: Sequence[tuple[float, float]]) -> float:
    return math.fsum([now - before for now, before in pairs]) / len(pairs) if pairs else 0.0
