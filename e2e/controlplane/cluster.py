"""The whole control plane as one object, and an existing cluster behind the same face.

``ControlPlane.start`` brings everything up in a folder; ``ControlPlane(Layout.load(folder))`` in another process is
the same control plane, with which the servers can be restarted as well.
"""

from __future__ import annotations

import contextlib
import re
import ssl
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path

from e2e.controlplane.api import Body, KubernetesApi
from e2e.controlplane.build import KEDA, SERVERS, NotBuiltError
from e2e.controlplane.etcd import Etcd
from e2e.controlplane.keda import Keda
from e2e.controlplane.kubeconfig import Endpoint, read_kubeconfig, write_token_kubeconfig
from e2e.controlplane.kubelet import LOADING
from e2e.controlplane.kubernetes import KubeApiServer, controller_manager, is_healthy, kubelet, scheduler
from e2e.controlplane.layout import Layout
from e2e.controlplane.nodes import DEFAULT_POOLS, NodePool, create_nodes
from e2e.controlplane.processes import ServerProcess, stop_all
from e2e.controlplane.prometheus import PrometheusApi, PrometheusProcess, ScrapeJob

_TOKEN_SECONDS = 4 * 3600
_TAIL_LINES = 15
_BACK_SECONDS = 60
_STOP_SECONDS = 3
_TAIL_COLUMNS = 400  # stack traces come as one line
_SERVERS = frozenset(name for module in SERVERS for name in module.packages)
_INFORMATION = re.compile(r'I\d{4} |\{"level":"info"')  # of klog and of zap


class ClusterAccess:
    """The parts that every test may use: the API as administrator, identities, Prometheus."""

    def __init__(self, directory: Path, kubeconfig: Path, prometheus: PrometheusApi) -> None:
        """``directory`` takes the files made for this run, ``kubeconfig`` is the administrator's."""
        self.directory = directory
        self.kubeconfig = kubeconfig
        self.prometheus_api = prometheus

    @cached_property
    def api(self) -> KubernetesApi:
        """Return a client with the administrator's identity."""
        endpoint, tls, token = read_kubeconfig(self.kubeconfig)
        return KubernetesApi(endpoint.server, tls, token=token)

    @property
    def endpoint(self) -> Endpoint:
        """Return URL and authority of the API server."""
        return read_kubeconfig(self.kubeconfig)[0]

    def service_account_token(
        self, namespace: str, name: str, *, lifetime_seconds: int = _TOKEN_SECONDS, audiences: Sequence[str] = ()
    ) -> str:
        """Ask the TokenRequest API for a token of an existing ServiceAccount; by default for the API server."""
        path = self.api.resource("ServiceAccount").path(namespace=namespace, name=name, subresource="token")
        request = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": lifetime_seconds, "audiences": list(audiences)},
        }
        token: str = self.api.post(path, request)["status"]["token"]
        return token

    def kubeconfig_for_service_account(
        self, namespace: str, name: str, *, lifetime_seconds: int = _TOKEN_SECONDS
    ) -> Path:
        """Write a kubeconfig with a token of an existing ServiceAccount."""
        token = self.service_account_token(namespace, name, lifetime_seconds=lifetime_seconds)
        target = self.directory / "kubeconfigs" / f"{namespace}.{name}.{uuid.uuid4().hex[:8]}.yaml"
        return write_token_kubeconfig(target, self.endpoint, token)

    def versions(self) -> dict[str, str]:
        """Return the versions of the running servers, as they report them."""
        return {"kubernetes": self.api.version(), "prometheus": self.prometheus_api.version()}


class ExistingCluster(ClusterAccess):
    """A cluster that the tests did not start, so they must not restart its servers."""

    def __init__(self, directory: Path, *, kubeconfig: Path, prometheus_url: str) -> None:
        """Prometheus' certificate is not checked: inside a cluster an unknown authority usually signed it."""
        tls = ssl.create_default_context()
        tls.check_hostname = False
        tls.verify_mode = ssl.CERT_NONE
        super().__init__(directory, kubeconfig, PrometheusApi(prometheus_url, tls))


