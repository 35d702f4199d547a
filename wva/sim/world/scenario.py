"""The parts of a run of the embedded world: variants, load, and incidents with their times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from wva.sim.fleet.load import LoadSpec, RateProfile, TokenLengths
from wva.sim.world.workloads import Loading

NAMESPACE: Final = "llm"
MODEL_ID: Final = "meta/llama-3.1-70b"


class Incident(StrEnum):
    """A fault in the world, or its end."""

    PROMETHEUS_DOWN = "prometheus-down"
    PROMETHEUS_UP = "prometheus-up"
    PODS_STUCK = "pods-stuck"
    PODS_UNSTUCK = "pods-unstuck"
    METRICS_NAN = "metrics-nan"
    METRICS_REPAIRED = "metrics-repaired"


@dataclass(frozen=True, slots=True)
class ScheduledIncident:
    """An incident at ``at_seconds`` of virtual time; ``variant`` where it concerns one."""

    at_seconds: float
    incident: Incident
    variant: str = ""


@dataclass(frozen=True, slots=True)
class VariantPlan:
    """One variant: its Deployment and VariantAutoscaling have the same name. ``cost`` is per replica and hour."""

    name: str
    accelerator: str
    cost: float
    replicas: int = 1
    minimum: int = 1
    maximum: int = 10
    loading: Loading = field(default=Loading())


@dataclass(frozen=True, slots=True)
class WorldScenario:
    """A run. Durations and intervals are virtual seconds; ``saturation`` is the saturation ConfigMap's data.

    ``gpus`` are those of the cluster by accelerator; without any there are no nodes, and every pod finds its place.
    """

    name: str
    title: str
    variants: tuple[VariantPlan, ...]
    load: LoadSpec
    incidents: tuple[ScheduledIncident, ...] = ()
    duration_seconds: float = 7200.0
    interval_seconds: float = 30.0
    scrape_seconds: float = 15.0
    scaler_seconds: float = 15.0
    scale_down_window_seconds: int = 120
    saturation: Mapping[str, str] = field(default_factory=dict)
    gpus: Mapping[str, int] = field(default_factory=dict)


def load(*points: tuple[float, float]) -> LoadSpec:
    """Return a load of long requests (1,024 tokens in, 512 out) with a rate linear between (minute, requests/s)."""
    profile = RateProfile(tuple((minute * 60.0, rate) for minute, rate in points))
    return LoadSpec(profile, prompt=TokenLengths(1024), output=TokenLengths(512, maximum_tokens=2048))
