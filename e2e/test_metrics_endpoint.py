"""The metrics endpoint on the real control plane: which tokens it accepts, what Prometheus sees, a new certificate."""

from __future__ import annotations

import http.client
import itertools
import ssl
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography import x509

from e2e import manifests
from e2e.controller import ControllerProcess
from e2e.controlplane.certs import Authority
from e2e.controlplane.prometheus import ScrapeJob
from e2e.manifests import ManifestedVariant
from e2e.mounted_secret import MountedSecret
from e2e.relay import relaying
from e2e.scene import Scene

STRANGER = "stranger"
NEW_CERTIFICATE_SECONDS = 15
SCRAPERS = 4
_TIMEOUT_SECONDS = 10.0


class Tls:
    """A folder with a serving certificate as the kubelet mounts it, and a TLS context that trusts its authority."""

    def __init__(self, folder: Path) -> None:
        """Issue a first certificate."""
        self.authority = Authority(folder / "authority", "metrics-authority")
        self.folder = folder / "mounted"
        self._mounted = MountedSecret(self.folder)
        self._numbers = itertools.count(1)
        self.context = ssl.create_default_context(cafile=str(self.authority.certificate))
        self.serial = self.replace()

    def replace(self) -> int:
        """Put a new certificate into place and return its serial number."""
        pair = self.authority.issue(f"serving-{next(self._numbers)}", hosts=("localhost", "127.0.0.1"))
        contents = {"tls.crt": pair.certificate.read_bytes(), "tls.key": pair.key.read_bytes()}
        self._mounted.write(contents)
        return x509.load_pem_x509_certificate(contents["tls.crt"]).serial_number

    def spoil(self) -> None:
        """Replace the certificate by one that does not fit the key."""
        pairs = [self.authority.issue(f"spoilt-{next(self._numbers)}") for _ in range(2)]
        self._mounted.write({"tls.crt": pairs[0].certificate.read_bytes(), "tls.key": pairs[1].key.read_bytes()})


@pytest.fixture
def tls(tmp_path: Path) -> Iterator[Tls]:
    """Give a serving certificate on the disk."""
    return Tls(tmp_path)


def scrape(
    controller: ControllerProcess,
    token: str = "",
    *,
    context: ssl.SSLContext | None = None,
    path: str = "/metrics",
    method: str = "GET",
) -> tuple[int, str, int]:
    """Return status, text and the serial number of the certificate; by default any certificate is accepted."""
    connection = http.client.HTTPSConnection(
        controller.addresses.metrics, timeout=_TIMEOUT_SECONDS, context=context or _trusting()
    )
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        connection.request(method, path, headers=headers)
        certificate = connection.sock.getpeercert(binary_form=True)
        response = connection.getresponse()
        text = response.read().decode()
    finally:
        connection.close()
    return response.status, text, x509.load_der_x509_certificate(certificate).serial_number


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def started(scene: Scene, *flags: str, **more: object) -> ControllerProcess:
    """Return a controller that serves its metrics."""
    controller = scene.start_controller(*flags, **more)
    controller.wait_metrics()
    return controller


def token_of(scene: Scene, name: str, **more: object) -> str:
    """Return a token of a ServiceAccount in the scene."""
    return scene.plane.service_account_token(scene.namespace, name, **more)


def job(scene: Scene, controller: ControllerProcess, name: str, *, token: str = "", **tls: object) -> ScrapeJob:
    """Describe a scrape of the controller."""
    settings: Mapping[str, object] = tls or {"insecure_skip_verify": True}
    return ScrapeJob(
        name=f"{scene.namespace}.{name}",
        targets=[controller.addresses.metrics],
        scheme="https",
        bearer_token=token,
        **settings,
    )


def test_who_gets_in(scene: Scene):
    """Tokens and RBAC decide: 200, 403 or 401. Without the right, the answer does not tell whether a page exists."""
    scene.api.apply(manifests.service_account(STRANGER, namespace=scene.namespace))
    controller = started(scene)
    good, stranger = token_of(scene, manifests.SCRAPER), token_of(scene, STRANGER)
    foreign = token_of(scene, manifests.SCRAPER, audiences=["somebody-else"])
    answers = {
        "good": scrape(controller, good)[0],
        "head": scrape(controller, good, method="HEAD")[0],
        "other page": scrape(controller, good, path="/debug/config")[0],
        "no page": scrape(controller, good, path="/nowhere")[0],
        "post": scrape(controller, good, method="POST")[0],
        "stranger": scrape(controller, stranger)[0],
        "foreign audience": scrape(controller, foreign)[0],
        "nobody": scrape(controller, "nobody")[0],
        "without": scrape(controller)[0],
        "without, no page": scrape(controller, path="/nowhere")[0],
    }
    assert answers == {
        "good": 200,
        "head": 200,
        "other page": 403,
        "no page": 403,
        "post": 405,
        "stranger": 403,
        "foreign audience": 401,
        "nobody": 401,
        "without": 401,
        "without, no page": 401,
    }
    text = scrape(controller, stranger)[1]
    assert f"system:serviceaccount:{scene.namespace}:{STRANGER}" in text
    log = controller.log(10_000)
    assert not [token for token in (good, stranger, foreign) if token in log]


