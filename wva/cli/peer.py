"""Checks whom a command talks to: the certificate of the controller at the other end of a forwarded port.

The pod that a Lease names may be any pod of the namespace. So where an authority is known, the pod has to show a
certificate of that authority for a Service of the controller, before anything is sent to it. The authority comes from a
file, or is the service CA of OpenShift if the Service asks this CA for its certificate. A certificate that the
controller has signed itself has no authority.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from wva.api.meta import Key
from wva.command_error import CommandError
from wva.doctor.cluster import Cluster, Item, key_of, mapping, path_of
from wva.doctor.installation import MANAGER_LABEL
from wva.files import read_bounded
from wva.kube.client import KubeClient
from wva.log import printable

_CA_FLAG: Final = "--metrics-ca"
_NAME_FLAG: Final = "--metrics-server-name"
_MAX_CA_BYTES: Final = 1024**2
_MOST_NAMES: Final = 8
_HANDSHAKE_SECONDS: Final = 15.0
_SERVICE_CA_ANNOTATIONS: Final = tuple(
    f"service.{stage}.openshift.io/serving-cert-secret-name" for stage in ("beta", "alpha")
)
_SERVICE_CA_MAPS: Final = ("openshift-service-ca.crt", "openshift-service-ca")
"""ConfigMaps with the service CA: that of OpenShift in every namespace, and that of our overlay."""
_SERVICE_CA_KEY: Final = "service-ca.crt"


@dataclass(frozen=True, slots=True)
class PeerCheck:
    """How the certificate of the controller is checked: it must have one of ``names``. Without names, nothing is."""

    context: ssl.SSLContext
    names: tuple[str, ...] = ()
    authority: str = ""

    async def name(self, port: int, pod: Key) -> str | None:
        """Return for which name the peer at a local port has a certificate; None where none is checked.

        Only the handshake goes over the connection. Raises CommandError when the certificate is for none of the names.
        """
        reason = ""
        for name in self.names:
            try:
                async with asyncio.timeout(_HANDSHAKE_SECONDS):
                    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=self.context, server_hostname=name)
            except ssl.SSLCertVerificationError as error:
                reason = error.verify_message
            except (OSError, TimeoutError):
                return name  # the request will fail in the same way, and say why
            else:
                writer.close()
                return name
        if not self.names:
            return None
        raise CommandError(
            f"pod {pod} does not prove that it is the controller, so no token was sent to it: {printable(reason)}; "
            f"expected a certificate of {self.authority} for {' or '.join(self.names)} "
            f"({_CA_FLAG} and {_NAME_FLAG} name others)"
        )


async def peer_check(client: KubeClient, namespace: str, *, ca_file: str | None, server_name: str | None) -> PeerCheck:
    """Return how to check the controller in a namespace. Raises ApiError, and CommandError for a CA of no use."""
    cluster = Cluster(client)
    services = await cluster.list(path_of("v1", "services", namespace), labelSelector=MANAGER_LABEL)
    if ca_file is not None:
        authority, text = f"{_CA_FLAG}={ca_file}", _file(ca_file)
    else:
        services = [service for service in services if _asks_service_ca(service)]
        if not services:
            if server_name is not None:
                raise CommandError(
                    f"{_NAME_FLAG}={server_name}: no CA is known to check it with: name it with {_CA_FLAG}"
                )
            return PeerCheck(_context())
        authority, text = await _service_ca(cluster, namespace)
    names = (server_name,) if server_name is not None else _names(services, namespace)
    if not names:
        raise CommandError(
            f"{authority}: the name in the controller's certificate is not known, because no Service with the label "
            f"{MANAGER_LABEL} can be read in {namespace}: give the name with {_NAME_FLAG}"
        )
    return PeerCheck(_context(text, authority), names, authority)


def _names(services: list[Item], namespace: str) -> tuple[str, ...]:
    return tuple(f"{key_of(service).name}.{namespace}.svc" for service in services[:_MOST_NAMES])


def _asks_service_ca(service: Item) -> bool:
    """Return whether a Service has its certificate from OpenShift's service CA."""
    annotations = mapping(mapping(service.get("metadata")).get("annotations"))
    return any(annotations.get(name) for name in _SERVICE_CA_ANNOTATIONS)


async def _service_ca(cluster: Cluster, namespace: str) -> tuple[str, str]:
    """Return where OpenShift's service CA was found, and its certificates. Raises ApiError and CommandError."""
    for name in _SERVICE_CA_MAPS:
        config_map = await cluster.get(path_of("v1", "configmaps", namespace, name))
        text = mapping(mapping(config_map).get("data")).get(_SERVICE_CA_KEY)
        if text:
            return f"the service CA (ConfigMap {namespace}/{name})", str(text)
    raise CommandError(
        f"the controller's certificate is of OpenShift's service CA, which cannot be read from a ConfigMap of "
        f"{namespace} ({' or '.join(_SERVICE_CA_MAPS)}, key {_SERVICE_CA_KEY}): name a file with it with {_CA_FLAG}"
    )


def _file(path: str) -> str:
    """Return the certificates of a file. Raises CommandError."""
    try:
        return read_bounded(Path(path), _MAX_CA_BYTES).decode("ascii", "replace")
    except OSError as error:
        expected = f"expected at most {_MAX_CA_BYTES} bytes of certificates (PEM)"
        raise CommandError(f"{_CA_FLAG}={path}: cannot be read: {error.strerror}; {expected}") from error


def _context(authorities: str | None = None, origin: str = "") -> ssl.SSLContext:
    """Return a client context that trusts these certificates (PEM) alone; without any it checks nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if authorities is None:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    try:
        context.load_verify_locations(cadata=authorities)
    except (ssl.SSLError, ValueError) as error:
        raise CommandError(f"{origin}: expected certificates (PEM): {error}") from error
    return context
