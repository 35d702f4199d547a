"""``wva doctor`` on the real control plane: it names each broken set-up, and finds nothing where all is well."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from e2e import manifests
from e2e.controlplane.api import Body
from e2e.controlplane.kubelet import POD_IP
from e2e.kustomize import DEPLOY
from e2e.load import FixedMetrics, PodReport
from e2e.manifests import SATURATION_CONFIG_MAP, ManifestedVariant
from e2e.scene import CYCLE_SECONDS, Scene

READER = "reader"
_SECONDS = 120
_CYCLES = 4
"""Cycles after which each set-up shows."""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """What the command printed as JSON, and its status."""

    status: int
    findings: list[dict[str, str]]
    unread: list[str]

    @property
    def names(self) -> set[str]:
        """The names of the findings."""
        return {finding["name"] for finding in self.findings}

    def problems(self) -> str:
        """Return the findings in words."""
        found = [f"{each['link']} {each['name']} {each['object']}: {each['problem']}" for each in self.findings]
        return "\n".join([*found, *(f"not looked at: {each}" for each in self.unread)])


def doctor(scene: Scene, variant: str = "", *words: str) -> DoctorReport:
    """Run the command as the administrator, who asks the controller as a ServiceAccount."""
    port = scene.controllers[-1].addresses.metrics.rpartition(":")[2] if scene.controllers else "1"
    named = [f"{scene.namespace}/{variant}"] if variant else []
    where = ["--controller-namespace", scene.namespace, "--metrics-port", port]
    account = ["--service-account", f"{scene.namespace}/{READER}"]
    done = subprocess.run(
        [sys.executable, "-m", "wva", "doctor", *named, *where, *account, "--output", "json", *words],
        env={**os.environ, "KUBECONFIG": str(scene.plane.layout.kubeconfig("admin"))},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    assert done.stdout, done.stderr
    document = json.loads(done.stdout)
    return DoctorReport(done.returncode, document["findings"], document["unread"])


def controller_pod(namespace: str, **annotations: str) -> Body:
    """Describe a pod with the name that the process on this machine has in the Lease."""
    labels = {"app.kubernetes.io/name": "workload-variant-autoscaler", "control-plane": "controller-manager"}
    annotations = {POD_IP: "127.0.0.1", "e2e.llmd.ai/loading": "100ms"} | annotations
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": socket.gethostname(),
            "namespace": namespace,
            "labels": labels,
            "annotations": annotations,
        },
        "spec": {
            "serviceAccountName": manifests.SERVICE_ACCOUNT,
            "containers": [{"name": "manager", "image": "wva"}],
        },
    }


def reading(scene: Scene) -> None:
    """Create the account as which the controller is asked, with the rights to read all that it serves."""
    version, namespace = "rbac.authorization.k8s.io/v1", scene.namespace
    scene.api.apply(manifests.service_account(READER, namespace=namespace))
    name = f"wva-{namespace}-doctor"
    rules = [
        {"apiGroups": ["llmd.ai"], "resources": ["variantautoscalings"], "verbs": ["get", "list"]},
        {"nonResourceURLs": ["/metrics", "/debug/config"], "verbs": ["get"]},
    ]
    subject = {"kind": "ServiceAccount", "name": READER, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    scene.api.apply({"apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules})
    scene.api.apply(
        {
            "apiVersion": version,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "subjects": [subject],
            "roleRef": role,
        }
    )
    scene.cleanup("ClusterRoleBinding", name)
    scene.cleanup("ClusterRole", name)


# --- set-ups of single variants --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SetUp:
    """A variant that is broken in one way, and the name of the finding.

    ``target`` and ``va`` change these manifests before they are created, None leaves the object out. ``scaler``
    changes the ScaledObject, or makes an HPA in its place. ``report`` is what its pods report, None leaves their
    metrics out. ``more`` makes further objects.
    """

    expected: str
    variant: ManifestedVariant
    target: Callable[[Body], Body | None] = lambda body: body
    va: Callable[[Body], Body] = lambda body: body
    scaler: Callable[[Body], Body | None] = lambda body: body
    report: PodReport | None = PodReport(0.5)  # noqa: RUF009 - frozen
    more: Callable[[Scene, ManifestedVariant], None] = lambda _scene, _variant: None


def of(name: str, **more: Any) -> ManifestedVariant:
    """Return a variant of a model of its own."""
    return ManifestedVariant(name=name, model=f"model-{name}", **more)


def nothing(_: Body) -> None:
    """Leave an object out."""


def with_trigger(**metadata: Any) -> Callable[[Body], Body]:
    """Change the metadata of the trigger of a ScaledObject."""

    def change(body: Body) -> Body:
        body["spec"]["triggers"][0]["metadata"].update(metadata)
        return body

    return change


def with_query(old: str, new: str) -> Callable[[Body], Body]:
    """Change the query of a ScaledObject."""

    def change(body: Body) -> Body:
        metadata = body["spec"]["triggers"][0]["metadata"]
        metadata["query"] = metadata["query"].replace(old, new)
        return body

    return change


def annotated(name: str, value: str) -> Callable[[Body], Body]:
    """Add an annotation."""

    def change(body: Body) -> Body:
        body["metadata"].setdefault("annotations", {})[name] = value
        return body

    return change


def labelled(name: str, value: str) -> Callable[[Body], Body]:
    """Change a label."""

    def change(body: Body) -> Body:
        body["metadata"]["labels"][name] = value
        return body

    return change


CPU: Body = {
    "type": "Resource",
    "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
}


def an_hpa(
    *,
    target: dict[str, str] | None = None,
    selector: dict[str, str] | None = None,
    behavior: dict[str, Any] | None = None,
    type_: str = "External",
    more: Sequence[Body] = (),
) -> Callable[[Body], Body]:
    """Return an HPA in place of the ScaledObject."""

    def change(body: Body) -> Body:
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        labels = selector or {"variant_name": name, "exported_namespace": namespace}
        labels = {label: value.format(namespace=namespace) for label, value in labels.items()}
        source = {
            "metric": {"name": "wva_desired_replicas", "selector": {"matchLabels": labels}},
            "target": target or {"type": "AverageValue", "averageValue": "1"},
        }
        spec: dict[str, Any] = {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 1,
            "maxReplicas": 10,
            "metrics": [{"type": type_, type_.lower(): source}, *more],
        }
        if behavior:
            spec["behavior"] = behavior
        return {
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": name, "namespace": namespace},
            "spec": spec,
        }

    return change


def second_scaler(scene: Scene, variant: ManifestedVariant) -> None:
    """Let an HPA scale the same target."""
    body = {"metadata": {"name": variant.name, "namespace": scene.namespace}}
    scene.api.apply(an_hpa()(body))


def rival(scene: Scene, variant: ManifestedVariant) -> None:
    """Declare another VariantAutoscaling on the same target."""
    body = manifests.variant_autoscaling(variant, namespace=scene.namespace)
    body["metadata"]["name"] = f"{variant.name}-rival"
    scene.api.apply(body)


def without_selector(body: Body) -> Body:
    """Let the query of a ScaledObject take the number of all variants."""
    body["spec"]["triggers"][0]["metadata"]["query"] = "max(wva_desired_replicas)"
    return body


def in_kind(body: Body) -> Body:
    """Name a kind that the controller does not scale."""
    body["spec"]["scaleTargetRef"]["kind"] = "StatefulSet"
    return body


def another_model(body: Body) -> Body:
    """Name another model than the pods serve."""
    body["spec"]["modelID"] = "another-model"
    return body


SET_UPS = (
    SetUp("DeploymentNotFound", of("target-missing"), target=nothing),
    SetUp("TargetUnsupported", of("target-unsupported"), va=in_kind),
    SetUp("TargetConflict", of("target-conflict"), more=rival),
    SetUp("target-wrong", of("target-shared"), more=rival),
    SetUp("pod-not-ready", of("pod-not-ready", loading="never")),
    SetUp("NoReadyReplicas", of("no-ready-replicas", loading="never")),
    SetUp("pod-unschedulable", of("pod-unschedulable", gpus=64)),
    SetUp("MetricsMissing", of("not-scraped"), report=None),
    SetUp("samples-missing", of("no-samples"), report=None),
    SetUp("MetricsMissing", of("wrong-model"), va=another_model),
    SetUp("samples-invalid", of("invalid-metrics"), report=PodReport(7.0)),
    SetUp("NoCandidate", of("bounded", maximum=1), report=PodReport(0.79)),
    SetUp("configuration-invalid", of("bad-annotation"), va=annotated("wva.llmd.ai/max-replicas", "many")),
    SetUp("scaler-wrong", of("no-scaler"), scaler=nothing),
    SetUp("scaler-wrong", of("two-scalers"), more=second_scaler),
    SetUp("scaler-wrong", of("zero-for-missing"), scaler=with_trigger(ignoreNullValues="true")),
    SetUp("scaler-wrong", of("half-the-number"), scaler=with_trigger(threshold="2")),
    SetUp("scaler-wrong", of("summing"), scaler=with_query("max(", "sum(")),
    SetUp("scaler-wrong", of("all-variants"), scaler=without_selector),
    SetUp("scaler-paused", of("paused"), scaler=annotated("autoscaling.keda.sh/paused", "true")),
    SetUp("scaler-wrong", of("hpa-value"), scaler=an_hpa(target={"type": "Value", "value": "1"})),
    SetUp("scaler-wrong", of("hpa-of-all"), scaler=an_hpa(selector={"exported_namespace": "{namespace}"})),
    SetUp(
        "scaler-wrong",
        of("hpa-elsewhere"),
        scaler=an_hpa(selector={"variant_name": "hpa-elsewhere", "exported_namespace": "elsewhere"}),
    ),
    SetUp(
        "scaler-wrong",
        of("hpa-unknown"),
        scaler=an_hpa(selector={"variant_name": "nobody", "exported_namespace": "{namespace}"}),
    ),
    SetUp("scaler-disabled", of("hpa-disabled"), scaler=an_hpa(behavior={"scaleUp": {"selectPolicy": "Disabled"}})),
    SetUp("scaler-other-metrics", of("hpa-of-two-metrics"), scaler=an_hpa(more=[CPU])),
    SetUp("scaler-inactive", of("hpa-without-metric"), scaler=an_hpa()),
    SetUp("adapter-failing", of("adapter-failing"), scaler=an_hpa()),
    SetUp("variant-wrong", of("no-accelerator"), va=lambda body: _without_labels(body)),  # noqa: PLW0108 - below
)


def _without_labels(body: Body) -> Body:
    body["metadata"]["labels"] = {}
    return body


def _created(scene: Scene, metrics: FixedMetrics, set_up: SetUp) -> None:
    variant, namespace = set_up.variant, scene.namespace
    target = set_up.target(manifests.target(variant, namespace=namespace))
    if target is not None:
        scene.api.apply(target)
    scene.api.apply(set_up.va(manifests.variant_autoscaling(variant, namespace=namespace)))
    url = scene.plane.prometheus_api.url
    scaled = manifests.scaled_object(variant, namespace=namespace, url=url, target=scene.target)
    scaled["spec"]["fallback"] = {"failureThreshold": 3, "replicas": 2}
    scaler = set_up.scaler(scaled)
    if scaler is not None:
        scene.api.apply(scaler)
    if set_up.report is not None:
        metrics.set(variant.name, set_up.report, model=variant.model)
    set_up.more(scene, variant)


@pytest.mark.timeout(900)
def test_every_broken_variant_is_named(scene: Scene):
    """One controller has all of them; the healthy one among them has no finding."""
    metrics, healthy = scene.fixed_metrics(), SetUp("", of("healthy"))
    reading(scene)
    scene.api.apply(controller_pod(scene.namespace))
    scene.configure(SATURATION_CONFIG_MAP, {"default": "analyzerName: percentage"})
    for set_up in (healthy, *SET_UPS):
        _created(scene, metrics, set_up)
    scene.start_controller("--leader-elect")
    scene.wait(lambda: scene.source("healthy") == "measured", timeout_seconds=60, what="the healthy variant measured")
    time.sleep(_CYCLES * CYCLE_SECONDS + 15)  # an HPA looks at its metric each 15 s
    found = doctor(scene, "healthy")
    assert (found.status, found.findings) == (0, []), found.problems()
    missed = []
    for set_up in SET_UPS:
        found = doctor(scene, set_up.variant.name)
        if set_up.expected not in found.names or not found.status:
            missed.append(f"{set_up.variant.name}: expected {set_up.expected}, found\n{found.problems()}")
    assert not missed, "\n".join(missed)


# --- set-ups of the installation -------------------------------------------------------------------------------------


def replaced(scene: Scene, body: Body) -> None:
    """Create a pod, in the place of one of the same name."""
    name = body["metadata"]["name"]
    scene.api.delete("Pod", name, namespace=scene.namespace)
    scene.wait(
        lambda: scene.api.find("Pod", name, namespace=scene.namespace) is None, timeout_seconds=40, what="the pod gone"
    )
    scene.api.apply(body)


def named(scene: Scene, expected: str, variant: str = "") -> None:
    """Wait until the doctor names a finding, and fails because of it."""

    def found() -> bool:
        report = doctor(scene, variant)
        assert expected in report.names, report.problems()
        return bool(report.status)

    scene.wait(found, timeout_seconds=40, what=expected)


@pytest.mark.timeout(300)
def test_every_broken_installation_is_named(scene: Scene):
    """From a namespace without a controller to one whose leader has died."""
    metrics = scene.fixed_metrics()
    metrics.set("healthy", PodReport(0.5), model="model-healthy")
    reading(scene)
    named(scene, "controller-missing")
    named(scene, "variant-missing", "nobody")
    scene.api.apply(controller_pod(scene.namespace))
    named(scene, "lease-missing")
    replaced(scene, controller_pod(scene.namespace, **{"e2e.llmd.ai/loading": "never"}))
    named(scene, "controller-not-ready")
    stranger = controller_pod(scene.namespace)
    stranger["spec"]["serviceAccountName"] = READER
    replaced(scene, stranger)
    named(scene, "right-missing")
    replaced(scene, controller_pod(scene.namespace))
    scene.configure(SATURATION_CONFIG_MAP, {"default": "analyzerName: unknown"})
    controller = scene.start_controller("--leader-elect")
    _created(scene, metrics, SetUp("", of("healthy")))
    scene.wait(lambda: scene.source("healthy") == "measured", timeout_seconds=60, what="the healthy variant measured")
    named(scene, "configuration-wrong")
    scene.configure(SATURATION_CONFIG_MAP, {"default": "analyzerName: percentage"})
    body = scene.api.get("VariantAutoscaling", "healthy", namespace=scene.namespace)
    body["metadata"]["labels"]["wva.llmd.ai/controller-instance"] = "another"
    label = {"metadata": {"labels": body["metadata"]["labels"]}}
    scene.api.patch("VariantAutoscaling", "healthy", label, namespace=scene.namespace)
    named(scene, "other-instance", "healthy")
    controller.process.kill()
    named(scene, "leader-gone")


@pytest.mark.disruptive
@pytest.mark.timeout(300)
def test_an_old_definition_is_named(scene: Scene):
    """The definition of an older version drops fields; another one does not serve the version."""
    reading(scene)
    kind, name = "CustomResourceDefinition", "variantautoscalings.llmd.ai"
    whole = (DEPLOY / "crd" / "llmd.ai_variantautoscalings.yaml").read_text(encoding="utf-8")
    try:
        spec = scene.api.get(kind, name)["spec"]
        fields = spec["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        fields.pop("conditions")
        scene.api.patch(kind, name, {"spec": {"versions": spec["versions"]}})
        assert "crd-old" in doctor(scene).names
    finally:
        scene.api.apply_yaml(whole)
    assert "crd-old" not in doctor(scene).names
