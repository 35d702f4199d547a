"""Traffic and scenario from a history and the engines fitted to it.

The rate of arrivals is the rate of first tokens plus the growth of the queues. Arrivals become a Poisson process of
that rate, averaged over as many minutes as it takes to see some sixty requests: with fewer, chance would be taken for a
pattern. Lengths follow the histograms of the engines, and their means over time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wva.model.objectives import Objectives
from wva.model.records import replace
from wva.sim.backtest.fit import FittedEngine
from wva.sim.backtest.history import NoHistoryError, RecordedHistory, VariantHistory, start_up_seconds
from wva.sim.stage.scenario import Scenario, StartUp, VariantSetup
from wva.sim.traffic.assembly import Prefixes, nothing_shared
from wva.sim.traffic.lengths import Ints, Lengths, Sizes, histogram
from wva.sim.traffic.requests import Traffic
from wva.sim.traffic.series import SPREAD, RateSeries, from_series

Column = NDArray[np.float64]

NAME: Final = "history"
MAX_REQUESTS: Final = 10_000_000
"""A run of so many takes minutes and some gigabytes."""
_ENOUGH_REQUESTS: Final = 60
_LONGEST_AVERAGE_SECONDS: Final = 600.0
_LENGTH_SECONDS: Final = 600.0
"""The window of mean lengths."""
_SCALER_SECONDS: Final = 30.0
"""The time from a published number to a new pod: scrape, adapter and HPA."""
_SHORTEST_START_UP_SECONDS: Final = 10.0
_ENOUGH_STARTS: Final = 3
_LEAST_SHARED: Final = 0.02
_ROOM: Final = 3
_LEAST_MAXIMUM: Final = 10
_DEFAULT_INTERVAL_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class RecordedTraffic:
    """Traffic like that of a history: a function of the seed.

    Attributes:
        step_seconds: length of a step of the columns.
        rates: requests per second in each step.
        prompt_means: mean length of prompts in each step.
        answer_means: the same for answers.
        prompts: pairs of a length in tokens and the count, in any unit, of prompts up to it; empty when unknown.
        answers: the same for answers.
        longest: most tokens of a prompt and its answer together.
        shared: share of prompt tokens that a prefix cache held.

    """

    step_seconds: float
    rates: tuple[float, ...]
    prompt_means: tuple[float, ...]
    answer_means: tuple[float, ...]
    prompts: tuple[tuple[float, float], ...]
    answers: tuple[tuple[float, float], ...]
    longest: int
    shared: float

    @property
    def duration_seconds(self) -> float:
        """The duration of the traffic."""
        return self.step_seconds * len(self.rates)

    def __call__(self, seed: int) -> Traffic:
        """Return the requests of a seed."""
        columns = (np.asarray(column) for column in (self.rates, self.prompt_means, self.answer_means))
        sizes = Sizes(_lengths(self.prompts, SPREAD.prompt), _lengths(self.answers, SPREAD.output))
        traffic = from_series(seed, RateSeries(self.step_seconds, *columns), sizes=sizes, sharing=self._share)
        prompt = np.minimum(traffic.prompt_tokens, self.longest - 1)
        return replace(
            traffic,
            prompt_tokens=prompt,
            output_tokens=np.minimum(traffic.output_tokens, self.longest - prompt),
            prefix_tokens=np.minimum(traffic.prefix_tokens, prompt),
            shared_tokens=np.minimum(traffic.shared_tokens, prompt),
        )

    def _share(self, generator: np.random.Generator, /, *, arrival_seconds: Column, prompt_tokens: Ints) -> Prefixes:
        """Give all prompts a common beginning; its share of a prompt is the share that the cache held."""
        if self.shared < _LEAST_SHARED:
            return nothing_shared(generator, arrival_seconds=arrival_seconds, prompt_tokens=prompt_tokens)
        common = np.rint(prompt_tokens * self.shared).astype(np.int64)
        return Prefixes(prompt_tokens, np.zeros(len(prompt_tokens), dtype=np.int64), common, common)


@dataclass(frozen=True, slots=True)
class Reality:
    """The recorded run. ``ttft_share`` is the share of first tokens within ``ttft_seconds``, a bound of a histogram."""

    requests: float
    replica_hours: dict[str, float]
    cost: float
    mean_replicas: float
    peak_replicas: int
    ttft_seconds: float | None
    ttft_share: float | None


@dataclass(frozen=True, slots=True)
class Backtest:
    """The content of ``backtest.json``: the input of runs, and its origin.

    ``replicas`` are those that ran, by variant and step.
    """

    namespace: str
    model_id: str
    start: float
    step_seconds: float
    traffic: RecordedTraffic
    variants: tuple[VariantSetup, ...]
    objectives: Objectives
    interval_seconds: float
    replicas: dict[str, tuple[int, ...]]
    reality: Reality
    fits: tuple[FittedEngine, ...]
    notes: tuple[str, ...]

    @property
    def scenario(self) -> Scenario:
        """The scenario to play."""
        return Scenario(
            name=NAME,
            title=f"{self.model_id} in {self.namespace}, {self.traffic.duration_seconds / 3600:.1f} h as recorded",
            kind="history",
            variants=self.variants,
            traffic=self.traffic,
            objectives=self.objectives,
            interval_seconds=self.interval_seconds,
        )


def backtest(
    history: RecordedHistory, fits: Sequence[FittedEngine], *, objectives: Objectives, start_up: StartUp | None = None
) -> Backtest:
    """Return the backtest of a history. Without ``start_up``, it is estimated from the recorded growth of variants.

    Raises NoHistoryError for a history without requests, or with too many to play.
    """
    reality, notes = _reality(history, objectives), []
    if reality.requests < 1:
        raise NoHistoryError("no request was counted in this time: is --step at least twice the scrape interval?")
    if reality.requests > MAX_REQUESTS:
        text = f"{reality.requests:,.0f} requests are more than {MAX_REQUESTS:,}: choose a shorter time"
        raise NoHistoryError(text)
    start_ups = [seconds for variant in history.variants for seconds in start_up_seconds(variant, _step(history))]
    if start_up is None and len(start_ups) >= _ENOUGH_STARTS:
        median = max(_SHORTEST_START_UP_SECONDS, float(np.median(start_ups)) - _SCALER_SECONDS)
        start_up = StartUp(median_seconds=median)
        notes.append(f"pods took {median:.0f} s to start (median of {len(start_ups)} growths)")
    elif start_up is None:
        start_up = StartUp()
        notes.append(f"the start of pods was not seen: {start_up.median_seconds:.0f} s are assumed (--start-up)")
    if history.interval_seconds is None:
        notes.append(f"no controller was seen: cycles of {_DEFAULT_INTERVAL_SECONDS:.0f} s are assumed")
    dark_share = _dark_share(history)
    if dark_share > 0:
        notes.append(f"no engine and no controller reports in {dark_share:.0%} of the time: it counts as no load")
    engines = {fit.variant: fit for fit in fits}
    longest = min(fit.parameters.max_model_len for fit in fits)
    variants = [_setup(variant, engines[variant.name], start_up) for variant in history.variants]
    span = history.span
    return Backtest(
        namespace=span.namespace,
        model_id=span.model_id,
        start=span.start,
        step_seconds=span.step_seconds,
        traffic=recorded_traffic(history, longest=longest),
        variants=tuple(variants),
        objectives=objectives,
        interval_seconds=history.interval_seconds or _DEFAULT_INTERVAL_SECONDS,
        replicas={variant.name: tuple(int(replicas) for replicas in variant.replicas) for variant in history.variants},
        reality=reality,
        fits=tuple(fits),
        notes=tuple(notes),
    )


def recorded_traffic(history: RecordedHistory, *, longest: int) -> RecordedTraffic:
    """Return traffic like that of a history, no request of which is longer than ``longest`` tokens."""
    step, count = _step(history), history.span.count - 1
    queued = history.total("waiting") + history.queue
    arrivals = np.maximum(history.total("ttft_count") + np.gradient(queued, step), 0.0)
    ends = np.arange(history.span.count) * step
    middles = (np.arange(count) + 0.5) * step + history.span.window_seconds / 2.0
    queries = float(history.total("prefix_queries").sum())
    return RecordedTraffic(
        step_seconds=step,
        rates=tuple(np.interp(middles, ends, _smooth(arrivals, step)).tolist()),
        prompt_means=_means(history, "prompt_sum", "prompt_count"),
        answer_means=_means(history, "output_sum", "output_count"),
        prompts=_counts(history.buckets["prompt_bucket"]),
        answers=_counts(history.buckets["output_bucket"]),
        longest=longest,
        shared=float(history.total("prefix_hits").sum()) / queries if queries > 0 else 0.0,
    )


def _setup(variant: VariantHistory, fit: FittedEngine, start_up: StartUp) -> VariantSetup:
    peak = int(variant.replicas.max(initial=1.0))
    return VariantSetup(
        name=variant.name,
        accelerator=variant.accelerator or "unknown",
        parameters=fit.parameters,
        price=variant.cost,
        replicas=int(variant.replicas[0]),
        minimum=0 if variant.replicas.min(initial=1.0) < 1.0 else 1,
        maximum=max(_LEAST_MAXIMUM, _ROOM * peak) if variant.maximum is None else max(variant.maximum, peak),
        start_up=start_up,
    )


def _reality(history: RecordedHistory, objectives: Objectives) -> Reality:
    hours = {variant.name: float(variant.replicas[:-1].sum()) * _step(history) / 3600.0 for variant in history.variants}
    total_replicas = np.sum([variant.replicas for variant in history.variants], axis=0)
    buckets = history.buckets["ttft_bucket"]
    bound = next((bound for bound in buckets if bound >= objectives.ttft_seconds and math.isfinite(bound)), None)
    first_tokens = float(buckets[math.inf].sum()) if math.inf in buckets else 0.0
    return Reality(
        requests=float(history.total("ttft_count").sum()) * _step(history),
        replica_hours=hours,
        cost=sum(variant.cost * hours[variant.name] for variant in history.variants),
        mean_replicas=float(total_replicas.mean()),
        peak_replicas=int(total_replicas.max()),
        ttft_seconds=bound,
        ttft_share=float(buckets[bound].sum()) / first_tokens if bound is not None and first_tokens > 0 else None,
    )


def _dark_share(history: RecordedHistory) -> float:
    """Return the share of the time in which neither an engine nor the controller reports."""
    columns = [pod.signals["running"] for pod in history.pods] + [variant.desired for variant in history.variants]
    return float(np.isnan(columns).all(axis=0).mean())


def _step(history: RecordedHistory) -> float:
    return history.span.step_seconds


def _smooth(rates: Column, step: float) -> Column:
    """Return means over as many neighbouring steps as it takes to have enough requests."""
    mean = float(rates.mean())
    average_seconds = _LONGEST_AVERAGE_SECONDS if mean <= 0 else min(_LONGEST_AVERAGE_SECONDS, _ENOUGH_REQUESTS / mean)
    reach = int(average_seconds / step) // 2
    if reach < 1:
        return rates
    width = 2 * reach + 1
    return np.asarray(np.convolve(np.pad(rates, reach, mode="edge"), np.ones(width) / width, mode="valid"))


def _means(history: RecordedHistory, sum_signal: str, count_signal: str) -> tuple[float, ...]:
    """Return for each step the mean from two counters, a sum and a count, over some minutes."""
    window = max(1, int(_LENGTH_SECONDS / _step(history)))
    sums, counts = history.total(sum_signal), history.total(count_signal)
    mean = history.mean(sum_signal, count_signal) or 1.0
    means: list[float] = []
    for start in range(0, history.span.count, window):
        count = float(counts[start : start + window].sum())
        enough = count * _step(history) >= _ENOUGH_REQUESTS
        means += [float(sums[start : start + window].sum()) / count if enough else mean] * window
    return tuple(means[: history.span.count - 1])


def _counts(buckets: Mapping[float, Column]) -> tuple[tuple[float, float], ...]:
    """Return the observations up to each finite bound; empty when there are none."""
    counts = [(bound, float(column.sum())) for bound, column in buckets.items() if math.isfinite(bound)]
    return tuple(counts) if any(count > 0 for _, count in counts) else ()


def _lengths(counts: tuple[tuple[float, float], ...], otherwise: Lengths) -> Lengths:
    return histogram(dict(counts)) if counts else otherwise
