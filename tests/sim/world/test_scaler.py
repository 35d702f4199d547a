"""The embedded HPA follows the metric the way kube-controller-manager does."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from wva.api.meta import Key
from wva.sim.apiserver import ObjectStore
from wva.sim.world.clock import VirtualClock
from wva.sim.world.scaler import DEPLOYMENTS, HPAS, Scaler

KEY = Key("default", "llama")


class ScalerWorld:
    """One Deployment with an HPA on a metric that the test sets."""

    def __init__(self, *, replicas: int, minimum: int = 1, up_window: int = 0, down_window: int = 0) -> None:
        """Create the Deployment and its HPA."""
        self.clock = VirtualClock()
        self.store = ObjectStore(now=self.clock.now)
        self.metric: float | None = None
        self.asked: list[Mapping[str, str]] = []
        template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}
        selector = {"matchLabels": {"app": "a"}}
        self.store.create(
            DEPLOYMENTS,
            {
                "metadata": {"name": KEY.name, "namespace": KEY.namespace},
                "spec": {"replicas": replicas, "selector": selector, "template": template},
            },
        )
        metric = {"name": "wva_desired_replicas", "selector": {"matchLabels": {"variant_name": "a"}}}
        external = {"metric": metric, "target": {"type": "AverageValue", "averageValue": "1"}}
        self.store.create(
            HPAS,
            {
                "metadata": {"name": "a", "namespace": KEY.namespace},
                "spec": {
                    "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": KEY.name},
                    "minReplicas": minimum,
                    "maxReplicas": 10,
                    "behavior": {
                        "scaleUp": {"stabilizationWindowSeconds": up_window},
                        "scaleDown": {"stabilizationWindowSeconds": down_window},
                    },
                    "metrics": [{"type": "External", "external": external}],
                },
            },
        )
        self.scaler = Scaler(self.store, metric=self._read, monotonic=self.clock.monotonic)

    def _read(self, name: str, labels: Mapping[str, str]) -> float | None:
        self.asked.append({"__name__": name, **labels})
        return self.metric

    def at(self, seconds: float, metric: float | None) -> int:
        """Let the HPA look once and return the replicas asked for."""
        self.clock.advance_to(seconds)
        self.metric = metric
        self.scaler.sync()
        replicas = int(self.store.get_scale(DEPLOYMENTS, KEY)["spec"].get("replicas", 0))
        self.store.patch_status(DEPLOYMENTS, KEY, {"replicas": replicas})
        return replicas


def test_the_number_is_applied() -> None:
    """With AverageValue 1 the metric is the number of replicas. The HPA asks for the selector's labels."""
    world = ScalerWorld(replicas=2)
    assert world.at(0, 5) == 5
    assert world.asked == [{"__name__": "wva_desired_replicas", "variant_name": "a"}]


def test_no_metric_changes_nothing() -> None:
    """Without the metric the HPA keeps the number."""
    assert ScalerWorld(replicas=3).at(0, None) == 3


@pytest.mark.parametrize(("replicas", "metric", "expected"), [(11, 12, 11), (20, 18, 20), (9, 10, 10), (10, 12, 12)])
def test_a_change_within_the_tolerance_is_ignored(replicas: int, metric: int, expected: int) -> None:
    """The HPA ignores a change of at most 10 %, so above ten replicas it ignores a change by one."""
    world = ScalerWorld(replicas=replicas)
    world.store.patch_status(DEPLOYMENTS, KEY, {"replicas": replicas})
    world.store.patch(HPAS, Key("default", "a"), _patch({"spec": {"maxReplicas": 50}}))
    assert world.at(0, metric) == expected


def test_shrinking_waits_for_the_window() -> None:
    """The HPA applies the highest recommendation of the window, so a short dip does not shrink."""
    world = ScalerWorld(replicas=4, down_window=60)
    world.store.patch_status(DEPLOYMENTS, KEY, {"replicas": 4})
    assert world.at(0, 4) == 4
    assert world.at(15, 2) == 4
    assert world.at(60, 2) == 4
    assert world.at(61, 2) == 2


def test_growing_waits_for_its_window_too() -> None:
    """The HPA applies the lowest recommendation of the window."""
    world = ScalerWorld(replicas=2, up_window=30)
    assert world.at(0, 2) == 2
    assert world.at(15, 6) == 2
    assert world.at(31, 6) == 6


def test_bounds_hold() -> None:
    """The HPA goes neither below minReplicas nor above maxReplicas."""
    world = ScalerWorld(replicas=2, minimum=2)
    assert world.at(0, 99) == 6  # at most four pods or a doubling per 15 s
    assert world.at(20, 99) == 10
    assert world.at(40, 1) == 2


def test_a_target_held_at_zero_is_left_alone() -> None:
    """If a person sets 0 replicas and minReplicas is above zero, the HPA keeps 0."""
    world = ScalerWorld(replicas=0)
    assert world.at(0, 3) == 0


def _patch(body: dict[str, object]):
    from wva.sim.apiserver import Patch  # noqa: PLC0415 - only here

    return Patch(body=body)
