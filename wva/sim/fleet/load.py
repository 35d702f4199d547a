"""Offered load: the requests that arrive at a model's gateway, in order of time.

They come from a ``Traffic``, or from a ``LoadSpec``, which has no end: it is made of one piece of traffic after the
other, each from a seed of its own. Poisson traffic has no memory, so the pieces together are one Poisson process, and
a load can be changed at any time: a new piece begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import ClassVar, Final

import numpy as np

from wva.sim.fleet.requests import UserRequest
from wva.sim.traffic.assembly import poisson_traffic
from wva.sim.traffic.lengths import Sizes, TokenLengths, lognormal
from wva.sim.traffic.rates import RateProfile
from wva.sim.traffic.requests import Traffic

_PIECE_REQUESTS: Final = 1000.0
"""So many requests a piece has on average, at a rate that stays: some minutes of most loads, and never none."""
_SEEDS: Final = 2**63
"""The seeds of pieces are below it."""
_RATE_SECONDS: Final = 60.0
"""The rate of a load is that of so long a time."""


@dataclass(frozen=True, slots=True)
class LoadSpec:
    """A load without an end.

    Attributes:
        profile: its rate; times count from the beginning of the load.
        prompt: lengths of prompts.
        output: lengths of answers.

    """

    groups: ClassVar[int] = 0
    """How many groups of prompts there are."""

    profile: RateProfile
    prompt: TokenLengths = field(default=TokenLengths(512))
    output: TokenLengths = field(default=TokenLengths(256))

    @property
    def resident_tokens(self) -> float:
        """Mean tokens of one sequence in the KV cache over its life: the prompt and half the answer."""
        return self.prompt.mean_tokens + self.output.mean_tokens / 2

    def pieces(self, seeds: np.random.Generator) -> Iterator[Traffic]:
        """Yield the traffic up to the last point of the profile, and then, unless its rate is 0, more of that rate.

        ``seeds`` draws the seed of each piece.

        Raises:
            ValueError: more requests are expected up to the last point than fit into memory.

        """
        sizes = Sizes(lognormal(self.prompt), lognormal(self.output))
        profile, (seconds, last_rate) = self.profile, self.profile.points[-1]
        if seconds > 0.0:
            yield poisson_traffic(int(seeds.integers(_SEEDS)), profile, duration_seconds=seconds, sizes=sizes)
        while last_rate > 0.0:
            profile, seconds = RateProfile.constant(last_rate), _PIECE_REQUESTS / last_rate
            yield poisson_traffic(int(seeds.integers(_SEEDS)), profile, duration_seconds=seconds, sizes=sizes)


class Arrivals:
    """The requests of one model in order of time: those of its load, which can be changed at any time."""

    def __init__(self, load: LoadSpec | Traffic, *, seeds: np.random.Generator, start_seconds: float = 0.0) -> None:
        """Begin a load at ``start_seconds``. ``seeds`` draws the seed of each piece of a load without an end."""
        self._seeds = seeds
        self._numbers = count(1)
        self._start_seconds = start_seconds
        self._latest: deque[float] = deque()
        self.change(load, at_seconds=start_seconds)

    def change(self, load: LoadSpec | Traffic, *, at_seconds: float) -> None:
        """Go on with another load, which begins at ``at_seconds``; the present one has no requests from then on.

        Raises:
            ValueError: more requests are expected than fit into memory; the present load goes on.

        """
        requests = self._requests(load, at_seconds)
        self._next = next(requests, None)
        self._upcoming = requests
        self.load = load

    @property
    def next_seconds(self) -> float:
        """When the next request arrives; infinite if none will."""
        return inf if self._next is None else self._next.arrival_seconds

    def take(self) -> UserRequest:
        """Return the request that arrives at ``next_seconds``.

        Raises:
            IndexError: there is no more.

        """
        request = self._next
        if request is None:
            raise IndexError("the load has ended")
        self._latest.append(request.arrival_seconds)
        while self._latest[0] < request.arrival_seconds - _RATE_SECONDS:
            self._latest.popleft()
        self._next = next(self._upcoming, None)
        return request

    def rate(self, at_seconds: float) -> float:
        """Return the requests per second that were taken in the minute before, or since the beginning."""
        span = min(at_seconds - self._start_seconds, _RATE_SECONDS)
        return sum(at >= at_seconds - span for at in self._latest) / span if span > 0.0 else 0.0

    def _requests(self, load: LoadSpec | Traffic, begin_seconds: float) -> Iterator[UserRequest]:
        for piece in load.pieces(self._seeds) if isinstance(load, LoadSpec) else (load,):
            columns = (
                piece.arrival_seconds + begin_seconds,
                piece.prompt_tokens,
                piece.output_tokens,
                piece.group,
                piece.prefix_tokens,
                np.minimum(piece.shared_tokens, piece.prompt_tokens),
                piece.draw,
            )
            rows = zip(*(column.tolist() for column in columns), strict=True)
            for at, prompt, output, group, prefix, shared, draw in rows:
                yield UserRequest(
                    number=next(self._numbers),
                    arrival_seconds=at,
                    prompt_tokens=prompt,
                    output_tokens=output,
                    group=group if group >= 0 else None,
                    prefix_tokens=prefix,
                    shared_tokens=shared,
                    draw=draw,
                )
            begin_seconds += piece.duration_seconds
