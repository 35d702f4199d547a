"""The estimator of the Go controller: an extended Kalman filter over (alpha, beta, gamma).

WVA does not use it. Tests compare it with recorded steps, to show that this model of an engine is the original's. It
differs in one point: it evaluates a load that the state cannot serve, where the original fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tests.golden.original.observation import Reports, usable
from tests.golden.original.observed import ObservedReplica
from tests.golden.original.service import IterationTime
from wva.model.records import replace

DEFAULT_STATE: Final = IterationTime(5.0, 0.05, 0.00005)
BOUND_FACTORS: Final = (0.01, 100.0)
BASE_SHARE: Final = 0.9
PROCESS_NOISE: Final = 0.05
OBSERVATION_NOISE: Final = 0.05 / 1.96
MOST_SURPRISING: Final = 7.378
"""Normalised innovation squared from which an observation is rejected: 97.5 % of chi-square with two degrees."""

_STEP: Final = 0.01
_FAILED: Final = -1.0

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class KalmanState:
    """Estimated parameters, their covariance, and the last update.

    ``covariance`` is 3 by 3, row by row; empty before the first update. ``nis`` is the normalised innovation squared of
    the last observation, -1 if none could be computed, and ``innovation`` its residuals in ms (TTFT, ITL).
    """

    parameters: IterationTime
    covariance: tuple[float, ...] = ()
    nis: float = 0.0
    rejected: bool = False
    innovation: tuple[float, ...] = ()


def guess(seen: ObservedReplica) -> IterationTime | None:
    """Return the original's first guess from one observation; None if it is not positive."""
    alpha = BASE_SHARE * seen.itl
    slope = (seen.ttft - alpha) / seen.input_tokens
    divisor = seen.input_tokens + (seen.output_tokens + 1) / 2 - 1
    if slope < 0 or divisor <= 0:
        return None
    gamma = (seen.itl - alpha - slope) / divisor
    beta = slope - gamma
    return IterationTime(alpha, beta, gamma) if min(alpha, beta, gamma) > 0 else None


def update(state: KalmanState, seen: Sequence[ObservedReplica], *, bounds_from: IterationTime) -> KalmanState:
    """Return the state after the observations of one cycle, with the result of the last one.

    All observations of a cycle have the same noise. The bounds are a hundredth to a hundredfold of ``bounds_from``.
    Without a usable observation nothing changes; a state that is not positive is rejected.
    """
    kept = [each for each in seen if usable(each)]
    if not kept:
        return state
    x = _array(state.parameters)
    if not (x > 0).all():
        return replace(state, nis=_FAILED, rejected=True)
    noise = np.diag((PROCESS_NOISE * x) ** 2)
    covariance = np.array(state.covariance).reshape(3, 3) if state.covariance else noise
    bounds = _array(bounds_from) * BOUND_FACTORS[0], _array(bounds_from) * BOUND_FACTORS[1]
    x = np.clip(x, *bounds)
    spread = np.diag((OBSERVATION_NOISE * np.array([kept[0].ttft, kept[0].itl])) ** 2)
    found = state
    for each in kept:
        innovation, jacobian = _linearised(each, x)
        step = _Step(x, covariance + noise, innovation, jacobian)
        new_x, new_covariance, nis = step.corrected(spread, bounds)
        rejected = nis < 0 or nis >= MOST_SURPRISING
        if not rejected:
            x, covariance = new_x, new_covariance
        found = KalmanState(
            IterationTime(*x.tolist()), tuple(covariance.ravel().tolist()), nis, rejected, tuple(innovation.tolist())
        )
    return found


@dataclass(frozen=True, slots=True)
class _Step:
    """One observation: the state and covariance before it, its residuals, and their derivatives."""

    x: Array
    covariance: Array
    innovation: Array
    jacobian: Array

    def corrected(self, spread: Array, bounds: tuple[Array, Array]) -> tuple[Array, Array, float]:
        """Return state, covariance and normalised innovation squared; -1 if the step cannot be computed."""
        with np.errstate(all="ignore"):  # the next line refuses what is not finite
            total = self.jacobian @ self.covariance @ self.jacobian.T + spread
        if not np.isfinite(total).all() or np.linalg.det(total) == 0:
            return self.x, self.covariance, _FAILED
        inverse = np.linalg.inv(total)
        gain = self.covariance @ self.jacobian.T @ inverse
        x = np.clip(self.x + gain @ self.innovation, *bounds)
        nis = float(self.innovation @ inverse @ self.innovation)
        return x, (np.eye(3) - gain @ self.jacobian) @ self.covariance, nis


def _linearised(seen: ObservedReplica, x: Array) -> tuple[Array, Array]:
    """Return residuals and derivatives (central differences, 1 % steps) at a state."""
    steps = _STEP * x
    rows = np.concatenate((x[None, :], x + np.diag(steps), x - np.diag(steps)))
    values = Reports.of([seen] * 7).predicted(rows, first_decode=False)
    jacobian = (values[1:4] - values[4:7]).T / (2 * steps)
    return np.array([seen.ttft, seen.itl]) - values[0], jacobian


def _array(parameters: IterationTime) -> Array:
    return np.array([parameters.alpha, parameters.beta, parameters.gamma])
