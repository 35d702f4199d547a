"""The evaluator: it computes the value of a syntax tree at a time.

The parser has checked the types, so the few run-time checks here only narrow them.
"""

from __future__ import annotations

from collections.abc import Callable

from wva.model.records import replace
from wva.sim.prometheus.promql import arithmetic, binary
from wva.sim.prometheus.promql.aggregation import aggregate
from wva.sim.prometheus.promql.errors import BadQueryError, ExecutionError
from wva.sim.prometheus.promql.histogram import histogram_quantile
from wva.sim.prometheus.promql.nodes import (
    Aggregation,
    Binary,
    Cardinality,
    Expr,
    FunctionCall,
    Negation,
    Number,
    Range,
    Subquery,
    Text,
    VectorSelector,
)
from wva.sim.prometheus.promql.patterns import compile_pattern, expand
from wva.sim.prometheus.promql.selection import EvaluationTime, absent_labels, instant, ranges, reference_ms
from wva.sim.prometheus.promql.values import (
    Matrix,
    RangeElement,
    Value,
    Vector,
    VectorElement,
    require_unique,
    same_metric,
    without_name,
)
from wva.sim.prometheus.promql.windows import WINDOW_FUNCTIONS

_KEEPS_NAME = frozenset({"last_over_time"})


def evaluate(expr: Expr, moment: EvaluationTime) -> Value:
    """Return the value of an expression; PromqlError if the data does not allow one."""
    if isinstance(expr, Number | Text):
        return expr.value
    return _EVALUATORS[type(expr)](expr, moment)


def _scalar(expr: Expr, moment: EvaluationTime) -> float:
    value = evaluate(expr, moment)
    if not isinstance(value, float):
        raise BadQueryError("expected a scalar")
    return value


def _text(expr: Expr) -> str:
    if not isinstance(expr, Text):
        raise BadQueryError("expected a string literal")
    return expr.value


def _samples(value: Value) -> Vector:
    return [element for element in value if isinstance(element, VectorElement)] if isinstance(value, list) else []


def _vector(expr: Expr, moment: EvaluationTime) -> Vector:
    return _samples(evaluate(expr, moment))


def _matrix(expr: Expr, moment: EvaluationTime) -> Matrix:
    value = evaluate(expr, moment)
    return [element for element in value if isinstance(element, RangeElement)] if isinstance(value, list) else []


def _aggregation(node: Aggregation, moment: EvaluationTime) -> Vector:
    parameter = None if node.parameter is None else _scalar(node.parameter, moment)
    return aggregate(node, _vector(node.operand, moment), parameter=parameter, time_ms=moment.time_ms)


def _negation(node: Negation, moment: EvaluationTime) -> Value:
    value = evaluate(node.operand, moment)
    if isinstance(value, float):
        return -value
    return _map(_samples(value), lambda number: -number)


def _binary(node: Binary, moment: EvaluationTime) -> Value:
    left, right = evaluate(node.left, moment), evaluate(node.right, moment)
    if isinstance(left, float):
        if isinstance(right, float):
            return binary.numbers(node, left, right)
        return binary.vector_and_number(node, _samples(right), left, number_is_left=True)
    if isinstance(right, float):
        return binary.vector_and_number(node, _samples(left), right, number_is_left=False)
    if node.matching.cardinality is Cardinality.MANY_TO_MANY:
        return binary.set_operation(node, _samples(left), _samples(right))
    return binary.two_vectors(node, _samples(left), _samples(right))


def _map(vector: Vector, compute: Callable[[float], float]) -> Vector:
    """Return the elements with changed numbers, without the metric name, since they are no longer that metric."""
    result = [VectorElement(without_name(sample.labels), compute(sample.value), sample.time_ms) for sample in vector]
    return result if same_metric(vector) else require_unique(result)


def _call(node: FunctionCall, moment: EvaluationTime) -> Value:
    if node.function in WINDOW_FUNCTIONS:
        return _windows(node, moment)
    return _FUNCTIONS[node.function](node, moment)


def _windows(node: FunctionCall, moment: EvaluationTime) -> Vector:
    compute = WINDOW_FUNCTIONS[node.function]
    keeps_name = node.function in _KEEPS_NAME
    matrix = _matrix(node.arguments[0], moment)
    result: Vector = []
    for window in matrix:
        value = compute(window)
        if value is not None:
            labels = window.labels if keeps_name else without_name(window.labels)
            result.append(VectorElement(labels, value, moment.time_ms))
    return result if keeps_name or same_metric(matrix) else require_unique(result)


