"""Asks the controller that leads in a cluster for its pages, as a person with a kubeconfig.

The holder of the Lease names the pod that leads. The connection goes through the API server, as that of ``kubectl
port-forward``, so that it needs no route into the cluster. In it, the controller wants a bearer token, to ask the API
server what its owner may see: that of the kubeconfig, or one for a ServiceAccount if people use certificates there.

The certificate of the controller is not checked: it is usually self-signed, and the API server has chosen the pod.
"""

from __future__ import annotations

import argparse
import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import msgspec
from prometheus_client import CollectorRegistry

from wva.api.core import Pod
from wva.api.kinds import LEASES, PODS
from wva.api.meta import Key
from wva.command_error import CommandError
from wva.config.keys import Settings
from wva.instruments import Instruments
from wva.kube.backoff import Backoff
from wva.kube.client import KubeClient
from wva.kube.errors import ApiError, ConfigurationError
from wva.kube.portforward import PortForward
from wva.kube.transport import RETRY_AFTER_SECONDS
from wva.log import printable

_CALL_SECONDS: Final = 30.0
_ANSWER_SECONDS: Final = 60.0
_BUSY_SECONDS: Final = 40.0
"""For so long a page is asked for again where the controller says that it is asked too often."""
_TOKEN_SECONDS: Final = 600
_MAX_BYTES: Final = 64 * 1024**2
_MAX_ERROR_CHARACTERS: Final = 300
_METRICS_PORT: Final = 8443


class _TokenStatus(msgspec.Struct, frozen=True):
    token: str = ""


class _TokenRequest(msgspec.Struct):
    status: _TokenStatus = _TokenStatus()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add where the controller is, and as whom it is asked."""
    parser.add_argument("--context", default=None, metavar="NAME", help="the kubeconfig's context to use")
    add_controller_namespace(parser)
    lease = Settings.model_fields["leader_election_id"].default
    parser.add_argument(
        "--lease", default=lease, metavar="NAME", help=f"the Lease that the leader holds (default: {lease})"
    )
    parser.add_argument(
        "--metrics-port",
        type=int,
        default=_METRICS_PORT,
        metavar="PORT",
        help=f"the port of its metrics (default: {_METRICS_PORT})",
    )
    parser.add_argument(
        "--service-account",
        default=None,
        metavar="NAMESPACE/NAME",
        help="ask as this ServiceAccount, with a token for ten minutes (default: the token of the kubeconfig)",
    )


def add_controller_namespace(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Add the namespace of the controller; ``more`` says what else its help has to tell."""
    default = Settings.model_fields["pod_namespace"].default
    text = f"the namespace of the controller{more} (default: {default})"
    parser.add_argument("--controller-namespace", default=default, metavar="NAME", help=text)


def named(text: str, what: str) -> Key:
    """Return the object that ``NAMESPACE/NAME`` names. Raises CommandError, which says of what it was expected."""
    namespace, _, name = text.partition("/")
    if not (namespace and name) or "/" in name:
        raise CommandError(f"{text!r}: expected NAMESPACE/NAME {what}")
    return Key(namespace, name)


@dataclass(frozen=True, slots=True)
class RemoteController:
    """The controller that leads, at the other end of a forwarded port."""

    session: aiohttp.ClientSession
    forward: PortForward[Pod]
    token: str
    pod: Key

    async def get(self, path: str) -> bytes:
        """Return a page, and wait if the controller is asked too often. Raises CommandError when it cannot be had."""
        backoff, clock = Backoff(), time.monotonic
        until = clock() + _BUSY_SECONDS
        while True:
            try:
                status, body, wait = await self._ask(path)
            except (aiohttp.ClientError, TimeoutError) as error:
                why: object = self.forward.failure or f"{type(error).__name__}: {error}"
                raise CommandError(f"pod {self.pod} does not answer: {printable(str(why))}") from error
            if status == HTTPStatus.OK:
                return body
            delay = backoff.next(clock(), retry_after_seconds=wait)
            if status != HTTPStatus.TOO_MANY_REQUESTS or clock() + delay > until:
                words = printable(body[:_MAX_ERROR_CHARACTERS].decode("utf-8", "replace").strip())
                raise CommandError(f"the controller answers {path} with {status}: {words}")
            await asyncio.sleep(delay)

    async def _ask(self, path: str) -> tuple[int, bytes, float | None]:
        """Return the status of an answer, its body, and after how many seconds to ask again."""
        url = f"https://127.0.0.1:{self.forward.local_port}{path}"
        async with self.session.get(url, headers={"Authorization": f"Bearer {self.token}"}) as response:
            wait = RETRY_AFTER_SECONDS.find(response.headers.get("Retry-After", ""))
            return response.status, await response.content.read(_MAX_BYTES), wait


@asynccontextmanager
async def remote(arguments: argparse.Namespace) -> AsyncIterator[RemoteController]:
    """Reach the controller that leads. Raises CommandError when there is none, or no token for it."""
    instruments = Instruments(CollectorRegistry())
    connection = KubeClient.connect(instruments=instruments, timeout_seconds=_CALL_SECONDS, context=arguments.context)
    try:
        async with connection as client:
            pod = await _leader(client, arguments.controller_namespace, arguments.lease)
            token = await _token(client, arguments.service_account)
            forward = PortForward(client, PODS, pod, arguments.metrics_port)
            insecure = ssl.create_default_context()
            insecure.check_hostname = False
            insecure.verify_mode = ssl.CERT_NONE
            async with (
                forward.listening(),
                aiohttp.ClientSession(
                    connector=aiohttp.TCPConnector(ssl=insecure),
                    timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS),
                    trust_env=False,
                ) as session,
            ):
                yield RemoteController(session, forward, token, pod)
    except (ApiError, ConfigurationError) as error:
        raise CommandError(printable(str(error))) from error


async def _leader(client: KubeClient, namespace: str, lease: str) -> Key:
    """Return the pod that holds the Lease."""
    try:
        found = await client.get(LEASES, Key(namespace, lease))
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        raise CommandError(
            f"no Lease {lease} in the namespace {namespace}: name those of the controller with --controller-namespace "
            "and --lease"
        ) from None
    pod, _, _ = (found.spec.holder_identity or "").rpartition("_")
    if not pod:
        raise CommandError(f"the Lease {namespace}/{lease} has no holder: no controller leads")
    return Key(namespace, pod)


async def _token(client: KubeClient, account: str | None) -> str:
    """Return a bearer token for the controller."""
    if account is None:
        token = await client.bearer_token()
        if token:
            return token
        raise CommandError(
            "the kubeconfig has no token, which the controller wants: name a ServiceAccount that may get "
            "VariantAutoscalings with --service-account NAMESPACE/NAME"
        )
    namespace, name = named(account, "for --service-account")
    body: dict[str, Any] = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": _TOKEN_SECONDS},
    }
    path = f"/api/v1/namespaces/{quote(namespace, safe='')}/serviceaccounts/{quote(name, safe='')}/token"
    answer = await client.request_json("POST", path, body)
    return msgspec.json.decode(answer, type=_TokenRequest).status.token
