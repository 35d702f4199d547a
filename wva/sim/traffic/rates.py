"""Rates over time: shapes of load, and how they are put together.

Every shape is a ``RateProfile``: requests per second, linear between points. Times are seconds from the start of the
traffic. ``total`` adds profiles, ``product`` multiplies them, ``scaled`` gives one a mean. A factor (of the minute, of
an hour of the week, of a flash crowd) is a profile around 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wva.sim.fleet.load import RateProfile

Floats = NDArray[np.float64]

HOUR_SECONDS: Final = 3600.0
SINE_POINTS: Final = 64
"""Points per period of a sine: its straight pieces are within 0.13 % of the swing."""


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
    risen = at_seconds + rise_seconds
    falls = risen + hold_seconds
    points = ((0.0, 1.0), (at_seconds, 1.0), (risen, height), (falls, height), (falls + fall_seconds, 1.0))
    return RateProfile(points)


def hourly(values: Sequence[float], *, first_hour: int = 0, duration_seconds: float) -> RateProfile:
    """Return the factor that a table of hourly means tells, from ``first_hour`` of it on; after its end it repeats.

    The mean of an hour is at its middle, and the rate is linear in between. Peaks are not cut: a line through the
    middles lowers the mean of an hour that is a peak, by 2 % for the sharpest peak of the Azure profiles.
    """
    hours = np.arange(-1, int(np.ceil(duration_seconds / HOUR_SECONDS)) + 1)
    table = np.asarray(values, dtype=np.float64)
    middles = (hours + 0.5) * HOUR_SECONDS
    heights = table[(hours + first_hour) % len(table)]
    start = float(np.interp(0.0, middles, heights))
    return _profile(np.concatenate(([0.0], middles[1:])), np.concatenate(([start], heights[1:])))


def minute_factor(
    generator: np.random.Generator,
    *,
    duration_seconds: float,
    rho: float,
    sigma: float,
    step_seconds: float = 60.0,
) -> RateProfile:
    """Return a random factor, constant within each minute: a log-normal AR(1) process of mean 1.

    ``rho`` is the correlation of the logarithms of neighbouring minutes, ``sigma`` their standard deviation.
    """
    count = max(int(np.ceil(duration_seconds / step_seconds)), 1)
    noise = generator.standard_normal(count) * sigma
    return _stairs(step_seconds, np.exp(_autoregressive(noise, rho=rho) - sigma * sigma / 2.0))


def _autoregressive(noise: Floats, *, rho: float) -> Floats:
    """Return x[0] = noise[0], x[i] = rho x[i-1] + sqrt(1 - rho^2) noise[i]: a week of minutes is a short loop."""
    weight = float(np.sqrt(1.0 - rho * rho))
    values = np.empty_like(noise)
    level = 0.0
    for index, push in enumerate(noise.tolist()):
        level = push if index == 0 else rho * level + weight * push
        values[index] = level
    return values


def _stairs(step_seconds: float, values: Floats) -> RateProfile:
    """Return a profile that has each value for a step."""
    edges = np.arange(len(values) + 1) * step_seconds
    return _profile(np.repeat(edges, 2)[1:-1], np.repeat(values, 2))


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
        both = np.empty(2 * len(times))
        both[0::2] = _side(at, rates, times, "left")
        both[1::2] = _side(at, rates, times, "right")
        sides.append(both)
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
