"""Autoscalers for prefill and decode in pods of their own.

- ``hpa-roles-queue``, ``hpa-roles-inflight``: an HPA on the Deployment of each role, each with its own target.
- ``keda-tokens``: the two ScaledObjects of llm-d's guide keda-epp-token-aware (llm-d/llm-d, commits 04c0115 and
  56cb121). Prefill: the tokens that the picker has sent to prefill pods and that are not computed, over the tokens per
  second of an idle pod; 1.5 s per replica. Decode: the sum of the KV cache usages; 0.8 per replica. Both grow by at
  most one pod in 180 s, and shrink by one in 300 s.
- ``fixed-ratio``: an HPA on the tokens per second that each decode pod generates, and a fixed number of prefill
  replicas for each decode replica, as HeteroScale has it (https://arxiv.org/abs/2508.19559).

All variants of a role have the same autoscaler.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import ceil
from typing import Final

from wva.model.roles import DECODE, PREFILL
from wva.sim.fleet.calibration import alone_seconds
from wva.sim.rivals.hpa import Behavior, PerPod, SimulatedHpa
from wva.sim.rivals.keda import ExternalAutoscaler, KedaRules, KedaTrigger, sum_of_pods
from wva.sim.rivals.kubernetes import PodsAutoscaler
from wva.sim.rivals.readings import LoadReading
from wva.sim.rivals.registry import register_by_role
from wva.sim.stage.prometheus import rate
from wva.sim.stage.run import Policy
from wva.sim.stage.scenario import Scenario, VariantSetup
from wva.sim.stage.view import ScrapedSignal, StageController, StagePodView, StageView

QUEUE_SECONDS: Final = 1.5
"""The guide's threshold for prefill."""
KV_CACHES: Final = 0.8
"""The guide's threshold for decode."""
GUIDE_BEHAVIOR: Final = Behavior.parse(
    {
        "scaleUp": {
            "stabilizationWindowSeconds": 0,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 180}],
        },
        "scaleDown": {
            "stabilizationWindowSeconds": 300,
            "policies": [{"type": "Pods", "value": 1, "periodSeconds": 300}],
        },
    }
)
_POLLING_SECONDS: Final = 15.0
_RATE_SECONDS: Final = 60.0
"""The window of the rate of generated tokens."""


def of_role(scenario: Scenario, role: str) -> list[VariantSetup]:
    """Return the variants of a role."""
    return [setup for setup in scenario.variants if setup.role == role]


def hpa_by_role(load: LoadReading, prefill: float, decode: float) -> Policy:
    """Return HPAs that aim at these values per pod of each role."""
    targets = {PREFILL: prefill, DECODE: decode}
    return lambda scenario, _: [
        PodsAutoscaler(scenario, setup, load, targets[setup.role]) for setup in scenario.variants if setup.role
    ]


# -- KEDA on tokens ---------------------------------------------------------------------------------------------------


class BacklogScrapes:
    """Scrapes from the picker the tokens of prompts that it has sent to prefill pods and that are not computed yet."""

    decides = False

    def __init__(self, scenario: Scenario) -> None:
        """Begin without a scrape."""
        self.period_seconds = scenario.observation.scrape_seconds
        self._tokens: dict[str, float] | None = None

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Scrape once. The page is the gateway's: if the gateway could not be scraped, there are no series."""
        del now_seconds
        lost = stage.gateway_queue() is None
        self._tokens = None if lost else {name: self._sum(stage, view.pods) for name, view in stage.variants.items()}

    def seconds(self, tokens_per_second: float, threshold: float) -> KedaTrigger:
        """Return the trigger on the backlog in seconds."""

        def query(_stage: StageView, variant: str, _at: float) -> float | None:
            return None if self._tokens is None else self._tokens[variant] / tokens_per_second

        return KedaTrigger(query, threshold)

    def _sum(self, stage: StageView, pods: Sequence[StagePodView]) -> float:
        return float(sum(stage.backlog(pod.name) for pod in pods if pod.ready))


