"""Typed access to the API server; errors have our own classes.

WVA uses kubernetes_asyncio only for credentials (``credentials``), and not its models (100x slower than msgspec), its
``Watch`` (no back-off, no idle limit) or its body handling. Requests go through WVA's own aiohttp session, whose TLS
follows the files that the library found.

That session does not read the environment (``trust_env`` is off, though the library switches it on): aiohttp does not
understand the CIDR blocks that NO_PROXY has in clusters and would send API traffic to an egress proxy, and it would
look for credentials in a netrc file. A proxy on purpose is named by ``proxy-url`` in the kubeconfig.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import aiohttp
import msgspec

from wva.api.meta import Key, ObjectList, T
from wva.api.resource import Resource
from wva.instruments import Instruments
from wva.kube import errors
from wva.kube.credentials import TlsContext, find, library
from wva.kube.transport import JSON, READ_BUFFER_BYTES, Call, Guard, Transport, guarding
from wva.slices import Slices

R = TypeVar("R")

MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
_BUILT_IN_SCALES: Final = frozenset({"apps"})
"""The groups of the API server's own kinds with replicas."""
FORWARD_PROTOCOL: Final = "v4.channel.k8s.io"
"""Binary frames whose first byte is the channel; kubelets have it since Kubernetes 1.5."""
GREETING_SECONDS: Final = 6.0
PAGE_OBJECTS: Final = 500
"""As many as kubectl and the Go clients ask for; a page of usual pods has some megabytes."""


