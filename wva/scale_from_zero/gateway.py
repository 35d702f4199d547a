"""Reads how many requests wait at the gateway from the endpoint pickers (EPP) of a pool, pod by pod.

Prometheus is too slow for this: a workload at zero serves no request until the controller looks. So WVA finds the pods
of the picker by its Service, and reads each of them directly, without redirects, with a time limit and a size limit. A
pod whose page cannot be read counts as one that does not answer. A pool is in error only if no pod of it answers.

No pool delays another one. Each pool has its own slots, and a time limit for all of its pods together. All pools
together have a limit of connections. The loop limits how many pools of a namespace are read at the same time.

The parser of a page looks at the lines of one metric only. Every step takes time in proportion to the page, for any
text. Every number must be within a range.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Self

import aiohttp

from wva import log
from wva.api.core import Pod
from wva.api.kinds import SERVICES
from wva.api.meta import Key
from wva.collect.pools import Pool, selects
from wva.kube.cache import Store
from wva.kube.client import KubeClient
from wva.kube.errors import ApiError
from wva.numbers import Real, Whole

SCRAPE_TIMEOUT_SECONDS: Final = 2.0
MAX_BODY_BYTES: Final = 1024 * 1024
MAX_PODS: Final = 32
"""How many pods of one picker are read in one round. The next round begins with the next pod."""

MAX_CONNECTIONS: Final = 1024
_MAX_SELECTOR: Final = 64
_MAX_SERVICES: Final = 4096
_SERVICE_TTL_SECONDS: Final = 30.0
_PODS_TTL_SECONDS: Final = 1.0
_PORT_WORD: Final = "metric"
_PORT: Final = Whole(1, 65535)
_TOKEN_SETTING: Final = "EPP_METRIC_READER_BEARER_TOKEN"  # noqa: S105 - the name of a setting
_IDENTITY: Final = "identity"

QUEUE_SIZE_METRIC: Final = "inference_extension_flow_control_queue_size"
MAX_WAITING: Final = 1_000_000_000.0
"""The most requests in one line. No queue holds more, and sums of such numbers stay far from where floats overflow."""

MAX_LINES: Final = 10_000
"""How many lines of the metric one page may have: one for each model and priority."""

_MAX_LINE_CHARACTERS: Final = 16 * 1024
_EXPOSITION: Final = re.compile(r"\s*+(\Z|#|[A-Za-z_:][A-Za-z0-9_:]*+(\{[^\n]*\})?[ \t]+[-+0-9NnIi])")
"""How metrics begin: with nothing at all, a comment, or a sample."""

_LINE: Final = re.compile(rf"^{QUEUE_SIZE_METRIC}[{{ \t][^\n]*+", re.MULTILINE)
_LABEL: Final = re.compile(r'[ \t]*+([A-Za-z_][A-Za-z0-9_]*+)[ \t]*+=[ \t]*+"((?:[^"\\]++|\\.)*+)"[ \t]*+(?:,|(?=\}))')
_LABELS: Final = re.compile(rf"\{{(?:{_LABEL.pattern})*+[ \t]*+\}}")
_ESCAPE: Final = re.compile(r'\\(["\\n])')
_NO_NUMBERS: Final = frozenset({"nan", "inf", "+inf", "-inf"})
_WAITING: Final = Real(-MAX_WAITING, MAX_WAITING)
_MILLISECONDS: Final = Whole(-(2**63), 2**63 - 1)
_VALUE_AND_TIME: Final = 2

_log = log.get("collect.gateway")


class GatewayError(Exception):
    """The queue of a pool cannot be read; the message says why, without secrets."""


class NotMetricsError(ValueError):
    """An answer that is no page of metrics; the message says what it is, in words that are safe to show."""


@dataclass(slots=True)
class _Picker:
    """What is kept of a picker's Service for a while: where its metrics are, and the URLs of its pods."""

    selector: Mapping[str, str]
    port: int
    until: float
    urls: list[str] = field(default_factory=list)
    urls_until: float = 0.0
    rounds: int = 0


