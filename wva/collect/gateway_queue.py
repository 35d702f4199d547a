"""How many requests wait at the gateway: read from the endpoint pickers (EPP) of a pool, pod by pod.

Prometheus is too slow for this: a workload at zero serves no request until the controller looks. The picker's pods are
found by its Service and read directly, without redirects, with a time limit and a size limit. A pod that answers
nonsense counts as one that does not answer; only a pool of which no pod answers is an error.
"""

from __future__ import annotations

import asyncio
import ipaddress
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final, Protocol, Self

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from wva import log
from wva.api.core import Pod, Service
from wva.api.meta import Key
from wva.collect.pools import Pool, selects
from wva.kube.cache import Store
from wva.kube.errors import ApiError
from wva.numbers import Whole

QUEUE_SIZE_METRIC: Final = "inference_extension_flow_control_queue_size"
SCRAPE_TIMEOUT_SECONDS: Final = 2.0
MAX_BODY_BYTES: Final = 16 * 1024 * 1024
_SERVICE_TTL_SECONDS: Final = 30.0
_PORT_WORD: Final = "metric"
_PORT: Final = Whole(1, 65535)
_MAX_LINE_CHARACTERS: Final = 16 * 1024
_TOKEN_SETTING: Final = "EPP_METRIC_READER_BEARER_TOKEN"  # noqa: S105 - the name of a setting
_EXPOSITION: Final = re.compile(r"\s*(\Z|#|[A-Za-z_:][A-Za-z0-9_:]*+(\{[^\n]*\})?[ \t]+[-+0-9NnIi])")
"""How metrics begin: with nothing at all, a comment, or a sample."""

_log = log.get("collect.gateway")


class GatewayError(Exception):
    """The queue of a pool cannot be read; the message says why, without secrets."""


class NotMetricsError(ValueError):
    """An answer that is no page of metrics; the message says what it is, in words that are safe to show."""


class ServiceReader(Protocol):
    """Reads one Service from the API server. Raises ApiError."""

    async def __call__(self, key: Key) -> Service:
        """Return the Service."""
        ...


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """How to read: ``token`` returns the bearer token at each request (empty: none), ``parallel`` bounds requests.

    ``max_bytes`` bounds the body of one answer.
    """

    token: Callable[[], str] = str
    parallel: int = 10
    timeout_seconds: float = SCRAPE_TIMEOUT_SECONDS
    max_bytes: int = MAX_BODY_BYTES


@dataclass(frozen=True, slots=True)
class _Known:
    service: Service
    at: float


class GatewayQueues:
    """Reads pools; use as ``async with``."""

    def __init__(self, pods: Store[Pod], *, service: ServiceReader, settings: GatewaySettings) -> None:
        """Connect to nothing yet."""
        self._pods = pods
        self._service = service
        self._settings = settings
        self._known: dict[Key, _Known] = {}
        self._slots = asyncio.Semaphore(max(1, settings.parallel))
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the connection pool."""
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._settings.timeout_seconds), trust_env=False
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
        service = await self._service_of(pool)
        port = _metrics_port(service)
        if port is None:
            raise GatewayError(f"Service {pool.service} has no port with {_PORT_WORD!r} in its name")
        addresses = [address for pod in self._pods_of(service) if (address := _address(pod.status.pod_ip, port))]
        if not addresses:
            raise GatewayError(f"Service {pool.service} has no Ready pod")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._read(address)) for address in addresses]
        answers = [task.result() for task in tasks]
        good = [answer for answer in answers if not isinstance(answer, GatewayError)]
        if not good:
            raise next(answer for answer in answers if isinstance(answer, GatewayError))
        totals: dict[str, float] = {}
        for answer in good:
            for model, count in answer.items():
                totals[model] = totals.get(model, 0.0) + count
        return totals

    async def _service_of(self, pool: Pool) -> Service:
        """Return the picker's Service, asked for at most every half minute."""
        now = asyncio.get_running_loop().time()
        known = self._known.get(pool.service)
        if known is not None and now - known.at < _SERVICE_TTL_SECONDS:
            return known.service
        try:
            service = await self._service(pool.service)
        except ApiError as error:
            self._known.pop(pool.service, None)
            raise GatewayError(f"Service {pool.service} cannot be read: {error}") from error
        self._known[pool.service] = _Known(service, now)
        return service

    def _pods_of(self, service: Service) -> list[Pod]:
        """Return the Ready pods of a Service; one without a selector has none of its own."""
        pods = self._pods.list(service.metadata.namespace)
        return [pod for pod in pods if pod.ready and selects(service.spec.selector, pod.metadata.labels)]

    async def _read(self, url: str) -> dict[str, float] | GatewayError:
        """Return the error instead of raising it: one pod must not cancel the others."""
        if self._session is None:
            raise RuntimeError("use as `async with`")
        token = self._settings.token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with self._slots:
            try:
                async with self._session.get(url, headers=headers, allow_redirects=False) as response:
                    if response.status != HTTPStatus.OK:
                        return GatewayError(f"{url} answered {response.status}{_hint(response.status, token)}")
                    return parse_queues(await _text(response, self._settings.max_bytes))
            except TimeoutError:
                return GatewayError(f"{url} did not answer within {self._settings.timeout_seconds:g} s")
            except ValueError as error:
                return GatewayError(f"{url} sent {_fault(error)}, expected metrics as text")
            except (aiohttp.ClientError, OSError) as error:
                return GatewayError(f"{url}: {type(error).__name__}")


def parse_queues(text: str) -> dict[str, float]:
    """Return the queued requests by model id from a text exposition.

    The model is ``target_model_name``, or ``model_name`` where the target is empty. Only the lines of the one metric
    are parsed. Values that are no positive number say nothing. Raises ValueError on a malformed line, and on a text
    that does not begin like an exposition: a login page must not pass for an empty queue.
    """
    if not _EXPOSITION.match(text):
        raise NotMetricsError("something that is no page of metrics")
    lines = [line for line in text.splitlines() if line.startswith((QUEUE_SIZE_METRIC + "{", QUEUE_SIZE_METRIC + " "))]
    short = [line for line in lines if len(line) <= _MAX_LINE_CHARACTERS]
    totals: dict[str, float] = {}
    for family in text_string_to_metric_families("\n".join(short) + "\n"):
        for sample in family.samples:
            model = sample.labels.get("target_model_name") or sample.labels.get("model_name", "")
            if model and math.isfinite(sample.value) and sample.value > 0:
                totals[model] = totals.get(model, 0.0) + sample.value
    return totals


async def _text(response: aiohttp.ClientResponse, max_bytes: int) -> str:
    """Return the body as text. Raises ValueError when it is too long or is not text."""
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
