"""A rendered installation on a real control plane: its objects applied, its controller run as the kubelet would run it.

In: objects as ``kubectl kustomize`` or ``helm template`` give them. The controller is a process with the Deployment's
arguments and environment, the files of its mounts, and a token of its ServiceAccount, so what is missing in the
rendered objects is missing here. The module changes only what must differ on this machine: addresses, file paths, and
settings that the test names.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from e2e.controller import Addresses, ControllerProcess
from e2e.controlplane.api import Body, RefusedRequestError
from e2e.controlplane.cluster import ControlPlane
from e2e.controlplane.ports import free_ports
from e2e.controlplane.processes import ServerProcess
from e2e.controlplane.prometheus import ScrapeJob
from wva.collect.queries import TargetLabels

ACCOUNT_MOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_]*)\)")
_KEPT = frozenset({"CustomResourceDefinition"})


class Installation:
    """What was rendered, and the controller in it."""

    def __init__(
        self, plane: ControlPlane, items: Sequence[Body], *, directory: Path, settings: Mapping[str, str]
    ) -> None:
        """Take the objects; ``settings`` replace values that they give, ``directory`` takes the files of the mounts."""
        self._plane = plane
        self._directory = directory
        self._ports = free_ports(("metrics", "probes"))
        self.items = copy.deepcopy(list(items))
        self.deployment = self._controller_deployment()
        self.namespace: str = self.deployment["metadata"]["namespace"]
        self.account: str = self._pod["serviceAccountName"]
        self._override(settings)
        self._localise()

    @property
    def _pod(self) -> Body:
        pod: Body = self.deployment["spec"]["template"]["spec"]
        return pod

    @property
    def _container(self) -> Body:
        (container,) = self._pod["containers"]
        assert isinstance(container, dict)
        return container

    def of_kind(self, kind: str) -> list[Body]:
        """Return the rendered objects of a kind."""
        return [item for item in self.items if item["kind"] == kind]

    # -- what exists ---------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def applied(self) -> Iterator[None]:
        """Apply all objects in their order. After the block delete those without a namespace, except for the kinds."""
        try:
            for item in self.items:
                self._plane.api.apply(item)
            yield
        finally:
            for item in reversed(self.items):
                if "namespace" not in item["metadata"] and item["kind"] not in _KEPT:
                    self._plane.api.delete(item["kind"], item["metadata"]["name"])

    # -- the controller ------------------------------------------------------------------------------------------

    def start(self, launch: Callable[..., ServerProcess]) -> ControllerProcess:
        """Start one pod of the Deployment and return it, once it serves."""
        self._fill_mounts()
        environment = self._environment()
        arguments = [_expand(argument, environment) for argument in self._container["args"]]
        assert self._container["command"] == ["/manager"], "the path that the image keeps for manifests"
        kubeconfig = self._plane.kubeconfig_for_service_account(self.namespace, self.account)
        process = launch(
            "controller",
            [sys.executable, "-m", "wva", "run", *arguments],
            environment={**environment, "KUBECONFIG": str(kubeconfig)},
        )
        controller = ControllerProcess(process, self._addresses, token=self.scrape_token(), secure=self.secure)
        controller.wait_serving()
        return controller

    @property
    def secure(self) -> bool:
        """Return whether the controller asks for a token with the right to read its metrics."""
        return "--metrics-secure=false" not in self._container["args"]

    @property
    def target(self) -> TargetLabels:
        """Return the target's labels in Prometheus: the namespace, and the Service that the ServiceMonitor finds."""
        (monitor,) = self.of_kind("ServiceMonitor")
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        (service,) = [item for item in self.of_kind("Service") if wanted <= item["metadata"]["labels"].items()]
        return TargetLabels(self.namespace, service["metadata"]["name"])

    def scrape_job(self, controller: ControllerProcess) -> ScrapeJob:
        """Return the scrape job that Prometheus would make of the ServiceMonitor."""
        (monitor,) = self.of_kind("ServiceMonitor")
        (endpoint,) = monitor["spec"]["endpoints"]
        tls = endpoint.get("tlsConfig", {})
        return ScrapeJob(
            name=f"{self.namespace}.{controller.name}",
            targets=[controller.addresses.metrics],
            scheme=endpoint["scheme"],
            insecure_skip_verify=tls.get("insecureSkipVerify", False),
            authority=self._scrape_authority(tls),
            server_name=tls.get("serverName", ""),
            bearer_token=self.scrape_token(),
            labels={"namespace": self.target.namespace, "job": self.target.job, "pod": controller.name},
        )

    def _scrape_authority(self, tls: Body) -> Path | None:
        """Return a file with the authority that the ServiceMonitor names; None when it names none."""
        reference = tls.get("ca", {}).get("configMap")
        if reference is None:
            return None
        content = self._files("ConfigMap", reference["name"], optional=False)[reference["key"]]
        self._write(self._directory, {"scrape-authority.crt": content})
        return self._directory / "scrape-authority.crt"

    def scrape_token(self) -> str:
        """Return a token of the account whose Secret the ServiceMonitor names; empty when it names none."""
        (monitor,) = self.of_kind("ServiceMonitor")
        (endpoint,) = monitor["spec"]["endpoints"]
        if "authorization" not in endpoint:
            return ""
        wanted = endpoint["authorization"]["credentials"]["name"]
        (secret,) = [item for item in self.of_kind("Secret") if item["metadata"]["name"] == wanted]
        account = secret["metadata"]["annotations"]["kubernetes.io/service-account.name"]
        return self._plane.service_account_token(self.namespace, account)

    @property
    def _addresses(self) -> Addresses:
        return Addresses(f"127.0.0.1:{self._ports['metrics']}", f"127.0.0.1:{self._ports['probes']}")

    # -- what differs on this machine ----------------------------------------------------------------------------

    def _controller_deployment(self) -> Body:
        (found,) = [
            item
            for item in self.of_kind("Deployment")
            if item["metadata"].get("labels", {}).get("control-plane") == "controller-manager"
        ]
        return found

    def _override(self, settings: Mapping[str, str]) -> None:
        """Give settings another value where the objects give them one."""
        entries = [entry for entry in self._container["env"] if "value" in entry]
        for key, value in settings.items():
            places = [item["data"] for item in self.of_kind("ConfigMap") if key in item.get("data", {})]
            named = [entry for entry in entries if entry["name"] == key]
            assert places or named, f"{key} is given nowhere"
            for data in places:
                data[key] = value
            for entry in named:
                entry["value"] = value

    def _localise(self) -> None:
        """Replace the pod's addresses and paths by those of this machine."""
        container = self._container
        ours = {
            "--metrics-bind-address": self._addresses.metrics,
            "--health-probe-bind-address": self._addresses.probes,
        }
        container["args"] = [
            f"{flag}={ours.get(flag, self._local(value))}"
            for flag, _, value in (argument.partition("=") for argument in container["args"])
        ]
        for entry in container["env"]:
            if "value" in entry:
                entry["value"] = self._local(entry["value"])
        for item in self.of_kind("ConfigMap"):
            item["data"] = {key: self._local(value) for key, value in item.get("data", {}).items()}

    def _local(self, value: str) -> str:
        """Return where a path below one of the mounts is on this machine, and any other text unchanged."""
        mounts = [mount["mountPath"] for mount in self._container["volumeMounts"]]
        for mount in (*mounts, ACCOUNT_MOUNT):
            if value == mount or value.startswith(f"{mount}/"):
                return str(self._path(value))
        return value

    def _path(self, inside: str) -> Path:
        path = Path(inside)
        return path if path.is_relative_to(self._directory) else self._directory / inside.lstrip("/")

    # -- what the kubelet does -----------------------------------------------------------------------------------

    def _environment(self) -> dict[str, str]:
        """Return the container's variables. ApiError when one refers to a missing object."""
        environment: dict[str, str] = {}
        for entry in self._container["env"]:
            source = entry.get("valueFrom", {})
            if "value" in entry:
                environment[entry["name"]] = _expand(entry["value"], environment)
            elif "fieldRef" in source:
                fields = {"metadata.namespace": self.namespace, "metadata.name": "controller-manager-0"}
                environment[entry["name"]] = fields[source["fieldRef"]["fieldPath"]]
            else:
                kind = "ConfigMap" if "configMapKeyRef" in source else "Secret"
                reference = source["configMapKeyRef" if kind == "ConfigMap" else "secretKeyRef"]
                found = self._files(kind, reference["name"], optional=reference.get("optional", False))
                if reference["key"] in found or not reference.get("optional", False):
                    environment[entry["name"]] = found[reference["key"]].decode()
        return environment

    def _fill_mounts(self) -> None:
        """Write the files of every volume where its mount is."""
        volumes = {volume["name"]: volume for volume in self._pod["volumes"]}
        token = self._plane.service_account_token(self.namespace, self.account)
        account = {
            "token": token.encode(),
            "namespace": self.namespace.encode(),
            "ca.crt": self._plane.endpoint.authority,
        }
        self._write(self._path(ACCOUNT_MOUNT), account)
        for mount in self._container["volumeMounts"]:
            files = self._volume_files(volumes[mount["name"]], token)
            if "subPath" in mount:
                path = self._path(mount["mountPath"])
                self._write(path.parent, {path.name: files[mount["subPath"]]})
            else:
                self._write(self._path(mount["mountPath"]), files)

    def _volume_files(self, volume: Body, token: str) -> dict[str, bytes]:
        if "emptyDir" in volume:
            return {}
        if "projected" in volume:
            sources: list[dict[str, Any]] = volume["projected"]["sources"]
            return {source["serviceAccountToken"]["path"]: token.encode() for source in sources}
        kind = "ConfigMap" if "configMap" in volume else "Secret"
        source = volume["configMap" if kind == "ConfigMap" else "secret"]
        name = source["name" if kind == "ConfigMap" else "secretName"]
        files = self._files(kind, name, optional=source.get("optional", False))
        if "items" in source:
            return {item["path"]: files[item["key"]] for item in source["items"]}
        return files

    def _files(self, kind: str, name: str, *, optional: bool) -> dict[str, bytes]:
        try:
            data = self._plane.api.get(kind, name, namespace=self.namespace).get("data", {})
        except RefusedRequestError:
            if optional:
                return {}
            raise
        if kind == "Secret":
            return {key: base64.b64decode(value) for key, value in data.items()}
        return {key: value.encode() for key, value in data.items()}

    @staticmethod
    def _write(directory: Path, files: Mapping[str, bytes]) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            (directory / name).write_bytes(content)


def _expand(text: str, environment: Mapping[str, str]) -> str:
    """Replace ``$(NAME)`` as the kubelet does: an unknown name stays as it is."""
    return _REFERENCE.sub(lambda match: environment.get(match[1], match[0]), text)
