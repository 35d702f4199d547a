"""The HTTP servers of the application: probes in the open, metrics behind their certificate and their gate."""

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
from wva.serve.address import Address, AddressError
from wva.serve.certs import (
    CertificateError,
    CertificateFiles,
    ReloadingCertificate,
    SelfSignedCertificate,
    ServingCertificate,
)
from wva.serve.gate import Gate
from wva.serve.http import Server
from wva.serve.pages import JsonPage, ProbeCheck, metrics_handler, probes_handler
from wva.serve.reviews import Reviews

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
        (settings.health_probe_bind_address, "--health-probe-bind-address"),
        (settings.metrics_bind_address, _METRICS_SETTING),
    ):
        try:
            Address.parse(address, setting=setting)
        except AddressError as error:
            problems.append(str(error))
    if settings.metrics_cert_path and not problems:
        try:
            _certificate(settings, instruments=instruments)
        except CertificateError as error:
            problems.append(str(error))
    return problems


def _certificate(settings: Settings, *, instruments: Instruments) -> ServingCertificate | None:
    """Return the certificate of the settings; its dates are those of the real world, also with another clock.

    None where ``/metrics`` is off or not secure. Raises CertificateError.
    """
    secure = (
        settings.metrics_secure and Address.parse(settings.metrics_bind_address, setting=_METRICS_SETTING) is not None
    )
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
    """The server of the probes, which answers from the first second on, while the rest of the process still starts.

    It listens for the whole life of the process. The part that knows most at a time names what is not ready.
    """

    def __init__(self, address: Address, *, instruments: Instruments, not_ready: ProbeCheck) -> None:
        """Prepare; nothing listens before ``__aenter__``."""
        self.address = address
        self.follow(not_ready, list)
        # Each request asks the parts that are followed at that moment.
        handler = probes_handler(lambda: self._not_ready(), unhealthy=lambda: self._unhealthy())  # noqa: PLW0108 - see above
        super().__init__(handler, address, name="probes", instruments=instruments)

    def follow(self, not_ready: ProbeCheck, unhealthy: ProbeCheck) -> None:
        """Ask these two checks at each request from now on."""
        self._not_ready, self._unhealthy = not_ready, unhealthy

    async def close(self) -> None:
        """Stop listening. A second call does nothing."""
        await self.__aexit__()


class Servers:
    """Starts the servers that the settings ask for, inside an exit stack."""

    def __init__(
        self, settings: Settings, client: KubeClient, *, clock: Clock, instruments: Instruments, probes: Probes | None
    ) -> None:
        """Parse the addresses and load the certificate. Raises AddressError or CertificateError.

        ``client`` has no write guard: standbys ask for reviews, too. ``probes`` listens already.
        """
        self._client = client
        self._clock = clock
        self._instruments = instruments
        self._early_probes = probes
        self._probes = Address.parse(settings.health_probe_bind_address, setting="--health-probe-bind-address")
        self._metrics = Address.parse(settings.metrics_bind_address, setting=_METRICS_SETTING)
        self.certificate = _certificate(settings, instruments=instruments)
        self.probe_port: int | None = None
        self.metrics_port: int | None = None

    async def start(
        self,
        stack: AsyncExitStack,
        *,
        not_ready: ProbeCheck,
        unhealthy: ProbeCheck,
        pages: Mapping[str, JsonPage],
        series: SeriesText,
    ) -> None:
        """Start listening until the stack unwinds; ``pages`` stand beside ``/metrics`` where it is protected.

        ``series`` is the text of the series about variants. Raises AddressError.
        """
        instruments, clock = self._instruments, self._clock
        probes = self._early_probes
        if self._probes is not None:
            if probes is None or probes.address != self._probes:
                listening = Probes(self._probes, instruments=instruments, not_ready=not_ready)
                probes = await stack.enter_async_context(listening)
            probes.follow(not_ready, unhealthy)
            self.probe_port = probes.port
        if self._metrics is None:
            return
        certificate, gate = self.certificate, None
        if certificate is None:
            log.get("serve").warning(
                "metrics_unprotected",
                setting="--metrics-secure=false",
                effect="every client that reaches the port can read the metrics, and so can every machine on the way",
            )
        else:
            reviews = Reviews(self._client, instruments=instruments)
            gate = Gate(reviews, monotonic=clock.monotonic, now=clock.now)
        handler = metrics_handler(instruments.registry, gate=gate, pages=pages if gate else None, series=series)
        tls = None if certificate is None else lambda: certificate.context
        server = Server(handler, self._metrics, name="metrics", instruments=instruments, tls=tls)
        self.metrics_port = (await stack.enter_async_context(server)).port
