"""The HTTP servers of the application: probes in the open, metrics behind their certificate and their gate."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from wva import log
from wva.app.environment import Environment
from wva.publish.series import SeriesText
from wva.serve.address import Address, AddressError
from wva.serve.authn import Authenticator
from wva.serve.authz import Authorizer
from wva.serve.certs import (
    CertificateError,
    CertificateFiles,
    ReloadingCertificate,
    SelfSignedCertificate,
    ServingCertificate,
)
from wva.serve.gate import Gate
from wva.serve.http import Handler, Server
from wva.serve.pages import JsonPage, ProbeCheck, metrics_handler, probes_handler
from wva.serve.reviews import Reviews
from wva.serve.throttle import Refusals

_METRICS_SERVICES: Final = (
    "workload-variant-autoscaler-metrics",
    "workload-variant-autoscaler-controller-manager-metrics-service",
)
"""Names of the Service in front of /metrics in the chart and in the kustomize overlays."""


def server_problems(environment: Environment) -> list[str]:
    """Return why the servers could never be started with these settings, one line each."""
    settings, problems = environment.settings, []
    for address, setting in (
        (settings.health_probe_bind_address, "--health-probe-bind-address"),
        (settings.metrics_bind_address, "--metrics-bind-address"),
    ):
        try:
            Address.parse(address, setting=setting)
        except AddressError as error:
            problems.append(str(error))
    if settings.metrics_cert_path and not problems:
        try:
            Servers(environment)
        except CertificateError as error:
            problems.append(str(error))
    return problems


class Servers:
    """Starts the servers that the settings ask for, inside an exit stack."""

    def __init__(self, environment: Environment) -> None:
        """Parse the addresses and load the certificate. Raises AddressError or CertificateError."""
        self._env = environment
        settings = environment.settings
        self._probes = Address.parse(settings.health_probe_bind_address, setting="--health-probe-bind-address")
        self._metrics = Address.parse(settings.metrics_bind_address, setting="--metrics-bind-address")
        secure = self._metrics is not None and settings.metrics_secure
        self.certificate: ServingCertificate | None = self._certificate() if secure else None
        environment.instruments.endpoint_secure.set(1 if secure else 0)
        self.probe_port: int | None = None
        self.metrics_port: int | None = None

    async def start(
        self,
        stack: AsyncExitStack,
        *,
        not_ready: ProbeCheck,
        unhealthy: ProbeCheck = list,
        pages: Mapping[str, JsonPage] | None = None,
        series: SeriesText | None = None,
    ) -> None:
        """Start listening until the stack unwinds; ``pages`` stand beside ``/metrics`` where it is protected.

        ``series`` is the text of the series about variants. Raises AddressError.
        """
        probes = self._env.probes
        if probes is not None and probes.address == self._probes:
            probes.follow(not_ready, unhealthy)
            self.probe_port = probes.port
        elif self._probes is not None:
            handler = probes_handler(not_ready, unhealthy=unhealthy)
            self.probe_port = await self._listen(stack, handler, self._probes, name="probes")
        if self._metrics is not None:
            gate = self._gate() if self.certificate else None
            if gate is None:
                log.get("serve").warning(
                    "metrics_unprotected",
                    setting="--metrics-secure=false",
                    effect="anybody who reaches the port reads it, and so does anybody on the way",
                )
            registry = self._env.instruments.registry
            handler = metrics_handler(registry, gate=gate, pages=pages if gate else None, series=series)
            self.metrics_port = await self._listen(stack, handler, self._metrics, name="metrics")

    async def _listen(self, stack: AsyncExitStack, handler: Handler, address: Address, *, name: str) -> int:
        certificate = self.certificate if name == "metrics" else None
        tls = None if certificate is None else lambda: certificate.context
        server = Server(handler, address, name=name, instruments=self._env.instruments, tls=tls)
        return (await stack.enter_async_context(server)).port

    def _gate(self) -> Gate:
        """Build the gate on the client without write guard: standbys ask, too."""
        clock = self._env.clock
        reviews = Reviews(self._env.client, instruments=self._env.instruments)
        authenticator = Authenticator(reviews, monotonic=clock.monotonic, now=clock.now)
        authorizer = Authorizer(reviews, monotonic=clock.monotonic)
        return Gate(authenticator, authorizer, refusals=Refusals(monotonic=clock.monotonic))

    def _certificate(self) -> ServingCertificate:
        """Return the certificate of the settings; its dates are those of the real world, also with another clock."""
        settings, instruments = self._env.settings, self._env.instruments
        if settings.metrics_cert_path:
            folder = Path(settings.metrics_cert_path)
            files = CertificateFiles(folder / settings.metrics_cert_name, folder / settings.metrics_cert_key)
            return ReloadingCertificate(files, instruments=instruments, now=time.time)
        names = [f"{service}.{settings.pod_namespace}.svc" for service in _METRICS_SERVICES]
        names += [f"{name}.cluster.local" for name in names]
        return SelfSignedCertificate(names, instruments=instruments, now=time.time)
