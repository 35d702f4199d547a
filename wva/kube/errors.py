"""The errors of requests to the API server, as classes, so that callers catch meanings and not status numbers.

``from_status`` turns an HTTP status and its body (a JSON ``Status`` of the API server, or any text of a proxy) into an
exception, whose text says what was attempted. Only ``client`` and ``watch`` create these exceptions.
"""
# ruff: noqa: N818 - the classes are called like the reasons of the Kubernetes API

from __future__ import annotations

from typing import Any, Final

import msgspec

from wva.api import wire
from wva.numbers import Whole

RETRY_AFTER_SECONDS: Final = Whole(0, 3600)
"""If a server asks for more, in a header or in a Status, WVA ignores it and uses the usual backoff."""
MAX_TEXT_CHARACTERS: Final = 300
"""A message is cut here: a load balancer's error page must not fill the log."""


class ConfigurationError(Exception):
    """The configuration gives no usable way to an API server; the text is one line for the operator."""


class ApiError(Exception):
    """A request that did not succeed.

    ``status`` is the HTTP status (0: no answer came), ``reason`` the machine-readable reason of the API server or an
    empty text, ``retry_after_seconds`` what the server asked for, or None.
    """

    def __init__(
        self, status: int, reason: str, message: str, retry_after_seconds: float | None = None, *, attempted: str = ""
    ) -> None:
        """Keep the parts; ``attempted`` is verb and path, and leads the text."""
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_seconds = retry_after_seconds
        self.attempted = attempted
        super().__init__(status, reason, message)

    def __str__(self) -> str:
        """Return ``GET /api/v1/pods: 403 Forbidden: message`` without the parts that are empty."""
        code = f"{self.status} {self.reason}".strip() if self.status else self.reason
        return ": ".join(part for part in (self.attempted, code, self.message) if part)


class NotFound(ApiError):
    """404: no such object, or the kind is not served."""


class AlreadyExists(ApiError):
    """409 on create: the name is taken."""


class Conflict(ApiError):
    """409: the object changed since it was read, or another manager owns a field."""


class Gone(ApiError):
    """410: the resourceVersion is too old; only a new list helps."""


class Forbidden(ApiError):
    """403: the credentials are accepted, but the request is not allowed."""


class Unauthorized(ApiError):
    """401: the credentials were not accepted."""


class Invalid(ApiError):
    """422: the object breaks its schema."""


class TooManyRequests(ApiError):
    """429: the server wants fewer requests."""


class Unavailable(ApiError):
    """5xx: the server cannot answer now."""


class VersionTooLarge(Unavailable):
    """504: this server has not yet seen the resourceVersion that a list asks for."""


class WentBack(Unavailable):
    """A list is older than what was known before it; it is not used."""


class Unreachable(ApiError):
    """No answer: connection refused or lost, or a time-out. Whether a write arrived is unknown. Status 0."""


class StreamIdle(Unreachable):
    """A watch was accepted, then sent nothing for the idle limit: the connection may be dead."""


class Undecodable(ApiError):
    """The server answered with success, but the body cannot be decoded."""


class TooLarge(Undecodable):
    """The body of an answer is longer than what may be read at a time."""


class WriteRefused(ApiError):
    """The write guard forbade the write (another process may lead); nothing was sent. Status 0."""


_BY_STATUS: Final[dict[int, type[ApiError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}
_BY_REASON: Final[dict[str, type[ApiError]]] = {"AlreadyExists": AlreadyExists, "Expired": Gone, "Gone": Gone}
_FIRST_SERVER_ERROR: Final = 500


class _Cause(msgspec.Struct):
    reason: str = ""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: Any = None
    causes: list[_Cause] = []


class _StatusBody(msgspec.Struct, rename="camel"):
    """``Status`` with the details that matter here; every field may be absent in a foreign body."""

    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


_status_decoder: Final = msgspec.json.Decoder(_StatusBody)


def from_status(
    status: int, body: bytes | msgspec.Raw, *, attempted: str, retry_after_seconds: float | None = None
) -> ApiError:
    """Return the error that an HTTP status and its body mean.

    ``status`` 0 means that the body alone says it (an ERROR event of a watch). ``retry_after_seconds`` is the header's
    value; without one, the body's own detail counts.
    """
    try:
        parsed = wire.decode(_status_decoder, body)
    except msgspec.DecodeError:
        parsed = _StatusBody(message=bytes(body).decode("utf-8", "replace"))
    details = parsed.details or _Details()
    status = status or parsed.code
    if retry_after_seconds is None:
        retry_after_seconds = RETRY_AFTER_SECONDS.find(details.retry_after_seconds)
    message = " ".join(parsed.message.split())
    if len(message) > MAX_TEXT_CHARACTERS:
        message = message[:MAX_TEXT_CHARACTERS] + "..."

    kind = _BY_REASON.get(parsed.reason) or _BY_STATUS.get(status)
    if any(cause.reason == "ResourceVersionTooLarge" for cause in details.causes):
        kind = VersionTooLarge
    if kind is None:
        kind = Unavailable if status >= _FIRST_SERVER_ERROR else ApiError
    return kind(status, parsed.reason, message, retry_after_seconds, attempted=attempted)
