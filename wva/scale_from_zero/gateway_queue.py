"""How many requests wait at the gateway: read from the endpoint pickers (EPP) of a pool, pod by pod.

Prometheus is too slow for this: a workload at zero serves no request until the controller looks. The picker's pods are
found by its Service and read directly, without redirects, with a time limit and a size limit. A pod whose page cannot
be read counts as one that does not answer. A pool is in error only if none of its pods answers.

No pool delays another one. Each has its own slots and a time limit for all of its pods together, a namespace has a
limit of pools that are read at the same time, and all of them together have a limit of connections.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Protocol, Self
from weakref import WeakValueDictionary

import aiohttp

from wva import log
from wva.api.core import Pod, Service
from wva.api.meta import Key
from wva.collect.pools import Pool, selects
from wva.kube.cache import Store
from wva.kube.errors import ApiError
from wva.numbers import Whole
from wva.scale_from_zero.gateway_page import NotMetricsError, parse_queues

SCRAPE_TIMEOUT_SECONDS: Final = 2.0
MAX_BODY_BYTES: Final = 1024 * 1024
MAX_PODS: Final = 32
"""Of one picker that are read in one round. The next round begins with the next pod."""

MAX_POOLS_AT_ONCE: Final = 8
"""Of one namespace that are read at the same time."""

MAX_CONNECTIONS: Final = 1024
_MAX_SELECTOR: Final = 64
_MAX_SERVICES: Final = 4096
_SERVICE_TTL_SECONDS: Final = 30.0
_PODS_TTL_SECONDS: Final = 1.0
_PORT_WORD: Final = "metric"
_PORT: Final = Whole(1, 65535)
_TOKEN_SETTING: Final = "EPP_METRIC_READER_BEARER_TOKEN"  # noqa: S105 - the name of a setting
_IDENTITY: Final = "identity"

_log = log.get("collect.gateway")


class GatewayError(Exception):
    """The queue of a pool cannot be read; the message says why, without secrets."""


class ServiceReader(Protocol):
    """Reads one Service from the API server. Raises ApiError."""

    async def __call__(self, key: Key) -> Service:
        """Return the Service."""
        ...


@dataclass(slots=True)
class _Known:
    """What is kept of a Service: where its metrics are, and the addresses of its pods, each for a while."""

    selector: Mapping[str, str]
    port: int
    until: float
    addresses: Sequence[str] = ()
    addresses_until: float = 0.0
    rounds: int = field(default=0)


class GatewayQueues:
    """Reads pools; use as ``async with``."""

    def __init__(
        self,
        pods: Store[Pod],
        *,
        service: ServiceReader,
        token: Callable[[], str] = str,
        parallel: int = 10,
        timeout_seconds: float = SCRAPE_TIMEOUT_SECONDS,
        max_bytes: int = MAX_BODY_BYTES,
    ) -> None:
        """Connect to nothing yet.

        ``token`` returns the bearer token at each request (empty: none). ``parallel`` bounds the requests to one pool,
        ``timeout_seconds`` each of them and half of a round, ``max_bytes`` the body of one answer.
        """
        self._pods = pods
        self._service = service
        self._token = token
        self._parallel = parallel
        self._timeout_seconds = timeout_seconds
        self._max_bytes = max_bytes
        self._known: OrderedDict[Key, _Known] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the connection pool."""
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._timeout_seconds),
            connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS),
            headers={"Accept-Encoding": _IDENTITY},
            auto_decompress=False,
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    async def waiting(self, pool: Pool) -> dict[str, float]:
        """Return the requests that wait, by model id, over all pods of the pool's picker. Raises GatewayError."""
        if not pool.picker:
            raise GatewayError(f"InferencePool {pool} names no endpoint picker")
        turn = self._turns.get(pool.namespace)
        if turn is None:
            turn = self._turns[pool.namespace] = asyncio.Semaphore(MAX_POOLS_AT_ONCE)
        async with turn:
            return _added(await self._round(pool))

    async def _round(self, pool: Pool) -> list[dict[str, float]]:
        """Return what the pods of a pool say, those that answer. Raises GatewayError when none does."""
        deadline = asyncio.get_running_loop().time() + 2 * self._timeout_seconds
        try:
            async with asyncio.timeout_at(deadline):
                known = await self._service_of(pool)
        except TimeoutError:
            raise GatewayError(f"Service {pool.service} cannot be read: no answer in time") from None
        addresses = self._addresses(pool, known)
        slots = asyncio.Semaphore(max(1, self._parallel))
        tasks = [asyncio.create_task(self._read(address, slots)) for address in addresses]
        try:
            left = deadline - asyncio.get_running_loop().time()
            done, late = await asyncio.wait(tasks, timeout=max(0.0, left))
        finally:
            for task in tasks:
                task.cancel()
        answers = [task.result() for task in tasks if task in done]
        good = [answer for answer in answers if not isinstance(answer, GatewayError)]
        if len(good) < len(tasks):
            known.addresses_until = 0.0
        if good:
            return good
        if late and not answers:
            raise GatewayError(f"none of {len(tasks)} pods of Service {pool.service} answered in time")
        raise next(answer for answer in answers if isinstance(answer, GatewayError))

    async def _service_of(self, pool: Pool) -> _Known:
        """Return the picker's Service, asked for at most every half minute. Raises GatewayError."""
        now = asyncio.get_running_loop().time()
        known = self._known.get(pool.service)
        if known is not None and now < known.until:
            return known
        try:
            service = await self._service(pool.service)
        except ApiError as error:
            self._known.pop(pool.service, None)
            raise GatewayError(f"Service {pool.service} cannot be read: {error}") from error
        port = _metrics_port(service)
        if port is None:
            raise GatewayError(f"Service {pool.service} has no port with {_PORT_WORD!r} in its name")
        selector = service.spec.selector
        if len(selector) > _MAX_SELECTOR:
            raise GatewayError(
                f"Service {pool.service}: spec.selector has {len(selector):,} labels, expected at most {_MAX_SELECTOR}"
            )
        known = self._known[pool.service] = _Known(selector, port, now + _SERVICE_TTL_SECONDS)
        self._known.move_to_end(pool.service)
        if len(self._known) > _MAX_SERVICES:
            self._known.popitem(last=False)
        return known

    def _addresses(self, pool: Pool, known: _Known) -> list[str]:
        """Return the addresses to read in this round; pods are looked for at most every second. Raises GatewayError."""
        now = asyncio.get_running_loop().time()
        if now >= known.addresses_until:
            found = (_address(pod.status.pod_ip, known.port) for pod in self._pods_of(pool.namespace, known.selector))
            known.addresses = [address for address in found if address]
            known.addresses_until = now + _PODS_TTL_SECONDS
        count = len(known.addresses)
        if not count:
            known.addresses_until = 0.0
            raise GatewayError(f"Service {pool.service} has no Ready pod")
        if count <= MAX_PODS:
            return list(known.addresses)
        if not known.rounds:
            _log.warning("gateway_pods_left_out", service=str(pool.service), pods=count, limit=MAX_PODS)
        first = known.rounds * MAX_PODS % count
        known.rounds += 1
        return [*known.addresses[first:], *known.addresses[:first]][:MAX_PODS]

    def _pods_of(self, namespace: str, selector: Mapping[str, str]) -> list[Pod]:
        """Return the Ready pods of a Service; one without a selector has none of its own."""
        return [pod for pod in self._pods.list(namespace) if pod.ready and selects(selector, pod.metadata.labels)]

    async def _read(self, url: str, slots: asyncio.Semaphore) -> dict[str, float] | GatewayError:
        """Return the error instead of raising it: one pod must not cancel the others."""
        if self._session is None:
            raise RuntimeError("use as `async with`")
        token = self._token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with slots:
            try:
                async with self._session.get(url, headers=headers, allow_redirects=False) as response:
                    if response.status != HTTPStatus.OK:
                        return GatewayError(f"{url} answered {response.status}{_hint(response.status, token)}")
                    return parse_queues(await _text(response, self._max_bytes))
            except TimeoutError:
                return GatewayError(f"{url} did not answer within {self._timeout_seconds:g} s")
            except ValueError as error:
                return GatewayError(f"{url} sent {_fault(error)}, expected metrics as text")
            except (aiohttp.ClientError, OSError) as error:
                return GatewayError(f"{url}: {type(error).__name__}")


