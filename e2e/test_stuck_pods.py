"""If the pods of a variant never become ready, its sibling grows in its place after a deadline."""

from __future__ import annotations

from e2e.controlplane.kubelet import LOADING, NEVER
from e2e.load import PodReport
from e2e.manifests import SATURATION_CONFIG_MAP, ManifestedVariant
from e2e.scene import CYCLE_SECONDS, Scene

DEADLINE_SECONDS = 20
CHEAP = ManifestedVariant(name="cheap", cost=5, loading=NEVER)
DEAR = ManifestedVariant(name="dear", cost=50)
CALM, FULL, IDLE = PodReport(kv_usage=0.5), PodReport(kv_usage=0.77), PodReport(kv_usage=0.05)


def test_stuck_pods_do_not_freeze_the_sibling(scene: Scene):
    """The sibling waits for pending pods until the transition deadline, then grows. It can shrink beside them, too."""
    scene.configure(SATURATION_CONFIG_MAP, {"default": f"transitionDeadline: {DEADLINE_SECONDS}s"})
    metrics = scene.fixed_metrics()
    for variant in (CHEAP, DEAR):
        metrics.set(variant.name, CALM)
    scene.deploy(CHEAP, DEAR)
    _let_first_pod_become_ready(scene)
    scene.wait_ready(CHEAP, DEAR)
    scene.declare(CHEAP, DEAR)
    scene.scale_by_keda(CHEAP, DEAR)
    scene.start_controller()
    scene.wait_measured(CHEAP, DEAR)

    for variant in (CHEAP, DEAR):
        metrics.set(variant.name, FULL)
    # By this usage one more replica is enough: as long as it starts, no other variant grows.
    scene.wait(lambda: scene.desired("cheap") == 2, timeout_seconds=30, what="growth of the cheaper variant")
    scene.wait(lambda: scene.desired("dear") == 2, timeout_seconds=60, what="growth of the sibling after the deadline")
    scene.wait(lambda: scene.ready_replicas("dear") == 2, timeout_seconds=60, what="the sibling's new replica")
    assert scene.ready_replicas("cheap") == 1
    first, second = (
        next(change for change in scene.history.changes() if change.variant == name) for name in ("cheap", "dear")
    )
    waited = second.at_seconds - first.at_seconds
    assert waited >= DEADLINE_SECONDS - CYCLE_SECONDS, f"the sibling grew after {waited:.1f} s already"

    for variant in (CHEAP, DEAR):
        metrics.set(variant.name, IDLE)
    scene.wait(lambda: scene.replicas("dear") == 1, timeout_seconds=120, what="shrink of the sibling beside stuck pods")


def _let_first_pod_become_ready(scene: Scene) -> None:
    """Let the existing pod load its model. Later pods keep the annotation of their template and never load it."""
    (pod,) = scene.wait(
        lambda: scene.api.list("Pod", namespace=scene.namespace, labels="app=cheap"),
        timeout_seconds=20,
        what="a pod of the cheaper variant",
    )
    patch = {"metadata": {"annotations": {LOADING: "100ms"}}}
    scene.api.patch("Pod", pod["metadata"]["name"], patch, namespace=scene.namespace)
