"""What variants in shadow mode would have cost, beside what really ran: GPU hours, money, and late requests.

Counters grow with each cycle: the replicas that exist, and those that WVA would have, times the time between cycles.
Requests count as late when the demand is above what the replicas carry within the targets. The fitted engines give this
estimate, and its error is counted, too: what one standard error more demand would have added. Prometheus keeps the
counters, so that ``increase`` over a day gives the regret of that day.

The numbers of a shadow do not change the world. Each is the answer to the world as it is, so the first difference of a
variant is certain and the sum an estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from wva.decide.amounts import replicas
from wva.decide.failed import Outcome
from wva.model.decision import Decision
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey, VariantKey

REAL: Final = "real"
SHADOW: Final = "shadow"
_LONGEST_SECONDS: Final = 300.0
"""A longer time between two cycles counts as this long: nobody knows what happened in it."""
_SECONDS_PER_HOUR: Final = 3600.0


@dataclass(slots=True)
class Account:
    """The sums of one variant since this process began, for the real fleet and for the shadow.

    ``hours`` is the time that was counted. The late requests of a model are with the first of its variants;
    ``late_error`` is what one standard error more demand would have added. ``late`` is empty until there is an
    estimate: nobody knows then whether requests were late.
    """

    gpu_hours: dict[str, float] = field(default_factory=lambda: {REAL: 0.0, SHADOW: 0.0})
    cost: dict[str, float] = field(default_factory=lambda: {REAL: 0.0, SHADOW: 0.0})
    late: dict[str, float] = field(default_factory=dict)
    late_error: float = 0.0
    hours: float = 0.0


class ShadowAccounts:
    """Keeps the accounts of all variants in shadow mode."""

    def __init__(self, shadow: Callable[[VariantKey], bool]) -> None:
        """Begin without accounts; ``shadow`` tells whether a variant is in shadow mode."""
        self._shadow = shadow
        self._accounts: dict[VariantKey, Account] = {}
        self._at: float | None = None

    def __getitem__(self, key: VariantKey) -> Account | None:
        """Return the account of a variant, None if it has none."""
        return self._accounts.get(key)

    @property
    def keys(self) -> Collection[VariantKey]:
        """The variants that have an account."""
        return self._accounts.keys()

    def add(self, snapshot: Snapshot, outcome: Outcome, now: float) -> None:
        """Add the time since the last cycle, with what this cycle saw and decided. ``now`` is in epoch seconds."""
        seconds = 0.0 if self._at is None else min(max(0.0, now - self._at), _LONGEST_SECONDS)
        self._at = now
        gpus = {variant.key: variant.gpus_per_replica for variant in snapshot.variants}
        kept: dict[VariantKey, Account] = {}
        counted: set[ModelKey] = set()
        for decision in outcome.decisions:
            if not self._shadow(decision.key):
                continue
            account = kept[decision.key] = self._accounts.get(decision.key) or Account()
            hours = seconds / _SECONDS_PER_HOUR
            account.hours += hours
            for fleet, count in ((REAL, decision.current), (SHADOW, decision.desired)):
                account.gpu_hours[fleet] += hours * count * gpus.get(decision.key, 1)
                account.cost[fleet] += hours * count * decision.cost
            load = outcome.loads.get(decision.model)
            if load is not None and decision.model not in counted:
                counted.add(decision.model)
                errors = []
                for fleet, carried in ((REAL, load.serving), (SHADOW, load.desired)):
                    late = max(0.0, load.demand - carried)
                    account.late[fleet] = account.late.get(fleet, 0.0) + late * seconds
                    errors.append(max(0.0, load.demand + load.error - carried) - late)
                account.late_error += max(errors) * seconds
        self._accounts = kept


def rows(account: Account) -> Iterator[tuple[str, float, Mapping[str, str]]]:
    """Yield the series of an account: name, value, labels."""
    yield "wva_shadow_hours", account.hours, {}
    for name, sums in (
        ("wva_shadow_gpu_hours", account.gpu_hours),
        ("wva_shadow_cost", account.cost),
        ("wva_shadow_late_requests", account.late),
    ):
        for fleet, value in sums.items():
            yield name, value, {"fleet": fleet}
    if account.late:
        yield "wva_shadow_late_requests_error", account.late_error, {}


def would_have(decision: Decision) -> str:
    """Return the number of a shadow in words."""
    return f"would have {replicas(decision.desired)}; {decision.current} exist"
