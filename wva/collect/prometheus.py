"""Queries over HTTP: PromQL and a time in, an instant vector out, or one PrometheusError; a matrix for a range of time.

Each query has ten seconds in all, retries included, so that a slow Prometheus costs a cycle that much and no more.
What a retry cannot mend (a bad query, a refused token, an answer that is no vector) is not retried. Bearer token and
TLS files are looked at for every query: both are rotated under a running process, and new ones close the connections of
the old. Nothing follows redirects and nothing is taken from proxy variables, so the token goes to the configured host
only.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Final, Generic, Protocol, Self, TypeAlias, TypeVar

import aiohttp

from wva.clock import Clock
from wva.collect.answers import (
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
from wva.collect.credentials import BearerToken, CredentialError, TlsFiles
from wva.collect.sessions import Sessions
from wva.config.prometheus import PrometheusSettings
from wva.instruments import Instruments
from wva.slices import Steps, in_slices

__all__ = ["ErrorKind", "InstantVector", "PrometheusClient", "PrometheusError", "PrometheusSettings"]

QUERY_TIMEOUT_SECONDS: Final = 10.0
_MAX_ERROR_BYTES: Final = 64 * 1024
_CHUNK_BYTES: Final = 64 * 1024
_RETRY_PAUSES_SECONDS: Final = (0.5, 1.0, 2.0)
_JITTER: Final = 0.1
_RETRIED: Final = frozenset({ErrorKind.UNREACHABLE, ErrorKind.SERVER, ErrorKind.REFUSED})

_OK: Final = 200
_REDIRECTS: Final = range(300, 400)
_UNAUTHORIZED: Final = frozenset({401, 403})
_REFUSED: Final = frozenset({404, 405, 429})
"""Client errors that say nothing about the query: wrong path, proxy, rate limit."""
_TIMED_OUT: Final = 408
_EXECUTION: Final = frozenset({413, 422})
"""Too many samples, or samples that cannot be matched."""
_CLIENT_ERRORS: Final = range(400, 500)

_Credentials: TypeAlias = tuple[str, ssl.SSLContext | None]
"""Token (empty: none) and TLS context (None: plain HTTP)."""

A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class _Decode(Protocol[A_co]):
    def __call__(self, body: bytes, *, secret: str) -> Steps[A_co]: ...


@dataclass(frozen=True, slots=True)
class _Question(Generic[A]):
    """What is asked where, and how the body of an answer is read."""

    path: str
    form: Mapping[str, str]
    decode: _Decode[A]
    timeout_seconds: float


class PrometheusClient:
    """Asks one Prometheus; an async context manager, since it holds connections."""

    def __init__(
        self,
        settings: PrometheusSettings,
        *,
        clock: Clock,
        instruments: Instruments,
        random: Random | None = None,
    ) -> None:
        """Take valid settings. Raises ValueError when they are not; the files they name may be missing for now.

        ``random`` spreads the pauses before a query is sent again.
        """
        problems = settings.problems()
        if problems:
            raise ValueError("; ".join(problems))
        self._settings = settings
        self._clock = clock
        self._instruments = instruments
        self._random = random or Random()  # noqa: S311 - spreads load, guards no secret
        self._attempts = self._pauses = 0
        self._url = settings.base_url.rstrip("/") + "/api/v1/"
        usable = instruments.prometheus_credentials_usable
        self._token = BearerToken(settings, usable=lambda yes: usable.labels("token").set(yes))
        self._tls = TlsFiles(settings, usable=lambda yes: usable.labels("tls").set(yes))
        self._sessions: Sessions | None = None

    async def __aenter__(self) -> Self:
        """Begin to hold connections; each is opened with its first query."""
        self._sessions = Sessions()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the connections."""
        sessions, self._sessions = self._sessions, None
        if sessions is not None:
            await sessions.close()

    @property
    def paused(self) -> bool:
        """Whether queries are open and all of them wait for the clock before they are sent again."""
        return self._pauses > 0 and self._attempts == 0

    async def query(self, promql: str, *, name: str, at: float) -> InstantVector:
        """Answer an instant query at a time (seconds since the epoch); ``name`` is what metrics call it.

        Raises PrometheusError, at the latest after ten seconds.
        """
        form = {"query": promql, "time": f"{at:.3f}"}
        return await self._counted(name, _Question("query", form, decode_vector, QUERY_TIMEOUT_SECONDS))

    async def query_range(
        self, promql: str, *, name: str, start: float, end: float, step_seconds: float, timeout_seconds: float
    ) -> tuple[RangeSeries, ...]:
        """Answer a query at each step from start to end (seconds since the epoch), both included; as ``query``.

        Raises PrometheusError, at the latest after ``timeout_seconds``.
        """
        form = {"query": promql, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step_seconds:.3f}"}
        return await self._counted(name, _Question("query_range", form, decode_matrix, timeout_seconds))

    async def _counted(self, name: str, question: _Question[A]) -> A:
        result = "error"
        with self._instruments.query_duration.time():
            try:
                answer = await self._within_time(question)
                result = "success"
            except PrometheusError as error:
                result = "timeout" if error.kind is ErrorKind.TIMEOUT else "error"
                raise
            finally:
                self._instruments.queries.labels(name, result).inc()
        return answer

    async def _within_time(self, question: _Question[A]) -> A:
        failures: list[PrometheusError] = []
        try:
            async with asyncio.timeout(question.timeout_seconds):
                return await self._with_retries(question, failures)
        except TimeoutError as error:
            before = f" (before that: {failures[-1].message})" if failures else ""
            message = f"{self._settings.base_url} did not answer within {question.timeout_seconds:g} s{before}"
            raise PrometheusError(ErrorKind.TIMEOUT, message) from error

    async def _with_retries(self, question: _Question[A], failures: list[PrometheusError]) -> A:
        """Try until an answer, an error that stays, or the end of the pauses; leave the failures in the list."""
        for pause_seconds in _RETRY_PAUSES_SECONDS:
            try:
                return await self._attempt(question)
            except PrometheusError as error:
                if error.kind not in _RETRIED:
                    raise
                failures.append(error)
            # Queries that failed together do not return together.
            jitter = 1 + self._random.uniform(0, _JITTER)
            self._pauses += 1
            try:
                await self._clock.sleep(pause_seconds * jitter)
            finally:
                self._pauses -= 1
        return await self._attempt(question)

    async def _attempt(self, question: _Question[A]) -> A:
        """Ask once, and again at once if the server refused a token that has been replaced meanwhile."""
        self._attempts += 1
        try:
            credentials = self._credentials()
            try:
                return await self._send(question, credentials)
            except PrometheusError as error:
                if error.kind is not ErrorKind.UNAUTHORIZED or self._credentials() == credentials:
                    raise
            return await self._send(question, self._credentials())
        finally:
            self._attempts -= 1

    async def _send(self, question: _Question[A], credentials: _Credentials) -> A:
        if self._sessions is None:
            raise RuntimeError("PrometheusClient is used outside of its context")
        token, tls = credentials
        headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        try:
            async with (
                self._sessions.using(tls) as session,
                session.post(
                    self._url + question.path,
                    data=dict(question.form),
                    headers=headers,
                    ssl=True if tls is None else tls,
                    server_hostname=self._settings.server_name or None,
                    allow_redirects=False,
                ) as response,
            ):
                await self._check(response, token)
                body = await _read(response, MAX_ANSWER_BYTES)
        except (aiohttp.ClientError, OSError, ssl.SSLError) as error:
            # A TimeoutError of asyncio.timeout is not caught here: it arrives as CancelledError.
            cause = shorten(str(error) or type(error).__name__, secret=token)
            message = f"{self._settings.base_url} cannot be reached: {cause}"
            raise PrometheusError(ErrorKind.UNREACHABLE, message) from error
        return await in_slices(question.decode(body, secret=token))

    def _credentials(self) -> _Credentials:
        try:
            return self._token.current(), self._tls.current()
        except CredentialError as error:
            raise PrometheusError(error.kind, str(error)) from error

    async def _check(self, response: aiohttp.ClientResponse, token: str) -> None:
        """Raise PrometheusError unless the answer is a result."""
        status = response.status
        if status == _OK:
            return
        if status in _REDIRECTS:
            message = f"{self._settings.base_url} redirects ({status}): the base URL must be the final address"
            raise PrometheusError(ErrorKind.BAD_QUERY, message)
        reason = error_reason(await _read_start(response), secret=token)
        said = f"{self._settings.base_url} answered {status}" + (f": {reason}" if reason else "")
        if status in _UNAUTHORIZED:
            raise PrometheusError(ErrorKind.UNAUTHORIZED, said)
        if status in _EXECUTION:
            raise PrometheusError(ErrorKind.EXECUTION, said)
        if status in _REFUSED:
            raise PrometheusError(ErrorKind.REFUSED, said)
        if status in _CLIENT_ERRORS and status != _TIMED_OUT:
            raise PrometheusError(ErrorKind.BAD_QUERY, said)
        raise PrometheusError(ErrorKind.SERVER, said)


async def _read(response: aiohttp.ClientResponse, limit_bytes: int) -> bytes:
    """Read a body in pieces, so that one that is too large is refused before it is in memory."""
    body = bytearray()
    async for piece in response.content.iter_chunked(_CHUNK_BYTES):
        body += piece
        if len(body) > limit_bytes:
            response.close()
            message = f"the answer is larger than {limit_bytes // 1024 // 1024} MiB"
            raise PrometheusError(ErrorKind.MALFORMED, message)
    return bytes(body)


async def _read_start(response: aiohttp.ClientResponse) -> bytes:
    """Read as much of an error's body as can be shown."""
    return await response.content.read(_MAX_ERROR_BYTES)
