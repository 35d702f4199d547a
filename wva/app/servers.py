"""The HTTP servers of the application: probes without protection, metrics behind a certificate and a gate."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from wva import log
from wva.clock import Clock
from wva.config import Settings
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.publish.metrics import SeriesText
from wva.serve.certs import (
    CertificateError,
    CertificateFiles,
    ReloadingCertificate,
    SelfSignedCertificate,
    ServingCertificate,
)
from wva.serve.gate import Gate
from wva.serve.http import Address, AddressError, Server
from wva.serve.pages import JsonPage, ProbeCheck, metrics_handler, probes_handler
from wva.serve.reviews import Reviews

_PROBES_SETTING: Final = "--health-probe-bind-address"
_METRICS_SETTING: Final = "--metrics-bind-address"
_METRICS_SERVICES: Final = (
    "workload-variant-autoscaler-metrics",
    "workload-variant-autoscaler-controller-manager-metrics-service",
)
"""Names of the Service in front of /metrics in the chart and in the kustomize overlays."""


def server_problems(settings: Settings, *, instruments: Instruments) -> list[str]:
    """Return why the servers could never be started with these settings, one line each."""
    problems = []
    for address, setting in (
        (settings.health_probe_bind_address, _PROBES_SETTING),
        (settings.metrics_bind_address, _METRICS_SETTING),
    ):
        try:
            Address.parse(address, setting=setting)
        except AddressError as error:
            problems.append(str(error))
    if settings.metrics_cert_path and not problems:
        try:
            certificate_of(settings, instruments=instruments)
        except CertificateError as error:
            problems.append(str(error))
    return problems


def certificate_of(settings: Settings, *, instruments: Instruments) -> ServingCertificate | None:
    """Return the certificate of ``/metrics``, None if ``/metrics`` is off or not secure.

    Its dates are in real time, even if the controller has another clock. Raises AddressError or CertificateError.
    """
    address = Address.parse(settings.metrics_bind_address, setting=_METRICS_SETTING)
    secure = settings.metrics_secure and address is not None
    instruments.endpoint_secure.set(1 if secure else 0)
    if not secure:
        return None
    if settings.metrics_cert_path:
        folder = Path(settings.metrics_cert_path)
        files = CertificateFiles(folder / settings.metrics_cert_name, folder / settings.metrics_cert_key)
        return ReloadingCertificate(files, instruments=instruments, now=time.time)
    names = [f"{service}.{settings.pod_namespace}.svc" for service in _METRICS_SERVICES]
    names += [f"{name}.cluster.local" for name in names]
    return SelfSignedCertificate(names, instruments=instruments, now=time.time)


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
    series: SeriesText,
) -> tuple[int | None, int | None]:
    """Start the servers that the settings ask for, until the stack unwinds; return the ports of probes and metrics.

    ``client`` asks the API server for reviews of clients. ``probes`` listens already. ``pages`` are served beside
    ``/metrics`` if it is protected. ``series`` is the text of the series about variants. Raises AddressError.
    """
    probe_port: int | None = None
    address = Address.parse(settings.health_probe_bind_address, setting=_PROBES_SETTING)
    if address is not None:
        if probes is None or probes.address != address:
            probes = await stack.enter_async_context(Probes(address, instruments=instruments, not_ready=not_ready))
        probes.follow(not_ready, unhealthy)
        probe_port = probes.port
    address = Address.parse(settings.metrics_bind_address, setting=_METRICS_SETTING)
    if address is None:
        return probe_port, None
    gate = tls = None
    if certificate is None:
        log.get("serve").warning(
            "metrics_unprotected",
            setting="--metrics-secure=false",
            effect="every client that reaches the port can read the metrics, and so can every machine on the way",
        )
    else:
        gate = Gate(Reviews(client, instruments=instruments), monotonic=clock.monotonic, now=clock.now)
        tls = lambda: certificate.context  # noqa: E731 - it changes
    handler = metrics_handler(instruments.registry, gate=gate, pages=pages if gate else None, series=series)
    server = Server(handler, address, name="metrics", instruments=instruments, tls=tls)
    return probe_port, (await stack.enter_async_context(server)).port
