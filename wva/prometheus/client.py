"""Sends PromQL queries over HTTP; returns an instant vector (a matrix for a range of time) or raises PrometheusError.

Each query takes at most ten seconds, retries included, which bounds what a slow Prometheus costs a cycle. The client
does not retry what a retry cannot mend (a bad query, a refused token, an answer that is no vector). It reads token and
TLS files for every query, because both may change while the process runs. It follows no redirects and reads no proxy
variables, so the token goes to the configured host only. Queries are posted, because they may be longer than a URL can
be; a server that takes no POST gets GET. ``collect.query_failures`` says what becomes of a query that fails.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Final, Self, TypeVar

import aiohttp
from yarl import URL

from wva import log
from wva.clock import Clock, seconds_of_date
from wva.instruments import Instruments
from wva.prometheus.answers import (
    MAX_ANSWER_BYTES,
    ErrorKind,
    InstantVector,
    PrometheusError,
    RangeSeries,
    decode_matrix,
    decode_vector,
    error_reason,
    shorten,
)
from wva.prometheus.authentication import Authentication, QueryCredentials, remedy
from wva.prometheus.settings import PrometheusSettings
from wva.slices import Steps, in_slices

QUERY_TIMEOUT_SECONDS: Final = 10.0
_CONNECT_TIMEOUT_SECONDS: Final = 4.0
MAX_URL_CHARACTERS: Final = 60_000
"""Envoy takes 60 KiB of request line and headers, Prometheus itself 1 MiB, and nginx 8 KiB unless it is told more."""
CLOCK_TOLERANCE_SECONDS: Final = 60.0
"""How far the clocks of Prometheus and of the controller may be apart: a sample that is so old is fresh by default."""
_MAX_ERROR_BYTES: Final = 64 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_RETRY_PAUSES_SECONDS: Final = (0.5, 1.0, 2.0)
_JITTER: Final = 0.1
_RETRIED: Final = frozenset({ErrorKind.UNREACHABLE, ErrorKind.SERVER, ErrorKind.REFUSED})

_OK: Final = 200
_METHOD_REFUSED: Final = frozenset({405, 501})
_REDIRECTS: Final = range(300, 400)
_CLIENT_ERRORS: Final = range(400, 500)
_KINDS: Final = {
    **dict.fromkeys((401, 403), ErrorKind.UNAUTHORIZED),
    # These say nothing about the query: wrong path, proxy, rate limit.
    **dict.fromkeys((404, 405, 429, 501), ErrorKind.REFUSED),
    408: ErrorKind.SERVER,
    # Too many samples, or samples that cannot be matched; too many namespaces for a URL.
    **dict.fromkeys((413, 414, 422), ErrorKind.EXECUTION),
}
"""Kinds of errors by status. Any other 4xx means a bad query, and any other status an error of the server."""

A = TypeVar("A")

_log = log.get("collect.prometheus")


class PrometheusClient:
    """Asks one Prometheus; an async context manager, since it holds connections."""

    def __init__(
        self,
        settings: PrometheusSettings,
        *,
        clock: Clock,
        instruments: Instruments,
        random: Random | None = None,
        clock_tolerance_seconds: float = math.inf,
    ) -> None:
        """Take settings. Raises ValueError for invalid ones; the files that they name may still be missing.

        ``random`` spreads the pauses before a query is sent again. A query about the present needs a server whose clock
        tells the same time as ours. So an answer is an error if its date is further from the time that was asked for
        than the tolerance.
        """
        problems = settings.problems()
        if problems:
            raise ValueError("; ".join(problems))
        self._settings = settings
        self._clock = clock
        self._instruments = instruments
        self._clock_tolerance_seconds = clock_tolerance_seconds
        self._random = random or Random()  # noqa: S311 - spreads load, guards no secret
        self._attempts = self._pauses = 0
        self._method = "POST"
        self._authentication = Authentication(settings, instruments=instruments)
        self._entered = False
        self.answered = asyncio.Event()
        """Set from the first answer on."""
        self._tls: ssl.SSLContext | None = None
        self._session: aiohttp.ClientSession | None = None
        self._users: Counter[aiohttp.ClientSession] = Counter()

    async def __aenter__(self) -> Self:
        """Begin to hold connections; each is opened with its first query."""
        self._entered = True
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections."""
        sessions = {*self._users, *([self._session] if self._session else [])}
        self._entered, self._session = False, None
        for session in sessions:
            await session.close()

    @property
    def paused(self) -> bool:
        """Whether queries are open and all of them wait for the clock before they are sent again."""
        return self._pauses > 0 and self._attempts == 0

    @property
    def source(self) -> str:
        """The source of answers as one text: the URL, and the additions that choose a tenant. They make it secret."""
        credentials = self._authentication.current()
        additions = credentials.headers + credentials.parameters
        return repr((self._settings.base_url, additions)) if additions else self._settings.base_url

    async def query(self, promql: str, *, name: str, at: float) -> InstantVector:
        """Answer an instant query at a time (seconds since the epoch); ``name`` is what metrics call it.

        Raises PrometheusError, at the latest after ten seconds.
        """
        form = {"query": promql, "time": f"{at:.3f}"}
        return await self._ask(name, "query", form, decode_vector, timeout_seconds=QUERY_TIMEOUT_SECONDS)

    async def query_range(
        self, promql: str, *, name: str, start: float, end: float, step_seconds: float, timeout_seconds: float
    ) -> tuple[RangeSeries, ...]:
        """Answer a query at each step from start to end (seconds since the epoch), both included; as ``query``.

        Raises PrometheusError, at the latest after ``timeout_seconds``.
        """
        form = {"query": promql, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step_seconds:.3f}"}
        return await self._ask(name, "query_range", form, decode_matrix, timeout_seconds=timeout_seconds)

    async def _ask(
        self, name: str, path: str, form: Mapping[str, str], decode: Callable[..., Steps[A]], *, timeout_seconds: float
    ) -> A:
        """Try until an answer, an error that a retry cannot mend, or the end of the time; count the result."""
        result, before = "error", ""
        with self._instruments.query_duration.time():
            try:
                async with asyncio.timeout(timeout_seconds):
                    for pause_seconds in (*_RETRY_PAUSES_SECONDS, None):
                        try:
                            answer = await self._attempt(path, form, decode)
                            break
                        except PrometheusError as error:
                            if error.kind not in _RETRIED or pause_seconds is None:
                                raise
                            before = f" (before that: {error.message})"
                        # Queries that failed together must not be sent again together.
                        jitter = 1 + self._random.uniform(0, _JITTER)
                        self._pauses += 1
                        try:
                            await self._clock.sleep(pause_seconds * jitter)
                        finally:
                            self._pauses -= 1
                result = "success"
                self.answered.set()
            except TimeoutError as error:
                result = "timeout"
                message = f"{self._settings.base_url} did not answer within {timeout_seconds:g} s{before}"
                raise PrometheusError(ErrorKind.TIMEOUT, message) from error
            finally:
                self._instruments.queries.labels(name, result).inc()
        return answer

    async def _attempt(self, path: str, form: Mapping[str, str], decode: Callable[..., Steps[A]]) -> A:
        """Ask once; if the server refuses the token and the file has a new one, ask again at once."""
        self._attempts += 1
        try:
            credentials = self._authentication.current()
            try:
                body = await self._send(path, form, credentials)
            except PrometheusError as error:
                if error.kind is not ErrorKind.UNAUTHORIZED:
                    raise
                former, credentials = credentials, self._authentication.current()
                if credentials == former:
                    raise
                body = await self._send(path, form, credentials)
            return await in_slices(decode(body, secrets=credentials.secrets))
        finally:
            self._attempts -= 1

    async def _send(self, path: str, form: Mapping[str, str], credentials: QueryCredentials) -> bytes:
        """Return the body of an answer that is a result. Raises PrometheusError for any other.

        The method that the server took last is used. A query that is too long for a URL is always sent by POST.
        """
        base_url = self._settings.base_url
        url = URL(f"{base_url.rstrip('/')}/api/v1/{path}").with_query(credentials.parameters)
        long_url = url.extend_query(form)
        characters = len(str(long_url))
        requests = {"POST": (url, dict(form)), "GET": (long_url, None)}
        method = "POST" if characters > MAX_URL_CHARACTERS else self._method
        status, date, body = await self._exchange(method, *requests[method], credentials)
        if status in _METHOD_REFUSED:
            refused, method = method, "GET" if method == "POST" else "POST"
            if characters > MAX_URL_CHARACTERS:
                message = (
                    f"{base_url} answered {status} to {refused}, and the query is too long for {method}: its URL would "
                    f"have {characters:,} characters, at most {MAX_URL_CHARACTERS:,} are sent"
                )
                raise PrometheusError(ErrorKind.EXECUTION, message)
            status, date, body = await self._exchange(method, *requests[method], credentials)
            if status == _OK and self._method != method:
                self._method = method
                _log.info("query_method_changed", method=method, refused=refused)
        if status in _REDIRECTS:
            message = f"{base_url} redirects ({status}): the base URL must be the final address"
            raise PrometheusError(ErrorKind.BAD_QUERY, message)
        if status != _OK:
            reason = error_reason(body, secrets=credentials.secrets)
            kind = _KINDS.get(status, ErrorKind.BAD_QUERY if status in _CLIENT_ERRORS else ErrorKind.SERVER)
            raise PrometheusError(kind, f"{base_url} answered {status}" + (f": {reason}" if reason else ""))
        if "time" in form:
            self._check_clock(float(form["time"]), date)
        return body

    def _check_clock(self, at: float, date: str) -> None:
        """Raise PrometheusError if the ``Date`` of an answer shows that our clock or that of the server is wrong.

        The time that was asked for (seconds since the epoch) came from our clock, which may have been set since. With a
        clock that is an hour behind, we would take samples of an hour ago for fresh ones.
        """
        answered_at = seconds_of_date(date)
        ahead = 0.0 if answered_at is None else at - answered_at
        if abs(ahead) > self._clock_tolerance_seconds:
            words = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the clock of {self._settings.base_url}"
            message = f"the controller's clock is {words}, at most {self._clock_tolerance_seconds:g} s are possible"
            raise PrometheusError(ErrorKind.CLOCK, f"{message}: correct the one that is wrong")

    async def _exchange(
        self, method: str, url: URL, data: Mapping[str, str] | None, credentials: QueryCredentials
    ) -> tuple[int, str, bytes]:
        """Return the status of an answer, its date and its body: at most 64 KiB of an error. Raises PrometheusError."""
        if not self._entered:
            raise RuntimeError("PrometheusClient is used outside of its context")
        token, tls, base_url = credentials.token, credentials.tls, self._settings.base_url
        headers = {**dict(credentials.headers), "Accept": "application/json"}
        headers |= {"Authorization": f"Bearer {token}"} if token else {}
        try:
            async with (
                self._using(tls) as session,
                session.request(
                    method,
                    url,
                    data=data,
                    headers=headers,
                    ssl=True if tls is None else tls,
                    server_hostname=self._settings.server_name or None,
                    allow_redirects=False,
                ) as response,
            ):
                date = response.headers.get("Date", "")
                if response.status != _OK:
                    return response.status, date, await response.content.read(_MAX_ERROR_BYTES)
                body = bytearray()
                async for piece in response.content.iter_chunked(_CHUNK_BYTES):
                    body += piece
                    if len(body) > MAX_ANSWER_BYTES:
                        response.close()
                        message = f"the answer is larger than {MAX_ANSWER_BYTES // 1024 // 1024} MiB"
                        raise PrometheusError(ErrorKind.MALFORMED, message)
                return response.status, date, bytes(body)
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            # A TimeoutError of asyncio.timeout is not caught here: it arrives as CancelledError.
            cause = shorten(str(error) or type(error).__name__, secrets=credentials.secrets)
            message = f"{base_url} cannot be reached: {cause}{remedy(error)}"
            raise PrometheusError(ErrorKind.UNREACHABLE, message) from error

    @asynccontextmanager
    async def _using(self, tls: ssl.SSLContext | None) -> AsyncIterator[aiohttp.ClientSession]:
        """Yield the session for a TLS context (None: plain HTTP) for one query.

        A connection that was opened with an old certificate would stay open, and used, for as long as queries keep it
        busy. So a session is closed when its context is replaced: at once, or after the queries that use it now.
        """
        former, session = self._session, self._session
        if session is None or self._tls is not tls:
            session = aiohttp.ClientSession(
                trust_env=False,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_TIMEOUT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
            self._session, self._tls = session, tls
        self._users[session] += 1
        try:
            if former is not None and former is not session and not self._users[former]:
                await former.close()
            yield session
        finally:
            self._users[session] -= 1
            if not self._users[session]:
                del self._users[session]
                if session is not self._session:
                    await session.close()
