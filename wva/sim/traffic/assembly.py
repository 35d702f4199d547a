"""From arrival times to ``Traffic``: lengths, prefixes and draws are added, each from a random stream of its own."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from wva.model.records import replace
from wva.sim.traffic.arrivals import poisson
from wva.sim.traffic.lengths import Sizes
from wva.sim.traffic.rates import RateProfile
from wva.sim.traffic.requests import Traffic
from wva.sim.traffic.streams import stream

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ALONE: Final = -1
"""The group of a prompt like no other."""


class Prefixes(NamedTuple):
    """What prompts have in common, as columns of ``Traffic``. The prompts may have changed their order."""

    prompt_tokens: Ints
    group: Ints
    prefix_tokens: Ints
    shared_tokens: Ints


class Sharing(Protocol):
    """Draws what prompts have in common."""

    def __call__(self, generator: np.random.Generator, /, *, arrival_seconds: Floats, prompt_tokens: Ints) -> Prefixes:
        """Return the prefixes of prompts that arrive at these times, in order of arrival."""
        ...


def nothing_shared(_: np.random.Generator, /, *, arrival_seconds: Floats, prompt_tokens: Ints) -> Prefixes:
    """Return prompts that have nothing in common."""
    zeros = np.zeros(len(arrival_seconds), dtype=np.int64)
    return Prefixes(prompt_tokens, np.full(len(arrival_seconds), ALONE, dtype=np.int64), zeros, zeros.copy())


def poisson_traffic(seed: int, profile: RateProfile, *, duration_seconds: float, sizes: Sizes) -> Traffic:
    """Return Poisson arrivals of a rate; their prompts have nothing in common."""
    arrival_seconds = poisson(stream(seed, "arrivals"), profile, duration_seconds=duration_seconds)
    return replace(traffic(seed, arrival_seconds, duration_seconds=duration_seconds, sizes=sizes), rate=profile.points)


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
    prefixes = sharing(
        stream(seed, "prefixes"),
        arrival_seconds=arrival_seconds,
        prompt_tokens=sizes.prompt(stream(seed, "prompts"), count),
    )
    return Traffic(
        duration_seconds=duration_seconds,
        arrival_seconds=arrival_seconds,
        prompt_tokens=prefixes.prompt_tokens,
        output_tokens=sizes.output(stream(seed, "outputs"), count),
        group=prefixes.group,
        prefix_tokens=prefixes.prefix_tokens,
        shared_tokens=prefixes.shared_tokens,
        draw=stream(seed, "draws").random(count),
    )


def merged(*parts: Traffic) -> Traffic:
    """Return the requests of all parts in order of arrival. Groups of different parts stay apart."""
    arrival_seconds = np.concatenate([part.arrival_seconds for part in parts])
    order = np.argsort(arrival_seconds, kind="stable")
    offsets = np.cumsum([0, *(part.groups for part in parts[:-1])])
    groups = [
        np.where(part.group >= 0, part.group + offset, ALONE) for part, offset in zip(parts, offsets, strict=True)
    ]
    return Traffic(
        duration_seconds=max(part.duration_seconds for part in parts),
        arrival_seconds=arrival_seconds[order],
        prompt_tokens=np.concatenate([part.prompt_tokens for part in parts])[order],
        output_tokens=np.concatenate([part.output_tokens for part in parts])[order],
        group=np.concatenate(groups)[order],
        prefix_tokens=np.concatenate([part.prefix_tokens for part in parts])[order],
        shared_tokens=np.concatenate([part.shared_tokens for part in parts])[order],
        draw=np.concatenate([part.draw for part in parts])[order],
    )
