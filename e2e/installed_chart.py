"""A release of the chart on the real control plane, and its controller as a process.

The pods of its Deployment run nothing, so the same controller is run as an ``Installation``: under the
release's ServiceAccount, with its flags, environment and ConfigMaps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from e2e import tools
from e2e.controller import ControllerProcess
from e2e.controlplane.api import Body
from e2e.controlplane.cluster import ControlPlane
from e2e.installation import Installation
from e2e.packaging.chart import CHART, fullname, parsed
from e2e.scene import Launch, Scene
from wva.scale_from_zero.starts import TargetLabels


class Release:
    """One release: installed, upgraded, rolled back and uninstalled by the real Helm."""

    def __init__(self, plane: ControlPlane, name: str, *, namespace: str, directory: Path) -> None:
        """Nothing is installed yet; ``directory`` takes the files that a pod would have mounted."""
        self.plane = plane
        self.name = name
        self.namespace = namespace
        self._directory = directory
        self._controllers: list[ControllerProcess] = []

    @property
    def fullname(self) -> str:
        """Return the name that its objects begin with."""
        return fullname(self.name)

    @property
    def variant(self) -> str:
        """Return the name of its VariantAutoscaling."""
        return f"{self.fullname}-va"

    @property
    def target(self) -> TargetLabels:
        """Return the labels of its controller in Prometheus."""
        return TargetLabels(self.namespace, f"{self.fullname}-metrics")

    def helm(self, *arguments: str | Path) -> str:
        """Run Helm as administrator in the namespace of the release. ToolError when it fails."""
        environment = {"KUBECONFIG": str(self.plane.kubeconfig)}
        return tools.output("helm", *arguments, "--namespace", self.namespace, environment=environment)

    def install(self, values: Mapping[str, Any], *files: Path) -> str:
        """Install with the values on top of those of the files; return Helm's output."""
        return self.helm("install", self.name, CHART, *_flags(files), "--values", self._written(values))

    def upgrade(self, values: Mapping[str, Any], *files: Path) -> str:
        """Upgrade to exactly these values."""
        return self.helm("upgrade", self.name, CHART, *_flags(files), "--values", self._written(values))

    def rollback(self, revision: int) -> str:
        """Go back to a revision."""
        return self.helm("rollback", self.name, str(revision))

    def uninstall(self) -> str:
        """Uninstall and wait until everything of it is deleted."""
        return self.helm("uninstall", self.name, "--wait")

    def objects(self) -> list[Body]:
        """Return the objects of the release as Helm has them."""
        return parsed(self.helm("get", "manifest", self.name))

    def connection(self) -> dict[str, Any]:
        """Return values that lead to the Prometheus of this control plane, with files where this machine has them."""
        return {
            "baseURL": self.plane.prometheus_api.url,
            "monitoringNamespace": self.namespace,
            "caCert": self.plane.layout.authority.read_text(encoding="utf-8"),
            "tls": {"caCertPath": str(self._directory / "ca" / "ca.crt")},
            "token": {"path": str(self._directory / "token" / "token")},
        }

    def deployment(self) -> Body:
        """Return the controller's Deployment."""
        return self.plane.api.get("Deployment", f"{self.fullname}-controller-manager", namespace=self.namespace)

    def config_map(self, suffix: str) -> dict[str, str]:
        """Return the data of one of its ConfigMaps."""
        found = self.plane.api.get("ConfigMap", f"{self.fullname}-{suffix}", namespace=self.namespace)
        data: dict[str, str] = found["data"]
        return data

    def wait_available(self) -> None:
        """Wait until every pod of the controller is available."""
        wanted = self.deployment()["spec"]["replicas"]
        self.plane.api.wait(
            "Deployment",
            f"{self.fullname}-controller-manager",
            lambda item: item.get("status", {}).get("availableReplicas") == wanted,
            namespace=self.namespace,
            timeout_seconds=60,
        )

    def start(self, scene: Scene, launch: Launch) -> ControllerProcess:
        """Run its controller; a scene records what it publishes, scraped as the chart's ServiceMonitor says."""
        items = [item for item in self.objects() if not item["metadata"]["name"].endswith("-vllm-mon")]
        installation = Installation(self.plane, items, directory=self._directory, settings={})
        controller = installation.start(launch)
        self._controllers.append(controller)
        scene.keep_controller(controller)
        scene.keep_scraping(installation.scrape_job(controller))
        scene.history.watch(controller)
        return controller

    def stop(self) -> None:
        """Stop everything that ``start`` started."""
        for controller in self._controllers:
            controller.process.stop()

    def _written(self, values: Mapping[str, Any]) -> Path:
        path = self._directory / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump(dict(values)), encoding="utf-8")
        return path


def _flags(files: Sequence[Path]) -> list[str | Path]:
    return [part for file in files for part in ("--values", file)]
