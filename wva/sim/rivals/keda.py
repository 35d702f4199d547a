"""KEDA with its Prometheus scaler: one ScaledObject per Deployment.

The HPA that KEDA makes asks KEDA for the metric at each look, and KEDA asks Prometheus then: an external metric with
an average value, ``sum`` of the pods of the Deployment. An empty answer is 0, which is KEDA's default
(``ignoreNullValues: "true"``). KEDA itself polls every 30 s, and only between 0 and 1 replica: it wakes a target with
any load, and puts it to sleep 300 s after the last.

Facts: https://keda.sh/docs/latest/scalers/prometheus/ and https://keda.sh/docs/latest/reference/scaledobject-spec/.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from wva.sim.rivals.hpa import External, SimulatedHpa
from wva.sim.rivals.readings import DEFAULT_TARGETS, TARGETS, LoadReading, readings
from wva.sim.rivals.registry import register_with_targets
from wva.sim.rivals.scope import Scope, at_minimum, scaled
from wva.sim.stage.run import Policy
from wva.sim.stage.scenario import Scenario, VariantSetup
from wva.sim.stage.view import StageController, StageView


@dataclass(frozen=True, slots=True)
class KedaRules:
    """What a ScaledObject says. ``threshold`` is the average value per pod."""

    load: LoadReading
    threshold: float
    ignore_null_values: bool = True
    polling_seconds: float = 30.0
    cooldown_seconds: float = 300.0

    def query(self, stage: StageView, variant: str, *, at_seconds: float) -> float | None:
        """Return what the trigger's query answers, None for an error."""
        values = readings(stage, stage.variants[variant].pods, self.load, at_seconds=at_seconds)
        if values:
            return sum(values)
        return 0.0 if self.ignore_null_values else None


class ExternalAutoscaler:
    """The HPA of a ScaledObject. It never goes below 1: the way to 0 is the operator's."""

    def __init__(self, scenario: Scenario, variant: VariantSetup, scaled_object: KedaRules) -> None:
        """Begin without a memory."""
        self.period_seconds = scenario.hpa_seconds
        self._variant = variant.name
        self._scaled_object = scaled_object
        self._hpa = SimulatedHpa(max(1, variant.minimum), variant.maximum)

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Ask for the metric and scale."""
        view = stage.variants[self._variant]
        value = self._scaled_object.query(stage, self._variant, at_seconds=now_seconds)
        metric = External(value, self._scaled_object.threshold)
        replicas = self._hpa.look([metric], current=view.replicas, exists=len(view.pods), now=now_seconds)
        stage.scale(self._variant, replicas)


@dataclass(slots=True)
class Operator:
    """KEDA's own loop for a target with a minimum of 0. What waits at the gateway wakes it, as there is no pod then."""

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
        load = self.scaled_object.query(stage, self.variant, at_seconds=now_seconds) or 0.0
        if load + (stage.gateway_queue() or 0.0) > 0:
            self._active_at = now_seconds
            if replicas == 0:
                stage.scale(self.variant, 1)
        elif replicas and (
            self._active_at is None or now_seconds > self._active_at + self.scaled_object.cooldown_seconds
        ):
            stage.scale(self.variant, 0)


def keda(scenario: Scenario, load: LoadReading, threshold: float, scope: Scope) -> list[StageController]:
    """Return what KEDA runs in a scenario."""
    variants = scaled(scenario, scope)
    scaled_object = KedaRules(load, threshold)
    asleep = [Operator(variant.name, scaled_object) for variant in variants if variant.minimum == 0]
    autoscalers = [ExternalAutoscaler(scenario, variant, scaled_object) for variant in variants]
    return [*autoscalers, *asleep, *at_minimum(scenario, variants)]


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
