"""Parameters of the HTTP API: from the query string and the form of a request to typed values.

The messages are those of Prometheus, because people search for the messages that they see.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from wva.sim.prometheus.promql.errors import BadQueryError
from wva.sim.prometheus.promql.grammar import parse_duration_seconds
from wva.sim.prometheus.tsdb import milliseconds


def invalid(name: str, error: object) -> BadQueryError:
    """Return the error for an invalid parameter."""
    return BadQueryError(f'invalid parameter "{name}": {error}')


def time_ms(form: Mapping[str, str], name: str, *, default_seconds: float | None = None) -> int:
    """Return a time given as seconds or in RFC 3339; without a default it must be there."""
    text = form.get(name, "")
    if not text and default_seconds is not None:
        return milliseconds(default_seconds)
    try:
        return milliseconds(float(text))
    except (ValueError, OverflowError):
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as e:
        raise invalid(name, f'cannot parse "{text}" to a valid timestamp') from e
    return milliseconds(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp())


def duration_ms(form: Mapping[str, str], name: str, *, default_ms: int | None = None) -> int:
    """Return a duration given as seconds or like ``1m30s``; without a default it must be there."""
    text = form.get(name, "")
    if not text and default_ms is not None:
        return default_ms
    try:
        return milliseconds(float(text))
    except (ValueError, OverflowError):
        pass
    try:
        return milliseconds(parse_duration_seconds(text))
    except BadQueryError as e:
        raise invalid(name, f'cannot parse "{text}" to a valid duration') from e


def limit(form: Mapping[str, str]) -> int | None:
    """Return the limit of results; None for all (Prometheus reads 0 as all)."""
    text = form.get("limit", "") or "0"
    if not text.isascii() or not text.isdigit():
        raise invalid("limit", f'cannot parse "{text}" to a valid limit')
    return int(text) or None
