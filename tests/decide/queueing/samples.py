"""Models under load for the queueing analyzer: variants, their pods, and what the pods report."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.builders import NAMESPACE, NOW, sample, variant
from wva.decide.measure import measure
from wva.decide.measure.demand import observed
from wva.decide.measure.need import Need
from wva.decide.progress import Moment, progress_of
from wva.decide.trust import ModelReadings, VariantReadings, believe
from wva.model.memory import DemandMemory, Foresight, Memory, ModelMemory, Slot, VariantMemory
from wva.model.metrics import EngineSignals, ReplicaMetrics, SampleState
from wva.model.policy import Analyzer, Policy, QueueingOverride, QueueingPolicy, QueueingRules, SaturationPolicy
from wva.model.records import replace
from wva.model.service import PerformanceProfile, ServiceTarget
from wva.model.snapshot import SchedulerQueue, Snapshot
from wva.model.variant import Variant, VariantKey

MODEL = "m"
A100 = PerformanceProfile(20.58, 0.41, 5.2, 0.1, 4, model_id=MODEL, accelerator="A100")
"""The shipped sample: a replica takes 0.5476 requests/s of 100 + 178 tokens within 500 and 24 ms."""

H100 = PerformanceProfile(7.47, 0.044, 15.415, 0.000337, 16, model_id=MODEL, accelerator="H100")
PREMIUM = ServiceTarget("Premium", 1, ttft_milliseconds=500, itl_milliseconds=24, model_id=MODEL)
KNOWN = Policy(service_targets=(PREMIUM,), profiles=(A100, H100))
UNTUNED = QueueingRules(QueueingPolicy(tuning_enabled=False))


def pod(name: str = "a", number: int = 0, *, kv: float | None = 0.3, **signals: object) -> ReplicaMetrics:
    """Return a Ready pod that answers 0.2 requests/s of 100 + 178 tokens, unless told otherwise; None is missing."""
    values = {
        "success_rate": 0.2,
        "running": 3,
        "waiting": 0,
        "input_tokens": 100,
        "output_tokens": 178,
        "time_to_first_token": 0.06,
        "inter_token_latency": 0.022,
    } | signals
    engine = EngineSignals(**{key: sample(value) for key, value in values.items()})
    return ReplicaMetrics(f"{name}-{number}", VariantKey(NAMESPACE, name), sample(kv), sample(0), engine)


def told_at(replica: ReplicaMetrics, now: float) -> ReplicaMetrics:
    """Return a pod whose samples were taken five seconds ago."""
    if replica.engine is None:
        return replica
    signals = {name: getattr(replica.engine, name) for name in EngineSignals.__struct_fields__}
    fresh = {
        name: replace(each, timestamp=now - 5) for name, each in signals.items() if each.state is SampleState.FRESH
    }
    return replace(replica, engine=replace(replica.engine, **fresh))


def steady(snapshot: Snapshot, policy: Policy, *, now: float = NOW) -> Memory:
    """Return the memory a minute after a cycle with the same reports, and after an hour of the same load."""
    snapshot = replace(snapshot, replicas=tuple(told_at(each, now - 60) for each in snapshot.replicas))
    models, _ = believe(snapshot, Memory(), policy, now - 60)
    demand = tuple(observed(model, DemandMemory(model.key), now - 60).after for model in models)
    loads = {
        model.key: sum(
            pod.engine.success_rate.fresh_value or 0.0 for own in model.variants for pod in own.replicas if pod.engine
        )
        for model in models
    }
    foreseen = [
        Foresight(
            key,
            now - 3600,
            now - 60,
            tuple(Slot(now - 60 * ago, 60.0, load * 60) for ago in range(14, 0, -1)),
            dispersion=0.0,
        )
        for key, load in loads.items()
    ]
    return Memory(demand=demand, foreseen=tuple(foreseen))


@dataclass
class ModelCycles:
    """Cycles of one model, a minute apart; memory and published numbers go from one to the next."""

    policy: Policy = KNOWN
    now: float = NOW
    memory: Memory = field(default_factory=Memory)
    published: dict[VariantKey, VariantMemory] = field(default_factory=dict)

    def cycle(
        self,
        pods: dict[Variant, list[ReplicaMetrics]],
        *,
        queue: SchedulerQueue | None = None,
        failure: str | None = None,
        seconds: float = 60,
    ) -> Need:
        """Return the need of the model that all the variants serve."""
        self.now += seconds
        moment = Moment(self.now, 600)
        reports = tuple(
            VariantReadings(
                one.key,
                progress_of(one, replicas=own, entry=self.published.get(one.key), moment=moment),
                tuple(told_at(pod, self.now) for pod in own),
            )
            for one, own in sorted(pods.items(), key=lambda item: item[0].key)
        )
        key = next(iter(pods)).model
        history = ModelMemory(key)
        model = ModelReadings(key, SaturationPolicy(), reports, (), None, True, queue, None, history, failure)
        policy = replace(self.policy, saturation=SaturationPolicy(analyzer_name=Analyzer.QUEUEING))
        (need,), self.memory = measure([model], self.memory, policy, self.now)
        return need

    def twice(self, pods: dict[Variant, list[ReplicaMetrics]], **fields: Any) -> Need:
        """Return the need after two equal cycles, because WVA needs two to know what arrives."""
        self.cycle(pods, **fields)
        return self.cycle(pods, **fields)

    def alike(self, replicas: int, **signals: object) -> Need:
        """Return the need after one cycle of a model with one variant, whose pods all report the same."""
        return self.cycle({variant(replicas=replicas): [pod(number=n, **signals) for n in range(replicas)]})

    def alike_twice(self, replicas: int, **signals: object) -> Need:
        """Return the need after two such cycles."""
        self.alike(replicas, **signals)
        return self.alike(replicas, **signals)


def rate(need: Need, name: str = "a") -> float:
    """Return what one replica of a variant takes, in requests per second."""
    return need.capacities[VariantKey(NAMESPACE, name)].per_replica


def targets(ttft: float, itl: float) -> QueueingRules:
    """Return rules in which the model has targets of its own."""
    return QueueingRules(QueueingPolicy(), (QueueingOverride("m", MODEL, None, QueueingPolicy(3.0, True, ttft, itl)),))
