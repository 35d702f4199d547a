"""Rates over time: shapes of load, and how they are combined.

Every shape is a ``RateProfile``: requests per second, linear between points. Times are seconds from the start of the
traffic. ``total`` adds profiles, ``product`` multiplies them, ``scaled`` gives one a mean. A factor (of the minute, of
an hour of the week, of a flash crowd) is a profile around 1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

HOUR_SECONDS: Final = 3600.0
MINUTE_SECONDS: Final = 60.0
LEVELLING_ROUNDS: Final = 12
"""Each halves what is missing at least: the means are exact to 0.03 % of the largest."""
SINE_POINTS: Final = 64
"""Points per period of a sine: its straight pieces are within 0.13 % of the swing."""


@dataclass(frozen=True, slots=True)
class RateProfile:
    """Requests per second over time.

    Attributes:
        points: (seconds, requests per second) in rising order of time; linear between them, constant before
            the first and after the last. Two points at the same time make a step.

    """

    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        """Check the points.

        Raises:
            ValueError: no points, times not rising, or a negative rate.

        """
        if not self.points:
            raise ValueError("a rate profile needs at least one point")
        times = [seconds for seconds, _ in self.points]
        if times != sorted(times) or any(rate < 0 for _, rate in self.points):
            raise ValueError("a rate profile needs rising times and rates of at least 0")

    @classmethod
    def constant(cls, requests_per_second: float) -> RateProfile:
        """Return a rate that never changes."""
        return cls(((0.0, requests_per_second),))

    def rate(self, at_seconds: float) -> float:
        """Return the rate at an instant; at a step the one after it."""
        index = bisect_right(self.points, at_seconds, key=lambda point: point[0])
        if index == 0:
            return self.points[0][1]
        if index == len(self.points):
            return self.points[-1][1]
        (start, low), (end, high) = self.points[index - 1], self.points[index]
        return low + (high - low) * (at_seconds - start) / (end - start)


def steps(durations_and_rates: Iterable[tuple[float, float]]) -> RateProfile:
    """Return a rate that jumps: (seconds, requests per second) one after the other; the last rate stays."""
    points: list[tuple[float, float]] = []
    start = 0.0
    for seconds, rate in durations_and_rates:
        points += [(start, rate), (start + seconds, rate)]
        start += seconds
    return RateProfile(tuple(points))


def sine(*, low: float, high: float, period_seconds: float, duration_seconds: float) -> RateProfile:
    """Return a rate that swings between ``low`` and ``high`` and begins at ``low``."""
    at = np.arange(0.0, duration_seconds + period_seconds / SINE_POINTS, period_seconds / SINE_POINTS)
    wave = (1.0 - np.cos(2.0 * np.pi * at / period_seconds)) / 2.0
    return _profile(at, low + (high - low) * wave)


def bursts(
    *, low: float, high: float, burst_seconds: float, period_seconds: float, duration_seconds: float
) -> RateProfile:
    """Return a rate that is ``low``, and ``high`` for the last ``burst_seconds`` of each period."""
    count = int(np.ceil(duration_seconds / period_seconds))
    return steps(((period_seconds - burst_seconds, low), (burst_seconds, high)) * count)


def flash_crowd(
    *, at_seconds: float, height: float, rise_seconds: float, hold_seconds: float, fall_seconds: float
) -> RateProfile:
    """Return a factor: 1, then ``height`` times as much for a while."""
    rise_end = at_seconds + rise_seconds
    hold_end = rise_end + hold_seconds
    points = ((0.0, 1.0), (at_seconds, 1.0), (rise_end, height), (hold_end, height), (hold_end + fall_seconds, 1.0))
    return RateProfile(points)


def hourly(values: Sequence[float], *, first_hour: int = 0, duration_seconds: float) -> RateProfile:
    """Return the factor of a table of hourly means, from its ``first_hour`` on; after its end the table repeats.

    It is linear from the middle of an hour to the middle of the next, through heights that give each hour its mean.
    """
    means = np.asarray(values, dtype=np.float64)
    heights = means.copy()
    for _ in range(LEVELLING_ROUNDS):
        # An hour consists of half of each of the two lines that meet at its middle.
        present = 0.75 * heights + 0.125 * (np.roll(heights, 1) + np.roll(heights, -1))
        heights = np.maximum(heights + means - present, 0.0)
    hours = np.arange(-1, int(np.ceil(duration_seconds / HOUR_SECONDS)) + 1)
    middles = (hours + 0.5) * HOUR_SECONDS
    chosen = heights[(hours + first_hour) % len(means)]
    start = float(np.interp(0.0, middles, chosen))
    return _profile(np.concatenate(([0.0], middles[1:])), np.concatenate(([start], chosen[1:])))


def minute_factor(generator: np.random.Generator, *, duration_seconds: float, rho: float, sigma: float) -> RateProfile:
    """Return a random factor, linear from minute to minute: a log-normal AR(1) process of mean 1.

    ``rho`` is the correlation of the logarithms of neighbouring minutes, ``sigma`` their standard deviation.
    """
    count = max(int(np.ceil(duration_seconds / MINUTE_SECONDS)), 1) + 1
    noise = generator.standard_normal(count) * sigma
    values = np.exp(_autoregressive(noise, rho=rho) - sigma * sigma / 2.0)
    return _profile(np.arange(count, dtype=np.float64) * MINUTE_SECONDS, values)


def levelled(factor: RateProfile) -> RateProfile:
    """Return a factor of the minute with a mean of 1 in every hour, because a table of hours has the means already."""
    at, values = columns(factor)
    hour = (at // HOUR_SECONDS).astype(np.int64)
    means = np.bincount(hour, weights=values) / np.bincount(hour)
    return _profile(at, values / means[hour])


def _autoregressive(noise: Floats, *, rho: float) -> Floats:
    """Return x[0] = noise[0], x[i] = rho x[i-1] + sqrt(1 - rho^2) noise[i]: a week of minutes is a short loop."""
    weight = float(np.sqrt(1.0 - rho * rho))
    values = np.empty_like(noise)
    level = 0.0
    for index, push in enumerate(noise.tolist()):
        level = push if index == 0 else rho * level + weight * push
        values[index] = level
    return values


class OnOff(NamedTuple):
    """Load that comes in spells, with next to nothing in between.

    Attributes:
        on_seconds: mean length of a spell; exponential.
        off_seconds: mean time between two; log-normal with ``off_sigma``.
        off_sigma: standard deviation of its logarithm.
        height_sigma: standard deviation of the logarithm of the rate of a spell.
        floor: rate in between, as a share of the mean rate of a spell.

    """

    on_seconds: float
    off_seconds: float
    off_sigma: float
    height_sigma: float
    floor: float


def on_off(generator: np.random.Generator, shape: OnOff, *, duration_seconds: float) -> RateProfile:
    """Return a random factor, constant within each spell and each pause. Its mean is not 1: scale the result."""
    cycle = shape.on_seconds + shape.off_seconds
    count = int(2.0 * duration_seconds / cycle + 10.0 * np.sqrt(duration_seconds / cycle)) + 50
    draws = generator.standard_normal((2, count))
    pauses = shape.off_seconds * np.exp(shape.off_sigma * draws[0] - shape.off_sigma**2 / 2.0)
    spells = shape.on_seconds * generator.standard_exponential(count)
    edges = np.concatenate(([0.0], np.cumsum(np.stack((pauses, spells), axis=1).ravel())))
    heights = np.exp(shape.height_sigma * draws[1] - shape.height_sigma**2 / 2.0)
    factors = shape.floor + np.stack((np.zeros(count), heights), axis=1).ravel()
    inside = int(np.searchsorted(edges, duration_seconds))
    return _profile(np.repeat(edges[: inside + 1], 2)[1:-1], np.repeat(factors[:inside], 2))


def total(*profiles: RateProfile) -> RateProfile:
    """Return the sum of rates."""
    if len(profiles) == 1:
        return profiles[0]
    at, sides = _on_common_times(profiles)
    return _profile(at, np.sum(sides, axis=0))


def product(*profiles: RateProfile) -> RateProfile:
    """Return the product of a rate and factors.

    It is exact where all but one are constant in pieces, as factors of the minute are. Elsewhere the line between two
    points stands for a curve.
    """
    if len(profiles) == 1:
        return profiles[0]
    at, sides = _on_common_times(profiles)
    return _profile(at, np.prod(sides, axis=0))


def scaled(profile: RateProfile, *, mean: float, duration_seconds: float) -> RateProfile:
    """Return the profile with a mean of ``mean`` over the duration.

    Raises:
        ValueError: the rate is 0 throughout and the mean is not.

    """
    at, rates = columns(profile)
    present = mean_rate(profile, duration_seconds=duration_seconds)
    if present == 0.0:
        if mean == 0.0:
            return profile
        raise ValueError("a rate of 0 throughout has no other mean")
    return _profile(at, rates * (mean / present))


def mean_rate(profile: RateProfile, *, duration_seconds: float) -> float:
    """Return the mean over the time from 0 to the duration."""
    at, rates = within(profile, duration_seconds=duration_seconds)
    return float(np.sum(np.diff(at) * (rates[1:] + rates[:-1])) / 2.0 / duration_seconds)


def columns(profile: RateProfile) -> tuple[Floats, Floats]:
    """Return times and rates of a profile's points."""
    table = np.asarray(profile.points, dtype=np.float64)
    return table[:, 0], table[:, 1]


