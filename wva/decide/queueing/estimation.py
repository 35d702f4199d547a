"""Online estimation of alpha, beta and gamma: a windowed fit in log space.

Formulas: docs/design/queueing-formulas.md#learning-the-parameters.

What is minimised per window is the soft-L1 loss of ln(model / observed) for both latencies plus a weak log-normal prior
at a guess from Little's law. The model is the one that replicas are sized with: same definition of the time to first
token, same queue, defined at any load, so that overload is no error. All windows are solved in lockstep by damped
Gauss-Newton steps; derivatives are central differences, evaluated in one block with the steps themselves.

Unlike the Kalman filter of the Go controller it rejects no observation, so a wrong estimate never stays for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from wva.decide.queueing.columns import Rows
from wva.decide.queueing.geometric import Vector
from wva.decide.queueing.observation import Matrix, Reports, usable
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
    """Observations of all windows in one row, which window each belongs to, and the guess per window in logarithms."""

    reports: Reports
    owner: Rows
    prior: Matrix

    @property
    def count(self) -> int:
        """Number of windows."""
        return len(self.prior)

    def take(self, windows: Rows) -> _Windows:
        """Return some of the windows."""
        place = np.full(self.count, -1, dtype=np.intp)
        place[windows] = np.arange(len(windows))
        rows = np.flatnonzero(place[self.owner] >= 0)
        return _Windows(self.reports.take(rows), place[self.owner[rows]], self.prior[windows])

    def residuals(self, logs: Matrix) -> Matrix:
        """Return the weighted residuals (row per observation: TTFT, ITL) at a row of log-parameters per window."""
        found: Matrix = (_log(self.reports.predicted(np.exp(logs)[self.owner])) - self.reports.latencies) / _SIGMAS
        return found

    def derivatives(self, logs: Matrix) -> Matrix:
        """Return the derivatives of the residuals: observation, latency, parameter."""
        shifts = np.concatenate((np.eye(3), -np.eye(3))) * _DIFFERENCE
        rows = np.exp(np.concatenate([(logs + shift)[self.owner] for shift in shifts]))
        count = len(self.owner)
        values = _log(self.reports.take(np.tile(np.arange(count), 6)).predicted(rows)) / _SIGMAS
        parts = values.reshape(6, count, 2)
        return np.moveaxis((parts[:3] - parts[3:]) / (2 * _DIFFERENCE), 0, -1)

    def per_window(self, values: Matrix) -> Matrix:
        """Add up a quantity per observation by window."""
        sums = np.zeros((self.count, *values.shape[1:]))
        np.add.at(sums, self.owner, values)
        return sums

    def loss(self, residuals: Matrix, logs: Matrix) -> Vector:
        """Return what is minimised, per window."""
        robust = 2 * (np.sqrt(1 + residuals**2) - 1)
        pull: Vector = (((logs - self.prior) / SIGMA_PRIOR) ** 2).sum(axis=1)
        return self.per_window(robust.sum(axis=1)) + pull


def _log(times: Matrix) -> Matrix:
    logarithms: Matrix = np.log(np.maximum(times, _LEAST))
    return logarithms


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


def _logs(parameters: Sequence[IterationTime | Estimate]) -> Matrix:
    logs: Matrix = np.log(np.array([(each.alpha, each.beta, each.gamma) for each in parameters]))
    return logs


def _joined(windows: Sequence[Sequence[Observation]], guesses: Sequence[IterationTime]) -> _Windows:
    owner = np.repeat(np.arange(len(windows), dtype=np.intp), [len(window) for window in windows])
    return _Windows(Reports.of([each for window in windows for each in window]), owner, _logs(guesses))


def _fit(windows: _Windows, logs: Matrix) -> list[Estimate]:
    """Take damped steps until no window moves; a window that has settled is not looked at again."""
    logs = np.clip(logs, windows.prior - _FARTHEST, windows.prior + _FARTHEST)
    active, part = np.arange(windows.count, dtype=np.intp), windows
    state = _State.of(part, logs)
    for _ in range(MAX_STEPS):
        state, moved = state.step(part)
        logs[active] = state.logs
        going = np.flatnonzero(moved >= _CONVERGED)
        if not len(going):
            break
        if len(going) < len(active):
            active, part = active[going], part.take(going)
            state = _State(state.logs[going], *_evaluated(part, state.logs[going]), state.damping[going])
    return _estimates(windows, windows.residuals(logs), logs)


def _evaluated(windows: _Windows, logs: Matrix) -> tuple[Matrix, Vector]:
    residuals = windows.residuals(logs)
    return residuals, windows.loss(residuals, logs)


@dataclass(frozen=True, slots=True)
class _State:
    """Where the windows are: log-parameters, residuals, loss, and how carefully the next step is taken."""

    logs: Matrix
    residuals: Matrix
    loss: Vector
    damping: Vector

    @staticmethod
    def of(windows: _Windows, logs: Matrix) -> _State:
        """Return the start."""
        return _State(logs, *_evaluated(windows, logs), np.full(windows.count, 1e-3))

    def step(self, windows: _Windows) -> tuple[_State, Vector]:
        """Return the state after a step, and how far each window wanted to move.

        A step that makes a window worse is not taken, and the next one is damped more.
        """
        curvature, slope = _normal(windows, self.residuals, self.logs)
        diagonal = np.einsum("wii->wi", curvature)
        damped = curvature + self.damping[:, None, None] * (np.eye(3) * diagonal[:, None, :])
        wanted = np.clip(-np.linalg.solve(damped, slope[:, :, None])[:, :, 0], -1.0, 1.0)
        trial = np.clip(self.logs + wanted, windows.prior - _FARTHEST, windows.prior + _FARTHEST)
        residuals, loss = _evaluated(windows, trial)
        better = loss <= self.loss
        damping = np.clip(np.where(better, self.damping / 5, self.damping * 10), 1e-9, 1e9)
        state = _State(
            np.where(better[:, None], trial, self.logs),
            np.where(better[windows.owner][:, None], residuals, self.residuals),
            np.where(better, loss, self.loss),
            damping,
        )
        return state, np.abs(trial - self.logs).max(axis=1)


def _normal(windows: _Windows, residuals: Matrix, logs: Matrix) -> tuple[Matrix, Matrix]:
    """Return curvature and slope of the loss per window, with the weights of the soft-L1 loss."""
    jacobian = windows.derivatives(logs)
    weights = 1 / np.sqrt(1 + residuals**2)
    curvature = windows.per_window(np.einsum("nl,nlp,nlq->npq", weights, jacobian, jacobian))
    slope = windows.per_window(np.einsum("nl,nlp,nl->np", weights, jacobian, residuals))
    return curvature + np.eye(3) / SIGMA_PRIOR**2, slope + (logs - windows.prior) / SIGMA_PRIOR**2


def _estimates(windows: _Windows, residuals: Matrix, logs: Matrix) -> list[Estimate]:
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
