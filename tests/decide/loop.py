"""A closed loop around ``decide``: workload, pods and HPA as the recorded traces of v0.5.1 describe them.

A tick is 30 s. The load, in replica-units, spreads evenly over the pods that report; a pod is Ready and reports
``pod_startup_ticks`` after its creation, one pod number may never do. The HPA leaves changes within its tolerance
alone, takes the lowest recommendation of its window for growth and the highest for shrinking, and obeys its limits.
A workload at zero is started when there is load. Requests finish at the end of a tick in which some pod serves a load.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.builders import NOW, replica, variant
from wva.decide.pipeline import decide
from wva.model.decision import Decision
from wva.model.memory import Memory
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.snapshot import RequestCounts, Snapshot
from wva.model.variant import Variant

TICK_SECONDS = 30.0


@dataclass
class LoopWorkload:
    """One variant's Deployment and HPA; ``pods`` holds the tick at which each pod becomes Ready (None: never)."""

    name: str
    trace: dict[str, Any]
    cost: float = 10.0
    bounded: bool = False
    broken_pod: int | None = None
    broken_from: int | None = None
    pods: list[int | None] = field(default_factory=list)
    born: list[int] = field(default_factory=list)
    created: int = 0
    desired: int = 0
    recommendations: list[int] = field(default_factory=list)
    started: int | None = None

    def __post_init__(self) -> None:
        """Begin with Ready pods only."""
        self.scale(self.trace["initial_replicas"], tick=-self.trace["pod_startup_ticks"])
        self.desired = len(self.pods)

    def scale(self, replicas: int, *, tick: int) -> None:
        """Create pods, or take the newest away."""
        del self.pods[replicas:], self.born[replicas:]
        while len(self.pods) < replicas:
            self.created += 1
            broken = self.created == self.broken_pod or self.created >= (self.broken_from or self.created + 1)
            self.pods.append(None if broken else tick + self.trace["pod_startup_ticks"])
            self.born.append(tick)

    def ready(self, tick: int) -> int:
        """Return the number of pods that serve."""
        return sum(pod is not None and pod <= tick for pod in self.pods)

    def variant(self, tick: int) -> Variant:
        """Return what the controller sees of the workload."""
        unready = [born for born, pod in zip(self.born, self.pods, strict=True) if pod is None or pod > tick]
        return variant(
            self.name,
            replicas=len(self.pods),
            ready_replicas=self.ready(tick),
            desired=self.desired,
            cost=self.cost,
            minimum=self.trace["hpa_min"] if self.bounded else None,
            maximum=self.trace["hpa_max"] if self.bounded else None,
            oldest_unready_since=None if not unready else NOW + min(unready) * TICK_SECONDS,
            activated_at=None if self.started is None else NOW + self.started * TICK_SECONDS,
        )

    def autoscale(self, tick: int, *, load: float) -> int:
        """Let the HPA follow the desired number; return what it sets."""
        current = len(self.pods)
        if not current:
            return self._wake(tick) if load > 0 else 0
        within = abs(1 - self.desired / current) <= self.trace["hpa_tolerance"]
        self.recommendations.append(current if within else self.desired)
        up = min(self.recommendations[-self.trace["hpa_stabilization_up_ticks"] :])
        down = max(self.recommendations[-self.trace["hpa_stabilization_down_ticks"] :])
        spec = max(up, current) if self.recommendations[-1] > current else min(down, current)
        spec = min(max(spec, self.trace["hpa_min"]), self.trace["hpa_max"])
        self.scale(spec, tick=tick + 1)
        return spec

    def _wake(self, tick: int) -> int:
        """Start the first pod, as scale-from-zero does."""
        self.desired, self.started = 1, tick
        self.scale(1, tick=tick + 1)
        return 1


@dataclass
class Loop:
    """Workloads of one model under the controller."""

    workloads: list[LoopWorkload]
    policy: Policy = field(default_factory=Policy)
    memory: Memory = field(default_factory=Memory)
    tick: int = 0
    history: list[dict[str, Decision]] = field(default_factory=list)
    replicas: list[dict[str, int]] = field(default_factory=list)
    serving: list[int] = field(default_factory=list)
    finished: int | None = None

    def __post_init__(self) -> None:
        """Begin in the middle of life: the Ready replicas have served before."""
        if any(workload.pods for workload in self.workloads):
            self.finished = -1

    def run(self, loads: Iterable[float]) -> None:
        """Run one tick per load."""
        for load in loads:
            self.step(load)

    def step(self, load: float) -> None:
        """Measure, decide, publish, let the HPAs act."""
        self.replicas.append({workload.name: len(workload.pods) for workload in self.workloads})
        self.serving.append(sum(workload.ready(self.tick) for workload in self.workloads))
        decisions, self.memory = decide(self._snapshot(load), self.memory, self.policy, NOW + self.tick * TICK_SECONDS)
        self.history.append({decision.key.name: decision for decision in decisions})
        for workload in self.workloads:
            workload.desired = self.history[-1][workload.name].desired
            workload.autoscale(self.tick, load=load)
        if load > 0 and any(workload.ready(self.tick) for workload in self.workloads):
            self.finished = self.tick
        self.tick += 1

    def _snapshot(self, load: float) -> Snapshot:
        serving = sum(workload.ready(self.tick) for workload in self.workloads)
        share = load / max(1, serving)
        kv, queue = min(1.0, round(share, 4)), int((share - 1) * 10) if share > 1 else 0
        at = NOW + self.tick * TICK_SECONDS - 5
        snapshot = Snapshot.of(
            [workload.variant(self.tick) for workload in self.workloads],
            [
                replica(f"{workload.name}-{number}", variant=workload.name, kv=kv, queue=queue, at=at)
                for workload in self.workloads
                for number in range(workload.ready(self.tick))
            ],
        )
        return replace(snapshot, request_counts=(self._requests(load),))

    def _requests(self, load: float) -> RequestCounts:
        """Count the requests of the retention period and those in progress."""
        ticks = self.workloads[0].trace.get("retention_ticks", 20)
        recent = self.finished is not None and self.tick - self.finished < ticks
        model = self.workloads[0].variant(self.tick).model
        retention = ticks * TICK_SECONDS
        finished, in_progress = 5.0 if recent else 0.0, 1.0 if load > 0 else 0.0
        return RequestCounts(model, retention, finished, in_progress, covered_seconds=retention)
