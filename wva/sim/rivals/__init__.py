"""The policies that the scorecard compares: WVA and its rivals, each a way to decide how many replicas there should be.

A policy makes the controllers of a run from its scenario and seed. ``docs/rivals.md`` says what each is and where its
rules come from. To add a policy, add a module here that calls ``registry.register``: all modules are imported below.

- ``registry``     every policy by name
- ``hpa``          the algorithm of the HorizontalPodAutoscaler
- ``readings``     what Prometheus tells an autoscaler of a pod, and the usual targets
- ``scope``        which variants an autoscaler scales
- ``kubernetes``   HPAs on metrics of vLLM
- ``roles``        policies for prefill and decode
- ``keda``         KEDA's Prometheus scaler
- ``keda_epp``     KEDA on metrics of llm-d's endpoint picker
- ``knative``      the Knative Pod Autoscaler
- ``ray_serve``    the autoscaler of Ray Serve
- ``wva``          the shipped decisions, with the HPAs that apply them
- ``clairvoyant``  policies that know the traffic
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from wva.sim.rivals.registry import DEFAULTS, FAMILIES, OF_ROLES, POLICIES, with_target
from wva.sim.stage.result import RunResult
from wva.sim.stage.run import play
from wva.sim.stage.scenario import Scenario

__all__ = ["DEFAULTS", "FAMILIES", "OF_ROLES", "POLICIES", "import_modules", "run", "with_target"]


def import_modules() -> None:
    """Import every module of this package that is not imported yet, so that it registers its policies."""
    for module in iter_modules(__path__, f"{__name__}."):
        import_module(module.name)


def run(scenario: Scenario, policy: str, seed: int) -> RunResult:
    """Run the policy of this name.

    Raises:
        KeyError: no policy has this name.

    """
    return play(scenario, policy, seed, POLICIES[policy])


import_modules()
