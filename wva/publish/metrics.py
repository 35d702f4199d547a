"""The series about variants: the product's output, with the names and labels of v0.5.1.

Nothing is stored here: the ledger and the caches of targets are read for every page that shows a change of theirs
(``publish.series``). So each known variant has exactly one series, a removed variant has none from the next scrape on,
and a change of the accelerator cannot leave two series. ``wva_desired_replicas`` comes from the ledger,
``wva_current_replicas`` from the cache.

Only the leader publishes them: an HPA would add the numbers of a standby to those of the leader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from prometheus_client.samples import Sample

from wva.model.decision import Decision
from wva.model.variant import VariantKey
from wva.publish.leader_collector import Head, LeaderCollector
from wva.publish.ledger import Ledger

CURRENT_REPLICAS: Final = "wva_current_replicas"
DESIRED_REPLICAS: Final = "wva_desired_replicas"
DESIRED_RATIO: Final = "wva_desired_ratio"
REPLICA_SCALING: Final = "wva_replica_scaling"
DESIRED_SOURCE: Final = "wva_desired_source"

BASE_LABELS: Final = ("variant_name", "namespace", "accelerator_type")
"""The labels of the gauges."""

HELP: Final = {
    CURRENT_REPLICAS: "Replicas of the variant that exist.",
    DESIRED_REPLICAS: "Replicas that the variant should have.",
    DESIRED_RATIO: "Desired over current replicas; the desired number itself while none exist.",
    REPLICA_SCALING: "Changes of the desired number, by direction (up, down) and reason.",
    DESIRED_SOURCE: "1 for where the number comes from: measured, held, previous-desired, current-replicas.",
}

_PREFIX: Final = "wva_"
_ALIAS_PREFIX: Final = "inferno_"

CurrentReplicas = Callable[[VariantKey], int | None]


class VariantCollector(LeaderCollector):
    """Yields the series of every variant in the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        *,
        current: CurrentReplicas,
        leading: Callable[[], bool],
        instance: str = "",
        aliases: bool = False,
    ) -> None:
        """Read ``ledger`` and ``current``.

        ``instance`` adds the ``controller_instance`` label, ``aliases`` each gauge a second time as ``inferno_*``.
        """
        super().__init__(leading=leading, instance=instance)
        self._aliases = aliases
        self._heads = _heads(aliases=aliases)
        self._ledger = ledger
        self._current = current
        self._scalings: dict[VariantKey, Counter[tuple[str, str]]] = {}
        ledger.subscribe(self._count)

    @property
    def heads(self) -> Sequence[Head]:
        """The gauges, each followed by its alias if there are any, and the counter of changes."""
        return self._heads

    def keys(self) -> Iterable[VariantKey]:
        """Return the variants of the ledger."""
        return [decision.key for decision in self._ledger.decisions()]

    def samples_of(self, key: VariantKey) -> Sequence[Sequence[Sample]]:
        """Return the samples of one variant; none when the ledger does not know it."""
        decision = self._ledger.get(key)
        if decision is None:
            return [()] * len(self._heads)
        values = self._read(key, partial(self._values, decision)) or {}
        accelerator = {"accelerator_type": decision.accelerator}
        found = {name: [self._sample(name, key, value, **accelerator)] for name, value in values.items()}
        found[DESIRED_SOURCE] = [self._sample(DESIRED_SOURCE, key, 1.0, source=decision.source.value)]
        found[REPLICA_SCALING] = [
            self._sample(f"{REPLICA_SCALING}_total", key, float(count), direction=direction, reason=reason)
            for (direction, reason), count in sorted(self._scalings.get(key, Counter()).items())
        ]
        for name in [*found] if self._aliases else ():
            alias = _alias_of(name)
            found[alias] = [sample._replace(name=alias) for sample in found[name]]
        return [found.get(head.name, ()) for head in self._heads]

    def _values(self, decision: Decision) -> dict[str, float]:
        """Return the numbers of a variant; its replicas are those of the decision if the cache does not tell."""
        known = self._read(decision.key, partial(self._current, decision.key))
        current = decision.current if known is None else known
        desired = decision.desired
        return {
            CURRENT_REPLICAS: float(current),
            DESIRED_REPLICAS: float(desired),
            DESIRED_RATIO: desired / current if current else float(desired),
        }

    def _count(self, key: VariantKey, old: Decision | None, new: Decision | None) -> None:
        """Count changes of the number; forget the counts of a variant that is gone."""
        if new is None:
            self._scalings.pop(key, None)
        elif old is not None and old.desired != new.desired:
            direction = "up" if new.desired > old.desired else "down"
            self._scalings.setdefault(key, Counter())[direction, new.reason.value] += 1


def _heads(*, aliases: bool) -> tuple[Head, ...]:
    heads = []
    for name in (CURRENT_REPLICAS, DESIRED_REPLICAS, DESIRED_RATIO, REPLICA_SCALING, DESIRED_SOURCE):
        kind = "counter" if name == REPLICA_SCALING else "gauge"
        heads.append(Head(name, HELP[name], kind))
        if aliases and kind == "gauge":
            heads.append(Head(_alias_of(name), f"Alias of {name}."))
    return tuple(heads)


def _alias_of(name: str) -> str:
    """Return the name that the HPAs of older manifests ask for."""
    return _ALIAS_PREFIX + name.removeprefix(_PREFIX)
