"""The programs of Kubernetes with the flags that let them run without containers."""

from __future__ import annotations

import ssl
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from e2e.controlplane.api import KubernetesApi
from e2e.controlplane.audit import note_start
from e2e.controlplane.build import KUBERNETES
from e2e.controlplane.etcd import Etcd
from e2e.controlplane.kubeconfig import read_kubeconfig
from e2e.controlplane.layout import LOOPBACK, Layout
from e2e.controlplane.processes import ServerProcess

_FEATURE_GATES = "--feature-gates=HPAScaleToZero=true"
_PROBE_TIMEOUT_SECONDS = 2.0
# What the life of a workload needs. Node life cycle is left out: the nodes of our kubelet are always healthy.
_CONTROLLERS = (
    "clusterrole-aggregation-controller", "deployment-controller", "endpoints-controller", "endpointslice-controller",
    "garbage-collector-controller", "horizontal-pod-autoscaler-controller", "namespace-controller",
    "pod-garbage-collector-controller", "replicaset-controller", "resourcequota-controller",
    "serviceaccount-controller", "statefulset-controller",
)  # fmt: skip


class KubeApiServer:
    """kube-apiserver: RBAC, own authority, aggregation through ExternalName services on loopback."""

    def __init__(self, layout: Layout, etcd: Etcd) -> None:
        """Describe the server; nothing runs yet."""
        serving, proxy = layout.pair("kube-apiserver"), layout.pair("front-proxy-client")
        key = layout.service_account_key
        self._layout = layout
        self.process = layout.process(
            "kube-apiserver",
            [
                KUBERNETES.binary("kube-apiserver"),
                f"--etcd-servers={etcd.url}",
                f"--bind-address={LOOPBACK}",
                f"--secure-port={layout.ports['kube-apiserver']}",
                f"--advertise-address={LOOPBACK}",
                "--endpoint-reconciler-type=none",  # a loopback address must not become an endpoint
                f"--tls-cert-file={serving.certificate}",
                f"--tls-private-key-file={serving.key}",
                f"--client-ca-file={layout.authority}",
                "--authorization-mode=RBAC",
                f"--service-account-key-file={key}",
                f"--service-account-signing-key-file={key}",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-cluster-ip-range=10.96.0.0/16",
                f"--requestheader-client-ca-file={layout.front_proxy_authority}",
                "--requestheader-allowed-names=front-proxy-client",
                "--requestheader-username-headers=X-Remote-User",
                "--requestheader-group-headers=X-Remote-Group",
                "--requestheader-extra-headers-prefix=X-Remote-Extra-",
                f"--proxy-client-cert-file={proxy.certificate}",
                f"--proxy-client-key-file={proxy.key}",
                _FEATURE_GATES,
                "--disable-admission-plugins=ServiceAccount",  # pods need no token files
                "--profiling=false",
                f"--audit-policy-file={layout.audit_policy}",
                f"--audit-log-path={layout.audit_log}",
            ],
            environment={"GOMEMLIMIT": "1500MiB"},
        )

    def start(self) -> None:
        """Start and wait until ``/readyz`` says ok, which includes the RBAC bootstrap."""
        begin = time.time()
        self.process.start()
        self.wait_ready()
        note_start(self._layout.data("kube-apiserver"), begin_seconds=begin, ready_seconds=time.time())

    def wait_ready(self) -> None:
        """Wait until the server is ready for requests."""
        _, tls, _ = read_kubeconfig(self._layout.kubeconfig("admin"))
        self.process.wait_ready(KubernetesApi(self._layout.endpoint.server, tls).ready, timeout_seconds=60)


def controller_manager(layout: Layout) -> ServerProcess:
    """Describe kube-controller-manager with a quick HPA."""
    return layout.process(
        "kube-controller-manager",
        [
            KUBERNETES.binary("kube-controller-manager"),
            *_client_flags(layout, "kube-controller-manager"),
            "--kube-api-burst=400",
            f"--controllers={','.join(_CONTROLLERS)}",
            "--horizontal-pod-autoscaler-sync-period=5s",
            f"--service-account-private-key-file={layout.service_account_key}",
            f"--root-ca-file={layout.authority}",
            _FEATURE_GATES,
        ],
        environment={"GOMEMLIMIT": "512MiB"},
    )


def scheduler(layout: Layout) -> ServerProcess:
    """Describe kube-scheduler."""
    return layout.process(
        "kube-scheduler",
        [KUBERNETES.binary("kube-scheduler"), *_client_flags(layout, "kube-scheduler"), "--kube-api-burst=400"],
        environment={"GOMEMLIMIT": "512MiB"},
    )


def kubelet(layout: Layout) -> ServerProcess:
    """Describe the kubelet of all nodes, a program of ours."""
    source = Path(__file__).parents[2]
    return layout.process(
        "kubelet",
        [sys.executable, "-m", "e2e.controlplane.kubelet"],
        environment={"KUBECONFIG": str(layout.kubeconfig("kubelet")), "PYTHONPATH": str(source)},
    )


def is_healthy(address: str, *, scheme: str = "https", path: str = "/healthz") -> bool:
    """Return whether a component on loopback reports that it is healthy. Its self-signed certificate is not checked."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with urllib.request.urlopen(
            f"{scheme}://{address}{path}", timeout=_PROBE_TIMEOUT_SECONDS, context=context
        ) as response:
            return bool(response.status == 200)
    except urllib.error.URLError:
        return False


def _client_flags(layout: Layout, name: str) -> list[str]:
    kubeconfig = layout.kubeconfig(name)
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={layout.ports[name]}",
        "--leader-elect=false",
        "--kube-api-qps=200",
    ]
