"""Models under load for the queueing analyzer: variants, their pods, and what the pods report."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.builders import NAMESPACE, NOW, sample, variant
from wva.decide.analyze.queueing import QueueingInputs, analyze_queueing
from wva.decide.analyze.saturation import VariantReport
from wva.decide.settling import Moment, progress_of
from wva.model.memory import VariantMemory
from wva.model.metrics import EngineSignals, ReplicaMetrics
from wva.model.policy import Policy, QueueingOverride, QueueingPolicy, QueueingRules
from wva.model.queueing import NOTHING_OBSERVED, ModelOpinion, QueueingMemory
from wva.model.service import PerformanceProfile, ServiceTarget
from wva.model.snapshot import SchedulerQueue
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


@dataclass
class Analysis:
    """Cycles of one model, a minute apart; memory and published numbers go from one to the next."""

    policy: Policy = KNOWN
    now: float = NOW
    memory: QueueingMemory = NOTHING_OBSERVED
    published: dict[VariantKey, VariantMemory] = field(default_factory=dict)

    def cycle(
        self,
        pods: dict[Variant, list[ReplicaMetrics]],
        *,
        queue: SchedulerQueue | None = None,
        failure: str | None = None,
    ) -> ModelOpinion:
        """Return the opinion about the model that all the variants serve."""
        self.now += 60
        moment = Moment(self.now, 600)
        reports = [
            VariantReport(progress_of(one, replicas=own, entry=self.published.get(one.key), moment=moment), tuple(own))
            for one, own in pods.items()
        ]
        model = next(iter(pods)).model
        (opinion,), self.memory = analyze_queueing(
            [QueueingInputs(model, reports, queue, failure)], policy=self.policy, memory=self.memory, now=self.now
        )
        return opinion

    def desired(self, replicas: int, **signals: object) -> int | None:
        """Return the number for the only variant, whose pods all report the same."""
        opinion = self.cycle({variant(replicas=replicas): [pod(number=n, **signals) for n in range(replicas)]})
        return opinion.variants[0].desired


def targets(ttft: float, itl: float) -> QueueingRules:
    """Return rules in which the model has targets of its own."""
    return QueueingRules(QueueingPolicy(), (QueueingOverride("m", MODEL, None, QueueingPolicy(3.0, True, ttft, itl)),))
