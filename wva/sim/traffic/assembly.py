"""From arrival times to ``Traffic``: lengths, prefixes and draws are added, each from a random stream of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wva.sim.fleet.load import RateProfile
from wva.sim.traffic.arrivals import poisson
from wva.sim.traffic.lengths import Sizes
from wva.sim.traffic.requests import Traffic
from wva.sim.traffic.streams import stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ALONE: Final = -1
"""The group of a prompt like no other."""


class Prefixes(NamedTuple):
    """What prompts have in common: columns ``group``, ``prefix_tokens`` and ``shared_tokens`` of ``Traffic``."""

    group: Ints
    prefix_tokens: Ints
    shared_tokens: Ints


Sharing = Callable[[np.random.Generator, Ints], Prefixes]
"""Draws what prompts of these lengths, in order of arrival, have in common."""


def nothing_shared(_: np.random.Generator, prompt_tokens: Ints) -> Prefixes:
    """Return prompts that have nothing in common."""
    none = np.zeros(len(prompt_tokens), dtype=np.int64)
    return Prefixes(np.full(len(prompt_tokens), ALONE, dtype=np.int64), none, none.copy())


def poisson_traffic(seed: int, profile: RateProfile, *, duration_seconds: float, sizes: Sizes) -> Traffic:
    """Return Poisson arrivals of a rate; their prompts have nothing in common."""
    arrival_seconds = poisson(stream(seed, "arrivals"), profile, duration_seconds=duration_seconds)
    return traffic(seed, arrival_seconds, duration_seconds=duration_seconds, sizes=sizes)


def traffic(
    seed: int,
    arrival_seconds: Floats,
    *,
    duration_seconds: float,
    sizes: Sizes,
    sharing: Sharing = nothing_shared,
) -> Traffic:
    """Return the requests that arrive at ``arrival_seconds``. Answers do not depend on prompts."""
    count = len(arrival_seconds)
    prompt_tokens = sizes.prompt(stream(seed, "prompts"), count)
    prefixes = sharing(stream(seed, "prefixes"), prompt_tokens)
    return Traffic(
        duration_seconds=duration_seconds,
        arrival_seconds=arrival_seconds,
        prompt_tokens=prompt_tokens,
        output_tokens=sizes.output(stream(seed, "outputs"), count),
        group=prefixes.group,
        prefix_tokens=prefixes.prefix_tokens,
        shared_tokens=prefixes.shared_tokens,
        draw=stream(seed, "draws").random(count),
    )
