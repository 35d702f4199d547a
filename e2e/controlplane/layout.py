"""The folder of one running control plane: ports, certificates, kubeconfigs, logs.

Everything a component needs to be started, stopped or talked to follows from this folder alone, so another process
that knows the path can do all of it too (``Layout.load``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from e2e.controlplane.audit import POLICY
from e2e.controlplane.certs import Authority, ServerCertificate, write_key
from e2e.controlplane.kubeconfig import Endpoint, write_certificate_kubeconfig
from e2e.controlplane.ports import free_ports
from e2e.controlplane.processes import ServerProcess

LOOPBACK = "127.0.0.1"
_PORTS = (
    "etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "prometheus",
    "keda-operator-probe", "keda-operator-grpc", "keda-adapter", "keda-adapter-metrics", "lws-webhook", "lws-probe",
)  # fmt: skip
# Users with a certificate of their own; one group for all, since the tests are about the controller's RBAC, not theirs.
_USERS = ("admin", "kube-controller-manager", "kube-scheduler", "kubelet", "keda")
_ADMIN_GROUP = "system:masters"
KEDA_NAMESPACE = "keda"
KEDA_SERVICE = "keda-metrics-apiserver"
PROMETHEUS_ADAPTER_SERVICE = "prometheus-adapter"  # in KEDA's namespace, too, and instead of it


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths and ports below ``directory``."""

    directory: Path
    ports: Mapping[str, int]

    @classmethod
    def create(cls, directory: Path) -> Layout:
        """Choose free ports, create the authority, all certificates and kubeconfigs."""
        layout = cls(directory, free_ports(_PORTS))
        directory.mkdir(parents=True, exist_ok=True)
        layout._issue()
        layout.audit_policy.write_text(POLICY, encoding="utf-8")
        (directory / "ports.json").write_text(json.dumps(dict(layout.ports)), encoding="utf-8")
        return layout

    @classmethod
    def load(cls, directory: Path) -> Layout:
        """Return the layout that ``create`` made, in this or another process."""
        return cls(directory, json.loads((directory / "ports.json").read_text(encoding="utf-8")))

    @property
    def authority(self) -> Path:
        """Return the certificate of the authority that signed every server."""
        return self._pki / "ca.crt"

    @property
    def front_proxy_authority(self) -> Path:
        """Return the authority of the aggregation layer's client certificate."""
        return self._pki / "front-proxy-ca.crt"

    @property
    def service_account_key(self) -> Path:
        """Return the key that signs service account tokens."""
        return self._pki / "service-account.key"

    @property
    def endpoint(self) -> Endpoint:
        """Return the API server's endpoint."""
        return Endpoint(f"https://{self.address('kube-apiserver')}", self.authority.read_bytes())

    @property
    def audit_policy(self) -> Path:
        """Return the path of the API server's audit policy."""
        return self.directory / "audit-policy.yaml"

    @property
    def audit_log(self) -> Path:
        """Return the path of the API server's audit log."""
        return self.data("kube-apiserver") / "audit.log"

    def address(self, name: str) -> str:
        """Return ``127.0.0.1:PORT`` of a component."""
        return f"{LOOPBACK}:{self.ports[name]}"

    def pair(self, name: str) -> ServerCertificate:
        """Return the certificate of a component."""
        return ServerCertificate(self._pki / f"{name}.crt", self._pki / f"{name}.key")

    def kubeconfig(self, user: str) -> Path:
        """Return the kubeconfig of one of the users."""
        return self.directory / "kubeconfigs" / f"{user}.yaml"

    def data(self, name: str) -> Path:
        """Return the data folder of a component; it outlives a restart of the component."""
        path = self.directory / "data" / name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    def process(
        self, name: str, argv: Sequence[str | Path], *, environment: Mapping[str, str] | None = None
    ) -> ServerProcess:
        """Describe a process whose log and record lie in this folder, so that it is stopped with the rest."""
        return ServerProcess(name, directory=self.directory, argv=argv, environment=environment)

    @property
    def _pki(self) -> Path:
        return self.directory / "pki"

    def _issue(self) -> None:
        authority = Authority(self._pki, "ca")
        authority.issue("kube-apiserver", hosts=("localhost", LOOPBACK, "kubernetes.default.svc"))
        authority.issue("prometheus", hosts=("localhost", LOOPBACK))
        authority.issue("keda-server", hosts=("localhost", LOOPBACK, f"{KEDA_SERVICE}.{KEDA_NAMESPACE}.svc"))
        authority.issue(
            PROMETHEUS_ADAPTER_SERVICE, hosts=("localhost", f"{PROMETHEUS_ADAPTER_SERVICE}.{KEDA_NAMESPACE}.svc")
        )
        authority.issue("lws-controller", hosts=("localhost", LOOPBACK))
        Authority(self._pki, "front-proxy-ca").issue("front-proxy-client")
        write_key(self.service_account_key)
        for user in _USERS:
            pair = authority.issue(user, common_name=f"e2e:{user}", organization=_ADMIN_GROUP)
            write_certificate_kubeconfig(self.kubeconfig(user), self.endpoint, pair)
