"""The text format of ``/metrics``: turns a page into samples.

The module has a parser of its own instead of ``prometheus_client.parser`` for two reasons. Prometheus itself keys a
target's series by the literal text before the value, so that labels are parsed once per series and not once per scrape;
this needs the line in two halves, which the library does not offer. And the parser is an order of magnitude faster,
which decides whether two simulated hours take seconds or a minute. ``tests`` compare it with the library's parser on
generated pages.

A page with any malformed line is refused as a whole, as Prometheus does. Comments, HELP and TYPE lines carry nothing
that a query can see and are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from wva.sim.prometheus.tsdb import NAME

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\\n]|\\.)*)"\s*(,|$)')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", '"': '"', "\\": "\\"}
_NUMBER_AND_TIME = 2


class ExpositionError(ValueError):
    """A page that is not in the text format."""


class SampleLine(NamedTuple):
    """One sample line: the text naming the series, its value, and its own time if the page gives one."""

    series: str
    value: float
    timestamp_ms: int | None


def lines(page: str) -> Iterator[SampleLine]:
    """Yield the sample lines of a page; ExpositionError at the first malformed one."""
    return (line for _, line in lines_since(page, {}))


def lines_since(page: str, before: Mapping[str, SampleLine]) -> Iterator[tuple[str, SampleLine]]:
    """Yield the sample lines of a page with their texts; a text that ``before`` has is not parsed again.

    Most lines of a page are the same as at the last scrape. Raises ExpositionError at the first malformed line.
    """
    for raw in page.split("\n"):
        known_line = before.get(raw)
        if known_line is not None:
            yield raw, known_line
        elif raw and raw[0] != "#":
            text = raw.strip()
            if text and text[0] != "#":
                yield raw, _line(text)


def _line(text: str) -> SampleLine:
    end = text.rfind("}") + 1
    if end == 0:
        end = len(text.split(None, 1)[0])
    rest = text[end:].split()
    if not 1 <= len(rest) <= _NUMBER_AND_TIME:
        raise ExpositionError(f"expected a value and at most a timestamp after {text[:end]!r}, got {text[end:]!r}")
    try:
        timestamp_ms = int(rest[1]) if len(rest) == _NUMBER_AND_TIME else None
        return SampleLine(text[:end], float(rest[0]), timestamp_ms)
    except ValueError as e:
        raise ExpositionError(f"not a number in {text!r}") from e


def parse_series(text: str) -> dict[str, str]:
    """Return the labels, ``__name__`` among them, of the part of a line before its value."""
    match = _NAME.match(text)
    if match is None:
        raise ExpositionError(f"no metric name in {text!r}")
    labels = {NAME: match.group()}
    rest = text[match.end() :].strip()
    if not rest:
        return labels
    if not (rest.startswith("{") and rest.endswith("}")):
        raise ExpositionError(f"malformed labels in {text!r}")
    _parse_labels(rest[1:-1], into=labels)
    return labels


def _parse_labels(body: str, *, into: dict[str, str]) -> None:
    position = 0
    while body[position:].strip():
        match = _LABEL.match(body, position)
        if match is None or match.group(1) in into:
            raise ExpositionError(f"malformed or repeated label in {{{body}}}")
        into[match.group(1)] = _unescape(match.group(2))
        position = match.end()


def _unescape(value: str) -> str:
    if "\\" not in value:
        return value
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match.group(1), match.group()), value)
