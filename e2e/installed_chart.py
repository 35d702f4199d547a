"""A release of the chart on the real control plane, and its controller as a process.

The pods of its Deployment are kwok's and run nothing. So the same controller is run here: with a token of the chart's
own ServiceAccount, the flags and the environment of the Deployment as the API server has it, and the ConfigMaps of the
release. What differs is where it listens, and that the files it is to read are made here instead of mounted.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from e2e import tools
from e2e.controller import Addresses, Controller
from e2e.controlplane.api import Body
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.ports import free_ports
from e2e.controlplane.processes import Process
from e2e.packaging.chart import CHART, fullname
from e2e.scene import Launch, Scene

_LISTENS = ("--metrics-bind-address", "--health-probe-bind-address")


class Release:
    """One release: installed, upgraded, rolled back and uninstalled by the real Helm."""

    def __init__(self, plane: ControlPlane, name: str, *, namespace: str, directory: Path) -> None:
        """Nothing is installed yet; ``directory`` takes the files that a pod would have mounted."""
        self.plane = plane
        self.name = name
        self.namespace = namespace
        self._directory = directory
        self._processes: list[Process] = []

    @property
    def fullname(self) -> str:
        """The name that its objects begin with."""
        return fullname(self.name)

    @property
    def variant(self) -> str:
        """The name of its VariantAutoscaling."""
        return f"{self.fullname}-va"

    def helm(self, *arguments: str | Path) -> str:
        """Run Helm as administrator in the namespace of the release. ToolError when it fails."""
        environment = {"KUBECONFIG": str(self.plane.kubeconfig)}
        return tools.output("helm", *arguments, "--namespace", self.namespace, environment=environment)

    def install(self, values: Mapping[str, Any], *files: Path) -> str:
        """Install with the values on top of those of the files; return what Helm said."""
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
        return [item for item in yaml.safe_load_all(self.helm("get", "manifest", self.name)) if item]

    def connection(self) -> dict[str, Any]:
        """Return values that lead to the Prometheus of this control plane, with files that exist on this machine."""
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

    def start(self, scene: Scene, launch: Launch) -> Controller:
        """Run its controller; a scene records what it publishes, scraped with the token of the chart's own reader."""
        spec = self.deployment()["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        account = spec["serviceAccountName"]
        self._mount(account)
        ports = free_ports(("metrics", "probes"))
        addresses = Addresses(f"127.0.0.1:{ports['metrics']}", f"127.0.0.1:{ports['probes']}")
        flags = [flag for flag in container["args"] if flag.split("=")[0] not in _LISTENS]
        assert len(flags) == len(container["args"]) - len(_LISTENS)
        environment = {
            **self._environment(container["env"]),
            "KUBECONFIG": str(self.plane.kubeconfig_for_service_account(self.namespace, account)),
            **addresses.environment(),
        }
        process = launch(self.name, [sys.executable, "-m", "wva", *flags], environment=environment)
        self._processes.append(process)
        token = self.plane.service_account_token(self.namespace, f"{self.fullname}-metrics-reader")
        return scene.follow(process, addresses, token=token, home=self.namespace)

    def stop(self) -> None:
        """Stop what was started."""
        for process in self._processes:
            process.stop()

    def _mount(self, account: str) -> None:
        """Write what the kubelet would mount, where the main ConfigMap says it is."""
        config = self.config_map("variantautoscaling-config")
        authority = self.plane.api.get("ConfigMap", f"{self.fullname}-prometheus-ca", namespace=self.namespace)
        for path, text in (
            (Path(config["PROMETHEUS_CA_CERT_PATH"]), authority["data"]["ca.crt"]),
            (Path(config["PROMETHEUS_TOKEN_PATH"]), self.plane.service_account_token(self.namespace, account)),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def _environment(self, entries: Sequence[Body]) -> dict[str, str]:
        found = {}
        for entry in entries:
            source = entry.get("valueFrom", {})
            if "value" in entry:
                found[entry["name"]] = entry["value"]
            elif "fieldRef" in source:
                assert source["fieldRef"]["fieldPath"] == "metadata.namespace"
                found[entry["name"]] = self.namespace
            else:
                reference = source["secretKeyRef"]
                secret = self.plane.api.get("Secret", reference["name"], namespace=self.namespace)
                encoded = secret.get("data", {}).get(reference["key"])
                assert encoded or reference["optional"]
                if encoded:
                    found[entry["name"]] = base64.b64decode(encoded).decode()
        return found

    def _written(self, values: Mapping[str, Any]) -> Path:
        path = self._directory / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump(dict(values)), encoding="utf-8")
        return path


def _flags(files: Sequence[Path]) -> list[str | Path]:
    return [part for file in files for part in ("--values", file)]
