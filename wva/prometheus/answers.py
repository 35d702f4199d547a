"""The answers of Prometheus to queries, and the one error class for a query without an answer.

Only this module reads JSON: the other modules see instant vectors and ``PrometheusError``. Values stay text, since
``wva.collect`` judges each value together with its sample.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, TypeAlias, TypeVar

import msgspec

from wva.api import wire
from wva.slices import Steps

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
MAX_SERIES: Final = 120_000
"""One pod has at most fourteen series of about 200 bytes in an answer, so these limits are enough for the pods that are
asked about together.
"""

_NEXT: Final = b',{"metric":'
"""These bytes stand before each series but the first, and nowhere else: JSON escapes the quotes inside a text."""
_PART_BYTES: Final = 512 * 1024
"""Decoding blocks the event loop; it takes 3 ms for so many bytes."""

_MAX_WARNINGS: Final = 3
_MAX_WARNING_BYTES: Final = 64 * 1024
_SHOWN_CHARACTERS: Final = 300
_SHORT_SECRET: Final = 8

S = TypeVar("S")

Secrets: TypeAlias = Sequence[str]
"""Texts that no message may contain."""


class ErrorKind(StrEnum):
    """The kinds of errors of a query.

    ``EXECUTION``: the query is valid, but its evaluation fails on the present samples. ``REFUSED``: the server takes no
    query, because the path is wrong or there were too many queries. ``CLOCK``: its clock and ours differ, so nobody
    knows for which time it answered.
    """

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    UNAUTHORIZED = "unauthorized"
    BAD_QUERY = "bad_query"
    REFUSED = "refused"
    EXECUTION = "execution"
    SERVER = "server"
    MALFORMED = "malformed"
    CLOCK = "clock"


class PrometheusError(Exception):
    """A query without an answer. The message is for people and contains no secret."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        """Keep the kind for code and the message for people."""
        super().__init__(message)
        self.kind = kind
        self.message = message


class Labels(msgspec.Struct, frozen=True, gc=False):
    """The labels that our queries group by. An answer may have others, which are not read."""

    namespace: str | None = None
    job: str | None = None
    pod: str | None = None
    model_name: str | None = None
    target_model_name: str | None = None
    engine: str | None = None
    signal: str | None = None
    kv_cache_size_tokens: str | None = None
    num_gpu_blocks: str | None = None
    block_size: str | None = None
    le: str | None = None

    def get(self, name: str, default: str = "") -> str:
        """Return a label, ``default`` where there is none."""
        value: str | None = getattr(self, name)
        return default if value is None else value


class InstantSeries(msgspec.Struct, frozen=True, gc=False):
    """One element of an instant vector: labels, and (time in seconds, value as text).

    ``value`` is None for native histograms, which have no single value.
    """

    metric: Labels
    value: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True)
class InstantVector:
    """The series of an answer, and the warnings of Prometheus, for example that a federated answer is partial."""

    series: tuple[InstantSeries, ...] = ()
    warnings: tuple[str, ...] = ()


class RangeSeries(msgspec.Struct, frozen=True, gc=False):
    """One element of the answer to a range query: all its labels, and its points (time in seconds, value as text)."""

    metric: dict[str, str]
    values: tuple[tuple[float, str], ...] = ()


class Querier(Protocol):
    """A source of answers to instant queries."""

    async def query(self, promql: str, *, name: str, at: float) -> InstantVector:
        """Answer a query at a time (seconds since the epoch). Raises PrometheusError."""


class RangeQuerier(Protocol):
    """A source of answers to range queries."""

    async def query_range(
        self, promql: str, *, name: str, start: float, end: float, step_seconds: float, timeout_seconds: float
    ) -> tuple[RangeSeries, ...]:
        """Answer a query. Raises PrometheusError."""
        ...


class _Data(msgspec.Struct, rename="camel"):
    result_type: str
    result: msgspec.Raw


class _Answer(msgspec.Struct, rename="camel"):
    status: str
    data: _Data | None = None
    error_type: str = ""
    error: str = ""
    warnings: msgspec.Raw = msgspec.Raw(b"[]")

    def reason(self, secrets: Secrets) -> str:
        return shorten(f"{self.error_type}: {self.error}" if self.error_type else self.error, secrets=secrets)


_answer_decoder: Final = msgspec.json.Decoder(_Answer)
_vector_decoder: Final = msgspec.json.Decoder(tuple[InstantSeries, ...])
_matrix_decoder: Final = msgspec.json.Decoder(tuple[RangeSeries, ...])
_warnings_decoder: Final = msgspec.json.Decoder(list[str] | None)


def decode_vector(body: bytes, *, secrets: Secrets = ()) -> Steps[InstantVector]:
    """Decode the body of a 200 answer; ``secrets`` are masked in every text for people.

    Raises PrometheusError: MALFORMED when it is not an instant vector, SERVER when it is an error answer.
    """
    try:
        answer, data = _answer(body, "vector", secrets)
        series = yield from _in_parts(data, _vector_decoder)
        return InstantVector(tuple(series), _warnings(answer, secrets))
    except msgspec.DecodeError as error:
        raise _malformed(error, secrets) from error


def decode_matrix(body: bytes, *, secrets: Secrets = ()) -> Steps[tuple[RangeSeries, ...]]:
    """Decode the body of a 200 answer to a range query; raises as ``decode_vector`` does.

    An empty answer with a warning is no answer: a store that has the samples of this time was not asked. It raises
    SERVER.
    """
    try:
        answer, data = _answer(body, "matrix", secrets)
        series = yield from _in_parts(data, _matrix_decoder)
        warnings = _warnings(answer, secrets)
        if warnings and not series:
            raise PrometheusError(ErrorKind.SERVER, f"Prometheus answered nothing, with a warning: {warnings[0]}")
        return tuple(series)
    except msgspec.DecodeError as error:
        raise _malformed(error, secrets) from error


def _in_parts(data: msgspec.Raw, decoder: msgspec.json.Decoder[tuple[S, ...]]) -> Steps[list[S]]:
    """Decode a list of series in parts. If its form is unknown, the parts are longer, or there is only one."""
    result = bytes(data)
    series: list[S] = []
    start, opening = 0, b""
    while start < len(result):
        yield
        end = result.find(_NEXT, start + _PART_BYTES)
        part = result[start:] if end < 0 else result[start:end] + b"]"
        elements: tuple[S, ...] = wire.decode(decoder, opening + part)
        series += elements
        start, opening = len(result) if end < 0 else end + 1, b"["
    return series


def _warnings(answer: _Answer, secrets: Secrets) -> tuple[str, ...]:
    """Return the first warnings. An answer with warnings is not complete, so at least one of them must stay."""
    if len(memoryview(answer.warnings)) > _MAX_WARNING_BYTES:
        return ("more warnings than can be read",)
    all_warnings = wire.decode(_warnings_decoder, answer.warnings) or []
    return tuple(shorten(warning, secrets=secrets) for warning in all_warnings[:_MAX_WARNINGS])


def _answer(body: bytes, kind: str, secrets: Secrets) -> tuple[_Answer, msgspec.Raw]:
    """Return an answer and its result, which is of this kind. Raises PrometheusError and msgspec.DecodeError."""
    answer = wire.decode(_answer_decoder, body)
    if body.count(b'"metric"') > MAX_SERIES:
        raise PrometheusError(ErrorKind.MALFORMED, f"the answer has more than {MAX_SERIES} series")
    if answer.status != "success":
        raise PrometheusError(ErrorKind.SERVER, f"Prometheus answered an error: {answer.reason(secrets)}")
    if answer.data is None or answer.data.result_type != kind:
        actual = "no data" if answer.data is None else shorten(answer.data.result_type, secrets=secrets)
        expected = "an instant vector" if kind == "vector" else f"a {kind}"
        raise PrometheusError(ErrorKind.MALFORMED, f"Prometheus answered {actual} instead of {expected}")
    return answer, answer.data.result


def _malformed(error: Exception, secrets: Secrets) -> PrometheusError:
    message = f"the answer is not Prometheus JSON: {shorten(str(error), secrets=secrets)}"
    return PrometheusError(ErrorKind.MALFORMED, message)


def error_reason(body: bytes, *, secrets: Secrets = ()) -> str:
    """Return the text of an error answer, shortened and without secrets; empty when it has no readable text."""
    try:
        return wire.decode(_answer_decoder, body).reason(secrets)
    except msgspec.DecodeError:
        return shorten(body.decode("utf-8", errors="replace").strip(), secrets=secrets)


def shorten(text: str, *, secrets: Secrets = ()) -> str:
    """Return text cut to the length of a message, in one printable line.

    Secrets are masked before the cut: a cut might leave a part of one, which would not be masked. A short one, such as
    the number of a tenant, is masked only where it is a word of its own.
    """
    # Of a long text, look only at what can be shown, however many secrets are in it.
    text = text[: (_SHOWN_CHARACTERS + 1) * max([1, *map(len, secrets)])]
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        pattern = re.escape(secret)
        text = re.sub(rf"(?<!\w){pattern}(?!\w)" if len(secret) < _SHORT_SECRET else pattern, "***", text)
    cut = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    return "".join(character if character.isprintable() else " " for character in cut)
