"""Typed access to the API server: requests in, bytes and structs out, errors as our own classes.

kubernetes_asyncio (``library``) is used for what is hard and well kept there, which is finding and keeping credentials:
kubeconfig, in-cluster, exec plug-ins, TLS. Its models (100x slower than msgspec), its ``Watch`` (no back-off, no idle
limit) and its body handling are not used: requests go through an own aiohttp session, whose TLS follows the files that
the library found.

That session does not read the environment (``trust_env`` is off, though the library switches it on): aiohttp does not
understand the CIDR blocks that NO_PROXY has in clusters and would send API traffic to an egress proxy, and it would
look for credentials in a netrc file. A proxy on purpose is named by ``proxy-url`` in the kubeconfig.
"""

from __future__ import annotations

import asyncio
import builtins
import os
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import aiohttp
import msgspec

from wva.api import wire
from wva.api.meta import Key, ObjectList, T
from wva.api.resource import Resource
from wva.instruments import Instruments
from wva.kube import errors
from wva.kube.credentials import Renewal, TlsFiles, TokenFile
from wva.kube.library import library
from wva.kube.transport import READ_BUFFER_BYTES, Call, Guard, Transport, guarding
from wva.slices import Slices

if TYPE_CHECKING:
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader, KubeConfigMerger

MERGE_PATCH: Final = "application/merge-patch+json"
APPLY: Final = "application/apply-patch+yaml"
"""Server-side apply; JSON is YAML enough."""

PAGE_OBJECTS: Final = 500
"""As kubectl and the clients in Go ask for; a page of usual pods has some megabytes."""

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
KUBECONFIG: Final = Path("~/.kube/config")


