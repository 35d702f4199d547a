"""Statistics of traffic: those by which published traces are described."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wva.sim.traffic.requests import Traffic

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of the requests of a time.

    Attributes:
        rate: mean requests per second.
        gap_variation: coefficient of variation of the time between two requests; 1 for a Poisson process.
        dispersion_1s: variance over mean of the number of requests per second; 1 for a Poisson process.
        dispersion_10s: the same per ten seconds.
        dispersion_60s: the same per minute.
        minute_correlation: correlation of the numbers of neighbouring minutes.
        peak_to_mean_1s: the fullest second over the mean.
        peak_to_mean_60s: the fullest minute over the mean.
        empty_seconds: share of the seconds without a request.
        prompt_mean: mean length of the prompts, in tokens.
        prompt_p50: their median.
        prompt_p95: their 95th percentile.
        output_mean: mean length of the answers, in tokens.
        output_p50: their median.
        output_p95: their 95th percentile.
        hit_ratio: share of the prompt tokens that a prefix cache without bounds would hold.

    """

    rate: float
    gap_variation: float
    dispersion_1s: float
    dispersion_10s: float
    dispersion_60s: float
    minute_correlation: float
    peak_to_mean_1s: float
    peak_to_mean_60s: float
    empty_seconds: float
    prompt_mean: float
    prompt_p50: float
    prompt_p95: float
    output_mean: float
    output_p50: float
    output_p95: float
    hit_ratio: float


def statistics(traffic: Traffic) -> Statistics:
    """Return the statistics of at least two minutes with at least three requests."""
    gaps = np.diff(traffic.arrival_seconds)
    seconds, tens, minutes = (counts(traffic, bin_seconds=width) for width in (1.0, 10.0, 60.0))
    return Statistics(
        rate=traffic.count / traffic.duration_seconds,
        gap_variation=float(gaps.std() / gaps.mean()),
        dispersion_1s=dispersion(seconds),
        dispersion_10s=dispersion(tens),
        dispersion_60s=dispersion(minutes),
        minute_correlation=lag_correlation(minutes),
        peak_to_mean_1s=float(seconds.max() / seconds.mean()),
        peak_to_mean_60s=float(minutes.max() / minutes.mean()),
        empty_seconds=float(np.mean(seconds == 0)),
        prompt_mean=float(traffic.prompt_tokens.mean()),
        prompt_p50=float(np.quantile(traffic.prompt_tokens, 0.5)),
        prompt_p95=float(np.quantile(traffic.prompt_tokens, 0.95)),
        output_mean=float(traffic.output_tokens.mean()),
        output_p50=float(np.quantile(traffic.output_tokens, 0.5)),
        output_p95=float(np.quantile(traffic.output_tokens, 0.95)),
        hit_ratio=hit_ratio(traffic),
    )


def counts(traffic: Traffic, *, bin_seconds: float) -> Ints:
    """Return how many requests came in each whole bin of the duration."""
    whole = int(traffic.duration_seconds / bin_seconds)
    bins = (traffic.arrival_seconds / bin_seconds).astype(np.int64)
    return np.bincount(bins, minlength=whole)[:whole].astype(np.int64)


def dispersion(numbers: Ints) -> float:
    """Return variance over mean."""
    return float(numbers.var() / numbers.mean())


def lag_correlation(numbers: Ints) -> float:
    """Return the correlation of each number with the next; 0 where nothing varies."""
    deviations = numbers - numbers.mean()
    square = float(deviations @ deviations)
    return float(deviations[1:] @ deviations[:-1]) / square if square else 0.0


def hit_ratio(traffic: Traffic) -> float:
    """Return the share of prompt tokens that a prefix cache without bounds would hold."""
    held = held_tokens(traffic.group, prefix_tokens=traffic.prefix_tokens, shared_tokens=traffic.shared_tokens)
    return held / float(max(traffic.prompt_tokens.sum(), 1))


def held_tokens(group: Ints, *, prefix_tokens: Ints, shared_tokens: Ints) -> int:
    """Return how many prompt tokens earlier requests of the same group have left in a cache without bounds."""
    grouped = np.flatnonzero(group >= 0)
    if not len(grouped):
        return 0
    order = grouped[np.argsort(group[grouped], kind="stable")]
    members, shared = group[order], shared_tokens[order]
    # The most that was shared so far in the group. The floors of the groups rise, so that one maximum serves all.
    floor = members * (int(shared.max()) + 1)
    largest_before = np.concatenate(([0], (np.maximum.accumulate(floor + shared) - floor)[:-1]))
    largest_before[1:][members[1:] != members[:-1]] = 0
    return int(np.minimum(prefix_tokens[order], largest_before).sum())


@dataclass(frozen=True, slots=True)
class WeekStatistics:
    """Statistics of the hours of a week that begins on Sunday, 00:00.

    Attributes:
        peak_to_mean: the fullest hour over the mean.
        peak_to_trough: the fullest hour over the emptiest.
        growth: the highest ratio of an hour to the hour before.
        weekend: requests of a day of the weekend over those of a working day.

    """

    peak_to_mean: float
    peak_to_trough: float
    growth: float
    weekend: float


def week_statistics(traffic: Traffic) -> WeekStatistics:
    """Return the statistics of a week of requests."""
    hours = counts(traffic, bin_seconds=3600.0)
    days = hours.reshape(7, 24).sum(axis=1)
    return WeekStatistics(
        peak_to_mean=float(hours.max() / hours.mean()),
        peak_to_trough=float(hours.max() / hours.min()),
        growth=float((hours[1:] / hours[:-1]).max()),
        weekend=float((days[0] + days[6]) / 2.0 / days[1:6].mean()),
    )
