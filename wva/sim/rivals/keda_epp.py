"""KEDA on metrics of the endpoint picker (EPP), as the guides of llm-d have it.

``inflight``: the base ScaledObject of the guide keda-epp (llm-d/llm-d, commit b0d6a79): requests that run, 16 per
replica. ``saturation``: its overlay (commit 76e392d): in addition the saturation of the pool, 0.7 per replica, and a
stabilization window of 300 s for growth, too. The picker's default detector computes the saturation: the mean over the
pods of the larger of queue / 5 and KV usage / 0.8; a pod without metrics counts 1, and so does an empty pool.

The guides use the saturation, a mean, as an average value: so the HPA asks for saturation / 0.7 pods in all.

Facts: guides/workload-autoscaling/keda-epp of https://github.com/llm-d/llm-d, and the plugin utilization-detector of
https://github.com/llm-d/llm-d-router.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

from wva.sim.rivals.hpa import Behavior
from wva.sim.rivals.keda import KedaRules, KedaTrigger, scaled_objects
from wva.sim.rivals.readings import TARGETS, LoadReading
from wva.sim.rivals.registry import register_with_targets
from wva.sim.rivals.scope import Scope
from wva.sim.stage.prometheus import latest
from wva.sim.stage.run import Policy
from wva.sim.stage.scenario import Scenario
from wva.sim.stage.view import ScrapedSignal, StageController, StagePodView, StageView

RUNNING_REQUESTS: Final = 16.0
"""The guides' threshold of the trigger epp-running-requests."""
POOL_SATURATION: Final = 0.7
"""The guides' threshold of the trigger pool-saturation."""
QUEUE_DEPTH: Final = 5.0
"""queueDepthThreshold of the detector."""
KV_CACHE: Final = 0.8
"""kvCacheUtilThreshold of the detector."""
_POLLING_SECONDS: Final = 15.0


class EppSignal(Enum):
    """The guides' signals; the value is the name in a policy's name."""

    IN_FLIGHT = "inflight"
    SATURATION = "saturation"


@dataclass(frozen=True, slots=True)
class ScrapedPickerPage:
    """The picker's page as scraped last: requests that run, and saturation, by variant."""

    running: dict[str, float]
    saturation: dict[str, float]


class PickerScrapes:
    """Scrapes the picker: its counters know each request that it has sent to a pod; it polls the pods' pages."""

    decides = False

    def __init__(self, scenario: Scenario) -> None:
        """Begin without a scrape."""
        self.period_seconds = scenario.observation.scrape_seconds
        self._page = ScrapedPickerPage({}, {})

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Scrape once. The page is the gateway's: if the gateway could not be scraped, there are no series."""
        if stage.gateway_queue() is None:
            self._page = ScrapedPickerPage({}, {})
            return
        ready = {name: [pod for pod in view.pods if pod.ready] for name, view in stage.variants.items()}
        self._page = ScrapedPickerPage(
            {name: float(sum(stage.in_flight(pod.name) for pod in pods)) for name, pods in ready.items()},
            {name: pool_saturation(stage, pods, now_seconds) for name, pods in ready.items()},
        )

    def running(self, threshold: float) -> KedaTrigger:
        """Return the trigger on llm_d_epp_request_running."""
        return KedaTrigger(lambda _stage, variant, _at: self._page.running.get(variant), threshold)

    def saturation(self, threshold: float) -> KedaTrigger:
        """Return the trigger on llm_d_epp_flow_control_pool_saturation."""
        return KedaTrigger(lambda _stage, variant, _at: self._page.saturation.get(variant), threshold)


def pool_saturation(stage: StageView, pods: list[StagePodView], now_seconds: float) -> float:
    """Return what the utilization-detector says of these pods."""
    scrapes = [latest(stage.scrapes(pod.name), now_seconds) for pod in pods]
    scores = [
        1.0
        if scrape is None
        else max(scrape.values[ScrapedSignal.WAITING] / QUEUE_DEPTH, scrape.values[ScrapedSignal.KV_USAGE] / KV_CACHE)
        for scrape in scrapes
    ]
    return sum(scores) / len(scores) if scores else 1.0


def keda_epp(scenario: Scenario, signal: EppSignal, running_requests: float, scope: Scope) -> list[StageController]:
    """Return what KEDA runs in a scenario; each variant is a pool of its own, as the guides want it."""
    scrapes = PickerScrapes(scenario)
    running = scrapes.running(running_requests)
    if signal is EppSignal.IN_FLIGHT:
        rules = KedaRules((running,), _behavior(0), polling_seconds=_POLLING_SECONDS)
    else:
        triggers = (scrapes.saturation(POOL_SATURATION), running)
        rules = KedaRules(triggers, _behavior(300), polling_seconds=_POLLING_SECONDS)
    return [scrapes, *scaled_objects(scenario, rules, scope)]


def _behavior(up_seconds: int) -> Behavior:
    doubling: dict[str, Any] = {"type": "Percent", "value": 100, "periodSeconds": 15}
    return Behavior.parse(
        {
            "scaleUp": {"stabilizationWindowSeconds": up_seconds, "policies": [doubling]},
            "scaleDown": {"stabilizationWindowSeconds": 300, "policies": [doubling]},
        }
    )


def keda_epp_policy(signal: EppSignal, running_requests: float = RUNNING_REQUESTS, scope: Scope = Scope.ALL) -> Policy:
    """Return KEDA on metrics of the picker, with this threshold of running requests per pod."""
    return lambda scenario, _: keda_epp(scenario, signal, running_requests, scope)


for _signal in EppSignal:
    register_with_targets(
        f"keda-epp-{_signal.value}",
        partial(keda_epp_policy, _signal),
        default=RUNNING_REQUESTS,
        targets=TARGETS[LoadReading.IN_FLIGHT],
    )
