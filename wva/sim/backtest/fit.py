"""The fit: parameters of an engine that explain the metrics of a variant's pods, and the errors that remain.

The history has means of a pod over a window: requests running, KV usage, time between tokens, time to first token,
prompt tokens per second. The model of the engine says that a step takes

    alpha + beta * sequences + kv_read * tokens in the KV cache + prefill * prompt tokens computed in it

so the mean step, which is the mean time between tokens, is (alpha + beta * n + kv_read * K) / (1 - prefill * P) with P
prompt tokens per second. A request that finds no queue waits for the rest of the step that runs, and then for the step
that computes its prompt. The fit minimises the squares of relative errors by Levenberg and Marquardt's method, in
logarithms of the parameters, so that none becomes negative. Weak priors hold the parameters that the data do not
determine: with prompts of one length, for instance, ``beta`` and ``kv_read`` cannot be told apart.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wva.model.records import replace
from wva.sim.backtest.history import PodHistory, RecordedHistory, VariantHistory
from wva.sim.fleet.accelerators import GPUS, MODELS, engine_parameters
from wva.sim.fleet.parameters import PRESETS, EngineParameters

Column = NDArray[np.float64]

ENOUGH_SAMPLES: Final = 20
"""With fewer windows in which an engine served, the prior is taken as it is."""

_DEFAULT_ACCELERATOR: Final = "A100"
_TENSOR_PARALLEL: Final = (1, 2, 4, 8)
_LEAST_RUNNING: Final = 0.5
_LEAST_REQUESTS_PER_SECOND: Final = 0.02
_QUEUED: Final = 0.05
"""With more waiting requests per running one, the time to the first token is that of the queue."""
_PRIOR_WEIGHT: Final = 0.02
"""A factor of e beside the prior counts as much as an error of 2 % in every sample."""
_TTFT_WEIGHT: Final = 0.3
"""The time to first token weighs less, because the model of it is the least exact."""
_NOTHING: Final = 1e-12
"""The value of a parameter of 0 in logarithms."""
_ROUNDS: Final = 60
_BUSIEST: Final = 0.95
"""The share of an engine's time that computing prompts can take."""
_SATURATED: Final = 1.0
_ROOM: Final = 0.85


@dataclass(frozen=True, slots=True)
class SignalError:
    """The error of one signal: the number of windows, and the medians of the relative error and of its size."""

    signal: str
    samples: int
    bias: float
    error: float