def test_prometheus_scrapes_with_a_token(scene: Scene):
    """Prometheus gets the page as reader, 403 as stranger and 401 without a token. A later right takes effect."""
    scene.api.apply(manifests.service_account(STRANGER, namespace=scene.namespace))
    controller = started(scene)
    jobs = {
        "reader": job(scene, controller, "reader", token=token_of(scene, manifests.SCRAPER)),
        "stranger": job(scene, controller, "stranger", token=token_of(scene, STRANGER)),
        "without": job(scene, controller, "without"),
    }
    for entry in jobs.values():
        scene.keep_scraping(entry)
    prometheus = scene.plane.prometheus_api
    for name, (health, error) in {
        "reader": ("up", ""),
        "stranger": ("down", "403 Forbidden"),
        "without": ("down", "401 Unauthorized"),
    }.items():
        target = scene.wait(
            lambda name=name, health=health: _with_health(prometheus.targets(jobs[name].name), health),
            timeout_seconds=20,
            what=f"{name} is {health}",
        )
        assert error in target["lastError"]

    binding = manifests.metrics_reader(STRANGER, namespace=scene.namespace)
    binding["metadata"]["name"] = f"wva-{scene.namespace}-late"
    scene.api.apply(binding)
    try:
        scene.wait(
            lambda: _with_health(prometheus.targets(jobs["stranger"].name), "up"),
            timeout_seconds=60,
            what="the late right is seen",
        )
    finally:
        scene.api.delete("ClusterRoleBinding", binding["metadata"]["name"])


def _with_health(targets: list[dict[str, str]], health: str) -> dict[str, str] | None:
    return next((target for target in targets if target["health"] == health), None)


def test_known_scrapers_go_on_while_the_api_server_is_away(scene: Scene):
    """A known token still works. The controller cannot check a new token and answers 500, and 401 without one."""
    with relaying(scene.plane.layout.address("kube-apiserver")) as relay:
        controller = started(scene, kubeconfig=scene.identity(through=relay.address))
        good, other = token_of(scene, manifests.SCRAPER), token_of(scene, manifests.SCRAPER)
        assert scrape(controller, good)[0] == 200
        relay.cut()
        assert scrape(controller, good)[0] == 200
        assert scrape(controller, other)[0] == 500
        assert scrape(controller)[0] == 401
        relay.restore()
        scene.wait(lambda: scrape(controller, other)[0] == 200, timeout_seconds=20, what="asked again")


def test_a_certificate_is_replaced_under_load(scene: Scene, tls: Tls):
    """No scrape fails. The new certificate is served within 15 s; a bad one changes nothing."""
    controller = started(scene, f"--metrics-cert-path={tls.folder}")
    token = token_of(scene, manifests.SCRAPER)
    verified = job(scene, controller, "verified", token=token, authority=tls.authority.certificate)
    scene.keep_scraping(verified)
    assert scrape(controller, token, context=tls.context)[2] == tls.serial
    ended = threading.Event()
    seen: Counter[tuple[int, int]] = Counter()

    def load() -> None:
        while not ended.is_set():
            status, _, serial = scrape(controller, token, context=tls.context)
            seen[status, serial] += 1

    with ThreadPoolExecutor(SCRAPERS) as pool:
        scrapers = [pool.submit(load) for _ in range(SCRAPERS)]
        try:
            scene.wait(lambda: sum(seen.values()) > 20, timeout_seconds=20, what="load")
            new = tls.replace()
            replaced = time.monotonic()
            scene.wait(lambda: seen[200, new], timeout_seconds=NEW_CERTIFICATE_SECONDS, what="the new certificate")
            print(f"new certificate served after {time.monotonic() - replaced:.1f} s")
            tls.spoil()
            scene.wait(
                lambda: controller_metric(controller, "wva_certificate_reloads_total", result="rejected"),
                timeout_seconds=NEW_CERTIFICATE_SECONDS,
                what="the bad pair is rejected",
            )
            assert scrape(controller, token, context=tls.context)[2] == new
        finally:
            ended.set()
        for scraper in scrapers:
            scraper.result(timeout=60)
    assert set(seen) == {(200, tls.serial), (200, new)}, seen
    assert "certificate_rejected" in controller.log(10_000)
    (up,) = scene.plane.prometheus_api.query(f'min_over_time(up{{job="{verified.name}"}}[1m])')
    assert up.value == 1
    assert controller_metric(controller, "wva_certificate_expiry_timestamp_seconds") > time.time()


def controller_metric(controller: ControllerProcess, name: str, **labels: str) -> float:
    """Return one of the controller's own metrics."""
    return controller.metrics().total(name, **labels)


def test_a_standby_answers_without_series(scene: Scene):
    """A standby reviews tokens as the leader does, and publishes no series about variants."""
    variant = ManifestedVariant(name="variant")
    scene.fixed_metrics()
    scene.deploy(variant)
    scene.declare(variant)
    leader = started(scene, "--leader-elect", name="leader")
    scene.wait(lambda: controller_metric(leader, "wva_leader") == 1, timeout_seconds=30, what="a leader")
    standby = started(scene, "--leader-elect", name="standby")
    scene.wait(lambda: standby.readiness()[0] == 200, timeout_seconds=20, what="the standby is ready")
    page = standby.metrics()
    assert page.value("wva_leader") == 0
    assert page.value("process_start_time_seconds")
    assert not [
        name for name in ("current_replicas", "desired_replicas", "desired_ratio") if list(page.series(f"wva_{name}"))
    ]


def test_plain_mode_is_loud(scene: Scene):
    """Without TLS and tokens the controller logs a warning at the start, and a metric says so."""
    controller = started(scene, "--metrics-secure=false", secure=False)
    assert controller_metric(controller, "wva_endpoint_secure") == 0
    assert "metrics_unprotected" in controller.log(1000)
