"""Traffic like that of a time series: a rate and mean lengths per step, as range queries of Prometheus return them.

Single requests are not in such data. They are drawn: arrivals at random with the rate of their step, lengths of a
distribution that is stretched to the mean of their step.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wva.sim.traffic import rates
from wva.sim.traffic.arrivals import gamma
from wva.sim.traffic.assembly import Sharing, nothing_shared, traffic
from wva.sim.traffic.lengths import Ints, Lengths, Sizes, TokenLengths, lognormal
from wva.sim.traffic.requests import Traffic
from wva.sim.traffic.streams import stream

Floats = NDArray[np.float64]

LONGEST_TOKENS: Final = 10_000_000
SPREAD: Final = Sizes(
    lognormal(TokenLengths(1000.0, 0.9, maximum_tokens=100_000)),
    lognormal(TokenLengths(1000.0, 0.9, maximum_tokens=100_000)),
)
"""Lengths where only their mean is known, about as wide as those of the Azure traces."""


@dataclass(frozen=True, slots=True)
class RateSeries:
    """Rates and mean lengths of requests, step by step. NaN stands for a value that is not known.

    Attributes:
        step_seconds: length of a step.
        requests_per_second: mean rate of each step.
        prompt_tokens: mean length of the prompts of each step.
        output_tokens: mean length of the answers of each step.

    """

    step_seconds: float
    requests_per_second: Floats
    prompt_tokens: Floats
    output_tokens: Floats

    def __post_init__(self) -> None:
        """Check the columns.

        Raises:
            ValueError: naming the column and the step that is wrong.

        """
        if not 0.0 < self.step_seconds < np.inf:
            raise ValueError(f"step_seconds is {self.step_seconds}: expected more than 0")
        self._check("requests_per_second", least=0.0, most=1e6)
        self._check("prompt_tokens", least=0.0, most=LONGEST_TOKENS)
        self._check("output_tokens", least=0.0, most=LONGEST_TOKENS)

    def _check(self, name: str, *, least: float, most: float) -> None:
        column: Floats = getattr(self, name)
        if column.shape != self.requests_per_second.shape or column.ndim != 1:
            raise ValueError(f"{name} has the shape {column.shape}: expected a value for each rate")
        wrong = np.flatnonzero((column < least) | (column > most))
        if len(wrong):
            raise ValueError(f"{name}[{wrong[0]}] is {column[wrong[0]]}: expected {least:g} to {most:g}, or NaN")
        if np.all(np.isnan(column)):
            raise ValueError(f"{name} has no value")

    @property
    def duration_seconds(self) -> float:
        """How long all steps take."""
        return self.step_seconds * len(self.requests_per_second)

    @property
    def unknown_share(self) -> float:
        """Share of the steps whose rate is not known: it is taken to run evenly from the last known to the next."""
        return float(np.mean(np.isnan(self.requests_per_second)))


def from_series(
    seed: int, series: RateSeries, *, sizes: Sizes = SPREAD, shape: float = 1.0, sharing: Sharing = nothing_shared
) -> Traffic:
    """Return requests with the rates and mean lengths of a series.

    ``sizes`` are distributions of which only the form matters. ``shape`` is that of the Gamma gaps: 1 makes a Poisson
    process.
    """
    heights = _filled(series.requests_per_second)
    profile = rates.steps((series.step_seconds, float(height)) for height in heights)
    duration_seconds = series.duration_seconds
    arrival_seconds = gamma(stream(seed, "arrivals"), profile, duration_seconds=duration_seconds, shape=shape)
    steps = np.minimum((arrival_seconds / series.step_seconds).astype(np.int64), len(heights) - 1)
    stretched = Sizes(
        _stretched(sizes.prompt, _filled(series.prompt_tokens)[steps]),
        _stretched(sizes.output, _filled(series.output_tokens)[steps]),
    )
    return traffic(seed, arrival_seconds, duration_seconds=duration_seconds, sizes=stretched, sharing=sharing)


def _filled(column: Floats) -> Floats:
    """Return a column in which gaps run evenly from the last known value to the next; ends are continued."""
    known = np.flatnonzero(~np.isnan(column))
    return np.interp(np.arange(len(column)), known, column[known])


def _stretched(lengths: Lengths, means: Floats) -> Lengths:
    """Return lengths of the same form, each with a mean of its own."""

    def draw(generator: np.random.Generator, count: int) -> Ints:
        form = lengths(generator, count).astype(np.float64)
        values = form * means / max(float(form.mean()) if count else 1.0, 1.0)
        return np.clip(np.rint(values), 1.0, LONGEST_TOKENS).astype(np.int64)

    return draw
