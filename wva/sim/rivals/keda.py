"""KEDA with its Prometheus scaler: one ScaledObject per Deployment.

The HPA that KEDA makes asks KEDA for the metric at each look, and KEDA asks Prometheus then: an external metric with
an average value, such as the sum over the pods of the Deployment. An empty answer is 0, which is KEDA's default
(``ignoreNullValues: "true"``). KEDA itself polls every 30 s, and only between 0 and 1 replica: it wakes a target with
any load, and puts it to sleep 300 s after the last.

Facts: https://keda.sh/docs/latest/scalers/prometheus/ and https://keda.sh/docs/latest/reference/scaledobject-spec/.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from wva.sim.rivals.hpa import Behavior, External, SimulatedHpa
from wva.sim.rivals.readings import DEFAULT_TARGETS, TARGETS, LoadReading, readings
from wva.sim.rivals.registry import register_with_targets
from wva.sim.rivals.scope import Scope, at_minimum, scaled
from wva.sim.stage.run import Policy
from wva.sim.stage.scenario import Scenario, VariantSetup
from wva.sim.stage.view import StageController, StageView


@dataclass(frozen=True, slots=True)
class KedaTrigger:
    """A trigger with a metric of type AverageValue.

    ``query`` answers for a variant at a time in virtual seconds; None is an empty answer. ``threshold`` is the average
    value per pod.
    """

    query: Callable[[StageView, str, float], float | None]
    threshold: float


def sum_of_pods(load: LoadReading, threshold: float) -> KedaTrigger:
    """Return a trigger on the sum over the pods of a Deployment."""

    def query(stage: StageView, variant: str, at_seconds: float) -> float | None:
        values = readings(stage, stage.variants[variant].pods, load, at_seconds=at_seconds)
        return sum(values) if values else None

    return KedaTrigger(query, threshold)


@dataclass(frozen=True, slots=True)
class KedaRules:
    """What a ScaledObject says; the HPA follows the trigger that asks for most."""

    triggers: tuple[KedaTrigger, ...]
    behavior: Behavior = Behavior()  # noqa: RUF009 - frozen
    ignore_null_values: bool = True
    polling_seconds: float = 30.0
    cooldown_seconds: float = 300.0

    def metrics(self, stage: StageView, variant: str, *, at_seconds: float) -> list[External]:
        """Return the metrics that KEDA answers the HPA with; one without a value is an error."""
        empty = 0.0 if self.ignore_null_values else None
        answers = [(trigger.query(stage, variant, at_seconds), trigger.threshold) for trigger in self.triggers]
        return [External(empty if value is None else value, threshold) for value, threshold in answers]


class ExternalAutoscaler:
    """The HPA of a ScaledObject. It never goes below 1: the way to 0 is the operator's."""

    def __init__(self, scenario: Scenario, variant: VariantSetup, scaled_object: KedaRules) -> None:
        """Begin without a memory."""
        self.period_seconds = scenario.hpa_seconds
        self._variant = variant.name
        self._scaled_object = scaled_object
        self._hpa = SimulatedHpa(max(1, variant.minimum), variant.maximum, scaled_object.behavior)

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Ask for the metrics and scale."""
        view = stage.variants[self._variant]
        metrics = self._scaled_object.metrics(stage, self._variant, at_seconds=now_seconds)
        replicas = self._hpa.look(metrics, current=view.replicas, exists=len(view.pods), now=now_seconds)
        stage.scale(self._variant, replicas)


@dataclass(slots=True)
class Operator:
    """KEDA's own loop for a target with a minimum of 0. Requests at the gateway wake it, as there is no pod then."""

    variant: str
    scaled_object: KedaRules
    period_seconds: float = field(init=False)
    _active_at: float | None = None

    def __post_init__(self) -> None:
        """Poll as the ScaledObject says."""
        self.period_seconds = self.scaled_object.polling_seconds

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Wake the target or put it to sleep."""
        replicas = stage.variants[self.variant].replicas
        metrics = self.scaled_object.metrics(stage, self.variant, at_seconds=now_seconds)
        if any(metric.value for metric in metrics) or stage.gateway_queue():
            self._active_at = now_seconds
            if replicas == 0:
                stage.scale(self.variant, 1)
        elif replicas and (
            self._active_at is None or now_seconds > self._active_at + self.scaled_object.cooldown_seconds
        ):
            stage.scale(self.variant, 0)


def scaled_objects(scenario: Scenario, scaled_object: KedaRules, scope: Scope) -> list[StageController]:
    """Return what KEDA runs in a scenario, with the same ScaledObject for each Deployment."""
    variants = scaled(scenario, scope)
    asleep = [Operator(variant.name, scaled_object) for variant in variants if variant.minimum == 0]
    autoscalers = [ExternalAutoscaler(scenario, variant, scaled_object) for variant in variants]
    return [*autoscalers, *asleep, *at_minimum(scenario, variants)]


def keda(scenario: Scenario, load: LoadReading, threshold: float, scope: Scope) -> list[StageController]:
    """Return KEDA with one trigger on metrics of vLLM."""
    return scaled_objects(scenario, KedaRules((sum_of_pods(load, threshold),)), scope)


def keda_policy(load: LoadReading, threshold: float, scope: Scope = Scope.ALL) -> Policy:
    """Return ScaledObjects with this threshold per pod."""
    return lambda scenario, _: keda(scenario, load, threshold, scope)


for _load in (LoadReading.QUEUE, LoadReading.IN_FLIGHT):
    register_with_targets(
        f"keda-{_load.value}",
        partial(keda_policy, _load),
        default=DEFAULT_TARGETS[_load],
        targets=TARGETS[_load],
    )
