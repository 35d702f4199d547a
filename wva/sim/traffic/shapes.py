"""Traffic of a plain shape, by name: what a test of an autoscaler asks for. Arrivals are a Poisson process.

Rates are requests per second. Unless said otherwise prompts have 1,024 tokens on average and answers 512, as in the
demo, and nothing in common.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final

import numpy as np

from wva.model.records import replace
from wva.sim.traffic import rates
from wva.sim.traffic.assembly import poisson_traffic, traffic
from wva.sim.traffic.lengths import Ints, Sizes, TokenLengths, fixed, lognormal
from wva.sim.traffic.rates import RateProfile
from wva.sim.traffic.requests import Traffic
from wva.sim.traffic.streams import stream

LONG: Final = Sizes(lognormal(TokenLengths(1024)), lognormal(TokenLengths(512, maximum_tokens=2048)))
SHORT: Final = Sizes(lognormal(TokenLengths(512)), lognormal(TokenLengths(256)))
TURNING: Final = Sizes(
    lognormal(TokenLengths(800, sigma=0.25, maximum_tokens=1600)), lognormal(TokenLengths(1500, maximum_tokens=4096))
)
"""Prompts of 800 and answers of 1,500 tokens."""
PREFILL_HEAVY: Final = Sizes(fixed(4000), fixed(1000))
"""Those of llm-d's benchmarks with long prompts."""
HOUR: Final = 3600.0


def sine(
    seed: int,
    *,
    duration_seconds: float = 4 * HOUR,
    rate: float = 14.0,
    swing: float = 0.7,
    period_seconds: float = 2 * HOUR,
    sizes: Sizes = LONG,
) -> Traffic:
    """Return a rate that swings by the share ``swing`` around ``rate``, beginning at its lowest."""
    profile = rates.sine(
        low=rate * (1.0 - swing),
        high=rate * (1.0 + swing),
        period_seconds=period_seconds,
        duration_seconds=duration_seconds,
    )
    return poisson_traffic(seed, profile, duration_seconds=duration_seconds, sizes=sizes)


def step(
    seed: int,
    *,
    duration_seconds: float = 1.5 * HOUR,
    low: float = 2.0,
    high: float = 20.0,
    sizes: Sizes = LONG,
) -> Traffic:
    """Return a rate that jumps from ``low`` to ``high`` after a fifth of the time, and back after three fifths."""
    fifth = duration_seconds / 5
    profile = rates.steps(((fifth, low), (2 * fifth, high), (2 * fifth, low)))
    return poisson_traffic(seed, profile, duration_seconds=duration_seconds, sizes=sizes)


def bursts(
    seed: int,
    *,
    duration_seconds: float = 2 * HOUR,
    low: float = 2.0,
    high: float = 20.0,
    burst_seconds: float = 300.0,
    sizes: Sizes = LONG,
) -> Traffic:
    """Return ``high`` for the last quarter of each period, by default 5 of 20 minutes, and ``low`` before."""
    profile = rates.bursts(
        low=low,
        high=high,
        burst_seconds=burst_seconds,
        period_seconds=4 * burst_seconds,
        duration_seconds=duration_seconds,
    )
    return poisson_traffic(seed, profile, duration_seconds=duration_seconds, sizes=sizes)


def ramp(
    seed: int,
    *,
    duration_seconds: float = HOUR,
    low: float = 2.0,
    high: float = 20.0,
    rise_seconds: float = 600.0,
    sizes: Sizes = LONG,
) -> Traffic:
    """Return a rate that stays low for a sixth of the time, rises, stays high until two thirds, and falls as fast."""
    start, end = duration_seconds / 6, duration_seconds * 2 / 3
    profile = RateProfile(
        ((0.0, low), (start, low), (start + rise_seconds, high), (end, high), (end + rise_seconds, low))
    )
    return poisson_traffic(seed, profile, duration_seconds=duration_seconds, sizes=sizes)


def slow_ramp(
    seed: int,
    *,
    duration_seconds: float = 4 * HOUR,
    low: float = 2.0,
    high: float = 24.0,
    sizes: Sizes = LONG,
) -> Traffic:
    """Return a rate that rises over the first half of the time and falls over the second."""
    profile = RateProfile(((0.0, low), (duration_seconds / 2, high), (duration_seconds, low)))
    return poisson_traffic(seed, profile, duration_seconds=duration_seconds, sizes=sizes)


def flash_crowd(
    seed: int,
    *,
    duration_seconds: float = 2 * HOUR,
    rate: float = 8.0,
    height: float = 2.2,
    crowds: int = 3,
    sizes: Sizes = LONG,
) -> Traffic:
    """Return a steady rate and crowds that come at random, each ``height`` times as many requests for 5 minutes.

    Each crowd has an equal part of the time to itself, and begins somewhere in the part's first half.
    """
    part = duration_seconds / max(crowds, 1)
    shares = stream(seed, "crowds").random(crowds) / 2.0
    factors = [
        rates.flash_crowd(
            at_seconds=float((index + share) * part),
            height=height,
            rise_seconds=60.0,
            hold_seconds=300.0,
            fall_seconds=600.0,
        )
        for index, share in enumerate(shares)
    ]
    profile = rates.product(RateProfile.constant(rate), *factors)
    return poisson_traffic(seed, profile, duration_seconds=duration_seconds, sizes=sizes)