class KubeClient:
    """Typed access to one API server. For every fault of the network, methods raise ApiError."""

    def __init__(self, transport: Transport, *, guard: Guard | None = None) -> None:
        """Use ``connect`` instead."""
        self._transport = transport
        self._guard = guard

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        *,
        instruments: Instruments,
        timeout_seconds: float = 60.0,
        context: str | None = None,
        patience_seconds: float = 0.0,
    ) -> AsyncIterator[KubeClient]:
        """Open a client: KUBECONFIG, then in-cluster, then ``~/.kube/config``; a named ``context`` needs a kubeconfig.

        ``timeout_seconds`` limits every call except ``stream``. Reads that a busy server refuses are sent again for
        ``patience_seconds`` in all. Raises ConfigurationError; connects only on first use.
        """
        configuration = library().configuration()
        # Python 3.13 began to insist on certificate extensions that the CAs of many clusters lack; Go never did.
        configuration.disable_strict_ssl_verification = True
        try:
            async with asyncio.timeout(timeout_seconds):
                renewal = await find(configuration, context)
            tls = TlsContext(configuration)
        except errors.ConfigurationError:
            raise
        except Exception as error:
            # When the library cannot parse a configuration, it raises errors of many kinds. Cut their text where the
            # library starts to quote the kubeconfig, which holds secrets.
            text = " ".join(str(error).split()).partition("{")[0].strip()
            problem = f"{type(error).__name__}: {text}" if text else type(error).__name__
            raise errors.ConfigurationError(f"Kubernetes configuration unusable: {problem}") from error

        async def authorize(headers: dict[str, str]) -> None:
            tls.renew()
            bearer = (await configuration.auth_settings()).get("BearerToken")
            if bearer is not None and bearer["value"]:
                headers[bearer["key"]] = bearer["value"]

        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=configuration.connection_pool_maxsize, ssl=tls.context),
            trust_env=False,
            read_bufsize=READ_BUFFER_BYTES,
            trace_configs=[guarding()],
        ) as session:
            yield cls(
                Transport(
                    session=session,
                    host=configuration.host or "",
                    authorize=authorize,
                    refused=renewal.refused if renewal else None,
                    instruments=instruments,
                    timeout_seconds=timeout_seconds,
                    proxy=configuration.proxy,
                    server_hostname=configuration.tls_server_name,
                    patience_seconds=patience_seconds,
                )
            )

    @property
    def host(self) -> str:
        """The API server's URL."""
        return self._transport.host

    def with_write_guard(self, guard: Guard) -> KubeClient:
        """Return a view of this client that writes only while ``guard()`` is true.

        The client calls the guard when the connection stands and nothing has been sent yet. False raises WriteRefused.
        """
        return KubeClient(self._transport, guard=guard)

    async def get(self, resource: Resource[T], key: Key) -> T:
        """Read one object."""
        return await self._object(resource, Call(verb="get", resource=resource.name, path=resource.object_path(key)))

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        resource_version: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
    ) -> ObjectList[T]:
        """Read a whole collection; items that do not decode are left out and counted in the result.

        ``resource_version`` "0" accepts the state in the server's cache, None asks for the newest state, and any other
        version for a state that is not older. The answer comes in pages of 500 objects, or fewer large ones. Some
        servers send their cached state only in one piece; if that is too long, this method reads the newest state
        instead, which all servers send in pages. Raises Gone when the rest of a list has expired.
        """
        limit, continuation, version, slices = PAGE_OBJECTS, "", "", Slices()
        items: builtins.list[T] = []
        undecodable = 0
        while True:
            at_least = not continuation and resource_version not in {None, "0"}
            query = _query(
                **{"continue": continuation},
                resourceVersion=None if continuation else resource_version,
                resourceVersionMatch="NotOlderThan" if at_least else None,
                limit=limit,
                labelSelector=label_selector,
                fieldSelector=field_selector,
            )
            call = Call(verb="list", resource=resource.name, path=resource.path(namespace), query=query)
            try:
                page = _decoded(call, await self._transport.exchange(call), resource.decode_page)
            except errors.TooLarge:
                if limit == 1:
                    raise
                limit = max(1, limit // 8)
                resource_version = None if resource_version == "0" else resource_version
                continue
            for item in resource.decode_items(page):
                if item is None:
                    undecodable += 1
                else:
                    items.append(item)
                await slices.rest()
            version, continuation = version or page.metadata.resource_version, page.metadata.continue_
            if not continuation:
                return ObjectList(tuple(items), version, undecodable)

    def stream(
        self,
        resource: Resource[T],
        *,
        resource_version: str,
        timeout_seconds: int,
        idle_seconds: float,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncGenerator[bytes, None]:
        """Watch a collection from ``resource_version`` on; returns the lines of the answer, undecoded.

        The server ends the stream after ``timeout_seconds``. Every chunk of data renews ``idle_seconds``; silence
        for longer raises StreamIdle. Close the generator (``aclosing``) to free the connection.
        """
        query = _query(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            timeoutSeconds=timeout_seconds,
            labelSelector=label_selector,
            fieldSelector=field_selector,
        )
        call = Call(verb="watch", resource=resource.name, path=resource.path(namespace), query=query)
        return self._transport.lines(call, idle_seconds)

    async def create(self, resource: Resource[T], namespace: str, body: Mapping[str, object]) -> T:
        """Create an object; returns it as stored."""
        return await self._write("create", "POST", resource, resource.path(namespace), body)

    async def patch(
        self,
        resource: Resource[T],
        key: Key,
        body: Mapping[str, object],
        *,
        subresource: str = "",
        content_type: str = MERGE_PATCH,
        manager: str = "",
    ) -> T:
        """Patch an object or its ``subresource``; returns it as stored.

        With a resourceVersion in the body, the patch raises Conflict if the object has changed since that version. The
        API server notes ``manager`` as the owner of the fields; without it the name of this program.
        """
        path = resource.object_path(key, subresource)
        return await self._write("patch", "PATCH", resource, path, body, content_type, _query(fieldManager=manager))

    async def scale(self, resource: Resource[T], key: Key, replicas: int, *, version: str, manager: str) -> None:
        """Set the wanted replicas of an object that was read with the resourceVersion ``version``.

        Afterwards ``manager`` owns the replicas, if the API server notes owners of a scale. It does so for its own
        kinds, and only after an apply: a patch of replicas that nobody owns leaves no trace. It answers an apply to the
        scale of a custom resource with 500, so WVA sends a merge patch there. Raises Conflict when the object has
        changed since.
        """
        body: dict[str, object] = {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}
        if resource.group not in _BUILT_IN_SCALES:
            await self.patch(resource, key, body, subresource="scale", manager=manager)
            return
        metadata = {"name": key.name, "namespace": key.namespace, "resourceVersion": version}
        body |= {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": metadata}
        path, query = resource.object_path(key, "scale"), _query(fieldManager=manager, force="true")
        await self._write("apply", "PATCH", resource, path, body, APPLY_PATCH, query)

    async def update(self, resource: Resource[T], key: Key, body: Mapping[str, object]) -> T:
        """Replace an object; returns it as stored. A resourceVersion in the body is checked."""
        return await self._write("update", "PUT", resource, resource.object_path(key), body)

    async def bearer_token(self) -> str:
        """Return the bearer token of the configuration; empty where it has a client certificate or nothing."""
        headers: dict[str, str] = {}
        await self._transport.authorize(headers)
        return headers.get("authorization", headers.get("Authorization", "")).partition(" ")[2]

    async def forward(self, resource: Resource[T], pod: Key, port: int) -> aiohttp.ClientWebSocketResponse:
        """Open a connection to a port of a pod, with the kubelet's subprotocol for that. Raises ApiError."""
        path = resource.object_path(pod, "portforward")
        call = Call(verb="portforward", resource=resource.name, path=path, query={"ports": port})
        return await self._transport.websocket(call, FORWARD_PROTOCOL)

    async def request_json(self, method: str, path: str, body: Mapping[str, object] | None = None) -> bytes:
        """Send a request that is no verb on a kind (discovery, version, reviews) and return the answer's body.

        ``path`` may carry a query. Not subject to the write guard.
        """
        return (await self.request_dated_json(method, path, body))[0]

    async def greet(self, seconds: float = GREETING_SECONDS) -> None:
        """Ask for the version; any answer will do. Raises ApiError when there is none within ``seconds``.

        A server that does not answer a short question is not asked long ones, which have more time.
        """
        try:
            async with asyncio.timeout(seconds):
                await self.request_json("GET", "/version")
        except builtins.TimeoutError:
            message = f"no answer within {seconds:g} s"
            raise errors.Unreachable(0, "Timeout", message, attempted="GET /version") from None
        except errors.Unreachable:
            raise
        except errors.ApiError:
            return

    async def request_dated_json(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> tuple[bytes, float | None]:
        """Return what ``request_json`` does, and when the server answered by its own clock (epoch seconds).

        The time is None where the answer has none. Compare times that the server wrote with this one alone.
        """
        encoded = None if body is None else msgspec.json.encode(body)
        call = Call(verb=method.lower(), method=method, resource="raw", path=path, body=encoded)
        return await self._transport.exchange(call), call.answered_at

    async def _write(
        self,
        verb: str,
        method: str,
        resource: Resource[T],
        path: str,
        body: Mapping[str, object],
        content_type: str = JSON,
        query: Mapping[str, str | int] | None = None,
    ) -> T:
        call = Call(
            verb=verb,
            method=method,
            resource=resource.name,
            path=path,
            query=query,
            body=msgspec.json.encode(body),
            content_type=content_type,
            guard=self._guard,
        )
        return await self._object(resource, call)

    async def _object(self, resource: Resource[T], call: Call) -> T:
        """Send a request whose answer is an object."""
        return _decoded(call, await self._transport.exchange(call), resource.decode)


def _query(**parameters: str | int | None) -> dict[str, str | int]:
    return {name: value for name, value in parameters.items() if value is not None and value != ""}


def _decoded(call: Call, body: bytes, decode: Callable[[bytes], R]) -> R:
    """Return what an answer says. Raises Undecodable."""
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        page = body.lstrip()[:1] == b"<"
        message = "a page for a browser in place of JSON, such as the login of a proxy" if page else str(error)
        raise errors.Undecodable(200, "Undecodable", message, attempted=call.attempted) from error
