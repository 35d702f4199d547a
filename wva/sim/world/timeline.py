"""The timeline of a run: a point per variant and scrape, every changed decision, and the summary."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from wva.model.decision import Decision
from wva.model.variant import VariantKey
from wva.sim.fleet.summary import ModelSummary
from wva.sim.stage.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Point:
    """One variant at one instant; ``cost`` is what its replicas have cost since the start (price x hours).

    A replica costs from the creation of its pod until the pod has ended, which is after its last request.
    """

    at_seconds: float
    current: int
    ready: int
    desired: int | None
    cost: float
    kv_cache_usage: float | None
    waiting: int


@dataclass(slots=True)
class VariantTimeline:
    """The points of one variant."""

    name: str
    accelerator: str
    cost_per_replica_hour: float
    points: list[Point] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DecisionEntry:
    """A decision that changed the number or its reason."""

    at_seconds: float
    variant: str
    current: int
    desired: int
    previous: int | None
    reason: str
    source: str
    message: str


class WorldTimeline:
    """Collects a run; ``decided`` listens to the ledger."""

    def __init__(self, scenario: Scenario) -> None:
        """Start empty."""
        self.variants = {
            setup.name: VariantTimeline(setup.name, setup.accelerator, setup.price) for setup in scenario.variants
        }
        self.decisions: list[DecisionEntry] = []
        self.now_seconds = 0.0
        self._costs = dict.fromkeys(self.variants, 0.0)

    def decided(self, key: VariantKey, old: Decision | None, new: Decision | None) -> None:
        """Record a change of the ledger."""
        if new is None or (old is not None and (old.desired, old.reason) == (new.desired, new.reason)):
            return
        previous = None if old is None else old.desired
        self.decisions.append(
            DecisionEntry(
                self.now_seconds,
                key.name,
                new.current,
                new.desired,
                previous,
                new.reason.value,
                new.source.value,
                new.message,
            )
        )

    def pass_to(self, seconds: float, pods: Mapping[str, int]) -> None:
        """Let time pass, during which each variant has this many pods that cost something."""
        hours = (seconds - self.now_seconds) / 3600.0
        for name, count in pods.items():
            self._costs[name] += count * hours * self.variants[name].cost_per_replica_hour
        self.now_seconds = seconds

    def add(self, name: str, *, current: int, desired: int | None, model: ModelSummary) -> None:
        """Add the present state of one variant."""
        variant = self.variants[name]
        usage = next(usage for usage in model.variants if usage.deployment == name)
        variant.points.append(
            Point(
                self.now_seconds,
                current,
                usage.ready,
                desired,
                self._costs[name],
                usage.kv_cache_usage_mean,
                usage.waiting,
            )
        )

    @property
    def total_cost(self) -> float:
        """The cost of all replicas so far."""
        return sum(self._costs.values())

    def changes_of_desired(self) -> dict[str, int]:
        """Return how often the published number of each variant changed."""
        return {
            name: sum(
                1
                for entry in self.decisions
                if entry.variant == name and entry.previous is not None and entry.previous != entry.desired
            )
            for name in self.variants
        }

    def summary(self, model: ModelSummary) -> dict[str, Any]:
        """Return the figures of the run."""
        served = model.served
        ttft, itl = served.time_to_first_token, served.inter_token_latency
        return {
            "requests_arrived": model.arrived,
            "requests_served": model.served_total,
            "requests_dropped": model.dropped,
            "ttft_attainment": None if ttft is None else round(ttft.attainment, 4),
            "ttft_p50_seconds": None if ttft is None else round(ttft.p50_seconds, 4),
            "ttft_p99_seconds": None if ttft is None else round(ttft.p99_seconds, 4),
            "itl_attainment": None if itl is None else round(itl.attainment, 4),
            "itl_p50_seconds": None if itl is None else round(itl.p50_seconds, 4),
            "replica_cost": round(self.total_cost, 3),
            "replica_cost_by_variant": {
                name: round(variant.points[-1].cost, 3) for name, variant in self.variants.items() if variant.points
            },
            "changes_of_desired": self.changes_of_desired(),
        }

    def document(self, scenario: Scenario, *, seed: int, model: ModelSummary) -> Mapping[str, Any]:
        """Return everything, for ``--json``."""
        return {
            "scenario": scenario.name,
            "seed": seed,
            "duration_seconds": self.now_seconds,
            "variants": list(self.variants.values()),
            "decisions": self.decisions,
            "summary": self.summary(model),
        }