def constant(
    seed: int,
    *,
    duration_seconds: float = HOUR,
    rate: float = 8.0,
    sizes: Sizes = LONG,
) -> Traffic:
    """Return a rate that never changes."""
    profile = RateProfile.constant(rate)
    return poisson_traffic(seed, profile, duration_seconds=duration_seconds, sizes=sizes)


def prompt_shift(
    seed: int,
    *,
    duration_seconds: float = 1.5 * HOUR,
    rate: float = 4.0,
    factor: float = 8.0,
    sizes: Sizes = SHORT,
) -> Traffic:
    """Return a steady rate whose prompts become ``factor`` times as long after a third of the time."""
    steady = constant(seed, duration_seconds=duration_seconds, rate=rate, sizes=sizes)
    return with_longer(steady, from_seconds=duration_seconds / 3, prompt_factor=factor)


def answer_shift(
    seed: int,
    *,
    duration_seconds: float = 1.5 * HOUR,
    rate: float = 4.0,
    factor: float = 4.0,
    sizes: Sizes = SHORT,
) -> Traffic:
    """Return a steady rate whose answers become ``factor`` times as long after a third of the time."""
    steady = constant(seed, duration_seconds=duration_seconds, rate=rate, sizes=sizes)
    return with_longer(steady, from_seconds=duration_seconds / 3, output_factor=factor)


def turning(
    seed: int,
    *,
    duration_seconds: float = HOUR,
    rate: float = 10.0,
    prompt_factor: float = 4.0,
    output_factor: float = 0.2,
    sizes: Sizes = TURNING,
) -> Traffic:
    """Return a steady rate whose prompts grow to ``prompt_factor`` times, and answers to ``output_factor`` times.

    The lengths stay at their first value for a sixth of the time, and at their last value for the last sixth.
    """
    steady = constant(seed, duration_seconds=duration_seconds, rate=rate, sizes=sizes)
    sixth = duration_seconds / 6.0
    progress = np.clip((steady.arrival_seconds - sixth) / (4.0 * sixth), 0.0, 1.0)

    def changed(tokens: Ints, factor: float) -> Ints:
        return np.maximum(np.rint(tokens * (1.0 + (factor - 1.0) * progress)), 1.0).astype(np.int64)

    return replace(
        steady,
        prompt_tokens=changed(steady.prompt_tokens, prompt_factor),
        output_tokens=changed(steady.output_tokens, output_factor),
    )


def upstream_ramp(
    seed: int,
    *,
    duration_seconds: float = 2520.0,
    scale: float = 1.0,
    sizes: Sizes = PREFILL_HEAVY,
) -> Traffic:
    """Return the ramp of the benchmark of llm-d: 2, 4, 6, 8, 10, 4 and 1 requests/s, 42 minutes in equal parts.

    Prompts have 4,000 tokens and answers 1,000. ``scale`` multiplies the rates.
    """
    parts = [scale * part for part in (2.0, 4.0, 6.0, 8.0, 10.0, 4.0, 1.0)]
    return levels(seed, duration_seconds=duration_seconds, parts=parts, sizes=sizes)


def upstream_two_variants(
    seed: int,
    *,
    duration_seconds: float = 1300.0,
    scale: float = 1.0,
    sizes: Sizes = PREFILL_HEAVY,
) -> Traffic:
    """Return the load of the benchmark of llm-d with two variants of one model: from 2 to 10 requests/s.

    The two rates and the number of requests, 7,800, are published. Five equal parts of 260 s at 2, 4, 6, 8 and 10
    requests/s have that number; the parts are our reading. The lengths are those of its workload of long prompts.
    """
    parts = [scale * part for part in (2.0, 4.0, 6.0, 8.0, 10.0)]
    return levels(seed, duration_seconds=duration_seconds, parts=parts, sizes=sizes)


def levels(
    seed: int,
    *,
    duration_seconds: float = HOUR,
    parts: Sequence[float] = (2.0, 8.0, 4.0),
    sizes: Sizes = LONG,
) -> Traffic:
    """Return the rates of ``parts`` one after the other, each for an equal part of the time; by default 2, 8, 4."""
    profile = rates.steps([(duration_seconds / len(parts), part) for part in parts])
    return poisson_traffic(seed, profile, duration_seconds=duration_seconds, sizes=sizes)


def jittered_bursts(
    seed: int,
    *,
    duration_seconds: float = 4 * HOUR,
    low: float = 2.0,
    least: float = 12.0,
    most: float = 22.0,
    sizes: Sizes = LONG,
) -> Traffic:
    """Return ``low``, and every 14 to 26 minutes a rate between ``least`` and ``most`` for 3 to 6 minutes."""
    source = stream(seed, "bursts")
    spells: list[tuple[float, float]] = []
    while sum(seconds for seconds, _ in spells) < duration_seconds:
        period, burst = 60.0 * source.uniform(14.0, 26.0), 60.0 * source.uniform(3.0, 6.0)
        spells += [(period - burst, low), (burst, source.uniform(least, most))]
    return poisson_traffic(seed, rates.steps(spells), duration_seconds=duration_seconds, sizes=sizes)