def _subquery(node: Subquery, moment: EvaluationTime) -> Matrix:
    """Evaluate the operand at the multiples of the step within the range, which is left-open."""
    end_ms = reference_ms(node, moment)
    start_ms = end_ms - node.range_ms
    first_ms = (start_ms // node.step_ms + 1) * node.step_ms
    windows: dict[frozenset[tuple[str, str]], RangeElement] = {}
    for time_ms in range(first_ms, end_ms + 1, node.step_ms):
        value = evaluate(node.operand, replace(moment, time_ms=time_ms))
        vector = [VectorElement({}, value, time_ms)] if isinstance(value, float) else _samples(value)
        for sample in vector:
            key = frozenset(sample.labels.items())
            window = windows.setdefault(key, RangeElement(sample.labels, [], [], start_ms, end_ms))
            window.times.append(time_ms)
            window.values.append(sample.value)
    return list(windows.values())


def _numbers(node: FunctionCall, moment: EvaluationTime) -> list[float]:
    return [_scalar(argument, moment) for argument in node.arguments[1:]]


def _absent(node: FunctionCall, moment: EvaluationTime) -> Vector:
    (operand,) = node.arguments
    if _vector(operand, moment):
        return []
    return [VectorElement(absent_labels(operand) if isinstance(operand, VectorSelector) else {}, 1.0, moment.time_ms)]


def _clamp(node: FunctionCall, moment: EvaluationTime) -> Vector:
    lowest, highest = _numbers(node, moment)
    if lowest > highest:
        return []
    return _map(
        _vector(node.arguments[0], moment),
        lambda value: arithmetic.lower_bound(arithmetic.upper_bound(value, highest), lowest),
    )


def _clamp_min(node: FunctionCall, moment: EvaluationTime) -> Vector:
    (bound,) = _numbers(node, moment)
    return _map(_vector(node.arguments[0], moment), lambda value: arithmetic.lower_bound(value, bound))


def _clamp_max(node: FunctionCall, moment: EvaluationTime) -> Vector:
    (bound,) = _numbers(node, moment)
    return _map(_vector(node.arguments[0], moment), lambda value: arithmetic.upper_bound(value, bound))


def _round(node: FunctionCall, moment: EvaluationTime) -> Vector:
    nearest = next(iter(_numbers(node, moment)), 1.0)
    return _map(_vector(node.arguments[0], moment), lambda value: arithmetic.round_to(value, nearest))


def _elementwise(compute: Callable[[float], float]) -> Callable[[FunctionCall, EvaluationTime], Value]:
    return lambda node, moment: _map(_vector(node.arguments[0], moment), compute)


def _timestamp(node: FunctionCall, moment: EvaluationTime) -> Vector:
    """Return the stored time of each sample of a plain selector, else the time of evaluation."""
    (operand,) = node.arguments
    vector = _vector(operand, moment)
    plain = isinstance(operand, VectorSelector)
    result = [
        VectorElement(without_name(sample.labels), (sample.time_ms if plain else moment.time_ms) / 1000, moment.time_ms)
        for sample in vector
    ]
    return result if same_metric(vector) else require_unique(result)


def _to_scalar(node: FunctionCall, moment: EvaluationTime) -> float:
    vector = _vector(node.arguments[0], moment)
    return vector[0].value if len(vector) == 1 else arithmetic.NAN


def _to_vector(node: FunctionCall, moment: EvaluationTime) -> Vector:
    return [VectorElement({}, _scalar(node.arguments[0], moment), moment.time_ms)]


def _quantile(node: FunctionCall, moment: EvaluationTime) -> Vector:
    quantile, vector = _scalar(node.arguments[0], moment), _vector(node.arguments[1], moment)
    return histogram_quantile(quantile, vector, time_ms=moment.time_ms)


def _label_replace(node: FunctionCall, moment: EvaluationTime) -> Vector:
    target, template, source, text = (_text(argument) for argument in node.arguments[1:])
    if not target:
        raise ExecutionError("invalid destination label name in label_replace(): ")
    try:
        pattern = compile_pattern(text)
    except BadQueryError as e:
        raise ExecutionError(f"invalid regular expression in label_replace(): {text}") from e
    result: Vector = []
    for sample in _vector(node.arguments[0], moment):
        labels = dict(sample.labels)
        if match := pattern.fullmatch(labels.get(source, "")):
            labels.pop(target, None)
            if replacement := expand(template, match):
                labels[target] = replacement
        result.append(sample._replace(labels=labels))
    return require_unique(result)


_FUNCTIONS: dict[str, Callable[[FunctionCall, EvaluationTime], Value]] = {
    "abs": _elementwise(abs),
    "absent": _absent,
    "ceil": _elementwise(arithmetic.ceil),
    "clamp": _clamp,
    "clamp_max": _clamp_max,
    "clamp_min": _clamp_min,
    "floor": _elementwise(arithmetic.floor),
    "histogram_quantile": _quantile,
    "label_replace": _label_replace,
    "round": _round,
    "scalar": _to_scalar,
    "time": lambda _, moment: moment.time_ms / 1000,
    "timestamp": _timestamp,
    "vector": _to_vector,
}
_EVALUATORS: dict[type, Callable[..., Value]] = {
    VectorSelector: instant,
    Range: ranges,
    Subquery: _subquery,
    FunctionCall: _call,
    Aggregation: _aggregation,
    Binary: _binary,
    Negation: _negation,
}
FUNCTIONS = frozenset({*_FUNCTIONS, *WINDOW_FUNCTIONS})
