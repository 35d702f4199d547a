"""Reads how many requests wait at the gateway from the endpoint pickers (EPP) of a pool, pod by pod.

Prometheus is too slow for this: a workload at zero serves no request until the controller looks. So WVA finds the pods
of the picker by its Service, and reads each of them directly, without redirects, with a time limit and a size limit. A
pod whose page cannot be read counts as one that does not answer. A pool is in error only if no pod of it answers.

No pool delays another one. Each pool has its own slots, and a time limit for all of its pods together. All pools
together have a limit of connections. The loop limits how many pools of a namespace are read at the same time. One piece
of one page is parsed at a time, and everything else has its turn after 5 ms of parsing.

A picker that does not hold requests (GAIE 1.2 at zero, or any without flow control) refuses them at once, and counts
them. For such a picker, the growth of this counter says that requests have come. These requests do not wait, so the
growth counts only for a few seconds.
"""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

from wva import log
from wva.api.core import Pod
from wva.api.kinds import SERVICES
from wva.api.meta import Key
from wva.collect.pools import Pool, selects
from wva.files import read_bounded
from wva.kube.cache import Store
from wva.kube.client import KubeClient
from wva.kube.errors import ApiError
from wva.model.trouble import QUEUE_UNKNOWN, UNTROUBLED, Trouble, TroubleReason
from wva.numbers import Whole
from wva.scale_from_zero.page import QUEUE_SIZE_METRICS, FlowControl, NotMetricsError, PickerPage, PickerPageReader
from wva.slices import Slices

SCRAPE_TIMEOUT_SECONDS: Final = 2.0
MAX_PAGE_BYTES: Final = 16 * 1024 * 1024
"""How much of a page is read at most, if its queues do not end before."""

PIECE_BYTES: Final = 64 * 1024
BYTES_PER_SECOND: Final = 32 * 1024 * 1024
"""How fast the pages of one pool are read in the long run: after long pages there is a pause."""

REFUSED_SECONDS: Final = 5.0
"""How long requests that a picker has refused count as waiting: while a start may be tried a second time."""

_FORGET_SECONDS: Final = 15.0
"""A counter that was read longer ago is no beginning: what it has grown by since then is not recent."""

MAX_PODS: Final = 32
"""How many pods of one picker are read in one round. The next round begins with the next pod."""

MAX_CONNECTIONS: Final = 1024
_MAX_SELECTOR: Final = 64
_MAX_CA_BYTES: Final = 1024**2
_MAX_SERVICES: Final = 4096
_SERVICE_TTL_SECONDS: Final = 30.0
_PODS_TTL_SECONDS: Final = 1.0
_PORT_WORD: Final = "metric"
_PORT: Final = Whole(1, 65535)
_TOKEN_SETTING: Final = "EPP_METRIC_READER_BEARER_TOKEN"  # noqa: S105 - the name of a setting
_CA_SETTING: Final = "EPP_METRICS_CA_CERT_PATH"
_IDENTITY: Final = "identity"

_log = log.get("collect.gateway")


class GatewayError(Exception):
    """The queue of a pool cannot be read; the message says why, without secrets."""


@dataclass(frozen=True, slots=True)
class PoolQueues:
    """What the pods of a pool's picker say together.

    ``waiting`` has the requests that wait by model id, those without the name of a model at ``UNNAMED``. ``trouble``
    says why more requests may have come. After ``pause_seconds`` the pool may be read again.
    """

    waiting: Mapping[str, float]
    trouble: Trouble = UNTROUBLED
    pause_seconds: float = 0.0


