"""deploy/install.sh with the real kubectl and Helm against the real control plane: install, install again, remove."""

from __future__ import annotations

import base64
import os
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from e2e import tools
from e2e.controlplane.api import Body
from e2e.controlplane.cluster import ControlPlane
from e2e.foreign_kinds import serve_monitors

SCRIPT = Path(__file__).resolve().parent.parent / "deploy" / "install.sh"
DEFINITION = "variantautoscalings.llmd.ai"


class InstallScript:
    """The script with the variables of one installation."""

    def __init__(self, plane: ControlPlane, folder: Path, settings: Mapping[str, str]) -> None:
        """Put the pinned tools first on its path."""
        bin_folder = folder / "bin"
        bin_folder.mkdir()
        for name in ("kubectl", "helm"):
            (bin_folder / name).symlink_to(tools.binary(name))
        self._environment = {
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(folder),
            "KUBECONFIG": str(plane.kubeconfig),
            **settings,
        }

    def run(self, *options: str, **settings: str) -> str:
        """Run it to its end; it must succeed. Returns what it wrote."""
        environment = {**self._environment, **settings}
        done = subprocess.run(
            [SCRIPT, *options], env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture(name="names")
def _names(own_control_plane: ControlPlane) -> Iterator[dict[str, str]]:
    """Give an installation names of its own, and the URL of a Prometheus elsewhere."""
    part = uuid.uuid4().hex[:6]
    api = own_control_plane.api
    serve_monitors(api)
    monitoring = f"monitoring-{part}"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": monitoring}})
    api.create(_serving_certificate(monitoring, own_control_plane.layout.authority.read_bytes()))
    names = {
        "WVA_NS": f"wva-{part}",
        "LLMD_NS": f"models-{part}",
        "WVA_RELEASE_NAME": f"wva-{part}",
        "MONITORING_NAMESPACE": monitoring,
        "VLLM_SVC_NODEPORT": "0",
        "IMG": "wva:0.6.0",
        "ACCELERATOR_TYPE": "H100",
        "PROMETHEUS_URL": own_control_plane.prometheus_api.url,
    }
    yield names
    for name in (names["WVA_NS"], names["LLMD_NS"], monitoring):
        api.delete("Namespace", name)


def _serving_certificate(namespace: str, authority: bytes) -> Body:
    data = {"tls.crt": base64.b64encode(authority).decode()}
    metadata = {"name": "prometheus-web-tls", "namespace": namespace}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


@pytest.mark.timeout(600)
def test_install_twice_then_remove(own_control_plane: ControlPlane, names: dict[str, str], tmp_path: Path):
    """A second run creates no object twice. Removal leaves the kind, and deletes the namespaces only when asked to."""
    api = own_control_plane.api
    script = InstallScript(own_control_plane, tmp_path, names)
    planned = script.run("--dry-run")
    assert f"would run: kubectl create namespace {names['WVA_NS']}" in planned
    assert api.find("Namespace", names["WVA_NS"]) is None

    installed = script.run()
    assert "external metrics are served by keda/" in installed  # KEDA is here first
    fullname = f"{names['WVA_RELEASE_NAME']}-workload-variant-autoscaler"
    deployment = api.get("Deployment", f"{fullname}-controller-manager", namespace=names["WVA_NS"])
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "wva:0.6.0"
    authority = api.get("ConfigMap", f"{fullname}-prometheus-ca", namespace=names["WVA_NS"])["data"]["ca.crt"]
    assert authority.strip() == own_control_plane.layout.authority.read_text(encoding="utf-8").strip()
    variant = api.get("VariantAutoscaling", f"{fullname}-va", namespace=names["LLMD_NS"])

    again = script.run()
    assert "created" not in again.replace("wva.llmd.ai/created-by", "")
    after = api.get("VariantAutoscaling", f"{fullname}-va", namespace=names["LLMD_NS"])
    assert after["metadata"]["uid"] == variant["metadata"]["uid"]
    assert after["spec"] == variant["spec"]

    removed = script.run("--undeploy")
    assert f'release "{names["WVA_RELEASE_NAME"]}" uninstalled' in removed
    assert api.find("CustomResourceDefinition", DEFINITION)
    assert api.find("Namespace", names["WVA_NS"])
    gone = script.run("-u", DELETE_NAMESPACES="true")
    assert f"release {names['WVA_RELEASE_NAME']} is not installed" in gone
    assert f'namespace "{names["WVA_NS"]}" deleted' in gone
    assert f"namespace {names['MONITORING_NAMESPACE']} was not made by this script: it stays" in gone
