"""Offered load: when requests arrive at a model's gateway, and how long they are.

A model gets the requests of a ``Traffic``, or those of an ``ArrivalProcess``, which has no end and can be changed at
any time. Its arrivals are a Poisson process whose rate is piecewise linear in virtual time. The next arrival comes from
inverting the cumulated rate exactly (no thinning), so that one random number makes one arrival and a profile of zero
costs nothing. Lengths are lognormal, cut to bounds. Times, prompts and answers have a random stream each, seeded by
name: changing the rate of one model changes neither the lengths nor any other model. What a router that chooses by
chance does with them has a stream of its own, too.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from math import inf, log, sqrt
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from wva.model.records import replace
from wva.sim.fleet.requests import UserRequest

if TYPE_CHECKING:
    from wva.sim.traffic.requests import Traffic

MAXIMUM_SIGMA: Final = 5.0
"""Beyond it nearly every length is one of the bounds."""
_RATE_SECONDS: Final = 60.0
"""The rate of a traffic is that of so long a time."""


@dataclass(frozen=True, slots=True)
class RateProfile:
    """Requests per second over virtual time.

    Attributes:
        points: (virtual seconds, requests per second) in rising order of time; linear between them, constant before
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

    def after(self, from_seconds: float, *, expected: float) -> float:
        """Return when ``expected`` more requests will have come on average; infinite if they never will."""
        at, left = from_seconds, expected
        if left <= 0:
            return at
        for end, end_rate in self.points[bisect_right(self.points, from_seconds, key=lambda point: point[0]) :]:
            rate, span = self.rate(at), end - at
            if at < self.points[0][0]:
                end_rate = rate  # noqa: PLW2901 - before the first point the rate is constant
            here = (rate + end_rate) / 2 * span
            if here >= left:
                return at + _time_for(left, rate=rate, slope=(end_rate - rate) / span)
            at, left = end, left - here
        last = self.points[-1][1]
        return at + left / last if last > 0 else inf


def _time_for(expected: float, *, rate: float, slope: float) -> float:
    """Solve rate * t + slope * t^2 / 2 = expected for the first t, in the form that is stable for a slope near 0."""
    return 2 * expected / (rate + sqrt(max(rate * rate + 2 * slope * expected, 0.0)))


@dataclass(frozen=True, slots=True)
class TokenLengths:
    """A lognormal distribution of token counts, cut to bounds.

    Attributes:
        mean_tokens: mean before cutting.
        sigma: standard deviation of the logarithm; 0 makes every length the mean.
        minimum_tokens: shortest.
        maximum_tokens: longest.

    """

    mean_tokens: float
    sigma: float = 0.5
    minimum_tokens: int = 1
    maximum_tokens: int = 4096

    def __post_init__(self) -> None:
        """Refuse what has no draws.

        Raises:
            ValueError: naming the rule that is broken.

        """
        if not 0 < self.mean_tokens < inf:
            raise ValueError(f"mean_tokens must be above 0 and finite, not {self.mean_tokens}")
        if not 0 <= self.sigma <= MAXIMUM_SIGMA:
            raise ValueError(f"sigma must be 0 to {MAXIMUM_SIGMA:g}, not {self.sigma}")
        if not 1 <= self.minimum_tokens <= self.maximum_tokens:
            raise ValueError("minimum_tokens must be at least 1 and at most maximum_tokens")

    def draw(self, random: Random) -> int:
        """Return one length."""
        mu = log(self.mean_tokens) - self.sigma * self.sigma / 2
        return max(self.minimum_tokens, min(self.maximum_tokens, round(random.lognormvariate(mu, self.sigma))))


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """The load of one model.

    Attributes:
        profile: rate over virtual time.
        prompt: lengths of prompts.
        output: lengths of answers.

    """

    profile: RateProfile
    prompt: TokenLengths = field(default=TokenLengths(512))
    output: TokenLengths = field(default=TokenLengths(256))

    @property
    def resident_tokens(self) -> float:
        """Mean tokens of one sequence in the KV cache over its life: the prompt and half the answer."""
        return self.prompt.mean_tokens + self.output.mean_tokens / 2


