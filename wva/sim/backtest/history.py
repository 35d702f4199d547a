"""The answers of Prometheus as columns over time. Where there was no sample, the value is NaN."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from wva.model.variant import DEFAULT_COST
from wva.numbers import Real
from wva.prometheus.answers import RangeSeries
from wva.sim.backtest.fetch import Chunk, ModelSpan
from wva.sim.backtest.queries import BY_BOUND, BY_POD, BY_VARIANT, CACHE, INTERVAL, QUEUE

Column = NDArray[np.float64]

_VALUE: Final = Real(0.0, 1e15)
_REPLICAS: Final = Real(0.0, 10_000.0)
_INTERVAL: Final = Real(1.0, 3600.0)
_BLOCKS: Final = Real(1.0, 1e9)
_TOKENS: Final = Real(1.0, 1e12)
_HASHES: Final = 2
"""Parts at the end of a pod's name that a Deployment adds: the hash of the ReplicaSet, and that of the pod."""


class NoHistoryError(ValueError):
    """The answers are not enough. The message says what is missing."""


@dataclass(frozen=True, slots=True)
class PodHistory:
    """One pod: a column for each signal of ``queries.BY_POD``, and the size of its KV cache if it is known."""

    name: str
    variant: str
    signals: dict[str, Column]
    kv_cache_tokens: float | None


@dataclass(frozen=True, slots=True)
class VariantHistory:
    """One variant. ``replicas`` are those that the controller counted, else the pods that reported.

    ``desired`` is what the controller published (NaN where it did not). ``cost`` is per replica and hour; where it is
    unknown, it is 10, the controller's own default. ``maximum`` is the maximum of the scaler, None where it is unknown.
    """

    name: str
    accelerator: str
    cost: float
    maximum: int | None
    replicas: Column
    desired: Column
    pods: tuple[PodHistory, ...]


@dataclass(frozen=True, slots=True)
class RecordedHistory:
    """The history of a model over a span. ``queue`` are the requests that waited at the gateway.

    ``buckets`` has a column for each bound of a histogram: observations per second up to that bound.
    """

    span: ModelSpan
    variants: tuple[VariantHistory, ...]
    buckets: dict[str, dict[float, Column]]
    queue: Column
    interval_seconds: float | None

    @property
    def pods(self) -> list[PodHistory]:
        """All pods."""
        return [pod for variant in self.variants for pod in variant.pods]

    def total(self, signal: str) -> Column:
        """Return the sum of a signal over all pods; 0 if none reports."""
        columns = [pod.signals[signal] for pod in self.pods]
        return np.nansum(columns, axis=0) if columns else np.zeros(self.span.count)

    def mean(self, part: str, whole: str) -> float | None:
        """Return the mean from two counters, a sum and a count, over all pods and the whole time."""
        count = float(self.total(whole).sum())
        return float(self.total(part).sum()) / count if count > 0 else None


def history(span: ModelSpan, chunks: Sequence[Chunk]) -> RecordedHistory:
    """Return the history in the chunks of a span. Raises NoHistoryError if no pod reports."""
    table = _Table(span, chunks)
    by_pod = {signal: table.columns(signal, "pod") for signal in BY_POD}
    pod_names = sorted({pod for columns in by_pod.values() for pod in columns})
    if not by_pod["running"]:
        message = f"no engine of model {span.model_id!r} in namespace {span.namespace!r} reports in this time"
        raise NoHistoryError(message)
    published = {
        signal: table.columns(signal, "variant_name", _VALUE if signal == "cost" else _REPLICAS)
        for signal in BY_VARIANT
    }
    known_variants = sorted({name for columns in published.values() for name in columns}, key=len, reverse=True)
    cache_tokens, no_data = table.cache(), np.full(span.count, np.nan)
    pods = [
        PodHistory(
            name,
            _variant_of(name, known_variants),
            {signal: by_pod[signal].get(name, no_data) for signal in BY_POD},
            cache_tokens.get(name),
        )
        for name in pod_names
    ]
    accelerators = table.labels("current", "variant_name", "accelerator_type")
    variants = []
    for name in sorted({pod.variant for pod in pods}):
        variant_pods = tuple(pod for pod in pods if pod.variant == name)
        reporting = np.sum([~np.isnan(pod.signals["running"]) for pod in variant_pods], axis=0).astype(np.float64)
        current = published["current"].get(name)
        cost, maximum = (_last(published[signal].get(name)) for signal in ("cost", "maximum"))
        variants.append(
            VariantHistory(
                name,
                accelerators.get(name, ""),
                DEFAULT_COST if cost is None else cost,
                None if maximum is None else int(maximum),
                reporting if current is None else np.where(np.isnan(current), reporting, current),
                published["desired"].get(name, no_data),
                variant_pods,
            )
        )
    buckets = {signal: table.buckets(signal) for signal in BY_BOUND}
    queue = np.nan_to_num(next(iter(table.columns(QUEUE, "").values()), no_data))
    interval = _last(next(iter(table.columns(INTERVAL, "", _INTERVAL).values()), None))
    return RecordedHistory(span, tuple(variants), buckets, queue, interval)


