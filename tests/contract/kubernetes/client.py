"""A bare client for the contract of the Kubernetes API: paths and JSON in, status codes and JSON out.

It does not know kinds and hides nothing of a request, so that an expectation reads like the exchange it describes.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp

MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

_TIMEOUT_SECONDS = 20.0


@dataclass(frozen=True)
class ClientAnswer:
    """The answer of the server."""

    status: int
    body: Any
    headers: dict[str, str] = field(repr=False)

    def ok(self) -> Any:
        """Return the body of a success."""
        assert 200 <= self.status < 300, (self.status, self.body)
        return self.body

    def refused(self, status: int, reason: str) -> Any:
        """Return the Status body of a refusal, and check that it is well-formed."""
        assert self.status == status, (self.status, self.body)
        body = self.body
        assert {key: body[key] for key in ("kind", "apiVersion", "metadata", "status", "code")} == {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "code": status,
        }
        assert body.get("reason", "") == reason, body
        assert body["message"]
        return body

    def causes(self) -> set[tuple[str, str]]:
        """Return field and reason of each cause of a refusal."""
        return {(cause.get("field", ""), cause.get("reason", "")) for cause in self.body["details"]["causes"]}


class WatchStream:
    """An open watch."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        """Read events from ``content``."""
        self._content = content

    async def next(self) -> tuple[str, dict[str, Any]]:
        """Return type and object of the next event that is no bookmark."""
        while True:
            kind, value = await self.any()
            if kind != "BOOKMARK":
                return kind, value

    async def any(self) -> tuple[str, dict[str, Any]]:
        """Return type and object of the next event, also of a bookmark."""
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            line = await self._content.readline()
        assert line, "the stream has ended"
        event = json.loads(line)
        return event["type"], event["object"]

    async def rest(self) -> list[tuple[str, dict[str, Any]]]:
        """Return all events until the stream ends."""
        found = []
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            async for line in self._content:
                event = json.loads(line)
                found.append((event["type"], event["object"]))
        return found


class ContractClient:
    """Requests to one API server."""

    def __init__(
        self, session: aiohttp.ClientSession, url: str, *, token: str = "", context: ssl.SSLContext | None = None
    ) -> None:
        """Talk to the server at ``url``, with a bearer token and a TLS context if it requires them."""
        self._session = session
        self._url = url
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._ssl = context if context is not None else True

    async def request(
        self, method: str, path: str, body: Any = None, *, content: str = "application/json", **query: Any
    ) -> ClientAnswer:
        """Send one request; a body that is a text is sent unchanged."""
        data = body if isinstance(body, str) or body is None else json.dumps(body)
        sent = {**self._headers, **({"Content-Type": content} if data is not None else {})}
        async with self._session.request(
            method,
            self._url + path,
            data=data,
            headers=sent,
            params={name: str(value) for name, value in query.items()},
            ssl=self._ssl,
            timeout=aiohttp.ClientTimeout(total=_TIMEOUT_SECONDS),
        ) as response:
            text = await response.text()
            parsed = json.loads(text) if response.content_type == "application/json" else text
            return ClientAnswer(
                response.status, parsed, {name: ", ".join(response.headers.getall(name)) for name in response.headers}
            )

    async def get(self, path: str, **query: Any) -> ClientAnswer:
        """Send a GET."""
        return await self.request("GET", path, **query)

    async def post(self, path: str, body: Any, **query: Any) -> ClientAnswer:
        """Send a POST."""
        return await self.request("POST", path, body, **query)

    async def put(self, path: str, body: Any, **query: Any) -> ClientAnswer:
        """Send a PUT."""
        return await self.request("PUT", path, body, **query)

    async def patch(self, path: str, body: Any, *, content: str = MERGE, **query: Any) -> ClientAnswer:
        """Send a PATCH; ``content`` is the type of patch, a merge patch by default."""
        return await self.request("PATCH", path, body, content=content, **query)

    async def delete(self, path: str, body: Any = None, **query: Any) -> ClientAnswer:
        """Send a DELETE."""
        return await self.request("DELETE", path, body, **query)

    @asynccontextmanager
    async def watch(self, path: str, **query: Any) -> AsyncIterator[WatchStream]:
        """Open a watch; it ends after 15 seconds unless the query has another time-out."""
        params = {"watch": "1", "timeoutSeconds": "15", **{name: str(value) for name, value in query.items()}}
        timeout = aiohttp.ClientTimeout(total=None, sock_read=_TIMEOUT_SECONDS)
        async with self._session.get(
            self._url + path, params=params, headers=self._headers, ssl=self._ssl, timeout=timeout
        ) as response:
            assert response.status == 200, await response.text()
            yield WatchStream(response.content)
