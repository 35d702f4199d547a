"""The HorizontalPodAutoscaler of the embedded world (autoscaling/v2), for one External metric with AverageValue.

In: HPA objects from the store and the metric from the embedded Prometheus. Out: the scale of the target. As in
Kubernetes: replicas = ceil(metric / averageValue), a change within the tolerance is ignored, a recommendation passes
through the stabilization windows (highest of the window for shrinking, lowest for growing) and the rate policies, then
the bounds. A metric without a value changes nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import ceil, floor
from typing import Any, Final

from wva.api.meta import Key
from wva.sim.apiserver import Store

HPAS: Final = "horizontalpodautoscalers.autoscaling"
DEPLOYMENTS: Final = "deployments.apps"
TOLERANCE: Final = 0.1
"""--horizontal-pod-autoscaler-tolerance of kube-controller-manager."""

Metric = Callable[[str, Mapping[str, str]], float | None]
Object = Mapping[str, Any]

_DEFAULT_UP: Final = {
    "stabilizationWindowSeconds": 0,
    "policies": [
        {"type": "Pods", "value": 4, "periodSeconds": 15},
        {"type": "Percent", "value": 100, "periodSeconds": 15},
    ],
}
_DEFAULT_DOWN: Final = {
    "stabilizationWindowSeconds": 300,
    "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}],
}


@dataclass(slots=True)
class _History:
    recommendations: deque[tuple[float, int]] = field(default_factory=deque)
    changes: deque[tuple[float, int]] = field(default_factory=deque)


class Scaler:
    """Applies every HPA of the store once per ``sync``."""

    def __init__(self, store: Store, *, metric: Metric, monotonic: Callable[[], float]) -> None:
        """``metric`` returns the sum of an external metric's series with these labels, None without series."""
        self._store = store
        self._metric = metric
        self._monotonic = monotonic
        self._histories: dict[Key, _History] = {}

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
        current = int(scale["spec"].get("replicas", 0))
        minimum = int(spec.get("minReplicas", 1))
        if current == 0 and minimum != 0:
            return  # scaling is off while the target is held at zero
        wanted = self._recommend(spec, int(scale.get("status", {}).get("replicas", 0)), current)
        if wanted is None:
            return
        history = self._histories.setdefault(key, _History())
        replicas = self._behave(spec, history, current=current, wanted=wanted)
        replicas = max(minimum, min(int(spec["maxReplicas"]), replicas))
        if replicas != current:
            history.changes.append((self._monotonic(), replicas - current))
            self._store.patch_scale(DEPLOYMENTS, target, replicas)

    def _recommend(self, spec: Object, exists: int, current: int) -> int | None:
        """Return ceil(metric / averageValue), the current number inside the tolerance, None without a metric."""
        external = spec["metrics"][0]["external"]
        labels = external["metric"].get("selector", {}).get("matchLabels", {})
        value = self._metric(external["metric"]["name"], labels)
        if value is None:
            return None
        average = float(external["target"]["averageValue"])
        if exists and abs(1.0 - value / (average * exists)) <= TOLERANCE:
            return current
        return ceil(value / average)

    def _behave(self, spec: Object, history: _History, *, current: int, wanted: int) -> int:
        """Pass a recommendation through the stabilization windows and the rate policies."""
        now = self._monotonic()
        behavior = spec.get("behavior", {})
        up, down = _DEFAULT_UP | behavior.get("scaleUp", {}), _DEFAULT_DOWN | behavior.get("scaleDown", {})
        history.recommendations.append((now, wanted))
        longest = max(up["stabilizationWindowSeconds"], down["stabilizationWindowSeconds"])
        while history.recommendations[0][0] < now - longest:
            history.recommendations.popleft()
        lowest = min(_within(history, now - up["stabilizationWindowSeconds"]))
        highest = max(_within(history, now - down["stabilizationWindowSeconds"]))
        stable = max(lowest, min(current, highest))
        if stable > current:
            return min(stable, max(_ceiling(policy, history, now, current) for policy in up["policies"]))
        if stable < current:
            return max(stable, min(_floor(policy, history, now, current) for policy in down["policies"]))
        return stable


def _within(history: _History, since: float) -> list[int]:
    return [replicas for time, replicas in history.recommendations if time >= since]


def _changed(history: _History, since: float, *, sign: int) -> int:
    return sum(change for time, change in history.changes if time > since and change * sign > 0)


def _ceiling(policy: Object, history: _History, now: float, current: int) -> int:
    start = current - _changed(history, now - policy["periodSeconds"], sign=1)
    value = int(policy["value"])
    return start + value if policy["type"] == "Pods" else ceil(start * (1 + value / 100))


def _floor(policy: Object, history: _History, now: float, current: int) -> int:
    start = current - _changed(history, now - policy["periodSeconds"], sign=-1)
    value = int(policy["value"])
    return max(0, start - value if policy["type"] == "Pods" else floor(start * (1 - value / 100)))
