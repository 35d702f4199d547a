"""What variants in shadow mode would have cost, beside what really ran: GPU hours, money, and late requests.

Counters grow with each cycle: the replicas that exist, and those that WVA would have, times the time between cycles.
Requests count as late when the demand is above what the replicas carry within the targets. The fitted engines give this
estimate, and its error is counted, too: what one standard error more demand would have added. Prometheus keeps the
counters, so that ``increase`` over a day gives the regret of that day.

The numbers of a variant in shadow mode do not change the world. Each is WVA's answer to the world as it is, so the
first difference of a variant is certain and the sum is an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from wva.hindsight.cycle import Cycle
from wva.model.variant import ModelKey, VariantKey

REAL: Final = "real"
SHADOW: Final = "shadow"
HOURS: Final = "wva_shadow_hours"
GPU_HOURS: Final = "wva_shadow_gpu_hours"
COST: Final = "wva_shadow_cost"
LATE: Final = "wva_shadow_late_requests"
LATE_ERROR: Final = "wva_shadow_late_requests_error"
"""The counters of an account, as the controller exposes them and a report reads them."""
_LONGEST_SECONDS: Final = 300.0
"""A longer time between two cycles counts as this long: nobody knows what happened in it."""
_SECONDS_PER_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class RealAndShadow:
    """A number of the fleet that really ran, and of the one that WVA would have run."""

    real: float = 0.0
    shadow: float = 0.0

    @property
    def difference(self) -> float:
        """What WVA would have added."""
        return self.shadow - self.real

    def __add__(self, other: RealAndShadow) -> RealAndShadow:
        """Add both numbers."""
        return RealAndShadow(self.real + other.real, self.shadow + other.shadow)

    def by_fleet(self) -> dict[str, float]:
        """Return both numbers by the name of their fleet."""
        return {REAL: self.real, SHADOW: self.shadow}


@dataclass(frozen=True, slots=True)
class Late:
    """Estimated late requests, and how many more there would be with one standard error more load."""

    requests: RealAndShadow = RealAndShadow()
    error: float = 0.0

    def __add__(self, other: Late) -> Late:
        """Add the requests and the errors: the errors of two hours have the same causes."""
        return Late(self.requests + other.requests, self.error + other.error)


@dataclass(frozen=True, slots=True)
class ShadowFigures:
    """The numbers of some time: the hours that were seen, GPU-hours, cost (unit of ``variantCost`` times hours).

    ``late`` is None if nobody knows whether requests were late. The late requests of a model count with its first
    variant.
    """

    hours: float = 0.0
    gpu_hours: RealAndShadow = RealAndShadow()
    cost: RealAndShadow = RealAndShadow()
    late: Late | None = None

    def __add__(self, other: ShadowFigures) -> ShadowFigures:
        """Add all numbers; late requests that are not known add nothing."""
        known = [figures.late for figures in (self, other) if figures.late is not None]
        late = None if not known else known[0] if len(known) == 1 else known[0] + known[1]
        return ShadowFigures(self.hours + other.hours, self.gpu_hours + other.gpu_hours, self.cost + other.cost, late)

    def __or__(self, other: ShadowFigures) -> ShadowFigures:
        """Add the numbers of another variant in the same time, so that the hours are those of the longer one."""
        return replace(self + other, hours=max(self.hours, other.hours))

    def series(self) -> Iterator[tuple[str, float, Mapping[str, str]]]:
        """Yield these numbers as counters: name, value, labels."""
        yield HOURS, self.hours, {}
        for name, pair in (
            (GPU_HOURS, self.gpu_hours),
            (COST, self.cost),
            (LATE, None if self.late is None else self.late.requests),
        ):
            for fleet, value in ({} if pair is None else pair.by_fleet()).items():
                yield name, value, {"fleet": fleet}
        if self.late is not None:
            yield LATE_ERROR, self.late.error, {}


class ShadowAccounts:
    """Keeps the sums of all variants in shadow mode, since this process began or the variant entered the mode."""

    def __init__(self, shadow: Callable[[VariantKey], bool]) -> None:
        """Begin without accounts; ``shadow`` tells whether a variant is in shadow mode."""
        self._shadow = shadow
        self._accounts: dict[VariantKey, ShadowFigures] = {}
        self._at: float | None = None

    def __getitem__(self, key: VariantKey) -> ShadowFigures | None:
        """Return the account of a variant, None if it has none."""
        return self._accounts.get(key)

    @property
    def keys(self) -> Collection[VariantKey]:
        """The variants that have an account."""
        return self._accounts.keys()

    def add(self, cycle: Cycle) -> dict[VariantKey, ShadowFigures]:
        """Add the time since the last cycle, with what this cycle saw and decided; return what was added."""
        recording, outcome = cycle.recording, cycle.outcome
        seconds = 0.0 if self._at is None else min(max(0.0, recording.now - self._at), _LONGEST_SECONDS)
        self._at = recording.now
        hours = seconds / _SECONDS_PER_HOUR
        gpus = {variant.key: variant.gpus_per_replica for variant in recording.snapshot.variants}
        added: dict[VariantKey, ShadowFigures] = {}
        counted_models: set[ModelKey] = set()
        for decision in outcome.decisions:
            if not self._shadow(decision.key):
                continue
            real, shadow = hours * decision.current, hours * decision.desired
            gpus_per_replica = gpus.get(decision.key, 1)
            late: Late | None = None
            load = outcome.loads.get(decision.model)
            if load is not None and decision.model not in counted_models:
                counted_models.add(decision.model)
                carried = (load.serving, load.desired)
                beyond = [max(0.0, load.demand - rate) for rate in carried]
                beyond_with_error = [max(0.0, load.demand + load.error - rate) for rate in carried]
                error = max(high - low for high, low in zip(beyond_with_error, beyond, strict=True))
                late = Late(RealAndShadow(*[rate * seconds for rate in beyond]), error * seconds)
            added[decision.key] = ShadowFigures(
                hours,
                RealAndShadow(real * gpus_per_replica, shadow * gpus_per_replica),
                RealAndShadow(real * decision.cost, shadow * decision.cost),
                late,
            )
        self._accounts = {key: self._accounts.get(key, ShadowFigures()) + figures for key, figures in added.items()}
        return added
