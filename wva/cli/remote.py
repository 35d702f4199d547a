"""Asks the controller that leads in a cluster for its pages, as a person with a kubeconfig.

The holder of the Lease names the pod that leads. The connection goes through the API server, as that of ``kubectl
port-forward``, so that it needs no route into the cluster. The controller wants a bearer token, and asks the API server
what the owner of the token may see.

Whoever may write the Lease chooses the pod. So the token is one for a ServiceAccount, for ten minutes, and for the
audience of this controller: the API server itself does not take it. The token of the kubeconfig, which may be an
administrator's, is sent only when a flag says so. Where an authority of the controller's certificate is known, no token
is sent before the certificate is checked (``wva.cli.peer``).
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

import aiohttp
import msgspec

from wva.api.core import Pod
from wva.api.kinds import LEASES, PODS
from wva.api.meta import Key
from wva.cli.cluster import connected
from wva.cli.peer import peer_check
from wva.command_error import CommandError, UsageError
from wva.config.keys import Settings
from wva.kube.backoff import Backoff
from wva.kube.client import KubeClient
from wva.kube.errors import RETRY_AFTER_SECONDS, ApiError
from wva.kube.portforward import PortForward
from wva.log import printable
from wva.serve.tokens import own_audience

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
    """Add the flags that say where the controller is, and with whose token to ask it."""
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
        "--metrics-ca",
        default=None,
        metavar="FILE",
        help="the CA (PEM) of the certificate of its metrics (default: OpenShift's service CA if the Service asks for "
        "it; else the certificate is not checked)",
    )
    parser.add_argument(
        "--metrics-server-name",
        default=None,
        metavar="NAME",
        help="the name in that certificate (default: SERVICE.NAMESPACE.svc of its Service)",
    )
    identity = parser.add_mutually_exclusive_group()
    identity.add_argument(
        "--service-account",
        default=None,
        metavar="NAMESPACE/NAME",
        help="ask as this ServiceAccount, with a token that only this controller takes, for ten minutes",
    )
    identity.add_argument(
        "--send-my-token",
        action="store_true",
        help="send the controller the token of the kubeconfig, with which it could do all that you may do",
    )


def add_controller_namespace(parser: argparse.ArgumentParser, more: str = "") -> None:
    """Add the namespace of the controller; ``more`` says what else its help has to tell."""
    default = Settings.model_fields["pod_namespace"].default
    text = f"the namespace of the controller{more} (default: {default})"
    parser.add_argument("--controller-namespace", default=default, metavar="NAME", help=text)


def named(text: str, what: str) -> Key:
    """Return the key of ``NAMESPACE/NAME``. Raises CommandError, which says with ``what`` of what it was expected."""
    namespace, _, name = text.partition("/")
    if not (namespace and name) or "/" in name:
        raise UsageError(f"{text!r}: expected NAMESPACE/NAME {what}")
    return Key(namespace, name)


@dataclass(frozen=True, slots=True)
class RemoteController:
    """The controller that leads, at the other end of a forwarded port."""

    session: aiohttp.ClientSession
    forward: PortForward[Pod]
    token: str = field(repr=False)
    pod: Key
    server_name: str | None = None

    async def get(self, path: str) -> bytes:
        """Return a page, and wait if the controller is asked too often. Raises CommandError when there is none."""
        backoff, clock = Backoff(), time.monotonic
        until = clock() + _BUSY_SECONDS
        while True:
            try:
                status, body, wait = await self._ask(path)
            except (aiohttp.ClientError, TimeoutError) as error:
                reason: object = self.forward.failure or f"{type(error).__name__}: {error}"
                raise CommandError(f"pod {self.pod} does not answer: {self._words(str(reason))}") from None
            if status == HTTPStatus.OK:
                return body
            delay = backoff.next(clock(), retry_after_seconds=wait)
            if status != HTTPStatus.TOO_MANY_REQUESTS or clock() + delay > until:
                message = self._words(
                    body[: _MAX_ERROR_CHARACTERS + len(self.token)].decode("utf-8", "replace").strip()
                )
                raise CommandError(f"the controller answers {path} with {status}: {message}")
            await asyncio.sleep(delay)

    async def _ask(self, path: str) -> tuple[int, bytes, float | None]:
        """Return the status of an answer, its body, and after how many seconds to ask again."""
        url = f"https://127.0.0.1:{self.forward.local_port}{path}"
        async with self.session.get(
            url,
            headers={"Authorization": f"Bearer {self.token}"},
            server_hostname=self.server_name,
            allow_redirects=False,
        ) as response:
            wait = RETRY_AFTER_SECONDS.find(response.headers.get("Retry-After", ""))
            body = bytearray()
            async for piece in response.content.iter_any():
                body += piece
                if len(body) > _MAX_BYTES:
                    raise CommandError(f"the controller answers {path} with more than {_MAX_BYTES} bytes")
            return response.status, bytes(body), wait

    def _words(self, text: str) -> str:
        """Return a text of the controller for people: cut, and without the token, which the controller may repeat."""
        return printable(text.replace(self.token, "[token]")[:_MAX_ERROR_CHARACTERS])


@asynccontextmanager
async def remote(arguments: argparse.Namespace) -> AsyncIterator[RemoteController]:
    """Reach the controller that leads. Raises CommandError when there is none, or no token for it."""
    async with connected(arguments.context, call_seconds=_CALL_SECONDS) as client:
        pod = await _leader(client, arguments.controller_namespace, arguments.lease)
        token = await _token(client, arguments)
        check = await peer_check(
            client,
            arguments.controller_namespace,
            ca_file=arguments.metrics_ca,
            server_name=arguments.metrics_server_name,
        )
        forward = PortForward(client, PODS, pod, arguments.metrics_port)
        async with (
            forward.listening(),
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=check.context),
                timeout=aiohttp.ClientTimeout(total=_ANSWER_SECONDS),
                trust_env=False,
            ) as session,
        ):
            name = await check.name(forward.local_port, pod)
            if name is None and arguments.send_my_token:
                warning = (
                    f"your token goes to pod {pod}, whose certificate is not checked: name its CA with --metrics-ca"
                )
                print(f"wva: warning: {printable(warning)}", file=sys.stderr)
            yield RemoteController(session, forward, token, pod, name)


async def _leader(client: KubeClient, namespace: str, lease: str) -> Key:
    """Return the pod that holds the Lease."""
    try:
        lease_object = await client.get(LEASES, Key(namespace, lease))
    except ApiError as error:
        if error.status != HTTPStatus.NOT_FOUND:
            raise
        raise CommandError(
            f"no Lease {lease} in the namespace {namespace}: name those of the controller with --controller-namespace "
            "and --lease"
        ) from None
    pod, _, _ = (lease_object.spec.holder_identity or "").rpartition("_")
    if not pod:
        raise CommandError(f"the Lease {namespace}/{lease} has no holder: no controller leads")
    return Key(namespace, pod)


async def _token(client: KubeClient, arguments: argparse.Namespace) -> str:
    """Return a bearer token for the controller. Raises ApiError, and CommandError when there is none to send."""
    if arguments.send_my_token:
        token = await client.bearer_token()
        if token:
            return token
        raise CommandError(
            "--send-my-token: the kubeconfig has a certificate or nothing in place of a token, and the controller "
            "takes tokens only: name a ServiceAccount with --service-account NAMESPACE/NAME"
        )
    if arguments.service_account is None:
        raise CommandError(
            "the controller wants a token, and none was sent to it: name a ServiceAccount that may get "
            "VariantAutoscalings with --service-account NAMESPACE/NAME, for which the API server makes a token that "
            "only this controller takes; or send it the token of your kubeconfig, with all your rights, with "
            "--send-my-token"
        )
    account = named(arguments.service_account, "for --service-account")
    body: dict[str, Any] = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {
            "audiences": [own_audience(arguments.controller_namespace)],
            "expirationSeconds": _TOKEN_SECONDS,
        },
    }
    namespace, name = quote(account.namespace, safe=""), quote(account.name, safe="")
    answer = await client.request_json("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token", body)
    try:
        token = msgspec.json.decode(answer, type=_TokenRequest).status.token
    except msgspec.DecodeError:
        token = ""
    if not token:
        raise CommandError(f"the API server made no token for the ServiceAccount {account}")
    return token
