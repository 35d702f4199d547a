"""The HTTP servers of the application: probes without protection, metrics behind a certificate and a gate."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from wva import log
from wva.clock import Clock
from wva.config import Settings
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.numbers import shown
from wva.publish.metrics import SeriesText
from wva.serve.addresses import Address, AddressError
from wva.serve.certs import (
    CertificateError,
    CertificateFiles,
    ClientAuthorities,
    ReloadingCertificate,
    SelfSignedCertificate,
    ServingCertificate,
)
from wva.serve.gate import Gate, Loopback
from wva.serve.http import Server
from wva.serve.listener import TlsSource
from wva.serve.pages import METRICS_PATH, JsonPage, ProbeCheck, Router, metrics_handler, probes_handler, routed_handler
from wva.serve.reviews import Reviews
from wva.serve.tokens import own_audience

_PROBES_SETTING: Final = "--health-probe-bind-address"
_METRICS_SETTING: Final = "--metrics-bind-address"
_CONSOLE_SETTING: Final = "--console-bind-address"
_PUSH_SETTING: Final = "--keda-push-bind-address"
_PUSH_CA_SETTING: Final = "--keda-push-client-ca-path"
_METRICS_SERVICES: Final = (
    "workload-variant-autoscaler-metrics",
    "workload-variant-autoscaler-controller-manager-metrics-service",
)
"""Names of the Service in front of /metrics in the chart and in the kustomize overlays."""
_PUSH_SERVICE: Final = "workload-variant-autoscaler-keda-push"
"""Name of the headless Service that KEDA asks."""


def server_problems(settings: Settings, *, instruments: Instruments) -> list[str]:
    """Return why the servers could never be started with these settings, one line each."""
    problems = []
    for address, setting in (
        (settings.health_probe_bind_address, _PROBES_SETTING),
        (settings.metrics_bind_address, _METRICS_SETTING),
        (settings.console_bind_address, _CONSOLE_SETTING),
        (settings.keda_push_bind_address, _PUSH_SETTING),
    ):
        try:
            Address.parse(address, setting=setting)
        except AddressError as error:
            problems.append(str(error))
    if not problems:
        try:
            _console_address(settings)
        except AddressError as error:
            problems.append(str(error))
    if settings.metrics_cert_path and not problems:
        try:
            certificate_of(settings, instruments=instruments)
        except CertificateError as error:
            problems.append(str(error))
    if not problems and push_address(settings) is not None:
        if importlib.util.find_spec("grpclib") is None:
            problems.append(f"{_PUSH_SETTING} needs the extra keda-push: pip install 'wva[keda-push]'")
        try:
            _client_authorities(settings)
        except CertificateError as error:
            problems.append(str(error))
    return problems


def push_address(settings: Settings) -> Address | None:
    """Return where the leader listens for KEDA, None if it does not. Raises AddressError."""
    return Address.parse(settings.keda_push_bind_address, setting=_PUSH_SETTING)


def push_tls(settings: Settings, certificate: ServingCertificate | None) -> TlsSource | None:
    """Return the TLS contexts of the server for KEDA; None if the metrics are not secure either.

    Warn when any client is served, which is meant for a port that a NetworkPolicy protects.
    """
    if certificate is None:
        log.get("serve").warning(
            "keda_push_unprotected",
            setting="--metrics-secure=false",
            effect="every client that reaches the port can read the numbers; machines on the way can change them",
        )
        return None
    if not settings.keda_push_client_ca_path:
        log.get("serve").warning(
            "keda_push_without_client_certificates",
            setting=_PUSH_CA_SETTING,
            expected="the file of the authorities of KEDA's certificate",
            effect="every client that reaches the port can read the numbers",
        )
    return lambda: certificate.http2


def _client_authorities(settings: Settings) -> ClientAuthorities | None:
    """Return whose certificates clients of the server for KEDA must have. Raises CertificateError."""
    path = settings.keda_push_client_ca_path
    return ClientAuthorities(Path(path), setting=_PUSH_CA_SETTING) if path else None


def certificate_of(settings: Settings, *, instruments: Instruments) -> ServingCertificate | None:
    """Return the certificate of ``/metrics``, None if ``/metrics`` is off or not secure.

    Its dates are in real time, even if the controller has another clock. Raises AddressError or CertificateError.
    """
    address = Address.parse(settings.metrics_bind_address, setting=_METRICS_SETTING)
    console = Address.parse(settings.console_bind_address, setting=_CONSOLE_SETTING)
    push = push_address(settings)
    secure = settings.metrics_secure and any(endpoint is not None for endpoint in (address, console, push))
    instruments.endpoint_secure.set(1 if secure else 0)
    if not secure:
        return None
    authorities = None if push is None else _client_authorities(settings)
    if settings.metrics_cert_path:
        folder = Path(settings.metrics_cert_path)
        files = CertificateFiles(folder / settings.metrics_cert_name, folder / settings.metrics_cert_key)
        return ReloadingCertificate(files, instruments=instruments, now=time.time, authorities=authorities)
    names = [f"{service}.{settings.pod_namespace}.svc" for service in (*_METRICS_SERVICES, _PUSH_SERVICE)]
    names += [f"{name}.cluster.local" for name in names]
    return SelfSignedCertificate(names, instruments=instruments, now=time.time, authorities=authorities)


class Probes(Server):
    """The server of the probes. It answers from the first second, while the rest of the process still starts.

    It listens for the whole life of the process. ``follow`` replaces its checks when more of the process runs.
    """

    def __init__(self, address: Address, *, instruments: Instruments, not_ready: ProbeCheck) -> None:
        """Prepare; nothing listens before ``__aenter__``."""
        self.address = address
        self.follow(not_ready, list)
        # Each request asks the checks that are followed at that moment.
        handler = probes_handler(lambda: self._not_ready(), unhealthy=lambda: self._unhealthy())  # noqa: PLW0108 - see above
        super().__init__(handler, address, name="probes", instruments=instruments)

    def follow(self, not_ready: ProbeCheck, unhealthy: ProbeCheck) -> None:
        """Ask these two checks at each request from now on."""
        self._not_ready, self._unhealthy = not_ready, unhealthy

    async def close(self) -> None:
        """Stop listening. A second call does nothing."""
        await self.__aexit__()


async def start_servers(
    stack: AsyncExitStack,
    settings: Settings,
    *,
    client: KubeClient,
    clock: Clock,
    instruments: Instruments,
    certificate: ServingCertificate | None,
    probes: Probes | None,
    not_ready: ProbeCheck,
    unhealthy: ProbeCheck,
    pages: Mapping[str, JsonPage],
    routers: Sequence[Router],
    console: Sequence[Router],
    open_console: bool,
    series: SeriesText,
) -> tuple[int | None, int | None, int | None]:
    """Start the servers that the settings ask for, until the stack unwinds.

    Return the ports of probes, metrics and console, None where nothing listens.

    ``client`` asks the API server for reviews of clients. ``probes`` listens already. ``pages`` and ``routers`` are
    served beside ``/metrics`` if it is protected; the console has ``console`` and ``routers``. ``series`` is the text
    of the series about variants. Raises AddressError.
    """
    probe_port: int | None = None
    metrics_port: int | None = None
    console_port: int | None = None
    address = Address.parse(settings.health_probe_bind_address, setting=_PROBES_SETTING)
    if address is not None:
        if probes is None or probes.address != address:
            probes = await stack.enter_async_context(Probes(address, instruments=instruments, not_ready=not_ready))
        probes.follow(not_ready, unhealthy)
        probe_port = probes.port
    gate = tls = None
    if certificate is not None:
        reviews = Reviews(client, audience=own_audience(settings.pod_namespace), instruments=instruments)
        gate = Gate(reviews, monotonic=clock.monotonic, now=clock.now)
        tls = lambda: certificate.context  # noqa: E731 - it changes
    address = Address.parse(settings.metrics_bind_address, setting=_METRICS_SETTING)
    if address is not None:
        if gate is None:
            log.get("serve").warning(
                "metrics_unprotected",
                setting="--metrics-secure=false",
                effect="every client that reaches the port can read the metrics, and so can every machine on the way",
            )
        handler = metrics_handler(
            instruments.registry,
            gate=gate,
            pages=pages if gate else None,
            routers=routers if gate else (),
            series=series,
        )
        server = Server(handler, address, name="metrics", instruments=instruments, tls=tls, kept_for=METRICS_PATH)
        metrics_port = (await stack.enter_async_context(server)).port
    address = _console_address(settings)
    if address is not None:
        guard, secured = (Loopback(), None) if open_console or gate is None else (gate, tls)
        handler = routed_handler([*routers, *console], gate=guard)
        server = Server(handler, address, name="console", instruments=instruments, tls=secured)
        console_port = (await stack.enter_async_context(server)).port
    return probe_port, metrics_port, console_port


def _console_address(settings: Settings) -> Address | None:
    """Return where the console listens; without protection that is this machine alone. Raises AddressError."""
    address = Address.parse(settings.console_bind_address, setting=_CONSOLE_SETTING)
    if address is not None and not settings.metrics_secure and address.host not in Loopback.HOSTS:
        raise AddressError(
            f"{_CONSOLE_SETTING}={shown(settings.console_bind_address)}: expected 127.0.0.1:PORT or localhost:PORT, as "
            "--metrics-secure=false leaves the console open to everybody who reaches it"
        )
    return address
