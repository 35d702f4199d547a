"""When requests are sent: steps of a duration and a rate, with arrivals at random or evenly spaced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from math import isfinite
from random import Random
from typing import Final

import msgspec

EXPECTED_RATE: Final = "a list of [seconds, requests per minute], such as [[1200, 40], [600, 120]]"
MAX_SECONDS: Final = 7 * 86_400.0
MAX_REQUESTS_PER_MINUTE: Final = 60_000.0
_PER_MINUTE: Final = 60.0


@dataclass(frozen=True, slots=True)
class RateStep:
    """A constant rate for some time: seconds, and requests per minute."""

    seconds: float
    requests_per_minute: float


def parse_rate(text: str) -> tuple[RateStep, ...]:
    """Return the steps of a text such as ``[[1200, 40]]``. Raises ValueError, which says what is expected."""
    try:
        pairs = msgspec.json.decode(text, type=list[tuple[float, float]])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ValueError(f"expected {EXPECTED_RATE}") from error
    if not pairs:
        raise ValueError(f"expected {EXPECTED_RATE}")
    for seconds, rate in pairs:
        if not (isfinite(seconds) and 0 < seconds <= MAX_SECONDS):
            raise ValueError(f"a step of {seconds:g} s: expected more than 0 and at most {MAX_SECONDS:.0f} s")
        if not (isfinite(rate) and 0 <= rate <= MAX_REQUESTS_PER_MINUTE):
            most = f"{MAX_REQUESTS_PER_MINUTE:.0f}"
            raise ValueError(f"a rate of {rate:g} requests per minute: expected at least 0 and at most {most}")
    return tuple(RateStep(seconds, rate) for seconds, rate in pairs)


def duration_seconds(steps: tuple[RateStep, ...]) -> float:
    """Return the seconds of all steps."""
    return sum(step.seconds for step in steps)


def expected_requests(steps: tuple[RateStep, ...]) -> float:
    """Return the expected number of requests."""
    return sum(step.seconds * step.requests_per_minute / _PER_MINUTE for step in steps)


def arrivals(steps: tuple[RateStep, ...], *, seed: int, evenly: bool = False) -> Iterator[float]:
    """Yield the seconds since the start at which a request is sent, in rising order.

    Arrivals are a Poisson process, which has no memory, so each step begins anew at its start. With ``evenly`` they are
    evenly spaced instead.
    """
    random = Random(seed)
    start = 0.0
    for step in steps:
        end = start + step.seconds
        rate = step.requests_per_minute / _PER_MINUTE
        seconds = start
        for number in count(1) if rate > 0 else ():
            seconds = start + number / rate if evenly else seconds + random.expovariate(rate)
            if seconds > end:
                break
            yield seconds
        start = end