@dataclass(slots=True)
class _Refusals:
    """The requests that one pod of a picker has refused, by model id, and when they were read (loop time)."""

    counts: Mapping[str, float]
    read_at: float
    recent: Mapping[str, float] = field(default_factory=dict)
    until: float = 0.0

    def take(self, counts: Mapping[str, float], now: float) -> Mapping[str, float]:
        """Note the counters, and return by how much they have grown just now, or less than five seconds ago."""
        if now - self.read_at <= _FORGET_SECONDS:
            # A counter that is lower than before belongs to a new process.
            readings = ((model, count, self.counts.get(model, 0.0)) for model, count in counts.items())
            grown = {
                model: count - (previous if previous <= count else 0.0)
                for model, count, previous in readings
                if count != previous
            }
            if grown:
                self.recent, self.until = grown, now + REFUSED_SECONDS
        self.counts, self.read_at = counts, now
        return self.recent if now < self.until else {}


@dataclass(slots=True)
class _Picker:
    """What is kept of a picker's Service for a while: where its metrics are, and the URLs of its pods."""

    selector: Mapping[str, str]
    port: int
    until: float
    urls: list[str] = field(default_factory=list)
    urls_until: float = 0.0
    rounds: int = 0
    tls: ssl.SSLContext | None = None
    """Trusts the authority of pickers; None: plain HTTP."""
    host: str = ""
    """The name that certificates must have."""
    refusals: dict[str, _Refusals] = field(default_factory=dict)
    """By URL; a pod that was not read yet has no entry."""