class KubeClient:
    """Typed access to one API server. Every method raises ApiError, and nothing else that is the network's fault."""

    def __init__(self, transport: Transport, *, guard: Guard | None = None) -> None:
        """Use ``connect`` instead."""
        self._transport = transport
        self._guard = guard

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, *, instruments: Instruments, timeout_seconds: float = 60.0, context: str | None = None
    ) -> AsyncIterator[KubeClient]:
        """Open a client: KUBECONFIG, then in-cluster, then ``~/.kube/config``; a named ``context`` needs a kubeconfig.

        ``timeout_seconds`` limits every call except ``stream``. Raises ConfigurationError; connects only on first use.
        """
        async with AsyncExitStack() as stack:
            yield cls(await _open_transport(stack, instruments, timeout_seconds, context))

    @property
    def host(self) -> str:
        """The API server's URL."""
        return self._transport.host

    def with_write_guard(self, guard: Guard) -> KubeClient:
        """Return a view of this client that writes only while ``guard()`` is true.

        The guard is asked when the connection stands and nothing has been sent yet; a no raises WriteRefused.
        """
        return KubeClient(self._transport, guard=guard)

    async def get(self, resource: Resource[T], key: Key) -> T:
        """Read one object."""
        call = Call(verb="get", resource=resource.name, path=resource.object_path(key))
        return _decoded(resource, call, await self._transport.exchange(call))

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

        ``resource_version`` "0" accepts what the server has in its cache, None asks for the newest state, and any
        other for one that is not older. The answer comes in pages of 500 objects, fewer where these are large. Servers
        without pages for what they have in their cache answer in one piece; if that is too long, the newest state is
        read instead, for which all have pages. Raises Gone when the rest of a list has expired.
        """
        limit, rest, first, slices = PAGE_OBJECTS, "", "", Slices()
        items: builtins.list[T] = []
        undecodable = 0
        while True:
            query = _query(
                **({"continue": rest} if rest else _at(resource_version)),
                limit=limit,
                labelSelector=label_selector,
                fieldSelector=field_selector,
            )
            call = Call(verb="list", resource=resource.name, path=resource.path(namespace), query=query)
            try:
                page = resource.decode_page(await self._transport.exchange(call))
            except errors.TooLarge:
                if limit == 1:
                    raise
                limit = max(1, limit // 8)
                resource_version = None if resource_version == "0" else resource_version
                continue
            except msgspec.DecodeError as error:
                raise _undecodable(call, error) from error
            for item in resource.decode_items(page):
                if item is None:
                    undecodable += 1
                else:
                    items.append(item)
                await slices.rest()
            first, rest = first or page.metadata.resource_version, page.metadata.continue_
            if not rest:
                return ObjectList(tuple(items), first, undecodable)

    async def stream(
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
        """Watch a collection from ``resource_version`` on: yield the lines of the answer, undecoded.

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
        async with aclosing(self._transport.lines(call, idle_seconds)) as lines:
            async for line in lines:
                yield line

    async def create(self, resource: Resource[T], namespace: str, body: Mapping[str, object]) -> T:
        """Create an object; returns it as stored."""
        return await self._write(
            resource,
            Call(
                verb="create",
                method="POST",
                resource=resource.name,
                path=resource.path(namespace),
                body=msgspec.json.encode(body),
            ),
        )

    async def patch(
        self,
        resource: Resource[T],
        key: Key,
        body: Mapping[str, object],
        *,
        subresource: str = "",
        content_type: str = MERGE_PATCH,
        field_manager: str = "",
        force: bool = False,
    ) -> T:
        """Patch an object or its ``subresource``; returns it as stored.

        ``content_type`` is MERGE_PATCH or APPLY; APPLY needs ``field_manager``, ``force`` takes fields from others.
        A resourceVersion in the body makes a patch of an object that has changed since a Conflict.
        """
        return await self._write(
            resource,
            Call(
                verb="patch",
                method="PATCH",
                resource=resource.name,
                path=resource.object_path(key, subresource),
                query=_query(fieldManager=field_manager, force="true" if force else None),
                body=msgspec.json.encode(body),
                content_type=content_type,
            ),
        )

    async def update(self, resource: Resource[T], key: Key, body: Mapping[str, object], *, subresource: str = "") -> T:
        """Replace an object or its ``subresource``; returns it as stored. A resourceVersion in the body is checked."""
        return await self._write(
            resource,
            Call(
                verb="update",
                method="PUT",
                resource=resource.name,
                path=resource.object_path(key, subresource),
                body=msgspec.json.encode(body),
            ),
        )

    async def delete(self, resource: Resource[T], key: Key) -> None:
        """Delete an object. NotFound when there is none."""
        await self._transport.exchange(
            Call(
                verb="delete",
                method="DELETE",
                resource=resource.name,
                path=resource.object_path(key),
                guard=self._guard,
            )
        )

    async def request_json(self, method: str, path: str, body: Mapping[str, object] | None = None) -> bytes:
        """Send what is no verb on a kind (discovery, version, reviews) and return the answer's body.

        ``path`` may carry a query. Not subject to the write guard.
        """
        encoded = None if body is None else msgspec.json.encode(body)
        return await self._transport.exchange(
            Call(verb=method.lower(), method=method, resource="raw", path=path, body=encoded)
        )

    async def server_version(self) -> str:
        """Return the API server's version, ``v1.34.1``."""
        body = await self.request_json("GET", "/version")
        try:
            return wire.decode(msgspec.json.Decoder(_Version), body).git_version
        except msgspec.DecodeError as error:
            raise _undecodable(Call(verb="get", resource="raw", path="/version"), error) from error

    async def _write(self, resource: Resource[T], call: Call) -> T:
        body = await self._transport.exchange(replace(call, guard=self._guard))
        return _decoded(resource, call, body)


def _at(resource_version: str | None) -> dict[str, str]:
    """Return the parameters that ask for a list at this version or a later one."""
    if resource_version is None or resource_version == "0":
        return {} if resource_version is None else {"resourceVersion": "0"}
    return {"resourceVersion": resource_version, "resourceVersionMatch": "NotOlderThan"}


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


def _query(**parameters: str | int | None) -> dict[str, str | int]:
    return {name: value for name, value in parameters.items() if value is not None and value != ""}


def _decoded(resource: Resource[T], call: Call, body: bytes) -> T:
    try:
        return resource.decode(body)
    except msgspec.DecodeError as error:
        raise _undecodable(call, error) from error


def _undecodable(call: Call, error: msgspec.DecodeError) -> errors.Undecodable:
    return errors.Undecodable(200, "Undecodable", str(error), attempted=call.attempted)