@dataclass(frozen=True, slots=True)
class _Table:
    """Puts points into columns."""

    span: ModelSpan
    chunks: Sequence[Chunk]

    def columns(self, signal: str, label: str, border: Real = _VALUE) -> dict[str, Column]:
        """Return a column for each value of a label; without a label, one under the empty text.

        A value outside of the border counts as missing.
        """
        columns: dict[str, Column] = {}
        for series in self._series(signal):
            name = series.metric.get(label, "")
            if name or not label:
                self._fill(columns.setdefault(name, np.full(self.span.count, np.nan)), series.values, border)
        return columns

    def buckets(self, signal: str) -> dict[float, Column]:
        buckets = {}
        for text, column in self.columns(signal, "le").items():
            bound = math.inf if text == "+Inf" else _VALUE.find(text)
            if bound is not None:
                buckets[bound] = np.nan_to_num(column)
        return dict(sorted(buckets.items()))

    def cache(self) -> dict[str, float]:
        """Return the tokens that the KV cache of each pod holds."""
        tokens_by_pod = {}
        for series in self._series(CACHE):
            tokens = _TOKENS.find(series.metric.get("kv_cache_size_tokens", ""))
            blocks, size = (_BLOCKS.find(series.metric.get(name, "")) for name in ("num_gpu_blocks", "block_size"))
            if tokens is not None:
                tokens_by_pod[series.metric.get("pod", "")] = tokens
            elif blocks is not None and size is not None:
                tokens_by_pod[series.metric.get("pod", "")] = blocks * size
        return tokens_by_pod

    def labels(self, signal: str, key: str, label: str) -> dict[str, str]:
        return {series.metric.get(key, ""): series.metric.get(label, "") for series in self._series(signal)}

    def _series(self, signal: str) -> Iterable[RangeSeries]:
        return (series for chunk in self.chunks for series in chunk.answers.get(signal, ()))

    def _fill(self, column: Column, points: Iterable[tuple[float, str]], border: Real) -> None:
        for seconds, text in points:
            index = round((seconds - self.span.start) / self.span.step_seconds)
            value = border.find(text)
            if value is not None and 0 <= index < self.span.count:
                column[index] = value


def start_up_seconds(variant: VariantHistory, step_seconds: float) -> list[float]:
    """Return, for each growth of the published number, the seconds until as many pods report."""
    reporting: NDArray[Any] = np.sum([~np.isnan(pod.signals["running"]) for pod in variant.pods], axis=0)
    start_ups = []
    for index, (before, after) in enumerate(pairwise(variant.desired), start=1):
        if not after > before or reporting[index] >= after:
            continue
        later = np.nonzero((reporting[index:] >= after) | (variant.desired[index:] < after))[0]
        if len(later) and reporting[index + later[0]] >= after:
            start_ups.append(float(later[0]) * step_seconds)
    return start_ups


def _variant_of(pod: str, variant_names: Sequence[str]) -> str:
    """Return the variant of a pod: the longest known name that it begins with, else the name of its Deployment."""
    for name in variant_names:
        if pod.startswith(f"{name}-"):
            return name
    parts = pod.rsplit("-", _HASHES)
    return parts[0] if len(parts) > _HASHES else pod


def _last(column: Column | None) -> float | None:
    if column is None:
        return None
    present = column[~np.isnan(column)]
    return float(present[-1]) if len(present) else None
