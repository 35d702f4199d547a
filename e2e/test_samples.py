"""The samples as the guide applies them: every directory with kubectl, and the quick start scales."""

from __future__ import annotations

import base64
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.observability.generate.queries import NAMESPACE
from e2e import tools
from e2e.controlplane.api import KubernetesApi
from e2e.controlplane.build import PICKER_1_3
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.keda import KEDA_NAMESPACE
from e2e.external_metrics import external_metrics_adapter
from e2e.foreign_kinds import serve_monitors
from e2e.kustomize import DEPLOY
from e2e.load import FixedMetrics, PodReport
from e2e.manifests import SATURATION_CONFIG_MAP
from e2e.scene import Scene
from tests.docs.commands import run_page

SAMPLES = DEPLOY / "samples"
DIRECTORIES = sorted(path.parent.name for path in SAMPLES.glob("*/kustomization.yaml"))
MODEL, CHEAP, DEAR = "acme/chat", "chat-a100", "chat-h100"
PAIR = ("chat-prefill", "chat-decode")
TIGHT = PodReport(kv_usage=0.77)
RESTRICTED = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
IN_CLUSTER = "https://kube-prometheus-stack-prometheus.workload-variant-autoscaler-monitoring.svc.cluster.local:9090"


@pytest.fixture
def kinds(own_control_plane: ControlPlane) -> Iterator[KubernetesApi]:
    """Serve every kind of the samples, and let KEDA read Prometheus by the component."""
    api = own_control_plane.api
    serve_monitors(api)
    api.apply_yaml((DEPLOY / "crd" / "llmd.ai_variantautoscalings.yaml").read_text(encoding="utf-8"))
    api.resource("VariantAutoscaling")
    authority = base64.b64encode(own_control_plane.layout.authority.read_bytes()).decode()
    secret = {"name": "prometheus-ca", "namespace": KEDA_NAMESPACE}
    api.apply({"apiVersion": "v1", "kind": "Secret", "metadata": secret, "data": {"ca.crt": authority}})
    component = DEPLOY / "components" / "keda" / "trigger_authentication.yaml"
    api.apply_yaml(component.read_text(encoding="utf-8"))
    return api


@pytest.mark.parametrize("sample", DIRECTORIES)
def test_kubectl_applies_it(
    kinds: KubernetesApi, own_control_plane: ControlPlane, namespace: str, sample: str, tmp_path: Path
):
    """Each sample applies to a restricted namespace without a warning. Applying it again changes nothing."""
    kinds.patch("Namespace", namespace, {"metadata": {"labels": RESTRICTED}})
    folder = copied(tmp_path, namespace=namespace) / sample
    first = apply(own_control_plane, folder, namespace=namespace)
    assert "created" in first
    second = apply(own_control_plane, folder, namespace=namespace)
    assert "created" not in second
    assert "configured" not in second.replace(f"namespace/{namespace} configured", "")


def test_the_quick_start_scales_by_keda(kinds: KubernetesApi, scene: Scene, tmp_path: Path):
    """After two commands and a controller's start, the cheaper variant grows under load and the dearer one does not."""
    folder = copied(tmp_path, namespace=scene.namespace, prometheus=scene.plane.prometheus_api.url)
    metrics = _quick_start(scene, folder)
    apply(scene.plane, folder / "keda", namespace=scene.namespace)
    _grows(scene, metrics)
    assert kinds.list("ScaledObject", namespace=scene.namespace)


