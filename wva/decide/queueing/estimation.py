"""Online estimation of alpha, beta and gamma: a windowed fit in log space (optimizer.md 8.3).

What is minimised per window is the soft-L1 loss of ln(model / observed) for both latencies plus a weak log-normal prior
at a guess from Little's law. The model is the one that replicas are sized with: same definition of the time to first
token, same queue, defined at any load, so that overload is no error. All windows are solved in lockstep by damped
Gauss-Newton steps; derivatives are central differences, evaluated in one block with the steps themselves.

Departure from the original's Kalman filter: no observation can lock the estimate in, since nothing is rejected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wva.decide.queueing.observation import predicted, usable
from wva.decide.queueing.service import IterationTime
from wva.model.queueing import Estimate, Observation

SIGMA_TTFT: Final = 0.05
SIGMA_ITL: Final = 0.03
SIGMA_PRIOR: Final = 1.5
MEMORY_TO_COMPUTE: Final = 1e-3
"""Prior ratio gamma / beta: a resident token costs about a thousandth of a computed one."""

LEAST_ALPHA: Final = 0.2
"""Share of the inter-token latency that the guess leaves to alpha at least."""

MAX_STEPS: Final = 30
_CONVERGED: Final = 1e-4
_LEAST: Final = 1e-300
_DIFFERENCE: Final = 1e-3
_FARTHEST: Final = 12.0
"""Bound of ln(parameter / guess): beyond it only rounding is left."""

Array = NDArray[np.float64]


def little_guess(seen: Observation) -> IterationTime:
    """Return parameters that explain one observation, with gamma a thousandth of beta."""
    prompt, answer = seen.input_tokens, seen.output_tokens
    inside = seen.rate / 1000 * (seen.ttft + answer * seen.itl)
    batch = min(inside, float(seen.batch))
    resident = MEMORY_TO_COMPUTE * (prompt + answer / 2)
    computed = (prompt + answer) / (answer + 1)
    load = batch * (computed + resident) + 1 + resident
    divisor = prompt - 1 - MEMORY_TO_COMPUTE * answer / 2
    share = (1 - LEAST_ALPHA) * seen.itl / load
    beta = (seen.ttft - seen.itl) / divisor if divisor > 0 else share
    if not 0 < beta < share:
        beta = share if beta >= share else share / 2
    alpha = seen.itl - beta * load
    return IterationTime(alpha, beta, MEMORY_TO_COMPUTE * beta)


@dataclass(frozen=True, slots=True)
class _Windows:
    """Observations of all windows in one row, and which window each belongs to."""

    seen: tuple[Observation, ...]
    owner: NDArray[np.intp]
    observed: Array
    prior: Array

    @property
    def count(self) -> int:
        """Number of windows."""
        return len(self.prior)

    def residuals(self, logs: Array) -> Array:
        """Return the weighted residuals (row per observation: TTFT, ITL) at a row of log-parameters per window."""
        rows = np.exp(logs)[self.owner]
        found: Array = (np.log(np.maximum(predicted(self.seen, rows), _LEAST)) - self.observed) / _SIGMAS
        return found

    def derivatives(self, logs: Array) -> Array:
        """Return the derivatives of the residuals: observation, latency, parameter."""
        shifts = np.concatenate((np.eye(3), -np.eye(3))) * _DIFFERENCE
        rows = np.exp(np.concatenate([(logs + shift)[self.owner] for shift in shifts]))
        values = np.log(np.maximum(predicted(self.seen * 6, rows), _LEAST)) / _SIGMAS
        parts = values.reshape(6, len(self.seen), 2)
        return np.moveaxis((parts[:3] - parts[3:]) / (2 * _DIFFERENCE), 0, -1)

    def per_window(self, values: Array) -> Array:
        """Add up a quantity per observation by window."""
        sums = np.zeros((self.count, *values.shape[1:]))
        np.add.at(sums, self.owner, values)
        return sums

    def loss(self, residuals: Array, logs: Array) -> Array:
        """Return what is minimised, per window."""
        robust = 2 * (np.sqrt(1 + residuals**2) - 1)
        pull: Array = (((logs - self.prior) / SIGMA_PRIOR) ** 2).sum(axis=1)
        return self.per_window(robust.sum(axis=1)) + pull


_SIGMAS: Final = np.array([SIGMA_TTFT, SIGMA_ITL])


def estimate(
    windows: Sequence[Sequence[Observation]], starts: Sequence[Estimate | None]
) -> tuple[Estimate | None, ...]:
    """Return an estimate per window; ``starts`` are earlier estimates to begin with, which speak for nothing else.

    A window without a usable observation keeps its earlier estimate.
    """
    kept = [tuple(each for each in window if usable(each)) for window in windows]
    filled = [number for number, window in enumerate(kept) if window]
    if not filled:
        return tuple(starts)
    found = list(starts)
    guesses = [_typical(kept[number]) for number in filled]
    starting = [starts[number] or guess for number, guess in zip(filled, guesses, strict=True)]
    fitted = _fit(_joined([kept[number] for number in filled], guesses), _logs(starting))
    for number, each in zip(filled, fitted, strict=True):
        found[number] = each
    return tuple(found)


def _typical(window: Sequence[Observation]) -> IterationTime:
    """Return the guess in the middle: the geometric mean over the window."""
    guesses = [little_guess(seen) for seen in window]
    means = np.exp(_logs(guesses).mean(axis=0))
    return IterationTime(*means.tolist())


def _logs(parameters: Sequence[IterationTime | Estimate]) -> Array:
    logs: Array = np.log(np.array([(each.alpha, each.beta, each.gamma) for each in parameters]))
    return logs


def _joined(windows: Sequence[Sequence[Observation]], guesses: Sequence[IterationTime]) -> _Windows:
    seen = tuple(each for window in windows for each in window)
    owner = np.repeat(np.arange(len(windows), dtype=np.intp), [len(window) for window in windows])
    observed = np.log(np.array([(each.ttft, each.itl) for each in seen]))
    return _Windows(seen, owner, observed, _logs(guesses))


def _fit(windows: _Windows, logs: Array) -> list[Estimate]:
    """Take damped steps until no window moves; a step that makes a window worse is not taken, and damped more."""
    logs = np.clip(logs, windows.prior - _FARTHEST, windows.prior + _FARTHEST)
    damping = np.full(windows.count, 1e-3)
    residuals = windows.residuals(logs)
    loss = windows.loss(residuals, logs)
    for _ in range(MAX_STEPS):
        curvature, slope = _normal(windows, residuals, logs)
        diagonal = np.einsum("wii->wi", curvature)
        damped = curvature + damping[:, None, None] * (np.eye(3) * diagonal[:, None, :])
        step = np.clip(-np.linalg.solve(damped, slope[:, :, None])[:, :, 0], -1.0, 1.0)
        trial = np.clip(logs + step, windows.prior - _FARTHEST, windows.prior + _FARTHEST)
        trial_residuals = windows.residuals(trial)
        trial_loss = windows.loss(trial_residuals, trial)
        better = trial_loss <= loss
        moved = np.abs(trial - logs).max(axis=1)
        logs = np.where(better[:, None], trial, logs)
        residuals = np.where(better[windows.owner][:, None], trial_residuals, residuals)
        loss = np.where(better, trial_loss, loss)
        damping = np.clip(np.where(better, damping / 5, damping * 10), 1e-9, 1e9)
        if moved.max() < _CONVERGED:
            break
    return _estimates(windows, residuals, logs)


def _normal(windows: _Windows, residuals: Array, logs: Array) -> tuple[Array, Array]:
    """Return curvature and slope of the loss per window, with the weights of the soft-L1 loss."""
    jacobian = windows.derivatives(logs)
    weights = 1 / np.sqrt(1 + residuals**2)
    curvature = windows.per_window(np.einsum("nl,nlp,nlq->npq", weights, jacobian, jacobian))
    slope = windows.per_window(np.einsum("nl,nlp,nl->np", weights, jacobian, residuals))
    return curvature + np.eye(3) / SIGMA_PRIOR**2, slope + (logs - windows.prior) / SIGMA_PRIOR**2


def _estimates(windows: _Windows, residuals: Array, logs: Array) -> list[Estimate]:
    jacobian = windows.derivatives(logs)
    information = windows.per_window(np.einsum("nlp,nlq->npq", jacobian, jacobian))
    decided = (np.linalg.eigvalsh(information) > 1 / SIGMA_PRIOR**2).sum(axis=1)
    squares = windows.per_window(((residuals * _SIGMAS) ** 2).mean(axis=1))
    counts = np.bincount(windows.owner, minlength=windows.count)
    errors = np.sqrt(squares / counts)
    return [
        Estimate(alpha, beta, gamma, error=error, identified=identified)
        for (alpha, beta, gamma), error, identified in zip(
            np.exp(logs).tolist(), errors.tolist(), decided.tolist(), strict=True
        )
    ]
