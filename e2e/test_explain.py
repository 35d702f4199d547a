"""``wva explain`` on the real control plane: through the API server to the controller that leads."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys

import pytest

from e2e import manifests
from e2e.controlplane.api import KubernetesApi, RefusedRequestError
from e2e.controlplane.kubelet import POD_IP
from e2e.load import PodReport
from e2e.manifests import ManifestedVariant
from e2e.scene import Scene
from wva.serve.tokens import own_audience

CHAT = ManifestedVariant(name="chat")
READER, STRANGER = "reader", "stranger"
_SECONDS = 60


def explain(
    scene: Scene, *words: str, account: str = READER, controller_namespace: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run the command as somebody with the rights of the administrator, who asks as a ServiceAccount.

    Without ``controller_namespace`` the controller is in the namespace of the scene, as the account is.
    """
    port = scene.controllers[0].addresses.metrics.rpartition(":")[2]
    where = ["--controller-namespace", controller_namespace or scene.namespace, "--metrics-port", port]
    where += ["--service-account", f"{scene.namespace}/{account}"] if account else []
    return subprocess.run(
        [sys.executable, "-m", "wva", "explain", *words, *where],
        env={**os.environ, "KUBECONFIG": str(scene.plane.layout.kubeconfig("admin"))},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )


@pytest.fixture
def explained(scene: Scene) -> Scene:
    """Return a scene with a measured variant, whose controller leads and is known as a pod."""
    metrics = scene.fixed_metrics()
    scene.deploy(CHAT)
    scene.declare(CHAT)
    scene.api.apply(controller_pod(scene.namespace))
    for account in (READER, STRANGER):
        scene.api.apply(manifests.service_account(account, namespace=scene.namespace))
    for item in reading(READER, namespace=scene.namespace):
        scene.api.apply(item)
    metrics.set("chat", PodReport(0.6))
    scene.start_controller("--leader-elect")
    scene.wait_measured(CHAT)
    return scene


def controller_pod(namespace: str) -> dict[str, object]:
    """Describe a pod with the name that the process on this machine has in the Lease."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": socket.gethostname(),
            "namespace": namespace,
            "labels": {"role": "controller"},
            "annotations": {POD_IP: "127.0.0.1"},
        },
        "spec": {"containers": [{"name": "manager", "image": "wva"}]},
    }


def reading(account: str, *, namespace: str) -> list[dict[str, object]]:
    """Describe the right to read the VariantAutoscalings of a namespace."""
    name = f"{account}-of-decisions"
    rule = {"apiGroups": ["llmd.ai"], "resources": ["variantautoscalings"], "verbs": ["get", "list"]}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    metadata = {"name": name, "namespace": namespace}
    version = "rbac.authorization.k8s.io/v1"
    return [
        {"apiVersion": version, "kind": "Role", "metadata": metadata, "rules": [rule]},
        {"apiVersion": version, "kind": "RoleBinding", "metadata": metadata, "subjects": [subject], "roleRef": role},
    ]


def test_the_leader_explains_a_number(explained: Scene):
    """The answer has the number in force, its samples and what would have changed it."""
    found = explain(explained, f"{explained.namespace}/chat")
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(f"{explained.namespace}/chat: 1 replica ("), found.stdout
    assert "smallest changes that give another number" in found.stdout
    document = json.loads(explain(explained, f"{explained.namespace}/chat", "--output", "json").stdout)
    assert document["desired"] == explained.desired("chat")


def test_a_token_for_the_controller_is_none_for_the_api_server(explained: Scene):
    """The API server refuses the token that the command asks for. The controller takes it, as the other tests show."""
    plane, namespace = explained.plane, explained.namespace
    token = plane.service_account_token(namespace, READER, audiences=[own_audience(namespace)])
    holder = KubernetesApi(plane.endpoint.server, plane.endpoint.context(), token=token)
    with pytest.raises(RefusedRequestError) as refused:
        holder.raw("/api")
    assert refused.value.status == 401


def test_the_token_of_the_kubeconfig_is_not_sent(explained: Scene):
    """The command says which flag is missing."""
    found = explain(explained, f"{explained.namespace}/chat", account="")
    assert found.returncode == 1
    assert "--service-account NAMESPACE/NAME" in found.stderr


def test_an_account_sees_what_it_may_read(explained: Scene):
    """Without the right to the VariantAutoscaling there is no explanation."""
    refused = explain(explained, f"{explained.namespace}/chat", account=STRANGER)
    assert refused.returncode == 1
    assert "403: forbidden" in refused.stderr
    unknown = explain(explained, f"{explained.namespace}/nowhere")
    assert "404: the cycle has no decision" in unknown.stderr
