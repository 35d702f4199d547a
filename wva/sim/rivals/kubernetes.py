"""HorizontalPodAutoscalers on metrics of vLLM, through the Prometheus Adapter.

As the guides have it: one HPA per Deployment, one metric of type Pods with an average value, the behavior that
Kubernetes has by default, a look every 15 s.
"""

from __future__ import annotations

from functools import partial

from wva.sim.rivals.hpa import PerPod, SimulatedHpa
from wva.sim.rivals.readings import DEFAULT_TARGETS, TARGETS, LoadReading, readings
from wva.sim.rivals.registry import register_with_targets
from wva.sim.rivals.scope import Scope, at_minimum, scaled
from wva.sim.stage.run import Policy
from wva.sim.stage.scenario import Scenario, VariantSetup
from wva.sim.stage.view import StageController, StageView


class PodsAutoscaler:
    """One HPA on one Deployment, with a metric of type Pods."""

    def __init__(self, scenario: Scenario, variant: VariantSetup, load: LoadReading, target: float) -> None:
        """``target`` is the average value that the HPA aims at."""
        self.period_seconds = scenario.hpa_seconds
        self._adapter_seconds = scenario.observation.adapter_seconds
        self._variant = variant.name
        self._load = load
        self._target = target
        # Kubernetes accepts a minimum of 0 only with a metric that is there without pods.
        self._hpa = SimulatedHpa(max(1, variant.minimum), variant.maximum)

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Look at the pods and scale.

        A pod that loads its weights runs and has no readings yet, so it counts as missing, not as pending.
        """
        view = stage.variants[self._variant]
        values = readings(stage, view.pods, self._load, at_seconds=now_seconds - self._adapter_seconds)
        metric = PerPod(values, self._target, missing=len(view.pods) - len(values))
        # An HPA leaves a Deployment at 0 alone. Whoever gave this Deployment its HPA has started it.
        current = max(1, view.replicas)
        replicas = self._hpa.look([metric], current=current, exists=len(view.pods), now=now_seconds)
        stage.scale(self._variant, replicas)


def hpa(scenario: Scenario, load: LoadReading, target: float, scope: Scope) -> list[StageController]:
    """Return the HPAs of a scenario."""
    variants = scaled(scenario, scope)
    return [*(PodsAutoscaler(scenario, variant, load, target) for variant in variants), *at_minimum(scenario, variants)]


def hpa_policy(load: LoadReading, target: float, scope: Scope = Scope.ALL) -> Policy:
    """Return HPAs that aim at this value per pod."""
    return lambda scenario, _: hpa(scenario, load, target, scope)


for _scope in Scope:
    for _load, _targets in TARGETS.items():
        register_with_targets(
            f"hpa-{_load.value}{_scope.ending}",
            partial(hpa_policy, _load, scope=_scope),
            default=DEFAULT_TARGETS[_load],
            targets=_targets,
        )