def test_the_page_about_roles_from_top_to_bottom(kinds: KubernetesApi, scene: Scene, tmp_path: Path):
    """Its commands alone make a scaled pair: decode grows when decode pods are full, and prefill stays."""
    for definition in sorted(PICKER_1_3.binary("crds").glob("*.yaml")):
        kinds.apply_yaml(definition.read_text(encoding="utf-8"))
    kinds.resource("InferencePool.inference.networking.k8s.io")
    deploy = tmp_path / "deploy"
    copied(deploy, namespace=scene.namespace, prometheus=scene.plane.prometheus_api.url)
    scene.configure(SATURATION_CONFIG_MAP, {"default": "analyzerName: percentage"})
    metrics = scene.fixed_metrics()
    for name in PAIR:
        metrics.set(name, PodReport(kv_usage=0.5), model=MODEL)
    scene.start_controller()
    written = run_page(
        "docs/roles.md",
        environment={
            "KUBECONFIG": str(scene.plane.kubeconfig),
            "PATH": f"{tools.binary('kubectl').parent}:/usr/bin:/bin",
        },
        directory=tmp_path,
        yours={"MODELS_NS": scene.namespace},
        events={"decode gets full": lambda: metrics.set("chat-decode", PodReport(kv_usage=0.85), model=MODEL)},
    )
    assert [line.split() for line in written[1].splitlines()[-2:]] == [
        ["chat-decode", "decode", "1"],
        ["chat-prefill", "prefill", "1"],
    ]
    prefill, message = written[2].splitlines()[-2:]
    assert prefill == "1"
    assert message.startswith("decode: ")
    pool = kinds.get("InferencePool.inference.networking.k8s.io", "chat", namespace=scene.namespace)
    selected = pool["spec"]["selector"]["matchLabels"].items()
    for name in PAIR:
        template = kinds.get("Deployment", name, namespace=scene.namespace)["spec"]["template"]
        assert selected <= template["metadata"]["labels"].items()


@pytest.mark.disruptive
@pytest.mark.usefixtures("kinds")
def test_the_quick_start_scales_by_hpa(scene: Scene, tmp_path: Path):
    """The quick start scales with plain HPAs and the adapter's rule, which is the same for OpenShift and Kubernetes."""
    folder = copied(tmp_path, namespace=scene.namespace)
    metrics = _quick_start(scene, folder)
    scraped = f'wva_desired_replicas{{exported_namespace="{scene.namespace}"}}'
    scene.wait(lambda: scene.plane.prometheus_api.query(scraped), timeout_seconds=30, what="the number in Prometheus")
    with external_metrics_adapter(scene.plane, SAMPLES / "prometheus-adapter-values-openshift.yaml", scene.target):
        apply(scene.plane, folder / "hpa", namespace=scene.namespace)
        _grows(scene, metrics)


def _quick_start(scene: Scene, folder: Path) -> FixedMetrics:
    """Apply the two variants and start a controller; the emulated pods report what the test sets."""
    metrics = scene.fixed_metrics()
    for name in (CHEAP, DEAR):
        metrics.set(name, PodReport(kv_usage=0.5), model=MODEL)
    apply(scene.plane, folder / "two-variants", namespace=scene.namespace)
    scene.start_controller()
    for name in (CHEAP, DEAR):
        scene.wait(lambda name=name: scene.source(name) == "measured", timeout_seconds=60, what=f"{name} measured")
    return metrics


def _grows(scene: Scene, metrics: FixedMetrics) -> None:
    for name in (CHEAP, DEAR):
        metrics.set(name, TIGHT, model=MODEL)
    scene.wait(lambda: scene.ready_replicas(CHEAP) >= 2, timeout_seconds=120, what="growth of the cheaper variant")
    assert {change.variant for change in scene.history.changes()} == {CHEAP}


def copied(folder: Path, *, namespace: str, prometheus: str = IN_CLUSTER) -> Path:
    """Copy the samples and what they are made of, and change namespaces and address of Prometheus as a user does."""
    shutil.copytree(DEPLOY / "components", folder / "components")
    for file in SAMPLES.rglob("*.yaml"):
        text = re.sub(
            "namespace: (models|workload-variant-autoscaler-system)\n", f"namespace: {namespace}\n", file.read_text()
        )
        target = folder / file.relative_to(DEPLOY)
        target.parent.mkdir(parents=True, exist_ok=True)
        text = text.replace(f'namespace="{NAMESPACE}"', f'namespace="{namespace}"')
        target.write_text(text.replace(IN_CLUSTER, prometheus), encoding="utf-8")
    return folder / "samples"


def apply(plane: ControlPlane, folder: Path, *, namespace: str) -> str:
    """Apply a directory with kubectl, which must not warn; return what it said."""
    done = tools.run("kubectl", "--kubeconfig", plane.kubeconfig, "--namespace", namespace, "apply", "-k", folder)
    assert done.returncode == 0, done.stderr
    assert "arning" not in done.stderr.replace(_ADOPTED.format(namespace=namespace), ""), done.stderr
    return done.stdout


# kubectl's own word about a Namespace that was created by other means.
_ADOPTED = "Warning: resource namespaces/{namespace} is missing the kubectl.kubernetes.io/last-applied-configuration"