@dataclass(frozen=True, slots=True)
class FittedEngine:
    """The engine of a variant. ``prior`` names the starting point of the fit; ``notes`` name missing data."""

    variant: str
    prior: str
    samples: int
    parameters: EngineParameters
    errors: tuple[SignalError, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Windows:
    """A column per signal: means over windows in which an engine served. ``prompt``: tokens computed per request."""

    running: Column
    waiting: Column
    kv_usage: Column
    itl: Column
    ttft: Column
    generated: Column
    requests: Column
    prompt: Column

    @property
    def count(self) -> int:
        return len(self.running)


def fit(variant: VariantHistory, history: RecordedHistory) -> FittedEngine:
    """Return the engine that explains a variant best, over all starting points."""
    priors, notes = _priors(variant.accelerator, history.span.model_id), []
    if not _known(variant.accelerator):
        notes.append(
            f"no engine is known for accelerator {variant.accelerator!r}: the fit starts from {priors[0].name}"
        )
    windows = _windows(variant)
    resident = _resident_tokens(history)
    cache_sizes = [pod.kv_cache_tokens for pod in variant.pods if pod.kv_cache_tokens is not None]
    if cache_sizes:
        tokens = float(np.median(cache_sizes))
    elif windows.count >= ENOUGH_SAMPLES and windows.kv_usage.sum() > 0:
        tokens = float(windows.running.sum() * resident / windows.kv_usage.sum())
        notes.append(f"cache_config_info is not there: about {tokens:,.0f} tokens of KV cache by usage")
    else:
        tokens = float(priors[0].parameters.kv_cache_tokens)
        notes.append("nothing tells the size of the KV cache: that of the preset")
    starts = [_StartingPoint(prior.name, _sized(prior.parameters, tokens, history, windows)) for prior in priors]
    if windows.count < ENOUGH_SAMPLES:
        notes.append(f"{windows.count} windows with load are fewer than {ENOUGH_SAMPLES}: parameters of the preset")
        return FittedEngine(variant.name, starts[0].name, windows.count, starts[0].parameters, (), tuple(notes))
    solutions = [(*_solve(start.parameters, windows, tokens), start.name) for start in starts]
    _, parameters, name = min(solutions, key=lambda solution: solution[0])
    return FittedEngine(
        variant.name, name, windows.count, parameters, _errors(parameters, windows, tokens, resident), tuple(notes)
    )


@dataclass(frozen=True, slots=True)
class _StartingPoint:
    """Parameters to begin with, and their name."""

    name: str
    parameters: EngineParameters


def _known(accelerator: str) -> bool:
    return accelerator in PRESETS or accelerator in GPUS


def _priors(accelerator: str, model_id: str) -> list[_StartingPoint]:
    """Return the starting points: the preset of the accelerator, and the engine derived for a known model."""
    starting_points = []
    if accelerator in PRESETS:
        starting_points.append(_StartingPoint(accelerator, PRESETS[accelerator]))
    for model in MODELS if accelerator in GPUS else ():
        if model.lower() in model_id.lower():
            for count in _TENSOR_PARALLEL:
                with suppress(ValueError):  # the weights do not fit into so few GPUs
                    derived = engine_parameters(accelerator, model, tensor_parallel=count)
                    starting_points.append(_StartingPoint(f"{model} on {count} {accelerator}", derived))
    return starting_points or [_StartingPoint(_DEFAULT_ACCELERATOR, PRESETS[_DEFAULT_ACCELERATOR])]


def _windows(variant: VariantHistory) -> _Windows:
    columns = [_of_pod(pod) for pod in variant.pods]
    return _Windows(*(np.concatenate(parts) for parts in zip(*columns, strict=True)))


def _of_pod(pod: PodHistory) -> tuple[Column, ...]:
    signals = pod.signals
    with np.errstate(divide="ignore", invalid="ignore"):
        itl = signals["itl_sum"] / signals["itl_count"]
        ttft = signals["ttft_sum"] / signals["ttft_count"]
        hit = np.clip(np.nan_to_num(signals["prefix_hits"] / signals["prefix_queries"]), 0.0, 1.0)
        prompt = signals["prompt_sum"] / signals["prompt_count"] * (1.0 - hit)
    requests = signals["ttft_count"]
    columns = (signals["running"], signals["waiting"], signals["kv_usage"], itl, ttft, signals["generated"], requests)
    usable = np.all(np.isfinite((*columns, prompt)), axis=0)
    usable &= (signals["running"] >= _LEAST_RUNNING) & (requests >= _LEAST_REQUESTS_PER_SECOND) & (itl > 0) & (ttft > 0)
    return tuple(column[usable] for column in (*columns, prompt))


def _resident_tokens(history: RecordedHistory) -> float:
    """Return the tokens that a running request holds on average: its prompt, and half of a long answer."""
    prompt, answer = history.mean("prompt_sum", "prompt_count"), history.mean("output_sum", "output_count")
    return (prompt or 0.0) + (answer or 0.0) * 0.75


def _sized(prior: EngineParameters, tokens: float, history: RecordedHistory, windows: _Windows) -> EngineParameters:
    """Return the prior with the recorded KV cache size, and with the slots if the engine filled them."""
    blocks = max(1, round(tokens / prior.block_size))
    running_when_full = windows.running[(windows.waiting >= _SATURATED) & (windows.kv_usage < _ROOM)]
    slots = (
        max(1, round(float(np.quantile(running_when_full, 0.9))))
        if len(running_when_full) >= ENOUGH_SAMPLES
        else prior.max_num_seqs
    )
    longest = _longest(history)
    length = min(blocks * prior.block_size, max(prior.max_model_len, longest))
    return replace(
        prior,
        num_gpu_blocks=blocks,
        max_num_seqs=slots,
        max_num_batched_tokens=max(prior.max_num_batched_tokens, slots),
        max_model_len=length,
    )


def _longest(history: RecordedHistory) -> int:
    """Return the tokens of the longest prompt and the longest answer that histograms show."""
    total = 0.0
    for name in ("prompt_bucket", "output_bucket"):
        bounds = [(bound, float(column.sum())) for bound, column in history.buckets[name].items()]
        highest_count = max((count for _, count in bounds), default=0.0)
        partial_bounds = [bound for bound, count in bounds if np.isfinite(bound) and count < highest_count]
        covering_bounds = [bound for bound, count in bounds if np.isfinite(bound) and count >= highest_count]
        total += min(covering_bounds, default=max(partial_bounds, default=0.0))
    return int(total)


def mean_step(parameters: EngineParameters, windows: _Windows, tokens: float) -> Column:
    """Return the mean duration of a step in each window."""
    return _decode(parameters, windows, tokens) / (1.0 - _prefill_share(parameters, windows))


def first_token(parameters: EngineParameters, windows: _Windows, tokens: float) -> Column:
    """Return the mean time to the first token of a request that finds no queue."""
    decode = _decode(parameters, windows, tokens)
    attention = parameters.attention_seconds_per_token_pair * windows.prompt**2 / 2.0
    prefill = decode + parameters.prefill_seconds_per_token * windows.prompt + attention
    share = np.minimum(windows.requests * prefill, 1.0)
    rest = (share * prefill + (1.0 - share) * decode) / 2.0
    return rest + prefill


def _decode(parameters: EngineParameters, windows: _Windows, tokens: float) -> Column:
    return (
        parameters.alpha_seconds
        + parameters.beta_seconds_per_sequence * windows.running
        + parameters.kv_read_seconds_per_token * windows.kv_usage * tokens
    )


def _prefill_share(parameters: EngineParameters, windows: _Windows) -> Column:
    return np.minimum(parameters.prefill_seconds_per_token * windows.prompt * windows.requests, _BUSIEST)


_FITTED: Final = (
    "alpha_seconds",
    "beta_seconds_per_sequence",
    "kv_read_seconds_per_token",
    "prefill_seconds_per_token",
)


def _solve(start: EngineParameters, windows: _Windows, tokens: float) -> tuple[float, EngineParameters]:
    """Return the least sum of squares from a starting point, and its parameters."""
    origin = np.log([max(getattr(start, name), _NOTHING) for name in _FITTED])
    unqueued = windows.waiting <= _QUEUED * windows.running

    def parameters(theta: Column) -> EngineParameters:
        alpha, beta, kv_read, prefill = (value if value > _NOTHING * np.e else 0.0 for value in np.exp(theta).tolist())
        return replace(
            start,
            alpha_seconds=alpha,
            beta_seconds_per_sequence=beta,
            kv_read_seconds_per_token=kv_read,
            prefill_seconds_per_token=prefill,
        )

    def residuals(theta: Column) -> Column:
        candidate = parameters(theta)
        step = np.log(mean_step(candidate, windows, tokens) / windows.itl) / np.sqrt(windows.count)
        first = np.log(first_token(candidate, windows, tokens)[unqueued] / windows.ttft[unqueued])
        first *= _TTFT_WEIGHT / np.sqrt(max(1, len(first)))
        return np.concatenate((step, first, _PRIOR_WEIGHT * (theta - origin)))

    theta = _least_squares(residuals, origin)
    remaining = residuals(theta)
    return float(remaining @ remaining), parameters(theta)


def _least_squares(residuals: Callable[[Column], Column], start: Column) -> Column:
    """Return the logarithms with the least sum of squares from a starting point. They move by at most 1 per round."""
    theta, damping = start.copy(), 1e-2
    value = residuals(theta)
    for _ in range(_ROUNDS):
        slopes = np.stack([(residuals(theta + bump) - value) / 1e-4 for bump in 1e-4 * np.eye(len(theta))], axis=1)
        normal, gradient = slopes.T @ slopes, slopes.T @ value
        move = -np.linalg.solve(normal + damping * np.eye(len(theta)) * max(1e-12, normal.diagonal().max()), gradient)
        move = np.clip(move, -1.0, 1.0)
        new_value = residuals(theta + move)
        if float(new_value @ new_value) < float(value @ value):
            theta, value, damping = theta + move, new_value, damping / 3.0
            if np.abs(move).max() < 1e-6:  # noqa: PLR2004 - a millionth of each parameter
                break
        else:
            damping *= 4.0
    return theta


def _errors(parameters: EngineParameters, windows: _Windows, tokens: float, resident: float) -> tuple[SignalError, ...]:
    step = mean_step(parameters, windows, tokens)
    unqueued = windows.waiting <= _QUEUED * windows.running
    served = windows.generated > 0
    used = windows.kv_usage > 0
    return (
        _error("time between tokens", step, windows.itl),
        _error("time to first token", first_token(parameters, windows, tokens)[unqueued], windows.ttft[unqueued]),
        _error("tokens per second", (windows.running / step)[served], windows.generated[served]),
        _error("KV usage", (windows.running * resident / tokens)[used], windows.kv_usage[used]),
    )


def _error(signal: str, predicted: Column, observed: Column) -> SignalError:
    if not len(observed):
        return SignalError(signal, 0, 0.0, 0.0)
    relative = predicted / observed - 1.0
    return SignalError(signal, len(observed), float(np.median(relative)), float(np.median(np.abs(relative))))
