"""The series about variants: the product's output, with the names and labels of v0.5.1.

Nothing is stored here: every scrape reads the ledger and the Deployment cache. So each known variant has exactly one
series, a removed variant has none from the next scrape on, and a change of the accelerator cannot leave two series.
``wva_desired_replicas`` comes from the ledger, ``wva_current_replicas`` from the cache at scrape time.

Only the leader publishes them: an HPA would add the numbers of a standby to those of the leader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from wva.model.decision import Decision
from wva.model.variant import VariantKey
from wva.publish.leader_collector import LeaderCollector
from wva.publish.ledger import Ledger

CURRENT_REPLICAS: Final = "wva_current_replicas"
DESIRED_REPLICAS: Final = "wva_desired_replicas"
DESIRED_RATIO: Final = "wva_desired_ratio"
REPLICA_SCALING: Final = "wva_replica_scaling"
DESIRED_SOURCE: Final = "wva_desired_source"

BASE_LABELS: Final = ("variant_name", "namespace", "accelerator_type")

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
        """Read ``ledger`` and ``current`` at each scrape.

        ``instance`` adds the ``controller_instance`` label, ``aliases`` each gauge a second time as ``inferno_*``.
        """
        super().__init__(leading=leading, instance=instance)
        self._aliases = aliases
        self._ledger = ledger
        self._current = current
        self._scalings: dict[VariantKey, Counter[tuple[str, str]]] = {}
        ledger.subscribe(self._count)

    def collect(self) -> Iterator[Metric]:
        """Yield all families; they are empty while this process does not lead."""
        for family in self._families():
            yield family
            if self._aliases and family.type == "gauge":
                yield _alias(family)

    def _families(self) -> Iterator[Metric]:
        decisions = self._ledger.decisions() if self._leading() else []
        yield from self._gauges(decisions)
        yield self._scaling_counter(decisions)
        yield self._sources(decisions)

    def _gauges(self, decisions: list[Decision]) -> Iterator[Metric]:
        families = {name: self._gauge(name) for name in (CURRENT_REPLICAS, DESIRED_REPLICAS, DESIRED_RATIO)}
        for decision in decisions:
            values = self._read(decision.key, partial(self._values, decision)) or {}
            for name, value in values.items():
                families[name].add_metric(self._labels(decision, decision.accelerator), value)
        yield from families.values()

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

    def _gauge(self, name: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(name, HELP[name], labels=(*BASE_LABELS, *self._instance_label))

    def _scaling_counter(self, decisions: list[Decision]) -> Metric:
        labels = ("variant_name", "namespace", "direction", "reason", *self._instance_label)
        family = CounterMetricFamily(REPLICA_SCALING, HELP[REPLICA_SCALING], labels=labels)
        for key in sorted({decision.key for decision in decisions} & self._scalings.keys()):
            for (direction, reason), count in sorted(self._scalings[key].items()):
                family.add_metric([key.name, key.namespace, direction, reason, *self._instance_value], count)
        return family

    def _sources(self, decisions: list[Decision]) -> Metric:
        labels = ("variant_name", "namespace", "source", *self._instance_label)
        family = GaugeMetricFamily(DESIRED_SOURCE, HELP[DESIRED_SOURCE], labels=labels)
        for decision in decisions:
            family.add_metric(self._labels(decision, decision.source.value), 1)
        return family

    def _labels(self, decision: Decision, third: str) -> list[str]:
        return [decision.key.name, decision.key.namespace, third, *self._instance_value]

    def _count(self, key: VariantKey, old: Decision | None, new: Decision | None) -> None:
        """Count changes of the number; forget the counts of a variant that is gone."""
        if new is None:
            self._scalings.pop(key, None)
        elif old is not None and old.desired != new.desired:
            direction = "up" if new.desired > old.desired else "down"
            self._scalings.setdefault(key, Counter())[direction, new.reason.value] += 1


def _alias(family: Metric) -> Metric:
    """Return a gauge under the name that the HPAs of older manifests ask for, with the same labels and values."""
    name = _ALIAS_PREFIX + family.name.removeprefix(_PREFIX)
    alias = Metric(name, f"Alias of {family.name}.", family.type)
    for sample in family.samples:
        alias.add_sample(name, sample.labels, sample.value)
    return alias
