"""The policies that the scorecard compares: WVA and its rivals, each a way to decide how many replicas there should be.

A policy makes the controllers of a run from its scenario and seed. ``docs/rivals.md`` says what each is and where its
rules come from.

- ``hpa``          the algorithm of the HorizontalPodAutoscaler
- ``kubernetes``   HPAs on metrics of vLLM
- ``keda``         KEDA's Prometheus scaler
- ``knative``      the Knative Pod Autoscaler
- ``wva``          the shipped decisions, with the HPAs that apply them
- ``clairvoyant``  policies that know the traffic
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

from wva.sim.rivals.clairvoyant import clairvoyant, static_peak
from wva.sim.rivals.keda import keda
from wva.sim.rivals.knative import CONCURRENCY, kpa
from wva.sim.rivals.kubernetes import hpa
from wva.sim.rivals.readings import LoadReading
from wva.sim.rivals.scope import Scope
from wva.sim.rivals.wva import SETUPS, WvaSetup, controllers
from wva.sim.stage.result import RunResult
from wva.sim.stage.run import Policy, play
from wva.sim.stage.scenario import Scenario

_Tunable = Callable[[float], Policy]

DEFAULT_TARGETS: Final[Mapping[LoadReading, float]] = MappingProxyType(
    {LoadReading.KV_USAGE: 0.7, LoadReading.QUEUE: 5.0, LoadReading.IN_FLIGHT: 100.0}
)
"""What a pod should have on average, as the guides have it. See docs/rivals.md for each one's source."""

TARGETS: Final[Mapping[LoadReading, tuple[float, ...]]] = MappingProxyType(
    {
        LoadReading.KV_USAGE: (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95),
        LoadReading.QUEUE: (0.5, 1, 2, 3, 5, 8, 12, 20, 40, 80, 160),
        LoadReading.IN_FLIGHT: (2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256),
    }
)
"""The targets that are tried where a policy is tuned in hindsight.

They reach from what suits long prompts, of which a few are enough for a pod, to what only a long queue comes to.
"""


def hpa_policy(load: LoadReading, target: float, scope: Scope = Scope.ALL) -> Policy:
    """Return HPAs that aim at this value per pod."""
    return lambda scenario, _: hpa(scenario, load, target, scope)


def keda_policy(load: LoadReading, threshold: float, scope: Scope = Scope.ALL) -> Policy:
    """Return ScaledObjects with this threshold per pod."""
    return lambda scenario, _: keda(scenario, load, threshold, scope)


def kpa_policy(concurrency: float = CONCURRENCY, scope: Scope = Scope.ALL) -> Policy:
    """Return the KPA for pods that serve so many requests at once."""
    return lambda scenario, _: kpa(scenario, concurrency, scope)


def wva_policy(setup: WvaSetup) -> Policy:
    """Return WVA with a configuration."""
    return lambda scenario, _: controllers(setup, scenario)


def _tunable() -> dict[str, tuple[_Tunable, float, tuple[float, ...]]]:
    """Return by name: the policy of a target, the default target, and the targets to try."""
    found: dict[str, tuple[_Tunable, float, tuple[float, ...]]] = {}
    for scope, ending in ((Scope.ALL, ""), (Scope.CHEAPEST, "-cheapest")):
        for load, targets in TARGETS.items():
            default = DEFAULT_TARGETS[load]
            found[f"hpa-{load.value}{ending}"] = (partial(hpa_policy, load, scope=scope), default, targets)
        found[f"kpa{ending}"] = (partial(kpa_policy, scope=scope), CONCURRENCY, TARGETS[LoadReading.IN_FLIGHT])
    for load in (LoadReading.QUEUE, LoadReading.IN_FLIGHT):
        found[f"keda-{load.value}"] = (partial(keda_policy, load), DEFAULT_TARGETS[load], TARGETS[load])
    return found


FAMILIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {name: tuple(f"{name}@{target:g}" for target in targets) for name, (_, _, targets) in _tunable().items()}
)
"""By name of a policy with a target: the names of the same policy with each of the targets to try."""


def _policies() -> dict[str, Policy]:
    found: dict[str, Policy] = {"static-peak": static_peak, "clairvoyant": clairvoyant}
    found |= {name: wva_policy(setup) for name, setup in SETUPS.items()}
    for name, (tuned, default, targets) in _tunable().items():
        found[name] = tuned(default)
        for member, target in zip(FAMILIES[name], targets, strict=True):
            found[member] = tuned(target)
    return found


POLICIES: Final[Mapping[str, Policy]] = MappingProxyType(_policies())
"""Every policy by name. A name with ``@`` has the target behind it instead of the default."""


def run(scenario: Scenario, policy: str, seed: int) -> RunResult:
    """Run the policy of this name.

    Raises:
        KeyError: there is none.

    """
    return play(scenario, policy, seed, POLICIES[policy])