def _added(answers: list[dict[str, float]]) -> dict[str, float]:
    totals: dict[str, float] = {}
    for answer in answers:
        for model, count in answer.items():
            totals[model] = totals.get(model, 0.0) + count
    return totals


async def _text(response: aiohttp.ClientResponse, max_bytes: int) -> str:
    """Return the body as text. Raises ValueError when it is too long, compressed, or is not text.

    A compressed body is not unpacked: a body of a thousandth of the limit can unpack to a thousand times the limit.
    """
    encoding = response.headers.get("Content-Encoding", _IDENTITY).strip().lower()
    if encoding != _IDENTITY:
        raise NotMetricsError("compressed metrics, which were asked for uncompressed")
    body = bytearray()
    async for chunk in response.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > max_bytes:
            raise NotMetricsError(f"more than {max_bytes:,} bytes")
    return body.decode("utf-8")


def _fault(error: ValueError) -> str:
    """Return what came instead of metrics. A parser's own words may quote anything, so they are left out."""
    return str(error) if isinstance(error, NotMetricsError) else "a line that cannot be read"


def _hint(status: int, token: str) -> str:
    """Return what to look at when a picker does not let us in."""
    if status not in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return f", expected {HTTPStatus.OK.value}"
    return f": the token of {_TOKEN_SETTING} is {'not accepted' if token else 'not set'}"


def _metrics_port(service: Service) -> int | None:
    """Return the number of the first port whose name has "metric" in it; a named target port is its Service port."""
    for port in service.spec.ports:
        if _PORT_WORD in port.name:
            return _PORT.find(port.target_port) or _PORT.find(port.port)
    return None


def _address(pod_ip: str, port: int) -> str | None:
    """Return the URL of a pod's metrics; None when it has no address yet."""
    try:
        address = ipaddress.ip_address(pod_ip)
    except ValueError:
        return None
    host = f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004 - IP version
    return f"http://{host}:{port}/metrics"