def viral(
    seed: int,
    *,
    duration_seconds: float = 2 * HOUR,
    rate: float = 3.0,
    height: float = 8.0,
    rise_seconds: float = 180.0,
    exponent: float = 0.8,
    sizes: Sizes = LONG,
) -> Traffic:
    """Return a steady rate that grows to ``height`` times as much at an unknown time, and decays as a power of time.

    It grows within ``rise_seconds``, somewhere in the second or third sixth of the time. From then on the increase is
    multiplied by (time since it began to grow / ``rise_seconds``)^-``exponent``.
    """
    begin = duration_seconds * (1.0 + 2.0 * stream(seed, "crowds").random()) / 6.0
    since = np.geomspace(1.0, max(2.0, duration_seconds / rise_seconds), 64)
    decay = rate * (1.0 + (height - 1.0) * since**-exponent)
    points = zip((begin + rise_seconds * since).tolist(), decay.tolist(), strict=True)
    profile = RateProfile(((0.0, rate), (begin, rate), *points))
    return poisson_traffic(seed, profile, duration_seconds=duration_seconds, sizes=sizes)


def office(
    seed: int,
    *,
    duration_seconds: float = 6 * 24 * HOUR,
    rate: float = 1.0,
    height: float = 4.0,
    begin_hour: float = 0.0,
    sizes: Sizes = LONG,
) -> Traffic:
    """Return days of an office from Thursday on: ``height`` times the rate of the night from 9:00 to 17:30.

    The rise takes 6 minutes, the way home an hour or more; from 12:15 to 13:00 the rate is 0.6 of the day's. On
    Saturday and Sunday it is a fifth. A job at midnight adds twice the rate of the night for 20 minutes. Days differ by
    10 %.
    """
    days = ceil(duration_seconds / (24 * HOUR) + begin_hour / 24.0)
    day_factors = np.exp(0.1 * stream(seed, "days").standard_normal(days))
    weekend = np.array([1.0, 1.0, 0.2, 0.2, 1.0, 1.0, 1.0])[np.arange(days) % 7]
    hours = (0.0, 9.0, 9.1, 12.0, 12.25, 13.0, 13.25, 17.5, 18.5, 20.0, 24.0)
    shape = np.array([1.0, 1.0, height, height, 0.6 * height, 0.6 * height, height, height, 1.5, 1.0, 1.0])
    points = [
        (HOUR * (24.0 * day + hour - begin_hour), rate * factor * level)
        for day, factor in enumerate((day_factors * weekend).tolist())
        for hour, level in zip(hours, shape.tolist(), strict=True)
    ]
    midnights = [24.0 * day - begin_hour for day in range(days)]
    job = [
        (HOUR * (at + after), extra)
        for at in midnights
        for after, extra in ((0.0, 0.0), (0.0, 2.0 * rate), (1.0 / 3.0, 2.0 * rate), (1.0 / 3.0, 0.0))
    ]
    profile = rates.total(RateProfile(tuple(points)), RateProfile(tuple(job)))
    return poisson_traffic(seed, profile, duration_seconds=duration_seconds, sizes=sizes)


def low_traffic(
    seed: int,
    *,
    duration_seconds: float = 24 * HOUR,
    shortest_gap_seconds: float = 60.0,
    longest_gap_seconds: float = 3 * HOUR,
    sizes: Sizes = LONG,
) -> Traffic:
    """Return requests with minutes to hours between them: the logarithm of a gap is uniform between the two."""
    gaps = stream(seed, "arrivals").uniform(
        np.log(shortest_gap_seconds), np.log(longest_gap_seconds), int(duration_seconds / shortest_gap_seconds) + 1
    )
    arrival_seconds = np.cumsum(np.exp(gaps))
    arrival_seconds = arrival_seconds[arrival_seconds < duration_seconds]
    return traffic(seed, arrival_seconds, duration_seconds=duration_seconds, sizes=sizes)


def with_longer(
    requests: Traffic, *, from_seconds: float, prompt_factor: float = 1.0, output_factor: float = 1.0
) -> Traffic:
    """Return the requests with longer (or shorter) prompts and answers from a time on."""
    later = requests.arrival_seconds >= from_seconds

    def changed(tokens: Ints, factor: float) -> Ints:
        longer = np.maximum(np.rint(tokens * factor), 1.0).astype(np.int64)
        return np.where(later, longer, tokens)

    prompt_tokens = changed(requests.prompt_tokens, prompt_factor)
    return replace(
        requests,
        prompt_tokens=prompt_tokens,
        output_tokens=changed(requests.output_tokens, output_factor),
        prefix_tokens=np.minimum(requests.prefix_tokens, prompt_tokens),
        shared_tokens=np.minimum(requests.shared_tokens, prompt_tokens),
    )
