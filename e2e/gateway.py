"""An inference pool in front of a variant: the pool, its endpoint picker's Service and pod, and the picker's metrics.

The picker's pod has an address on loopback, at which the test answers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from e2e.controlplane.kubelet import LOADING, POD_IP
from e2e.manifests import MODEL, ManifestedVariant
from e2e.scene import Scene
from e2e.scrape_target import ServedPage, scrape_target

GROUP = "inference.networking.k8s.io"
QUEUE = "inference_extension_flow_control_queue_size"
_SCHEMA = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}

DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": f"inferencepools.{GROUP}",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"},
    },
    "spec": {
        "group": GROUP,
        "scope": "Namespaced",
        "names": {
            "plural": "inferencepools",
            "singular": "inferencepool",
            "kind": "InferencePool",
            "listKind": "InferencePoolList",
        },
        "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": _SCHEMA}}],
    },
}


class PickerProcess:
    """The requests that wait at the gateway, as its picker reports them."""

    def __init__(self, target: ServedPage) -> None:
        """Report that no request waits."""
        self._target = target
        self.hold(0)

    def hold(self, requests: int, *, model: str = MODEL) -> None:
        """Report this number of waiting requests from now on."""
        self._target.text = f'{QUEUE}{{inference_pool="pool",target_model_name="{model}"}} {requests}\n'


@contextlib.contextmanager
def gateway(scene: Scene, variant: ManifestedVariant) -> Iterator[PickerProcess]:
    """Put a pool in front of a variant; its definition is installed when it is not there yet."""
    scene.api.apply(DEFINITION)
    with scrape_target() as target:
        host, _, port = target.address.partition(":")
        labels = {"app": "epp"}
        namespace = scene.namespace
        scene.api.apply(
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "epp", "namespace": namespace},
                "spec": {
                    "selector": labels,
                    "ports": [{"name": "http-metrics", "port": int(port), "targetPort": int(port)}],
                },
            }
        )
        scene.api.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": "epp",
                    "namespace": namespace,
                    "labels": labels,
                    "annotations": {POD_IP: host, LOADING: "100ms"},
                },
                "spec": {"containers": [{"name": "epp", "image": "epp"}]},
            }
        )
        scene.api.resource("InferencePool")
        scene.api.apply(
            {
                "apiVersion": f"{GROUP}/v1",
                "kind": "InferencePool",
                "metadata": {"name": "pool", "namespace": namespace},
                "spec": {"selector": {"matchLabels": {"app": variant.name}}, "endpointPickerRef": {"name": "epp"}},
            }
        )
        yield PickerProcess(target)
