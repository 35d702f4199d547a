"""The page of metrics of an endpoint picker: how many requests wait there, by model.

The parser looks at the lines of one metric only. Every step takes time in proportion to the page, for any text. Every
number must be within a range.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from wva.numbers import Real, Whole

QUEUE_SIZE_METRIC: Final = "inference_extension_flow_control_queue_size"
MAX_WAITING: Final = 1_000_000_000.0
"""Requests of one line: no queue holds more, and sums of such numbers stay far from where floating point ends."""

MAX_LINES: Final = 10_000
"""Of the metric in one page: one for each model and priority."""

_MAX_LINE_CHARACTERS: Final = 16 * 1024
_EXPOSITION: Final = re.compile(r"\s*+(\Z|#|[A-Za-z_:][A-Za-z0-9_:]*+(\{[^\n]*\})?[ \t]+[-+0-9NnIi])")
"""How metrics begin: with nothing at all, a comment, or a sample."""

_LINE: Final = re.compile(rf"^{QUEUE_SIZE_METRIC}[{{ \t][^\n]*+", re.MULTILINE)
_LABEL: Final = re.compile(r'[ \t]*+([A-Za-z_][A-Za-z0-9_]*+)[ \t]*+=[ \t]*+"((?:[^"\\]++|\\.)*+)"[ \t]*+(,|\})')
_EMPTY: Final = re.compile(r"[ \t]*+\}")
_ESCAPE: Final = re.compile(r"\\(.)")
_ESCAPES: Final = {"n": "\n", "\\": "\\", '"': '"'}
_NO_NUMBERS: Final = frozenset({"nan", "inf", "+inf", "-inf"})
_WAITING: Final = Real(-MAX_WAITING, MAX_WAITING)
_MILLISECONDS: Final = Whole(-(2**63), 2**63 - 1)
_VALUE_AND_TIME: Final = 2


class NotMetricsError(ValueError):
    """An answer that is no page of metrics; the message says what it is, in words that are safe to show."""


def parse_queues(text: str) -> dict[str, float]:
    """Return the queued requests by model id from a text exposition.

    The model is ``target_model_name``, or ``model_name`` where the target is empty. A value that is not positive, or is
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
        model, waiting = _sample(line[0])
        if model and waiting > 0:
            totals[model] = totals.get(model, 0.0) + waiting
    return totals


def _sample(line: str) -> tuple[str, float]:
    """Return model and value of one line, without a model the empty text. Raises ValueError."""
    rest = line[len(QUEUE_SIZE_METRIC) :].lstrip(" \t")
    labels: dict[str, str] = {}
    if rest.startswith("{"):
        end = 1
        for name, value, end in _labels(rest):  # noqa: B007 - the end of the last one is where the value begins
            labels[name] = value
        rest = rest[end:]
    words = rest.split()
    if not 1 <= len(words) <= _VALUE_AND_TIME:
        raise ValueError("no value, or more than value and time")
    if len(words) == _VALUE_AND_TIME and _MILLISECONDS.find(words[1]) is None:
        raise ValueError("no time")
    return labels.get("target_model_name") or labels.get("model_name", ""), _value(words[0])


def _labels(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield name, value and where the next thing begins, of each label in braces. Raises ValueError."""
    position, closed = 1, False
    empty = _EMPTY.match(text, position)
    if empty is not None:
        yield "", "", empty.end()
        return
    while not closed:
        match = _LABEL.match(text, position)
        if match is None:
            raise ValueError("no label")
        position = match.end()
        closed = match[3] == "}"
        if not closed and (last := _EMPTY.match(text, position)) is not None:
            closed, position = True, last.end()
        yield match[1], _ESCAPE.sub(_unescaped, match[2]), position


def _unescaped(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[1], match[0])


def _value(word: str) -> float:
    """Return a number of requests, 0 for NaN and the infinities. Raises ValueError."""
    if word.lower() in _NO_NUMBERS:
        return 0.0
    number = _WAITING.find(word)
    if number is None:
        raise ValueError("no value")
    return number