async def _open_transport(
    stack: AsyncExitStack, instruments: Instruments, timeout_seconds: float, context: str | None
) -> Transport:
    """Find credentials and open a connection pool that ``stack`` closes. Raises ConfigurationError."""
    configuration = library().configuration()
    # Python 3.13 began to insist on certificate extensions that the CAs of many clusters lack; Go never did.
    configuration.disable_strict_ssl_verification = True
    try:
        async with asyncio.timeout(timeout_seconds):
            renewal = await _configure(configuration, context)
        tls = TlsFiles(configuration)
    except errors.ConfigurationError:
        raise
    except Exception as error:
        # The library raises many kinds of errors of its parsing. Each means that this configuration is unusable.
        raise errors.ConfigurationError(f"Kubernetes configuration unusable: {_one_line(error)}") from error

    async def authorize(headers: dict[str, str]) -> None:
        tls.renew()
        bearer = (await configuration.auth_settings()).get("BearerToken")
        if bearer is not None and bearer["value"]:
            headers[bearer["key"]] = bearer["value"]

    session = await stack.enter_async_context(
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=configuration.connection_pool_maxsize, ssl=tls.context),
            trust_env=False,
            read_bufsize=READ_BUFFER_BYTES,
            trace_configs=[guarding()],
        )
    )
    return Transport(
        session=session,
        host=configuration.host or "",
        authorize=authorize,
        refused=renewal.refused if renewal else _nothing,
        instruments=instruments,
        timeout_seconds=timeout_seconds,
        proxy=configuration.proxy,
        server_hostname=configuration.tls_server_name,
    )


def _nothing() -> None:
    """Do nothing: there is nothing to renew."""


async def _configure(configuration: Configuration, context: str | None) -> Renewal | None:
    """Fill ``configuration`` from the first source that is there."""
    paths = os.environ.get("KUBECONFIG", "")
    if paths:
        return await _configure_from_files(configuration, paths, context)
    token_file = SERVICE_ACCOUNT / "token"
    if context is None and os.environ.get("KUBERNETES_SERVICE_HOST") and token_file.is_file():
        library().load_incluster_config(
            client_configuration=configuration,
            try_refresh_token=False,
            token_filename=str(token_file),
            cert_filename=str(SERVICE_ACCOUNT / "ca.crt"),
        )
        configuration.refresh_api_key_hook = TokenFile(token_file)
        return None
    return await _configure_from_files(configuration, str(KUBECONFIG.expanduser()), context)


async def _configure_from_files(configuration: Configuration, paths: str, context: str | None) -> Renewal | None:
    if not _any_file(paths):
        raise errors.ConfigurationError(
            f"no way to a Kubernetes API server: kubeconfig {paths} does not exist, and this is not a pod "
            "with a service account"
        )
    merged = library().merger(paths)
    loader = library().loader(config_dict=merged.config, config_base_path=None, active_context=context)
    await loader.load_and_set(configuration)
    user, folder = _user(merged, loader)
    if "tokenFile" in user:
        configuration.refresh_api_key_hook = TokenFile(folder / str(user["tokenFile"]))
    elif "exec" in user or "auth-provider" in user:
        renewal = Renewal(loader)
        configuration.refresh_api_key_hook = renewal
        return renewal
    return None


def _any_file(paths: str) -> bool:
    return any(Path(path).expanduser().is_file() for path in paths.split(os.pathsep) if path)


def _user(merged: KubeConfigMerger, loader: KubeConfigLoader) -> tuple[Mapping[str, object], Path]:
    """Return the user entry of the active context and the folder that its relative paths start from."""
    current = loader.current_context
    name = current["context"].get("user") if current else None
    node = merged.config["users"].get_with_name(name, safe=True) if name and merged.config else None
    if node is None:
        return {}, Path()
    return node.value.get("user") or {}, Path(node.path or "").resolve().parent


def _one_line(error: Exception) -> str:
    """Return the error as one line, cut where the library starts to quote the kubeconfig, which holds secrets."""
    text = " ".join(str(error).split()).partition("{")[0].strip()
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