def within(profile: RateProfile, *, duration_seconds: float) -> tuple[Floats, Floats]:
    """Return times and rates of the profile from 0 to the duration, both ends included."""
    at, rates = columns(profile)
    inside = (at > 0.0) & (at < duration_seconds)
    first, last = _side(at, rates, 0.0, "right"), _side(at, rates, duration_seconds, "left")
    return (
        np.concatenate(([0.0], at[inside], [duration_seconds])),
        np.concatenate(([first], rates[inside], [last])),
    )


def _on_common_times(profiles: Sequence[RateProfile]) -> tuple[Floats, list[Floats]]:
    """Return the times of all profiles' points, each twice, and the rate of each profile before and after them."""
    tables = [columns(profile) for profile in profiles]
    times = np.unique(np.concatenate([at for at, _ in tables]))
    sides = []
    for at, rates in tables:
        before_and_after = np.empty(2 * len(times))
        before_and_after[0::2] = _side(at, rates, times, "left")
        before_and_after[1::2] = _side(at, rates, times, "right")
        sides.append(before_and_after)
    return np.repeat(times, 2), sides


def _side(at: Floats, rates: Floats, times: Floats | float, side: str) -> Floats:
    """Return the rates at ``times``, at a step those on its ``side``."""
    when = np.asarray(times, dtype=np.float64)
    after = np.searchsorted(at, when, side="right" if side == "right" else "left")
    high = np.minimum(after, len(at) - 1)
    low = np.maximum(after - 1, 0)
    span = at[high] - at[low]
    share = np.divide(when - at[low], span, out=np.zeros_like(when), where=span > 0.0)
    return np.asarray(rates[low] + (rates[high] - rates[low]) * np.clip(share, 0.0, 1.0))


def _profile(at: Floats, rates: Floats) -> RateProfile:
    return RateProfile(tuple(zip(at.tolist(), rates.tolist(), strict=True)))
