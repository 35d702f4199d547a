"""The HPA controller of the embedded world: HPAs with External metrics with AverageValue.

In: HPA objects from the store and the metrics from the embedded Prometheus. Out: the scale of their targets.
``wva.sim.rivals.hpa`` decides how many replicas to ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from wva.api.meta import Key
from wva.sim.apiserver import ObjectStore
from wva.sim.rivals.hpa import Behavior, External, SimulatedHpa

HPAS: Final = "horizontalpodautoscalers.autoscaling"
DEPLOYMENTS: Final = "deployments.apps"

Metric = Callable[[str, Mapping[str, str]], float | None]
Object = Mapping[str, Any]


class Scaler:
    """Applies every HPA of the store once per ``sync``."""

    def __init__(self, store: ObjectStore, *, metric: Metric, monotonic: Callable[[], float]) -> None:
        """``metric`` returns the sum of an external metric's series with these labels, None without series."""
        self._store = store
        self._metric = metric
        self._monotonic = monotonic
        self._hpas: dict[Key, SimulatedHpa] = {}

    def sync(self) -> None:
        """Look at every HPA once."""
        for hpa in self._store.list(HPAS):
            self._sync_one(hpa)

    def _sync_one(self, hpa: Object) -> None:
        key = Key(hpa["metadata"]["namespace"], hpa["metadata"]["name"])
        spec = hpa["spec"]
        target = Key(key.namespace, spec["scaleTargetRef"]["name"])
        if self._store.find(DEPLOYMENTS, target) is None:
            return
        scale = self._store.get_scale(DEPLOYMENTS, target)
        current, existing = int(scale["spec"].get("replicas", 0)), int(scale.get("status", {}).get("replicas", 0))
        minimum, maximum = int(spec.get("minReplicas", 1)), int(spec["maxReplicas"])
        autoscaler = self._hpas.setdefault(key, SimulatedHpa(minimum, maximum))
        autoscaler.minimum, autoscaler.maximum = minimum, maximum
        autoscaler.behavior = Behavior.parse(spec.get("behavior", {}))
        metrics = [self._read(metric["external"]) for metric in spec["metrics"]]
        replicas = autoscaler.look(metrics, current=current, exists=existing, now=self._monotonic())
        if replicas != current:
            self._store.patch_scale(DEPLOYMENTS, target, replicas)

    def _read(self, external: Object) -> External:
        labels = external["metric"].get("selector", {}).get("matchLabels", {})
        value = self._metric(external["metric"]["name"], labels)
        return External(value, float(external["target"]["averageValue"]))
