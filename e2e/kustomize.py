"""Renders kustomizations as a user does: a kustomization of the user names ours, a namespace and a prefix."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from e2e import tools
from e2e.controlplane.api import Body

DEPLOY = Path(__file__).parent.parent / "deploy"
OVERLAYS = ("kubernetes", "openshift", "namespace-scoped", "dev")
COMPONENTS = (
    "keda", "network-policy", "without-scale-from-zero", "stateful-set-targets", "leader-worker-set-targets",
    "direct-actuation",
)  # fmt: skip
MONITORS = {
    "kubernetes": "service-monitor",
    "openshift": "service-monitor-openshift",
    "namespace-scoped": "service-monitor-http",
    "dev": "service-monitor",
}
"""The component with the ServiceMonitor of each overlay: how /metrics is served there."""
ALREADY_IN = {"namespace-scoped": {"network-policy"}}
"""The components that an overlay has by itself; naming one twice is an error of kustomize."""
NAMESPACE = "workload-variant-autoscaler-system"
PREFIX = "workload-variant-autoscaler-"


def combinations(overlay: str) -> list[tuple[str, ...]]:
    """Return the sets of components to try with an overlay: first none, then each alone, and at last all together."""
    fitting = [MONITORS[overlay], *(name for name in COMPONENTS if name not in ALREADY_IN.get(overlay, ()))]
    return [(), *((name,) for name in fitting), tuple(fitting)]


def write(
    directory: Path,
    resource: Path,
    *,
    components: Sequence[str] = (),
    namespace: str = "",
    prefix: str = "",
    patches: Sequence[Body] = (),
) -> Path:
    """Write a kustomization over one of ours into a folder and return the folder."""
    directory.mkdir(parents=True, exist_ok=True)
    here = directory.resolve()
    kustomization: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [os.path.relpath(resource, here)],
        "components": [os.path.relpath(DEPLOY / "components" / name, here) for name in components],
        "namespace": namespace,
        "namePrefix": prefix,
        "patches": list(patches),
    }
    text = yaml.safe_dump({key: value for key, value in kustomization.items() if value})
    (directory / "kustomization.yaml").write_text(text, encoding="utf-8")
    return directory


def render(directory: Path) -> list[Body]:
    """Return the objects of a kustomization, in its order."""
    text = tools.output("kubectl", "kustomize", directory)
    return [item for item in yaml.load_all(text, Loader=yaml.CSafeLoader) if item]
