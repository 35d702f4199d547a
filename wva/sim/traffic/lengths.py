"""Lengths of prompts and answers: functions from a generator and a count to a column of lengths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Lengths = Callable[[np.random.Generator, int], Ints]
"""Draws that many lengths, each at least 1."""
MAXIMUM_SIGMA: Final = 5.0
"""Beyond it nearly every length is one of the bounds."""


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
        """Refuse values from which no length can be drawn.

        Raises:
            ValueError: naming the rule that is broken.

        """
        if not 0 < self.mean_tokens < inf:
            raise ValueError(f"mean_tokens must be above 0 and finite, not {self.mean_tokens}")
        if not 0 <= self.sigma <= MAXIMUM_SIGMA:
            raise ValueError(f"sigma must be 0 to {MAXIMUM_SIGMA:g}, not {self.sigma}")
        if not 1 <= self.minimum_tokens <= self.maximum_tokens:
            raise ValueError("minimum_tokens must be at least 1 and at most maximum_tokens")


class Sizes(NamedTuple):
    """Lengths of prompts and of answers."""

    prompt: Lengths
    output: Lengths


def fixed(tokens: int) -> Lengths:
    """Return lengths that are all the same."""
    return lambda _, count: np.full(count, tokens, dtype=np.int64)


def lognormal(lengths: TokenLengths) -> Lengths:
    """Return lognormal lengths, cut to their bounds; the mean is that before cutting."""
    mu = log(lengths.mean_tokens) - lengths.sigma * lengths.sigma / 2.0

    def draw(generator: np.random.Generator, count: int) -> Ints:
        values = np.exp(mu + lengths.sigma * generator.standard_normal(count))
        return _whole(np.clip(values, lengths.minimum_tokens, lengths.maximum_tokens))

    return draw


def quantiles(points: Sequence[tuple[float, float]], *, scale: float = 1.0) -> Lengths:
    """Return lengths of a distribution that is known by quantiles: (share, tokens) from share 0 to 1.

    Between two of them the logarithm is linear in the share. Equal lengths at two shares are a point mass. ``scale``
    multiplies all lengths.

    Raises:
        ValueError: the shares do not rise from 0 to 1, or the tokens fall.

    """
    table = np.asarray(points, dtype=np.float64)
    shares, tokens = table[:, 0], table[:, 1]
    if shares[0] != 0.0 or shares[-1] != 1.0 or np.any(np.diff(shares) <= 0.0):
        raise ValueError("shares must rise from 0 to 1")
    if tokens[0] < 1.0 or np.any(np.diff(tokens) < 0.0):
        raise ValueError("tokens must be at least 1 and must not fall")
    logarithms = np.log(tokens * scale)

    def draw(generator: np.random.Generator, count: int) -> Ints:
        values = np.interp(generator.random(count), shares, logarithms)
        return _whole(np.exp(values, out=values))

    return draw


def histogram(buckets: Mapping[float, float]) -> Lengths:
    """Return lengths of a distribution that is known by a histogram, as Prometheus has it.

    ``buckets`` has for each upper bound how many observations are at most that; one of the bounds may be infinite.
    Lengths beyond the last finite bound are up to twice as long.

    Raises:
        ValueError: there is no observation.

    """
    bounds = sorted(buckets)
    counts = np.maximum.accumulate([max(buckets[bound], 0.0) for bound in bounds])
    if not len(counts) or not counts[-1] > 0.0:
        raise ValueError("a histogram without observations has no lengths")
    points = [(0.0, 1.0)]
    for bound, count in zip(bounds, (counts / counts[-1]).tolist(), strict=True):
        tokens = max(bound if np.isfinite(bound) else 2.0 * points[-1][1], 1.0)
        if count > points[-1][0]:
            points.append((count, tokens))
        elif count == 0.0:
            points = [(0.0, tokens)]
    return quantiles(points)


def zipf(*, exponent: float, maximum_tokens: int) -> Lengths:
    """Return lengths k = 1 .. maximum with a probability in proportion to k^-exponent."""
    cumulated = np.cumsum(np.arange(1, maximum_tokens + 1, dtype=np.float64) ** -exponent)
    cumulated /= cumulated[-1]
    return lambda generator, count: (
        np.searchsorted(cumulated, generator.random(count), side="right").astype(np.int64) + 1
    )


def _whole(values: NDArray[np.float64]) -> Ints:
    np.rint(values, out=values)
    np.maximum(values, 1.0, out=values)
    return values.astype(np.int64)