class GatewayQueues:
    """Reads pools; use as ``async with``."""

    def __init__(self, pods: Store[Pod], *, client: KubeClient, token: Callable[[], str], parallel: int = 10) -> None:
        """Connect to nothing yet.

        ``token`` returns the bearer token at each request (empty: none). ``parallel`` bounds the requests to one pool.
        """
        self._pods = pods
        self._client = client
        self._token = token
        self._parallel = parallel
        self._pickers: OrderedDict[Key, _Picker] = OrderedDict()
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

    async def waiting(self, pool: Pool) -> dict[str, float]:
        """Return the requests that wait, by model id, over the pods of the pool's picker that give an answer.

        Raises GatewayError when no pod does.
        """
        if not pool.picker:
            raise GatewayError(f"InferencePool {pool} names no endpoint picker")
        now = asyncio.get_running_loop().time
        began = now()
        deadline = began + 2 * SCRAPE_TIMEOUT_SECONDS

        # The picker's Service is asked for at most every half minute.
        picker = self._pickers.get(pool.service)
        if picker is None or began >= picker.until:
            try:
                async with asyncio.timeout_at(deadline):
                    service = await self._client.get(SERVICES, pool.service)
            except TimeoutError:
                raise GatewayError(f"Service {pool.service} cannot be read: no answer in time") from None
            except ApiError as error:
                self._pickers.pop(pool.service, None)
                raise GatewayError(f"Service {pool.service} cannot be read: {error}") from error
            # The first port whose name has "metric" in it. A target port that is a name counts as that of the Service.
            found = next((entry for entry in service.spec.ports if _PORT_WORD in entry.name), None)
            port = None if found is None else _PORT.find(found.target_port) or _PORT.find(found.port)
            if port is None:
                raise GatewayError(f"Service {pool.service} has no port with {_PORT_WORD!r} in its name")
            selector = service.spec.selector
            if len(selector) > _MAX_SELECTOR:
                raise GatewayError(
                    f"Service {pool.service}: spec.selector has {len(selector):,} labels, expected at most "
                    f"{_MAX_SELECTOR}"
                )
            picker = self._pickers[pool.service] = _Picker(selector, port, began + _SERVICE_TTL_SECONDS)
            self._pickers.move_to_end(pool.service)
            if len(self._pickers) > _MAX_SERVICES:
                self._pickers.popitem(last=False)

        slots = asyncio.Semaphore(max(1, self._parallel))
        tasks = [asyncio.create_task(self._read(url, slots)) for url in self._urls(pool, picker)]
        try:
            done, late = await asyncio.wait(tasks, timeout=max(0.0, deadline - now()))
        finally:
            for task in tasks:
                task.cancel()
        answers = [task.result() for task in tasks if task in done]
        good = [answer for answer in answers if not isinstance(answer, GatewayError)]
        if len(good) < len(tasks):
            picker.urls_until = 0.0
        if late and not answers:
            raise GatewayError(f"none of {len(tasks)} pods of Service {pool.service} answered in time")
        if not good:
            raise next(answer for answer in answers if isinstance(answer, GatewayError))
        totals: dict[str, float] = {}
        for counts in good:
            for model, count in counts.items():
                totals[model] = totals.get(model, 0.0) + count
        return totals

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
                picker.urls.append(f"http://{host}:{picker.port}/metrics")
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

    async def _read(self, url: str, slots: asyncio.Semaphore) -> dict[str, float] | GatewayError:
        """Return the error instead of raising it: one pod must not cancel the others."""
        token = self._token()
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with slots:
            try:
                async with self._session.get(url, headers=headers, allow_redirects=False) as response:
                    if response.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
                        fault = "not accepted" if token else "not set"
                        return GatewayError(
                            f"{url} answered {response.status}: the token of {_TOKEN_SETTING} is {fault}"
                        )
                    if response.status != HTTPStatus.OK:
                        return GatewayError(f"{url} answered {response.status}, expected {HTTPStatus.OK.value}")
                    # A compressed body is not unpacked: a thousandth of the limit can unpack to a thousand times it.
                    encoding = response.headers.get("Content-Encoding", _IDENTITY).strip().lower()
                    if encoding != _IDENTITY:
                        raise NotMetricsError("compressed metrics, which were asked for uncompressed")
                    body = bytearray()
                    async for chunk in response.content.iter_chunked(64 * 1024):
                        body += chunk
                        if len(body) > MAX_BODY_BYTES:
                            raise NotMetricsError(f"more than {MAX_BODY_BYTES:,} bytes")
                    return parse_queues(body.decode("utf-8"))
            except TimeoutError:
                return GatewayError(f"{url} did not answer within {SCRAPE_TIMEOUT_SECONDS:g} s")
            except NotMetricsError as error:
                return GatewayError(f"{url} sent {error}, expected metrics as text")
            except ValueError:  # the words of a parser may quote anything, so they are left out
                return GatewayError(f"{url} sent a line that cannot be read, expected metrics as text")
            except (aiohttp.ClientError, OSError) as error:
                return GatewayError(f"{url}: {type(error).__name__}")


def parse_queues(text: str) -> dict[str, float]:
    """Return the queued requests by model id from a text exposition.

    The model is ``target_model_name``, or ``model_name`` if the target is empty. A value that is not positive, or is
    NaN or infinite, counts as no request. Raises ValueError on a malformed line, a number beyond ``MAX_WAITING``, more
    than ``MAX_LINES`` lines, and on a text that does not begin like an exposition: a login page must not pass for an
    empty queue.
    """
    if not _EXPOSITION.match(text):
        raise NotMetricsError("something that is no page of metrics")
    totals: dict[str, float] = {}
    for count, line in enumerate(_LINE.finditer(text)):
        if count >= MAX_LINES:
            raise NotMetricsError(f"more than {MAX_LINES:,} lines of {QUEUE_SIZE_METRIC}")
        if line.end() - line.start() > _MAX_LINE_CHARACTERS:
            continue
        # After the name of the metric come labels, a value, and maybe a time.
        sample = line[0][len(QUEUE_SIZE_METRIC) :].lstrip(" \t")
        braces = _LABELS.match(sample)
        if braces is None and sample.startswith("{"):
            raise ValueError("no label")
        end = 0 if braces is None else braces.end()
        labels = {
            name: _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], value)
            for name, value in _LABEL.findall(sample[:end])
        }
        words = sample[end:].split()
        if not 1 <= len(words) <= _VALUE_AND_TIME:
            raise ValueError("no value, or more than value and time")
        if len(words) == _VALUE_AND_TIME and _MILLISECONDS.find(words[1]) is None:
            raise ValueError("no time")
        waiting = 0.0 if words[0].lower() in _NO_NUMBERS else _WAITING.find(words[0])
        if waiting is None:
            raise ValueError("no value")
        model = labels.get("target_model_name") or labels.get("model_name")
        if model and waiting > 0:
            totals[model] = totals.get(model, 0.0) + waiting
    return totals
