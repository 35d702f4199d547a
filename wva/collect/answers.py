"""What Prometheus answers to a query, and the one error class for when it does not.

The wire stops here: above this module there are instant vectors and ``PrometheusError`` only. Values stay text, since
what is wrong with a value is a matter of the sample it belongs to (``replicas``), not of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol, overload

import msgspec

from wva.api import wire
from wva.slices import Steps

MAX_ANSWER_BYTES: Final = 16 * 1024 * 1024
MAX_SERIES: Final = 120_000
"""One pod has at most fourteen series of about 200 bytes in an answer, so these limits are enough for the pods that are
asked about together (``queries``).
"""

_NEXT: Final = b',{"metric":'
"""Stands before each series but the first, and nowhere else: the quotes in a text of JSON are escaped."""
_PART_BYTES: Final = 512 * 1024
"""Decoding holds the event loop: so much takes it 3 ms."""

_MAX_WARNINGS: Final = 3
_MAX_WARNING_BYTES: Final = 64 * 1024
_SHOWN_CHARACTERS: Final = 300


class ErrorKind(StrEnum):
    """What went wrong with a query.

    ``EXECUTION``: the query is good, but not with the samples that it finds. ``REFUSED``: no query is taken, for want
    of a right path, or because there were too many.
    """

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    UNAUTHORIZED = "unauthorized"
    BAD_QUERY = "bad_query"
    REFUSED = "refused"
    EXECUTION = "execution"
    SERVER = "server"
    MALFORMED = "malformed"


class PrometheusError(Exception):
    """A query without an answer. The message is for people and contains no token."""

    def __init__(self, kind: ErrorKind, message: str) -> None:
        """Keep the kind for code and the message for people."""
        super().__init__(message)
        self.kind = kind
        self.message = message


class Labels(msgspec.Struct, frozen=True, gc=False):
    """The labels that our queries group by; an answer may have others, which are not read."""

    namespace: str | None = None
    job: str | None = None
    pod: str | None = None
    pod_name: str | None = None
    model_name: str | None = None
    target_model_name: str | None = None
    engine: str | None = None
    signal: str | None = None
    num_gpu_blocks: str | None = None
    block_size: str | None = None

    @overload
    def get(self, name: str) -> str | None: ...

    @overload
    def get(self, name: str, default: str) -> str: ...

    def get(self, name: str, default: str | None = None) -> str | None:
        """Return a label, ``default`` where there is none."""
        value: str | None = getattr(self, name)
        return default if value is None else value


class Series(msgspec.Struct, frozen=True, gc=False):
    """One element of an instant vector: labels, and (time in seconds, value as text).

    ``value`` is None for native histograms, which have no single value.
    """

    metric: Labels
    value: tuple[float, str] | None = None


@dataclass(frozen=True, slots=True)
class InstantVector:
    """The series of an answer, and what Prometheus warned of (a federated one: that an answer is partial)."""

    series: tuple[Series, ...] = ()
    warnings: tuple[str, ...] = ()


class RangeSeries(msgspec.Struct, frozen=True, gc=False):
    """One element of the answer to a range query: all its labels, and its points (time in seconds, value as text)."""

    metric: dict[str, str]
    values: tuple[tuple[float, str], ...] = ()


class Querier(Protocol):
    """A source of answers to instant queries."""

    async def query(self, promql: str, *, name: str, at: float) -> InstantVector:
        """Answer a query at a time (seconds since the epoch). Raises PrometheusError."""
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


_answer_decoder: Final = msgspec.json.Decoder(_Answer)
_vector_decoder: Final = msgspec.json.Decoder(tuple[Series, ...])
_matrix_decoder: Final = msgspec.json.Decoder(tuple[RangeSeries, ...])
_warnings_decoder: Final = msgspec.json.Decoder(list[str] | None)


def decode_vector(body: bytes, *, secret: str = "") -> Steps[InstantVector]:
    """Decode the body of a 200 answer; ``secret`` is masked in every text that is taken from it for people.

    Raises PrometheusError: MALFORMED when it is not an instant vector, SERVER when it is an error answer.
    """
    try:
        answer, data = _answer(body, "vector", secret)
        series: list[Series] = []
        for part in _parts(bytes(data)):
            yield
            read: tuple[Series, ...] = wire.decode(_vector_decoder, part)
            series += read
        return InstantVector(tuple(series), _warnings(answer.warnings, secret))
    except msgspec.DecodeError as error:
        raise _malformed(error, secret) from error


def decode_matrix(body: bytes, *, secret: str = "") -> Steps[tuple[RangeSeries, ...]]:
    """Decode the body of a 200 answer to a range query; raises as ``decode_vector`` does."""
    try:
        _, data = _answer(body, "matrix", secret)
        yield
        return wire.decode(_matrix_decoder, data)
    except msgspec.DecodeError as error:
        raise _malformed(error, secret) from error


def _parts(result: bytes) -> Iterator[bytes]:
    """Yield the list of series as several lists. Where the form is another one they are longer, or it is one list."""
    start, opening = 0, b""
    while (end := result.find(_NEXT, start + _PART_BYTES)) > 0:
        yield opening + result[start:end] + b"]"
        start, opening = end + 1, b"["
    yield opening + result[start:]


def _answer(body: bytes, kind: str, secret: str) -> tuple[_Answer, msgspec.Raw]:
    """Return an answer and its result, which is of this kind. Raises PrometheusError and msgspec.DecodeError."""
    answer = wire.decode(_answer_decoder, body)
    if body.count(b'"metric"') > MAX_SERIES:
        raise PrometheusError(ErrorKind.MALFORMED, f"the answer has more than {MAX_SERIES} series")
    if answer.status != "success":
        raise PrometheusError(ErrorKind.SERVER, f"Prometheus answered an error: {_reason(answer, secret)}")
    if answer.data is None or answer.data.result_type != kind:
        found = "no data" if answer.data is None else shorten(answer.data.result_type, secret=secret)
        expected = "an instant vector" if kind == "vector" else f"a {kind}"
        raise PrometheusError(ErrorKind.MALFORMED, f"Prometheus answered {found} instead of {expected}")
    return answer, answer.data.result


def _malformed(error: Exception, secret: str) -> PrometheusError:
    message = f"the answer is not Prometheus JSON: {shorten(str(error), secret=secret)}"
    return PrometheusError(ErrorKind.MALFORMED, message)


def error_reason(body: bytes, *, secret: str = "") -> str:
    """Return what an error answer says, shortened, without the secret; empty when it says nothing readable."""
    try:
        return _reason(wire.decode(_answer_decoder, body), secret)
    except msgspec.DecodeError:
        return shorten(body.decode("utf-8", errors="replace").strip(), secret=secret)


def shorten(text: str, *, secret: str = "") -> str:
    """Return text cut to what a message can carry, in one printable line.

    The secret is masked before the cut, which might leave a part of it that is no longer recognised.
    """
    text = text.replace(secret, "***") if secret else text
    cut = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    return "".join(character if character.isprintable() else " " for character in cut)


def _warnings(raw: msgspec.Raw, secret: str) -> tuple[str, ...]:
    """Return the first warnings; one at least if there is any, since an answer that warns is not complete."""
    if len(memoryview(raw)) > _MAX_WARNING_BYTES:
        return ("more warnings than can be read",)
    found = wire.decode(_warnings_decoder, raw) or []
    return tuple(shorten(warning, secret=secret) for warning in found[:_MAX_WARNINGS])


def _reason(answer: _Answer, secret: str) -> str:
    said = f"{answer.error_type}: {answer.error}" if answer.error_type else answer.error
    return shorten(said, secret=secret)
