"""Token, client certificate and CA of the real Prometheus change while the controller runs, and no query fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.conftest import Launch
from e2e.controller import ControllerProcess
from e2e.controlplane.certs import Authority, ServerCertificate
from e2e.counting_proxy import counting
from e2e.load import FixedMetrics, PodReport, following
from e2e.manifests import ManifestedVariant
from e2e.mounted_secret import MountedSecret
from e2e.mutual_tls import MutualTlsPrometheus
from e2e.relay import Relay, relaying
from e2e.scene import CYCLE_SECONDS, Scene
from e2e.scrape_target import scrape_target

BUSY, SATURATED = PodReport(kv_usage=0.55), PodReport(kv_usage=0.95, waiting=20)
CHEAP, DEAR = ManifestedVariant(name="cheap", cost=5, replicas=2), ManifestedVariant(name="dear", cost=50)
FIRST, SECOND = "0ne-of-two", "tw0-of-two"
CYCLES = 3


class Rotation:
    """A controller that is watched while something of its connection is replaced."""

    def __init__(self, scene: Scene, controller: ControllerProcess, metrics: FixedMetrics) -> None:
        """Watch from now on."""
        self._scene = scene
        self._controller = controller
        self._metrics = metrics
        self._process = controller.process.pid

    def let_cycles_pass(self) -> None:
        """Wait for some cycles, each of which must succeed."""
        page = self._controller.metrics
        goal = page().total("wva_cycles_total", result="success") + CYCLES
        self._scene.wait(
            lambda: page().total("wva_cycles_total", result="success") >= goal,
            timeout_seconds=(CYCLES + 4) * CYCLE_SECONDS,
            what=f"{CYCLES} cycles",
        )

    def judge(self) -> None:
        """Assert that no query failed and that all numbers stayed and were measured; then, that one still grows."""
        seen = [entry for entry in self._scene.history.observations() if entry.sources]
        begun = next(index for index, entry in enumerate(seen) if set(entry.sources.values()) == {"measured"})
        assert all(entry.desired == {"cheap": 2, "dear": 1} for entry in seen), str(self._scene.history)
        assert all(set(entry.sources.values()) == {"measured"} for entry in seen[begun:]), str(self._scene.history)
        assert all(entry.prometheus_up == 1 for entry in seen[begun:])
        page = self._controller.metrics()
        assert page.total("wva_prometheus_queries_total", result="error") == 0
        assert page.total("wva_prometheus_queries_total", result="timeout") == 0
        assert page.total("wva_cycles_total", result="error") == 0
        assert self._controller.process.pid == self._process
        for variant in (CHEAP, DEAR):
            self._metrics.set(variant.name, SATURATED)
        growth = "growth after it all"
        self._scene.wait(lambda: (self._scene.desired("cheap") or 0) > CHEAP.replicas, timeout_seconds=40, what=growth)


def _prepare(scene: Scene, metrics: FixedMetrics) -> None:
    for variant in (CHEAP, DEAR):
        metrics.set(variant.name, BUSY)
    scene.deploy(CHEAP, DEAR)
    scene.wait_ready(CHEAP, DEAR)
    scene.declare(CHEAP, DEAR)


def test_the_token_file_is_rotated(scene: Scene, tmp_path: Path):
    """As with a projected token, both tokens are good for a while. Then Prometheus refuses the old one."""
    secret = MountedSecret(tmp_path / "token")
    secret.write({"token": FIRST.encode()})
    metrics = scene.fixed_metrics()
    plane = scene.plane
    with counting(plane.prometheus_api.url, authority=plane.layout.authority) as proxy:
        proxy.tokens = frozenset({FIRST})
        _prepare(scene, metrics)
        environment = {
            "PROMETHEUS_BASE_URL": proxy.url,
            "PROMETHEUS_ALLOW_HTTP": "true",
            "PROMETHEUS_TOKEN_PATH": secret.path("token"),
        }
        rotation = Rotation(scene, scene.start_controller(environment=environment), metrics)
        scene.wait_measured(CHEAP, DEAR)
        proxy.tokens = frozenset({FIRST, SECOND})
        secret.write({"token": f"{SECOND}\n".encode()})
        rotation.let_cycles_pass()
        proxy.tokens = frozenset({SECOND})
        rotation.let_cycles_pass()
        assert proxy.refused == 0
        rotation.judge()
        log = scene.controllers[0].process.log_path.read_text(encoding="utf-8")
        assert FIRST not in log
        assert SECOND not in log


@contextlib.contextmanager
def _pods(scene: Scene) -> Iterator[tuple[str, FixedMetrics]]:
    """Serve what the pods report; yield the address and the numbers."""
    with scrape_target() as target:
        metrics = FixedMetrics(target, namespace=scene.namespace)
        with following(scene.api, scene.namespace, take=metrics.take):
            yield target.address, metrics


def _files(authorities: list[Authority], client: ServerCertificate) -> dict[str, bytes]:
    trusted = b"".join(authority.certificate.read_bytes() for authority in authorities)
    return {"ca.crt": trusted, "tls.crt": client.certificate.read_bytes(), "tls.key": client.key.read_bytes()}


@pytest.mark.timeout(300)
def test_client_pair_and_ca_are_rotated(scene: Scene, launch: Launch, tmp_path: Path):
    """First the clients' authority changes, then the servers', in three steps each: trust both, switch, drop one."""
    servers = [Authority(tmp_path / "pki", name) for name in ("servers-1", "servers-2")]
    clients = [Authority(tmp_path / "pki", name) for name in ("clients-1", "clients-2")]
    identities = [servers[index].issue(f"prometheus-{index}", hosts=("127.0.0.1",)) for index in (0, 1)]
    pairs = [clients[index].issue(f"controller-{index}") for index in (0, 1)]
    secret = MountedSecret(tmp_path / "secret")
    secret.write(_files(servers[:1], pairs[0]))
    with contextlib.ExitStack() as tunnels, _pods(scene) as (address, metrics):
        prometheus = MutualTlsPrometheus(tmp_path / "prometheus", target=address)
        prometheus.serve(identities[0])
        prometheus.admit(clients[0].certificate)
        process = launch("mutual-tls", prometheus.command())
        process.wait_ready(lambda: prometheus.admits(servers[0].certificate, pairs[0]))
        assert not prometheus.admits(servers[0].certificate, pairs[1])
        _prepare(scene, metrics)
        relay = tunnels.enter_context(relaying(prometheus.url.removeprefix("https://")))
        environment = {
            "PROMETHEUS_BASE_URL": f"https://{relay.address}",
            "PROMETHEUS_CA_CERT_PATH": secret.path("ca.crt"),
            "PROMETHEUS_CLIENT_CERT_PATH": secret.path("tls.crt"),
            "PROMETHEUS_CLIENT_KEY_PATH": secret.path("tls.key"),
        }
        rotation = Rotation(scene, scene.start_controller(environment=environment), metrics)
        scene.wait_measured(CHEAP, DEAR)

        prometheus.admit(clients[0].certificate, clients[1].certificate)
        secret.write(_files(servers[:1], pairs[1]))
        rotation.let_cycles_pass()
        prometheus.admit(clients[1].certificate)
        _reconnect(relay)
        rotation.let_cycles_pass()
        assert not prometheus.admits(servers[0].certificate, pairs[0])

        secret.write(_files(servers, pairs[1]))
        rotation.let_cycles_pass()
        prometheus.serve(identities[1])
        _reconnect(relay)
        rotation.let_cycles_pass()
        secret.write(_files(servers[1:], pairs[1]))
        rotation.let_cycles_pass()
        assert not prometheus.admits(servers[0].certificate, pairs[1])
        assert prometheus.admits(servers[1].certificate, pairs[1])
        rotation.judge()


def _reconnect(relay: Relay) -> None:
    """Reset open connections: Prometheus asks who a client is only when one begins."""
    relay.cut()
    relay.restore()
