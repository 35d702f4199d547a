"""What the console shows of the last hours: a line of points for each variant, model and cost of a namespace.

A point is kept when it differs from the one before, and at least every five minutes, so a quiet fleet keeps few. Points
are bounded for each line and for all lines together: all lines have the same share. The oldest points go first.
"""

from __future__ import annotations

from collections import deque
from typing import Final, Generic, TypeVar

from msgspec import Struct

from wva.hindsight.cycle import Cycle
from wva.model.variant import ModelKey, VariantKey

POINTS_OF_A_LINE: Final = 720
POINTS_OF_ALL: Final = 200_000
"""Some 40 MiB."""
REPEAT_SECONDS: Final = 300.0
ALL_NAMESPACES: Final = ""


class VariantPoint(Struct, frozen=True, gc=False, array_like=True):
    """A variant at a time: ``at`` in seconds since the epoch, then replicas.

    ``limited_by`` names who limits the number, ``held`` says that it is kept for lack of evidence.
    """

    at: float
    current: int
    ready: int
    desired: int
    reason: str
    held: bool = False
    limited_by: str = ""


class ModelPoint(Struct, frozen=True, gc=False, array_like=True):
    """A model at a time: ``at`` in seconds since the epoch, then its load.

    ``kv`` is the mean used share of the KV caches (0 to 1) and ``waiting`` the requests that wait at the replicas, over
    those with fresh samples; None where there is none. ``demand``, and what the serving replicas and the desired ones
    carry, are in requests per second; None where the demand is not known as a rate. ``cost`` is that of the replicas
    that exist, per hour, in the unit of the variants' cost.
    """

    at: float
    kv: float | None
    waiting: float | None
    demand: float | None = None
    serving: float | None = None
    desired: float | None = None
    cost: float = 0.0


class CostPoint(Struct, frozen=True, gc=False, array_like=True):
    """The replicas of a namespace, or of all, at a time: ``at`` in seconds since the epoch, then their hourly cost."""

    at: float
    cost: float


P = TypeVar("P", VariantPoint, ModelPoint, CostPoint)
K = TypeVar("K", VariantKey, ModelKey, str)


class _Lines(Generic[K, P]):
    """The lines of one kind."""

    def __init__(self) -> None:
        self._lines: dict[K, deque[P]] = {}

    def add(self, key: K, point: P) -> None:
        """Add a point, unless it only repeats the last one."""
        line = self._lines.setdefault(key, deque())
        if line and _values(line[-1]) == _values(point) and 0.0 <= point.at - line[-1].at < REPEAT_SECONDS:
            return
        line.append(point)
        limit = min(POINTS_OF_A_LINE, max(1, POINTS_OF_ALL // len(self._lines)))
        while len(line) > limit:
            line.popleft()

    def keep(self, keys: set[K]) -> None:
        """Forget the lines of all others."""
        for key in self._lines.keys() - keys:
            del self._lines[key]

    def newest(self, key: K) -> P | None:
        """Return the last point of a line, None without one."""
        line = self._lines.get(key)
        return line[-1] if line else None

    def of(self, key: K) -> tuple[P, ...]:
        """Return the points of a line, the oldest first."""
        return tuple(self._lines.get(key, ()))


class Timeline:
    """Keeps the lines of all variants and models."""

    def __init__(self) -> None:
        """Begin without lines."""
        self._variants: _Lines[VariantKey, VariantPoint] = _Lines()
        self._models: _Lines[ModelKey, ModelPoint] = _Lines()
        self._costs: _Lines[str, CostPoint] = _Lines()

    def add(self, cycle: Cycle) -> None:
        """Add a cycle; variants and models that it does not have are forgotten."""
        snapshot, outcome, now = cycle.recording.snapshot, cycle.outcome, cycle.recording.now
        model_of = {variant.key: variant.model for variant in snapshot.variants}
        ready: dict[VariantKey, int] = {}
        usages: dict[ModelKey, list[float]] = {}
        queues: dict[ModelKey, list[float]] = {}
        for replica in snapshot.replicas:
            ready[replica.variant] = ready.get(replica.variant, 0) + 1
            replica_model = model_of.get(replica.variant)
            for values, sample in ((usages, replica.kv_usage), (queues, replica.queue_length)):
                value = sample.fresh_value
                if replica_model is not None and value is not None:
                    values.setdefault(replica_model, []).append(value)
        for decision in outcome.decisions:
            limits = decision.limits
            point = VariantPoint(
                now,
                decision.current,
                ready.get(decision.key, 0),
                decision.desired,
                decision.reason.value,
                decision.held,
                limits[-1].limited_by if limits else "",
            )
            self._variants.add(decision.key, point)
        costs: dict[ModelKey, float] = {}
        for decision in outcome.decisions:
            costs[decision.model] = costs.get(decision.model, 0.0) + decision.cost * decision.current
        for model, cost in costs.items():
            kv, waiting = usages.get(model), queues.get(model)
            load = outcome.loads.get(model)
            demand, serving, desired = (None,) * 3 if load is None else (load.demand, load.serving, load.desired)
            share = None if kv is None else sum(kv) / len(kv)
            queued = None if waiting is None else sum(waiting)
            self._models.add(model, ModelPoint(now, share, queued, demand, serving, desired, cost))
        self._variants.keep({decision.key for decision in outcome.decisions})
        self._models.keep(set(costs))
        sums = {ALL_NAMESPACES: 0.0}
        for model, cost in costs.items():
            sums[model.namespace] = sums.get(model.namespace, 0.0) + cost
            sums[ALL_NAMESPACES] += cost
        for namespace, cost in sums.items():
            self._costs.add(namespace, CostPoint(now, cost))
        self._costs.keep(set(sums))

    def variant(self, key: VariantKey) -> tuple[VariantPoint, ...]:
        """Return the points of a variant, the oldest first."""
        return self._variants.of(key)

    def newest(self, key: ModelKey) -> ModelPoint | None:
        """Return the last point of a model, None if it has none."""
        return self._models.newest(key)

    def costs(self, namespace: str) -> tuple[CostPoint, ...]:
        """Return the points of the cost of a namespace, or of ``ALL_NAMESPACES``, the oldest first."""
        return self._costs.of(namespace)

    def model(self, key: ModelKey) -> tuple[ModelPoint, ...]:
        """Return the points of a model, the oldest first."""
        return self._models.of(key)


def _values(point: VariantPoint | ModelPoint | CostPoint) -> tuple[object, ...]:
    return tuple([getattr(point, name) for name in point.__struct_fields__[1:]])
