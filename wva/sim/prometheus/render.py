"""JSON of the HTTP API: from values and errors to response bodies.

Numbers are strings, because JSON has no NaN, and are printed as Prometheus prints them: shortest digits that read back
the same, an exponent only below 1e-6 and from 1e21 on.
"""

from __future__ import annotations

import math
from decimal import Decimal

from wva.sim.prometheus.promql.values import RangeElement, Value, VectorElement

Json = dict[str, object]

_SMALLEST_PLAIN = 1e-6
_LARGEST_PLAIN = 1e21


def number(value: float) -> str:
    """Return a number as text: ``0.75``, ``1000000``, ``1e-07``, ``NaN``, ``+Inf``."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    text = repr(float(value))
    if value != 0 and not _SMALLEST_PLAIN <= abs(value) < _LARGEST_PLAIN:
        return text
    if "e" in text:
        text = format(Decimal(text), "f")
    return text.removesuffix(".0")


def seconds(time_ms: int) -> float:
    """Return a time in seconds; whole seconds come out as an integer."""
    whole, rest = divmod(time_ms, 1000)
    return whole if rest == 0 else time_ms / 1000


def _point(time_ms: int, value: float) -> list[object]:
    return [seconds(time_ms), number(value)]


def instant_data(value: Value, time_ms: int) -> Json:
    """Return the ``data`` of an instant query whose value is no range vector."""
    if isinstance(value, str):
        return {"resultType": "string", "result": [seconds(time_ms), value]}
    if isinstance(value, float):
        return {"resultType": "scalar", "result": _point(time_ms, value)}
    samples = [element for element in value if isinstance(element, VectorElement)]
    result = [{"metric": dict(sample.labels), "value": _point(time_ms, sample.value)} for sample in samples]
    return {"resultType": "vector", "result": result}


def matrix_data(value: Value) -> Json:
    """Return the ``data`` of an instant query for a range vector: the stored samples."""
    windows = [element for element in value if isinstance(element, RangeElement)] if isinstance(value, list) else []
    return {"resultType": "matrix", "result": [_window(window) for window in windows]}


def _window(window: RangeElement) -> Json:
    points = [_point(time_ms, value) for time_ms, value in zip(window.times, window.values, strict=True)]
    return {"metric": dict(window.labels), "values": points}


def range_data(steps: list[tuple[int, Value]]) -> Json:
    """Return the ``data`` of a range query from the values of its steps."""
    series: dict[frozenset[tuple[str, str]], list[object]] = {}
    for time_ms, value in steps:
        elements = [VectorElement({}, value, time_ms)] if isinstance(value, float) else value
        for sample in elements:
            if isinstance(sample, VectorElement):
                points = series.setdefault(frozenset(sample.labels.items()), [])
                points.append(_point(time_ms, sample.value))
    ordered = sorted((sorted(labels), points) for labels, points in series.items())
    return {
        "resultType": "matrix",
        "result": [{"metric": dict(labels), "values": points} for labels, points in ordered],
    }


def success(data: object, *, warnings: tuple[str, ...] = ()) -> Json:
    """Return the body of an answer."""
    body: Json = {"status": "success", "data": data}
    if warnings:
        body["warnings"] = list(warnings)
    return body


def failure(kind: str, message: str) -> Json:
    """Return the body of an error; ``kind`` is one of Prometheus' error types such as ``bad_data``."""
    return {"status": "error", "errorType": kind, "error": message}