class Arrivals(Protocol):
    """Requests of one model in order of time."""

    @property
    def groups(self) -> int:
        """How many groups of prompts there are."""
        ...

    @property
    def resident_tokens(self) -> float:
        """Mean tokens of one sequence in the KV cache over its life."""
        ...

    @property
    def next_seconds(self) -> float:
        """When the next request arrives; infinite if none will."""
        ...

    def take(self) -> UserRequest:
        """Return the request that arrives at ``next_seconds``."""
        ...

    def rate(self, at_seconds: float) -> float:
        """Return the requests per second at a time that has been reached."""
        ...


class TrafficArrivals:
    """The requests of a traffic, one after the other."""

    groups: Final[int]
    resident_tokens: Final[float]

    def __init__(self, traffic: Traffic) -> None:
        """Begin with the first request."""
        self.groups = traffic.groups
        self.resident_tokens = traffic.resident_tokens
        self._seconds = traffic.arrival_seconds
        columns = (
            traffic.arrival_seconds,
            traffic.prompt_tokens,
            traffic.output_tokens,
            traffic.group,
            traffic.prefix_tokens,
            np.minimum(traffic.shared_tokens, traffic.prompt_tokens),
            traffic.draw,
        )
        self._rows = zip(*(column.tolist() for column in columns), strict=True)
        self._made = 0
        self._next = self._read()

    @property
    def next_seconds(self) -> float:
        """When the next request arrives; infinite if none will."""
        return inf if self._next is None else self._next.arrival_seconds

    def take(self) -> UserRequest:
        """Return the request that arrives at ``next_seconds``.

        Raises:
            IndexError: there is no more.

        """
        taken = self._next
        if taken is None:
            raise IndexError("the traffic has ended")
        self._next = self._read()
        return taken

    def rate(self, at_seconds: float) -> float:
        """Return the requests per second of the minute before, or since the beginning."""
        span = min(at_seconds, _RATE_SECONDS)
        first, end = np.searchsorted(self._seconds, (at_seconds - span, at_seconds))
        return float(end - first) / span if span > 0 else 0.0

    def _read(self) -> UserRequest | None:
        row = next(self._rows, None)
        if row is None:
            return None
        self._made += 1
        at, prompt, output, group, prefix, shared, draw = row
        return UserRequest(
            number=self._made,
            arrival_seconds=at,
            prompt_tokens=prompt,
            output_tokens=output,
            group=group if group >= 0 else None,
            prefix_tokens=prefix,
            shared_tokens=shared,
            draw=draw,
        )


class ArrivalProcess:
    """Requests of one model in order of time, made when asked for."""

    groups: Final = 0

    def __init__(self, spec: LoadSpec, *, seed: str, start_seconds: float = 0.0) -> None:
        """Draw the first arrival. ``seed`` names the stream; equal seeds give equal requests."""
        self.spec = spec
        self._profile = spec.profile
        self._times = Random(f"{seed}/arrivals")
        self._prompts = Random(f"{seed}/prompts")
        self._outputs = Random(f"{seed}/outputs")
        self._routes = Random(f"{seed}/routes")
        self._made = 0
        self.next_seconds = self._draw(start_seconds)
        """When the next request arrives; infinite if none will."""

    @property
    def resident_tokens(self) -> float:
        """Mean tokens of one sequence in the KV cache over its life."""
        return self.spec.resident_tokens

    def rate(self, at_seconds: float) -> float:
        """Return the requests per second at a time, on average."""
        return self._profile.rate(at_seconds)

    def change_profile(self, profile: RateProfile, *, at_seconds: float) -> None:
        """Use another rate from ``at_seconds`` on. A Poisson process has no memory, so the wait begins anew."""
        self._profile = profile
        self.next_seconds = self._draw(at_seconds)

    def change_lengths(self, *, prompt: TokenLengths, output: TokenLengths) -> None:
        """Make the requests from the next one on as long as this."""
        self.spec = replace(self.spec, prompt=prompt, output=output)

    def take(self) -> UserRequest:
        """Return the request that arrives at ``next_seconds`` and draw the one after it."""
        at_seconds = self.next_seconds
        self._made += 1
        request = UserRequest(
            number=self._made,
            arrival_seconds=at_seconds,
            prompt_tokens=self.spec.prompt.draw(self._prompts),
            output_tokens=self.spec.output.draw(self._outputs),
            draw=self._routes.random(),
        )
        self.next_seconds = self._draw(at_seconds)
        return request

    def _draw(self, from_seconds: float) -> float:
        return self._profile.after(from_seconds, expected=self._times.expovariate(1.0))
