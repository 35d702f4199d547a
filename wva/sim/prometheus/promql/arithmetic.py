"""IEEE arithmetic of PromQL operators and functions: where Python raises an error, the result is that of Go."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

NAN = math.nan


def divide(left: float, right: float) -> float:
    """Return the quotient; division by zero gives an infinity or NaN."""
    if right != 0:
        return left / right
    if left == 0 or math.isnan(left):
        return NAN
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def modulo(left: float, right: float) -> float:
    """Return the remainder with the sign of the dividend, NaN if there is none."""
    try:
        return math.fmod(left, right)
    except ValueError:
        return NAN


def power(left: float, right: float) -> float:
    """Return the power: infinities on overflow and at poles, NaN outside the domain."""
    odd = math.isfinite(right) and math.fmod(right, 2) in (1.0, -1.0)
    try:
        return math.pow(left, right)
    except OverflowError:
        return -math.inf if left < 0 and odd else math.inf
    except ValueError:
        if left != 0:
            return NAN
        return math.copysign(math.inf, left) if odd else math.inf


def floor(value: float) -> float:
    """Round down. Infinities and NaN stay, and zero keeps its sign."""
    return math.copysign(float(math.floor(value)), value) if math.isfinite(value) else value


def ceil(value: float) -> float:
    """Round up. Infinities and NaN stay, and zero keeps its sign."""
    return math.copysign(float(math.ceil(value)), value) if math.isfinite(value) else value


def round_to(value: float, nearest: float) -> float:
    """Round to a multiple of ``nearest``, halves up."""
    inverse = divide(1.0, nearest)
    return divide(floor(value * inverse + 0.5), inverse)


def lower_bound(value: float, bound: float) -> float:
    """Return the larger of both; NaN if one of them is NaN, unless the other is the positive infinity."""
    return _extreme(value, bound, math.inf)


def upper_bound(value: float, bound: float) -> float:
    """Return the smaller of both; NaN if one of them is NaN, unless the other is the negative infinity."""
    return _extreme(value, bound, -math.inf)


def _extreme(left: float, right: float, limit: float) -> float:
    if limit in (left, right):
        return limit
    if math.isnan(left) or math.isnan(right):
        return NAN
    return max(left, right) if limit > 0 else min(left, right)


ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": divide,
    "%": modulo,
    "^": power,
    "atan2": math.atan2,
}
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}
