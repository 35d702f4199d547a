"""The scenarios that ship with the product."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from wva.sim.world.scenario import Incident, ScheduledIncident, VariantPlan, WorldScenario, load
from wva.sim.world.workloads import Loading

_H100: Final = VariantPlan("llama-h100", "H100", 40.0)
_A100: Final = VariantPlan("llama-a100", "A100", 20.0)
_DAY: Final = load((0, 3), (10, 3), (45, 40), (65, 40), (85, 5), (120, 3))

QUICKSTART: Final = WorldScenario(
    name="quickstart",
    title="two variants of one model, load up and down: the cheapest grows first, the dearest shrinks first",
    variants=(_H100, VariantPlan("llama-a100", "A100", 20.0, maximum=3)),
    load=_DAY,
)

SURGE: Final = WorldScenario(
    name="surge",
    title="eight times the load within a second, held for half an hour",
    variants=(_H100, _A100),
    load=load((0, 3), (10, 3), (10, 24), (40, 24), (40, 3), (90, 3)),
    duration_seconds=5400.0,
)

PROMETHEUS_OUTAGE: Final = WorldScenario(
    name="prometheus-outage",
    title="Prometheus is down for ten minutes at full load: nothing is scaled on data that is not there",
    variants=(_H100, _A100),
    load=load((0, 3), (10, 3), (30, 18), (60, 18), (75, 3), (100, 3)),
    incidents=(
        ScheduledIncident(45 * 60, Incident.PROMETHEUS_DOWN),
        ScheduledIncident(55 * 60, Incident.PROMETHEUS_UP),
    ),
    duration_seconds=6000.0,
)

BROKEN_POD: Final = WorldScenario(
    name="broken-pod",
    title="new pods of the cheapest variant never become ready: the sibling grows instead",
    variants=(_H100, VariantPlan("llama-a100", "A100", 20.0, loading=Loading(60.0, 90.0))),
    load=load((0, 3), (10, 3), (25, 22), (60, 22), (75, 3), (100, 3)),
    incidents=(
        ScheduledIncident(5 * 60, Incident.PODS_STUCK, "llama-a100"),
        ScheduledIncident(65 * 60, Incident.PODS_UNSTUCK, "llama-a100"),
    ),
    duration_seconds=6000.0,
    saturation=MappingProxyType({"default": "transitionDeadline: 4m\n"}),
)

BAD_SAMPLES: Final = WorldScenario(
    name="bad-samples",
    title="one pod of the dearest variant reports NaN for a quarter of an hour: nothing shrinks meanwhile",
    variants=(_H100, _A100),
    load=load((0, 3), (10, 20), (30, 20), (40, 3), (100, 3)),
    incidents=(
        ScheduledIncident(35 * 60, Incident.METRICS_NAN, "llama-h100"),
        ScheduledIncident(50 * 60, Incident.METRICS_REPAIRED, "llama-h100"),
    ),
    duration_seconds=6000.0,
)

BAD_DAY: Final = WorldScenario(
    name="bad-day",
    title="too few GPUs, a typo in the configuration, a sick pod and an outage of Prometheus, on one day",
    variants=(VariantPlan("llama-h100", "H100", 40.0), VariantPlan("llama-a100", "A100", 20.0, maximum=3)),
    load=load((0, 3), (5, 3), (15, 36), (35, 36), (45, 3), (60, 3)),
    incidents=(
        ScheduledIncident(8 * 60, Incident.METRICS_NAN, "llama-h100"),
        ScheduledIncident(11 * 60, Incident.METRICS_REPAIRED, "llama-h100"),
        ScheduledIncident(27 * 60, Incident.PROMETHEUS_DOWN),
        ScheduledIncident(31 * 60, Incident.PROMETHEUS_UP),
    ),
    duration_seconds=3600.0,
    saturation=MappingProxyType(
        {
            "default": "enableLimiter: true\n",
            "typo": "model_id: meta/llama-3.1-8b\nnamespace: llm\nkvCacheThreshold: 80\n",
        }
    ),
    gpus=MappingProxyType({"H100": 3, "A100": 4}),
)

SCENARIOS: Final = MappingProxyType(
    {scenario.name: scenario for scenario in (QUICKSTART, SURGE, PROMETHEUS_OUTAGE, BROKEN_POD, BAD_SAMPLES, BAD_DAY)}
)
