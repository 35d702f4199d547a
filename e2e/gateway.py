"""An inference pool in front of a variant, and its endpoint picker: the real one, as a plain process.

The pool, the picker's Service and its pod are objects of the API server, with the definitions of the picker's own
module. The pod has an address on loopback, where the process listens. The test is the gateway: it hands requests to the
picker over ext-proc. The picker asks the API server who may read its metrics, as by default.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator
from http import HTTPStatus

import yaml

from e2e.controlplane.api import Body
from e2e.controlplane.build import PICKER_1_3, Module
from e2e.controlplane.kubelet import LOADING, POD_IP
from e2e.controlplane.layout import LOOPBACK
from e2e.controlplane.ports import free_ports
from e2e.ext_proc import ExtProcClient, ext_proc
from e2e.manifests import POOLED, ManifestedVariant
from e2e.scene import Scene

GROUP = "inference.networking.k8s.io"
OLDER_GROUP = "inference.networking.x-k8s.io"
_NAME = "epp"
_POOL = "pool"
_VLLM_PORT = 8000


@contextlib.contextmanager
def gateway(
    scene: Scene,
    *variants: ManifestedVariant,
    picker: Module = PICKER_1_3,
    flow_control: bool = True,
    port: int = _VLLM_PORT,
) -> Iterator[ExtProcClient]:
    """Put a pool with a picker in front of variants whose pods serve at ``port``, and give the gateway's client.

    Several variants must have roles; the pods of all variants in roles are behind their pool.

    With ``flow_control`` a picker holds requests, if it can. The kinds of a pool are those of the picker's module.
    NotBuiltError when the picker is not built.
    """
    for definition in sorted(picker.binary("crds").glob("*.yaml")):
        scene.api.apply_yaml(definition.read_text(encoding="utf-8"))
    for group in (GROUP, OLDER_GROUP):
        scene.api.resource(f"InferencePool.{group}")
    ports = free_ports(("ext-proc", "health", "metrics"))
    selector = {"app": variants[0].name} if len(variants) == 1 else {POOLED: "true"}
    scene.api.apply(_pool(selector, namespace=scene.namespace, picker_port=ports["ext-proc"], port=port))
    _start(scene, picker, ports, flow_control=flow_control)
    for item in (_service(scene.namespace, ports["metrics"]), _pod(scene.namespace)):
        scene.api.apply(item)
    with ext_proc(LOOPBACK, ports["ext-proc"]) as client:
        yield client


def _start(scene: Scene, picker: Module, ports: dict[str, int], *, flow_control: bool) -> None:
    configuration = {
        "apiVersion": f"{OLDER_GROUP}/v1alpha1",
        "kind": "EndpointPickerConfig",
        "featureGates": ["flowControl"] if flow_control else [],
    }
    argv = [
        picker.binary(picker.name),
        f"--pool-name={_POOL}",
        f"--pool-namespace={scene.namespace}",
        f"--grpc-port={ports['ext-proc']}",
        f"--grpc-health-port={ports['health']}",
        f"--metrics-port={ports['metrics']}",
        f"--config-text={yaml.safe_dump(configuration)}",
        "--secure-serving=false",
        "--tracing=false",
        "--enable-pprof=false",
    ]
    process = scene.launch(picker.name, argv, environment={"KUBECONFIG": str(scene.plane.layout.kubeconfig("admin"))})
    process.wait_ready(lambda: _asks_for_a_token(ports["metrics"]) and _listens(ports["ext-proc"]))


def _asks_for_a_token(port: int) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=1)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics")
        return connection.getresponse().status == HTTPStatus.UNAUTHORIZED


def _listens(port: int) -> bool:
    with socket.create_connection((LOOPBACK, port), timeout=1):
        return True


def _pool(selector: dict[str, str], *, namespace: str, picker_port: int, port: int) -> Body:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "InferencePool",
        "metadata": {"name": _POOL, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": selector},
            "targetPorts": [{"number": port}],
            "endpointPickerRef": {"name": _NAME, "port": {"number": picker_port}},
        },
    }


def _service(namespace: str, metrics_port: int) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _NAME, "namespace": namespace},
        "spec": {
            "selector": {"app": _NAME},
            "ports": [{"name": "http-metrics", "port": metrics_port, "targetPort": metrics_port}],
        },
    }


def _pod(namespace: str) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": _NAME,
            "namespace": namespace,
            "labels": {"app": _NAME},
            "annotations": {POD_IP: LOOPBACK, LOADING: "100ms"},
        },
        "spec": {"containers": [{"name": _NAME, "image": _NAME}]},
    }
