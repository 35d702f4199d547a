"""The scenarios of the demo, and what they are made of.

Requests are those of ``shapes.LONG`` (1,024 tokens in, 512 out), engines are illustrative (``PRESETS``), and WVA
decides every 30 s. A further scenario is made by ``demo_scenario`` and stands in ``SCENARIOS``; docs/demo.md says what
happens in it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from wva.model.objectives import Objectives
from wva.model.roles import DECODE, PREFILL
from wva.sim.fleet.parameters import PRESETS
from wva.sim.fleet.transfer import KvTransfer
from wva.sim.fleet.users import GatewaySettings
from wva.sim.stage.faults import NoStarts, PrometheusOutage, UnreadablePod
from wva.sim.stage.scenario import Scenario, StartUp, VariantSetup
from wva.sim.traffic.assembly import poisson_traffic
from wva.sim.traffic.rates import RateProfile
from wva.sim.traffic.requests import Traffic
from wva.sim.traffic.shapes import LONG, turning

_MINUTE: Final = 60.0
_START_UP: Final = StartUp(150.0, 0.115)


def demo_variant(name: str, accelerator: str, price: float, **more: Any) -> VariantSetup:
    """Return a variant with the illustrative engine of an accelerator; ``more`` are fields of ``VariantSetup``."""
    fields: dict[str, Any] = {"maximum": 10, "start_up": _START_UP}
    return VariantSetup(name, accelerator, PRESETS[accelerator], price, **fields | more)


def demo_scenario(
    name: str, title: str, variants: tuple[VariantSetup, ...], traffic: Callable[..., Traffic], **more: Any
) -> Scenario:
    """Return a scenario with patient users and an HPA that is slow to shrink; ``more`` are fields of ``Scenario``."""
    fields: dict[str, Any] = {
        "kind": "demo",
        "objectives": Objectives(ttft_seconds=1.0, itl_seconds=0.05),
        "gateway": GatewaySettings(),
        "interval_seconds": 30.0,
        "hpa_down_seconds": 120.0,
    }
    return Scenario(name, title, variants=variants, traffic=traffic, **fields | more)


def between(*points: tuple[float, float], minutes: float) -> Callable[..., Traffic]:
    """Return traffic of ``minutes`` whose rate is linear between the points (minute, requests per second)."""
    return partial(_between, points=points, duration_seconds=minutes * _MINUTE)


def _between(seed: int, *, points: tuple[tuple[float, float], ...], duration_seconds: float) -> Traffic:
    profile = RateProfile(tuple((minute * _MINUTE, rate) for minute, rate in points))
    return poisson_traffic(seed, profile, duration_seconds=duration_seconds, sizes=LONG)


_H100: Final = demo_variant("llama-h100", "H100", 40.0)
_A100: Final = demo_variant("llama-a100", "A100", 20.0)
_DAY: Final = between((0, 3), (10, 3), (45, 40), (65, 40), (85, 5), (120, 3), minutes=120)

QUICKSTART: Final = demo_scenario(
    name="quickstart",
    title="two variants of one model, load up and down: the cheapest grows first, the dearest shrinks first",
    variants=(_H100, demo_variant("llama-a100", "A100", 20.0, maximum=3)),
    traffic=_DAY,
)

SURGE: Final = demo_scenario(
    name="surge",
    title="eight times the load within a second, held for half an hour",
    variants=(_H100, _A100),
    traffic=between((0, 3), (10, 3), (10, 24), (40, 24), (40, 3), (90, 3), minutes=90),
)

PROMETHEUS_OUTAGE: Final = demo_scenario(
    name="prometheus-outage",
    title="Prometheus is down for ten minutes at full load: nothing is scaled on data that is not there",
    variants=(_H100, _A100),
    traffic=between((0, 3), (10, 3), (30, 18), (60, 18), (75, 3), (100, 3), minutes=100),
    faults=(PrometheusOutage(45 * _MINUTE, 55 * _MINUTE),),
)

BROKEN_POD: Final = demo_scenario(
    name="broken-pod",
    title="new pods of the cheapest variant never become ready: the sibling grows instead",
    variants=(_H100, demo_variant("llama-a100", "A100", 20.0, start_up=StartUp(75.0, 0.115))),
    traffic=between((0, 3), (10, 3), (25, 22), (60, 22), (75, 3), (100, 3), minutes=100),
    faults=(NoStarts("llama-a100", 5 * _MINUTE, 65 * _MINUTE),),
    saturation=MappingProxyType({"default": "transitionDeadline: 4m\n"}),
)

BAD_SAMPLES: Final = demo_scenario(
    name="bad-samples",
    title="one pod of the dearest variant reports NaN for a quarter of an hour: nothing shrinks meanwhile",
    variants=(_H100, _A100),
    traffic=between((0, 3), (10, 20), (30, 20), (40, 3), (100, 3), minutes=100),
    faults=(UnreadablePod("llama-h100", 35 * _MINUTE, 50 * _MINUTE),),
)

BAD_DAY: Final = demo_scenario(
    name="bad-day",
    title="too few GPUs, a typo in the configuration, a sick pod and an outage of Prometheus, on one day",
    variants=(demo_variant("llama-h100", "H100", 40.0), demo_variant("llama-a100", "A100", 20.0, maximum=3)),
    traffic=between((0, 3), (5, 3), (15, 36), (35, 36), (45, 3), (60, 3), minutes=60),
    faults=(
        UnreadablePod("llama-h100", 8 * _MINUTE, 11 * _MINUTE),
        PrometheusOutage(27 * _MINUTE, 31 * _MINUTE),
    ),
    saturation=MappingProxyType(
        {
            "default": "enableLimiter: true\n",
            "typo": "model_id: meta/llama-3.1-8b\nnamespace: llm\nkvCacheThreshold: 80\n",
        }
    ),
    gpus=MappingProxyType({"H100": 3, "A100": 4}),
)

PREFILL_DECODE: Final = demo_scenario(
    name="prefill-decode",
    title="prefill and decode in pods of their own: prompts grow, answers shrink, and so do the roles",
    variants=(
        demo_variant("llama-prefill", "H100", 40.0, role=PREFILL),
        demo_variant("llama-decode", "H100", 40.0, role=DECODE, replicas=4),
    ),
    traffic=partial(turning, duration_seconds=90 * _MINUTE, rate=16.0),
    gateway=GatewaySettings(transfer=KvTransfer.of("Qwen3-32B")),
)

SCENARIOS: Final = MappingProxyType(
    {
        scenario.name: scenario
        for scenario in (QUICKSTART, SURGE, PROMETHEUS_OUTAGE, BROKEN_POD, BAD_SAMPLES, BAD_DAY, PREFILL_DECODE)
    }
)
