"""Finds roots of many monotone functions in lockstep by Chandrupatla's method: inverse quadratic steps, else bisection.

The method needs a third of the evaluations of bisection, and never leaves the bracket. Converged rows leave the block
as soon as half of its rows have converged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.golden.original.geometric import Vector
from wva.model.records import replace

TOLERANCE: Final = 1e-12
MAX_ITERATIONS: Final = 200

Evaluate = Callable[[NDArray[np.intp], Vector], Vector]
"""Values of some rows' functions at some points."""


@dataclass(frozen=True, slots=True)
class _Brackets:
    """Newest point ``a``, ``b`` on the other side of the root, former newest ``c``, and the next step ``share``."""

    rows: NDArray[np.intp]
    a: Vector
    b: Vector
    c: Vector
    fa: Vector
    fb: Vector
    fc: Vector
    share: Vector

    def take(self, kept: NDArray[np.bool_]) -> _Brackets:
        return _Brackets(
            self.rows[kept],
            self.a[kept],
            self.b[kept],
            self.c[kept],
            self.fa[kept],
            self.fb[kept],
            self.fc[kept],
            self.share[kept],
        )


@dataclass(frozen=True, slots=True)
class Bracket:
    """Two points per row where its function has different signs, the values there, and the point to try first."""

    low: Vector
    high: Vector
    at_low: Vector
    at_high: Vector
    first: float


def find_roots(evaluate: Evaluate, bracket: Bracket) -> Vector:
    """Return a root per row, to 1e-12: the end of the last bracket with the smaller absolute value."""
    low, high, at_low, at_high = bracket.low, bracket.high, bracket.at_low, bracket.at_high
    share = np.clip((high - bracket.first) / (high - low), 0.01, 0.5)
    found = np.where(np.abs(at_low) < np.abs(at_high), low, high)
    rows = np.arange(len(low), dtype=np.intp)
    state = _Brackets(rows, high, low, low, at_high, at_low, at_low, share)
    for number in range(MAX_ITERATIONS):
        state, best, finished = _settled(state, start=number == 0)
        found[state.rows] = best
        if finished.all():
            break
        if 2 * int(finished.sum()) >= len(finished):
            state = state.take(~finished)
        point = state.a + state.share * (state.b - state.a)
        state = _stepped(state, point, evaluate(state.rows, point))
    return found


def _settled(state: _Brackets, *, start: bool) -> tuple[_Brackets, Vector, NDArray[np.bool_]]:
    """Return the state with its next step, the best points so far, and which rows are finished."""
    a, b, c, fa, fb, fc = state.a, state.b, state.c, state.fa, state.fb, state.fc
    best = np.where(np.abs(fa) < np.abs(fb), a, b)
    gap = b - a
    width = np.abs(gap)
    tolerance = np.maximum(TOLERANCE, 4 * np.finfo(np.float64).eps * np.abs(best))
    finished = (width <= tolerance) | (fa == 0) | (fb == 0)
    if start:
        return state, best, finished
    with np.errstate(divide="ignore", invalid="ignore"):  # a row that divides by zero here bisects instead
        to_b, beyond = fb - fa, fc - fb
        xi, phi = gap / (b - c), -to_b / beyond
        interpolates = (phi * phi < xi) & ((1 - phi) ** 2 < 1 - xi)
        quadratic = fa / beyond * (fb * (c - a) / (gap * (fc - fa)) - fc / to_b)
        least = np.minimum(0.5, 0.5 * tolerance / width)
    share = np.where(interpolates, quadratic, 0.5)
    return replace(state, share=np.clip(share, least, 1 - least)), best, finished


def _stepped(state: _Brackets, point: Vector, value: Vector) -> _Brackets:
    """Return the brackets with a new point in them."""
    same = np.sign(value) == np.sign(state.fa)
    return replace(
        state,
        a=point,
        fa=value,
        b=np.where(same, state.b, state.a),
        fb=np.where(same, state.fb, state.fa),
        c=np.where(same, state.a, state.b),
        fc=np.where(same, state.fa, state.fb),
    )
