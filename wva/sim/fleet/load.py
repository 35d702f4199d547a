"""Offered load: when requests arrive at a model's gateway, and how long they are.

A model gets the requests of a ``Traffic``, or those of an ``ArrivalProcess``, which has no end and can be changed at
any time. Its arrivals are a Poisson process whose rate is piecewise linear in virtual time. The next arrival comes from
inverting the cumulated rate exactly (no thinning), so that one random number makes one arrival and a profile of zero
costs nothing. Lengths are lognormal, cut to bounds. Times, prompts and answers have a random stream each, seeded by
name: changing the rate of one model changes neither the lengths nor any other model. What a router that chooses by
chance does with them has a stream of its own, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from wva.model.records import replace
from wva.sim.fleet.requests import UserRequest
from wva.sim.traffic.lengths import TokenLengths
from wva.sim.traffic.rates import RateProfile

if TYPE_CHECKING:
    from wva.sim.traffic.requests import Traffic

_RATE_SECONDS: Final = 60.0
"""The rate of a traffic is that of so long a time."""


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