class _Authority:
    """The authority of the certificates of pickers, from a file that may change."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._content = ""
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext | None:
        """Return the same context until the content of the file changes; None without a file.

        A file that cannot be used any more leaves the last good one in force. Raises GatewayError if there is none.
        """
        if not self._path:
            return None
        try:
            content = read_bounded(Path(self._path), _MAX_CA_BYTES).decode("ascii")
            if content != self._content:
                context = ssl.create_default_context(cadata=content)
                context.minimum_version = ssl.TLSVersion.TLSv1_2
                self._context, self._content = context, content
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            if self._context is None:
                cause = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
                expected = "expected a file with CA certificates in PEM"
                raise GatewayError(f"{_CA_SETTING}={self._path!r} cannot be used: {cause}; {expected}") from error
        return self._context


class GatewayQueues:
    """Reads pools; use as ``async with``."""

    def __init__(
        self,
        pods: Store[Pod],
        *,
        client: KubeClient,
        token: Callable[[], str],
        ca_path: str = "",
        parallel: int = 10,
    ) -> None:
        """Connect to nothing yet.

        ``token`` returns the bearer token at each request (empty: none). With the file ``ca_path`` (PEM) pages are read
        over https only. ``parallel`` bounds the requests to one pool.
        """
        self._authority = _Authority(ca_path)
        self._pods = pods
        self._client = client
        self._token = token
        self._parallel = parallel
        self._pickers: OrderedDict[Key, _Picker] = OrderedDict()
        self._turn = asyncio.Lock()
        self._slices = Slices()
        self._session: aiohttp.ClientSession

    async def __aenter__(self) -> Self:
        """Open the connection pool."""
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=SCRAPE_TIMEOUT_SECONDS),
            connector=aiohttp.TCPConnector(limit=MAX_CONNECTIONS),
            headers={"Accept-Encoding": _IDENTITY},
            auto_decompress=False,
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every connection."""
        await self._session.close()

    async def waiting(self, pool: Pool) -> PoolQueues:
        """Return the requests that wait, over the pods of the pool's picker that give an answer.

        Raises GatewayError when no pod does.
        """
        if not pool.picker:
            raise GatewayError(f"InferencePool {pool} names no endpoint picker")
        now = asyncio.get_running_loop().time
        began = now()
        deadline = began + 2 * SCRAPE_TIMEOUT_SECONDS

        picker = self._pickers.get(pool.service)
        if picker is None or began >= picker.until:
            picker = await self._find(pool, picker, deadline)
        slots = asyncio.Semaphore(max(1, self._parallel))
        tasks = [asyncio.create_task(self._read(url, slots, picker)) for url in self._urls(pool, picker)]
        try:
            done, pending = await asyncio.wait(tasks, timeout=max(0.0, deadline - now()))
        finally:
            for task in tasks:
                task.cancel()
        answers = [task.result() for task in tasks if task in done]
        pages = [answer for answer in answers if not isinstance(answer, GatewayError)]
        if len(pages) < len(tasks):
            picker.urls_until = 0.0
        if pending and not answers:
            raise GatewayError(f"none of {len(tasks)} pods of Service {pool.service} answered in time")
        if not pages:
            raise next(answer for answer in answers if isinstance(answer, GatewayError))
        return _together(picker, pages, now())

    async def _find(self, pool: Pool, previous: _Picker | None, deadline: float) -> _Picker:
        """Read the picker's Service, at most every half minute. Raises GatewayError."""
        try:
            async with asyncio.timeout_at(deadline):
                service = await self._client.get(SERVICES, pool.service)
        except TimeoutError:
            raise GatewayError(f"Service {pool.service} cannot be read: no answer in time") from None
        except ApiError as error:
            self._pickers.pop(pool.service, None)
            raise GatewayError(f"Service {pool.service} cannot be read: {error}") from error
        # The first port whose name has "metric" in it. If its target port is a name, the port of the Service counts.
        service_port = next((entry for entry in service.spec.ports if _PORT_WORD in entry.name), None)
        port = None if service_port is None else _PORT.find(service_port.target_port) or _PORT.find(service_port.port)
        if port is None:
            raise GatewayError(f"Service {pool.service} has no port with {_PORT_WORD!r} in its name")
        selector = service.spec.selector
        if len(selector) > _MAX_SELECTOR:
            raise GatewayError(
                f"Service {pool.service}: spec.selector has {len(selector):,} labels, expected at most {_MAX_SELECTOR}"
            )
        until = asyncio.get_running_loop().time() + _SERVICE_TTL_SECONDS
        picker = _Picker(
            selector, port, until, tls=self._authority.context(), host=f"{pool.picker}.{pool.namespace}.svc"
        )
        self._pickers[pool.service] = picker
        if previous is not None:
            picker.refusals = previous.refusals
        self._pickers.move_to_end(pool.service)
        if len(self._pickers) > _MAX_SERVICES:
            self._pickers.popitem(last=False)
        return picker

    def _urls(self, pool: Pool, picker: _Picker) -> list[str]:
        """Return the URLs to read in this round. Pods are looked for at most every second. Raises GatewayError."""
        now = asyncio.get_running_loop().time()
        if now >= picker.urls_until:
            picker.urls = []
            picker.urls_until = now + _PODS_TTL_SECONDS
            for pod in self._pods.list(pool.namespace):
                if not pod.ready or not selects(picker.selector, pod.metadata.labels):
                    continue
                try:
                    ip = ipaddress.ip_address(pod.status.pod_ip)
                except ValueError:  # it has no address yet
                    continue
                host = f"[{ip}]" if ip.version == 6 else str(ip)  # noqa: PLR2004 - IP version
                scheme = "http" if picker.tls is None else "https"
                picker.urls.append(f"{scheme}://{host}:{picker.port}/metrics")
        count = len(picker.urls)
        if not count:
            picker.urls_until = 0.0
            raise GatewayError(f"Service {pool.service} has no Ready pod")
        if count <= MAX_PODS:
            return picker.urls
        if not picker.rounds:
            _log.warning("gateway_pods_left_out", service=str(pool.service), pods=count, limit=MAX_PODS)
        first = picker.rounds * MAX_PODS % count
        picker.rounds += 1
        return [*picker.urls[first:], *picker.urls[:first]][:MAX_PODS]

    async def _read(
        self, url: str, slots: asyncio.Semaphore, picker: _Picker
    ) -> tuple[str, PickerPage, int] | GatewayError:
        """Return the URL, its page and how many bytes were read. An error is returned, so that others are read."""
        token = self._token()
        options: dict[str, Any] = {"headers": {"Authorization": f"Bearer {token}"} if token else {}}
        if picker.tls is not None:  # the pod is asked by its address, and its certificate has the name of the Service
            options |= {"ssl": picker.tls, "server_hostname": picker.host}
        async with slots:
            try:
                async with self._session.get(url, allow_redirects=False, **options) as response:
                    if response.status != HTTPStatus.OK:
                        return GatewayError(f"{url} answered {response.status}{_why(response.status, token)}")
                    # A compressed body is not unpacked: a thousandth of the limit can unpack to a thousand times it.
                    encoding = response.headers.get("Content-Encoding", _IDENTITY).strip().lower()
                    if encoding != _IDENTITY:
                        raise NotMetricsError("compressed metrics, which were asked for uncompressed")
                    reader = PickerPageReader()
                    async for piece in response.content.iter_chunked(PIECE_BYTES):
                        async with self._turn:
                            await self._slices.rest()
                            reader.feed(piece)
                        if reader.enough:
                            break
                        if reader.size > MAX_PAGE_BYTES:
                            raise NotMetricsError(f"more than {MAX_PAGE_BYTES:,} bytes")
                    return url, reader.end(), reader.size
            except TimeoutError:
                return GatewayError(f"{url} did not answer within {SCRAPE_TIMEOUT_SECONDS:g} s")
            except aiohttp.ClientSSLError as error:
                expected = f"expected a certificate of {picker.host} from the authority of {_CA_SETTING}"
                return GatewayError(f"{url}: {type(error).__name__}, {expected}")
            except NotMetricsError as error:
                return GatewayError(f"{url} sent {error}, expected metrics as text")
            except ValueError:  # the words of a parser may quote anything, so they are left out
                return GatewayError(f"{url} sent a line that cannot be read, expected metrics as text")
            except (aiohttp.ClientError, OSError) as error:
                return GatewayError(f"{url}: {type(error).__name__}")