class ControlPlane(ClusterAccess):
    """Our own servers on loopback."""

    def __init__(self, layout: Layout) -> None:
        """Describe every process; nothing is started."""
        self.layout = layout
        self.etcd = Etcd(layout)
        self.apiserver = KubeApiServer(layout, self.etcd)
        self.controller_manager = controller_manager(layout)
        self.scheduler = scheduler(layout)
        self.kubelet = kubelet(layout)
        self.prometheus = PrometheusProcess(layout)
        self.keda = Keda(layout)
        super().__init__(layout.directory, layout.kubeconfig("admin"), self.prometheus.api)

    @classmethod
    def start(cls, directory: Path, *, pools: Sequence[NodePool] = DEFAULT_POOLS) -> ControlPlane:
        """Start all servers in an empty folder. After an error stop all of them again, and keep the logs."""
        _require_binaries()
        plane = cls(Layout.create(directory))
        try:
            plane._start(pools)
        except BaseException:
            stop_all(directory)
            raise
        return plane

    def stop(self) -> None:
        """Stop every process of this control plane; its folder stays."""
        stop_all(self.directory)

    def restart_apiserver(self) -> None:
        """Restart kube-apiserver on the same port, which ends all watches and forgets its watch cache."""
        self.stop_apiserver()
        self.start_apiserver()

    def stop_apiserver(self) -> None:
        """Stop kube-apiserver: from now on every connection to it is refused."""
        self.apiserver.process.stop(grace_seconds=5)

    def start_apiserver(self) -> None:
        """Start kube-apiserver again, and the programs that play the cluster; wait until they work."""
        self.apiserver.start()
        self.restart_players()

    def restart_players(self) -> None:
        """Restart the programs that play the cluster and wait until they work again.

        Without a restart these programs wait for the end of their back-off, which is more than a minute after several
        outages. A test would take this wait for a failure of the controller.
        """
        players = (self.controller_manager, self.scheduler, self.kubelet)
        in_parallel(*(partial(process.stop, grace_seconds=_STOP_SECONDS) for process in players))
        self._start_controllers()
        self.kubelet.start()
        name = f"probe-{uuid.uuid4().hex[:6]}"
        self.api.create(_probe(name))
        try:
            self.api.wait("Deployment", name, _is_available, namespace="default", timeout_seconds=_BACK_SECONDS)
        finally:
            self.api.delete("Deployment", name, namespace="default")

    def compact_etcd(self) -> int:
        """Drop etcd's history and return the oldest revision left. After a restart, old watches get a real 410."""
        return self.etcd.compact()

    def stop_prometheus(self) -> None:
        """Stop Prometheus, keeping its data and port."""
        self.prometheus.stop()

    def start_prometheus(self) -> None:
        """Start Prometheus again."""
        self.prometheus.start()

    @contextlib.contextmanager
    def scraping(self, job: ScrapeJob) -> Iterator[None]:
        """Scrape a job's targets inside the block."""
        self.prometheus.add_job(job)
        try:
            yield
        finally:
            self.prometheus.remove_job(job.name)

    def create_nodes(self, pool: NodePool) -> list[str]:
        """Add nodes of a GPU product. A test that needs a GPU budget of its own adds a product of its own."""
        return create_nodes(self.api, pool)

    def process(
        self, name: str, argv: Sequence[str | Path], *, environment: Mapping[str, str] | None = None
    ) -> ServerProcess:
        """Describe a program under test; it is stopped with the control plane at the latest."""
        return self.layout.process(name, argv, environment=environment)

    def versions(self) -> dict[str, str]:
        """Return the versions of all servers, as they report them; KEDA's as it is built."""
        return {
            **super().versions(),
            "etcd": self.etcd.version(),
            "keda": KEDA.version,
        }

    def log_tails(self, *, lines: int = _TAIL_LINES) -> str:
        """Return the end of each log for a failure's report; of the servers' logs only what is above info."""
        tails = []
        for path in sorted((self.directory / "logs").glob("*.log")):
            said = path.read_text(encoding="utf-8", errors="replace").splitlines()
            if path.stem in _SERVERS:
                said = [line for line in said if not _INFORMATION.match(line)]
            if said:
                tails.append("\n".join((f"--- {path}", *(line[:_TAIL_COLUMNS] for line in said[-lines:]))))
        return "\n".join(tails)

    def _start(self, pools: Sequence[NodePool]) -> None:
        self.prometheus.configure()
        in_parallel(self.prometheus.start, self._start_apiserver)
        in_parallel(self._start_controllers, lambda: self._start_nodes(pools), self._start_keda)

    def _start_apiserver(self) -> None:
        self.etcd.start()
        self.apiserver.start()

    def _start_controllers(self) -> None:
        for process in (self.controller_manager, self.scheduler):
            process.start()
        for process in (self.controller_manager, self.scheduler):
            address = self.layout.address(process.name)
            process.wait_ready(partial(is_healthy, address))

    def _start_nodes(self, pools: Sequence[NodePool]) -> None:
        self.kubelet.start()
        for pool in pools:
            self.create_nodes(pool)
        self.kubelet.wait_ready(self._nodes_ready)

    def _nodes_ready(self) -> bool:
        return all(
            any(
                condition["type"] == "Ready" and condition["status"] == "True"
                for condition in node.get("status", {}).get("conditions", ())
            )
            for node in self.api.list("Node")
        )

    def _start_keda(self) -> None:
        self.keda.install(self.api)
        self.keda.start()
        self.keda.register(self.api)


def _probe(name: str) -> Body:
    """Describe a Deployment that is available once controller manager, scheduler and kubelet all work."""
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels, "annotations": {LOADING: "100ms"}},
        "spec": {"containers": [{"name": "probe", "image": "probe"}]},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def _is_available(item: Body) -> bool:
    return bool(item.get("status", {}).get("availableReplicas"))


def in_parallel(*actions: Callable[[], object]) -> None:
    """Run the actions in threads, wait for all, then raise the first error."""
    with ThreadPoolExecutor(len(actions)) as pool:
        futures = [pool.submit(action) for action in actions]
    for future in futures:
        future.result()


def _require_binaries() -> None:
    missing = [name for module in SERVERS for name in module.missing]
    if missing:
        raise NotBuiltError(f"not built yet: {', '.join(missing)}; run: python -m e2e.controlplane.build")
