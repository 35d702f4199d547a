"""The API server applies every overlay from nothing.

Its controller has only the rendered rights, and scales variants.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from e2e import kustomize, tools
from e2e.conftest import Launch
from e2e.controlplane.api import Body
from e2e.controlplane.audit import refused
from e2e.controlplane.cluster import ControlPlane
from e2e.foreign_kinds import serve_monitors
from e2e.history import recording
from e2e.installation import Installation
from e2e.kustomize import DEPLOY, MONITORS, OVERLAYS
from e2e.load import FixedMetrics, PodReport
from e2e.manifests import ManifestedVariant, config_map
from e2e.scene import Scene

CHEAP = ManifestedVariant(name="cheap", cost=5, accelerator="L40S")
DEAR = ManifestedVariant(name="dear", cost=50, accelerator="H100", replicas=2)
TIGHT, IDLE = PodReport(kv_usage=0.77), PodReport(kv_usage=0.1)  # one replica more is enough, one less as well


@pytest.fixture
def scene(own_control_plane: ControlPlane, namespace: str, launch: Launch) -> Iterator[Scene]:
    """Give a namespace with nothing in it."""
    with contextlib.ExitStack() as stack:
        history = stack.enter_context(recording())
        yield Scene(own_control_plane, namespace, launch=launch, history=history, stack=stack)


@pytest.mark.disruptive
@pytest.mark.parametrize("overlay", [overlay for overlay in OVERLAYS if overlay != "openshift"])
def test_two_variants_scale_under_what_is_rendered(scene: Scene, overlay: str, tmp_path: Path, launch: Launch):
    """With the rendered objects and the guide's steps alone the cheaper variant grows and the dearer one shrinks.

    Peaks count for a minute, so shrinking takes long, and only one overlay shows it. OpenShift has a test of its own.
    """
    confined = overlay == "namespace-scoped"
    system = scene.namespace if confined else f"{scene.namespace}-sys"
    if not confined:
        scene.instance = scene.namespace  # other tests have variants, too
    installation = Installation(
        scene.plane,
        kustomize.render(own_kustomization(tmp_path / "own", overlay, system=system, instance=scene.instance)),
        directory=tmp_path / "root",
        settings={"PROMETHEUS_BASE_URL": scene.plane.prometheus_api.url, "GLOBAL_OPT_INTERVAL": "3s"},
    )
    serve_monitors(scene.api)
    with _cluster_of(scene, installation):
        controller = installation.start(launch)
        scene.keep_controller(controller)
        scene.history.watch(controller)
        scene.keep_scraping(installation.scrape_job(controller))
        scene.target = installation.target
        metrics = _grow(scene)
        if overlay == "kubernetes":
            _shrink(scene, metrics)
        assert controller.readiness()[0] == 200, controller.readiness()
        lease = scene.api.get("Lease", lease_name(scene.instance), namespace=system)
        assert lease["spec"]["holderIdentity"]
        controller.process.stop(grace_seconds=15)
        assert not refused([scene.plane.layout.audit_log.parent], namespace=system)


def _grow(scene: Scene) -> FixedMetrics:
    metrics = scene.fixed_metrics()
    for variant in (CHEAP, DEAR):
        metrics.set(variant.name, TIGHT)
    scene.deploy(CHEAP, DEAR)
    scene.wait_ready(CHEAP, DEAR)
    scene.declare(CHEAP, DEAR)
    scene.scale_by_keda(CHEAP, DEAR)
    scene.wait(lambda: scene.ready_replicas("cheap") >= 2, timeout_seconds=120, what="growth of the cheaper variant")
    assert {change.variant for change in scene.history.changes()} == {"cheap"}
    return metrics


def _shrink(scene: Scene, metrics: FixedMetrics) -> None:
    for variant in (CHEAP, DEAR):
        metrics.set(variant.name, IDLE)
    scene.wait(lambda: scene.replicas("dear") == 1, timeout_seconds=150, what="shrink of the dearer variant")


def lease_name(instance: str) -> str:
    """Return the name of the Lease for which the controllers of an instance compete."""
    return f"{instance}.72dd1cf1.llm-d.ai" if instance else "72dd1cf1.llm-d.ai"


def own_kustomization(
    directory: Path, overlay: str, *, system: str, instance: str, patches: Sequence[Body] = ()
) -> Path:
    """Write the kustomization of a user with an own namespace and, with ``instance``, more than one controller."""
    own = list(patches)
    if instance:
        entry = f"- op: add\n  path: /spec/template/spec/containers/0/env/-\n  value: {_variable(instance)}\n"
        own.append({"target": {"kind": "Deployment"}, "patch": entry})
    return kustomize.write(
        directory,
        DEPLOY / "overlays" / overlay,
        components=[MONITORS[overlay]],
        namespace=system,
        prefix=f"{overlay}-",
        patches=own,
    )


def _variable(instance: str) -> str:
    return f"{{name: CONTROLLER_INSTANCE, value: {instance}}}"


@contextlib.contextmanager
def _cluster_of(scene: Scene, installation: Installation) -> Iterator[None]:
    """Do what the guide asks of the administrator."""
    api, system = scene.api, installation.namespace
    if system == scene.namespace:
        api.apply_yaml((DEPLOY / "crd" / "llmd.ai_variantautoscalings.yaml").read_text(encoding="utf-8"))
        api.resource("VariantAutoscaling")
    with installation.applied():
        authority = scene.plane.layout.authority.read_text(encoding="utf-8")
        api.apply(config_map("prometheus-ca", namespace=system, data={"ca.crt": authority}))
        yield
    if system != scene.namespace:
        api.delete("Namespace", system)


@pytest.mark.parametrize("way", ["-f", "-k"])
def test_the_kind_is_applied_either_way(own_control_plane: ControlPlane, way: str):
    """The guides use both ``-f`` and ``-k``, and kubectl reads the folder differently with each."""
    done = tools.run("kubectl", "--kubeconfig", own_control_plane.kubeconfig, "apply", way, DEPLOY / "crd")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("customresourcedefinition.apiextensions.k8s.io/variantautoscalings.llmd.ai ")
    assert done.stdout.count("\n") == 1
