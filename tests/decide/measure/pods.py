"""Pods that serve a steady rate of equal requests, and the reports of these pods.

A step takes ``BASE + SLOPE * batch`` seconds, and a prompt interrupts it for ``PER_TOKEN`` seconds per token.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.builders import NOW, variant
from wva.decide.progress import Moment, progress_of
from wva.decide.trust import ModelReadings, VariantReadings
from wva.model.memory import ModelMemory
from wva.model.metrics import EngineCounters, EngineSignals, ReplicaMetrics, Sample, SampleState
from wva.model.policy import SaturationPolicy
from wva.model.records import replace
from wva.model.snapshot import SchedulerQueue
from wva.model.variant import ModelKey, Variant, VariantKey
from wva.model.vllm_parameters import VllmParameters

BASE, SLOPE, PER_TOKEN = 0.02, 0.0002, 1e-4
PROMPT, ANSWER = 100.0, 200.0
KV_TOKENS = 20_000.0
NONE = EngineCounters(NOW, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def batch_at(rate: float, prompt: float = PROMPT, speed: float = 1.0) -> float:
    """Return the mean batch of a pod at a rate, by Little's law; at speed 0.5 all takes twice as long."""
    rate /= speed
    return rate * ANSWER * BASE / (1.0 - rate * (ANSWER * SLOPE + PER_TOKEN * prompt))


@dataclass
class ReportingPod:
    """One pod: its counters go on at the rate that it gets, and it reports them unless it is silent."""

    name: str
    ready_since: float | None = NOW
    counters: EngineCounters = NONE
    batch: float = 0.0
    prompt: float = PROMPT
    cache: float = KV_TOKENS
    waiting: float = 0.0
    arrived: float = 0.0
    speed: float = 1.0

    def serve(self, rate: float, seconds: float) -> None:
        """Serve requests at this rate for some seconds; the number in progress is at its mean at once."""
        now = batch_at(rate, self.prompt, self.speed)
        finished = max(0.0, rate * seconds + self.batch - now)
        self.arrived += finished + now - self.batch
        self.batch = now
        # Tokens come also from requests that do not end in this time.
        gaps = rate * seconds * ANSWER
        old = self.counters
        self.counters = EngineCounters(
            old.at + seconds,
            old.finished + finished,
            old.aborted,
            old.prompt_tokens + finished * self.prompt,
            old.prompts + finished,
            old.answer_tokens + finished * ANSWER,
            old.answers + finished,
            old.gap_seconds + now * seconds,
            old.gaps + gaps,
            old.refused,
        )

    def told(self, name: str = "a", *, silent: bool = False) -> ReplicaMetrics:
        """Return what WVA knows of the pod."""
        if silent:
            return ReplicaMetrics(self.name, VariantKey("ns", name), ready_since=self.ready_since)
        held = self.batch * (self.prompt + ANSWER / 2.0)
        return ReplicaMetrics(
            self.name,
            VariantKey("ns", name),
            engine=EngineSignals(
                kv_capacity_tokens=fresh(self.cache),
                kv_usage=fresh(min(1.0, held / self.cache)),
                running=fresh(self.batch),
                waiting=fresh(self.waiting),
            ),
            ready_since=self.ready_since,
            counters=self.counters,
            created=None if self.ready_since is None else self.ready_since - 100.0,
        )


def fresh(value: float) -> Sample:
    """Return a fresh sample."""
    return Sample(SampleState.FRESH, value, NOW)


def kind(name: str = "a", replicas: int = 1, **fields: object) -> Variant:
    """Return a variant with this many replicas."""
    return replace(variant(name, replicas=replicas), **({"parameters": VllmParameters()} | fields))


def readings(
    variants: Sequence[Variant],
    told: Mapping[VariantKey, Sequence[ReplicaMetrics]],
    queue: float | None = None,
    *,
    now: float = NOW,
) -> ModelReadings:
    """Return a model whose pods report this; ``queue`` has the requests at the gateway, None if unknown."""
    each = []
    for one in variants:
        pods = tuple(told.get(one.key, ()))
        each.append(
            VariantReadings(one.key, progress_of(one, replicas=pods, entry=None, moment=Moment(now, 600.0)), pods)
        )
    key = ModelKey("ns", "m")
    waiting = None if queue is None else SchedulerQueue(key, fresh(queue), Sample(SampleState.MISSING))
    return ModelReadings(key, SaturationPolicy(), tuple(each), (), None, True, waiting, None, ModelMemory(key), None)


@dataclass
class PodsOfModel:
    """Pods of one variant that share a rate evenly."""

    pods: list[ReportingPod] = field(default_factory=lambda: [ReportingPod("a-0"), ReportingPod("a-1")])
    now: float = NOW

    def serve(self, rate: float, seconds: float = 15.0) -> None:
        """Serve a rate for some seconds."""
        self.now += seconds
        for pod in self.pods:
            pod.serve(rate / len(self.pods), seconds)

    def told(self, silent: Sequence[str] = ()) -> Mapping[VariantKey, Sequence[ReplicaMetrics]]:
        """Return what the pods tell."""
        return {VariantKey("ns", "a"): [pod.told(silent=pod.name in silent) for pod in self.pods]}