def peak_prefill_throughput(scenario: Scenario, setup: VariantSetup) -> float:
    """Return what the guide's calibration measures: tokens of a full step over its time to the first token when idle.

    The time is that of the whole path: it includes the transfer and the first step of a decode pod.
    """
    transfer = scenario.gateway.transfer
    tokens = min(setup.parameters.max_num_batched_tokens, setup.parameters.max_model_len - 1)
    decode_seconds = min(decode_setup.parameters.alpha_seconds for decode_setup in of_role(scenario, DECODE))
    seconds = alone_seconds(setup.parameters, tokens) + (transfer.seconds(tokens) if transfer else 0.0) + decode_seconds
    return tokens / seconds


def keda_tokens(queue_seconds: float, kv_caches: float) -> Policy:
    """Return KEDA on tokens with these thresholds."""

    def controllers(scenario: Scenario, _: int) -> list[StageController]:
        scrapes = BacklogScrapes(scenario)
        stage_controllers: list[StageController] = [scrapes]
        for setup in scenario.variants:
            if setup.role == PREFILL:
                trigger = scrapes.seconds(peak_prefill_throughput(scenario, setup), queue_seconds)
            else:
                trigger = sum_of_pods(LoadReading.KV_USAGE, kv_caches)
            rules = KedaRules((trigger,), GUIDE_BEHAVIOR, polling_seconds=_POLLING_SECONDS)
            stage_controllers.append(ExternalAutoscaler(scenario, setup, rules))
        return stage_controllers

    return controllers


# -- a fixed ratio ----------------------------------------------------------------------------------------------------


class FixedRatio:
    """One HPA on the decode pods, and a fixed number of prefill replicas for each decode replica."""

    def __init__(self, scenario: Scenario, ratio: float, tokens_per_second: float) -> None:
        """Begin without history."""
        self.period_seconds = scenario.hpa_seconds
        self._adapter_seconds = scenario.observation.adapter_seconds
        self._ratio, self._target = ratio, tokens_per_second
        self._prefills = of_role(scenario, PREFILL)
        self._hpas = {
            setup.name: SimulatedHpa(max(1, setup.minimum), setup.maximum) for setup in of_role(scenario, DECODE)
        }

    def act(self, stage: StageView, now_seconds: float) -> None:
        """Look at the decode pods and scale both roles."""
        at_seconds, replicas = now_seconds - self._adapter_seconds, 0
        for name, hpa in self._hpas.items():
            view = stage.variants[name]
            generated = [
                rate(stage.scrapes(pod.name), ScrapedSignal.GENERATION_TOKENS, now=at_seconds, seconds=_RATE_SECONDS)
                for pod in view.pods
            ]
            values = [value for value in generated if value is not None]
            metric = PerPod(values, self._target, missing=len(view.pods) - len(values))
            wanted = hpa.look([metric], current=view.replicas, exists=len(view.pods), now=now_seconds)
            stage.scale(name, wanted)
            replicas += wanted
        for setup in self._prefills:
            stage.scale(setup.name, max(setup.minimum, min(setup.maximum, ceil(self._ratio * replicas))))


def fixed_ratio(ratio: float, tokens_per_second: float) -> Policy:
    """Return ``ratio`` prefill replicas per decode replica, and HPAs that aim at these tokens per second."""
    return lambda scenario, _: [FixedRatio(scenario, ratio, tokens_per_second)]


register_by_role(
    "hpa-roles-queue",
    partial(hpa_by_role, LoadReading.QUEUE),
    default=(3.0, 5.0),
    first=(0.25, 0.5, 1.0, 2.0, 3.0, 5.0),
    second=(0.5, 1.0, 2.0, 5.0, 10.0, 20.0),
)
register_by_role(
    "hpa-roles-inflight",
    partial(hpa_by_role, LoadReading.IN_FLIGHT),
    default=(4.0, 64.0),
    first=(0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0),
    second=(16.0, 24.0, 32.0, 48.0, 64.0, 96.0, 128.0),
)
register_by_role(
    "keda-tokens",
    keda_tokens,
    default=(QUEUE_SECONDS, KV_CACHES),
    first=(0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 3.0),
    second=(0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8),
)
register_by_role(
    "fixed-ratio",
    fixed_ratio,
    default=(1.0, 1000.0),
    first=(0.5, 0.75, 1.0, 1.5, 2.0, 3.0),
    second=(250.0, 500.0, 1000.0, 1500.0, 2000.0, 3000.0),
)