def _why(status: int, token: str) -> str:
    """Return what a status says about the token. A picker answers 500 to a token that the API server refuses."""
    if status == HTTPStatus.UNAUTHORIZED and not token:
        return f": the token of {_TOKEN_SETTING} is not set"
    if status == HTTPStatus.UNAUTHORIZED:
        return f": the token of {_TOKEN_SETTING} is not accepted"
    if status == HTTPStatus.FORBIDDEN:
        return f": the token of {_TOKEN_SETTING} is {'of an account that may not get /metrics' if token else 'not set'}"
    expected = f", expected {HTTPStatus.OK.value}"
    if status == HTTPStatus.INTERNAL_SERVER_ERROR and token:
        expected += f": an endpoint picker answers so if the token of {_TOKEN_SETTING} is wrong or expired"
    return expected


def _together(picker: _Picker, pages: Sequence[tuple[str, PickerPage, int]], now: float) -> PoolQueues:
    """Return what the pages of the pods of a picker say together."""
    counts = [page.waiting for _, page, _ in pages]
    for url, refused in {url: page.refused for url, page, _ in pages}.items():
        counts.append(picker.refusals.setdefault(url, _Refusals(refused, now)).take(refused, now))
    for url in picker.refusals.keys() - set(picker.urls):
        del picker.refusals[url]
    totals: dict[str, float] = {}
    for model_counts in counts:
        for model, count in model_counts.items():
            totals[model] = totals.get(model, 0.0) + count
    states = {page.flow_control for _, page, _ in pages}
    trouble = UNTROUBLED
    if FlowControl.ON not in states:
        trouble = _NO_FLOW_CONTROL if FlowControl.OFF in states else _NOT_YET_KNOWN
    return PoolQueues(totals, trouble, sum(size for _, _, size in pages) / BYTES_PER_SECOND)


_NO_QUEUE: Final = f"its picker shows neither {' nor '.join(QUEUE_SIZE_METRICS)}"
_NO_FLOW_CONTROL: Final = Trouble(TroubleReason.QUEUE_MISSING, f"{_NO_QUEUE} although it has had requests")
_NOT_YET_KNOWN: Final = Trouble(QUEUE_UNKNOWN, f"{_NO_QUEUE}, as before its first request", known=False)
