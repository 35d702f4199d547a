"""The requests of one model over a time, as columns in order of arrival."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Traffic:
    """Requests, one per row of every column.

    Attributes:
        duration_seconds: length of the time; no request arrives later.
        arrival_seconds: when each arrives, from 0, in rising order.
        prompt_tokens: length of each prompt, at least 1.
        output_tokens: length of each answer, at least 1.
        group: prompts of one group begin alike; -1 for a prompt like no other. Groups are numbered from 0.
        prefix_tokens: leading tokens of the prompt that earlier requests of the group may have left in a cache.
        shared_tokens: leading tokens of the prompt that later requests of the group begin with.
        draw: a random number in [0, 1) each, for a router that chooses by chance.
        rate: the points of the expected rate that the arrivals were drawn from, as ``RateProfile`` has them; None where
            it is not known, as for a trace.

    """

    duration_seconds: float
    arrival_seconds: NDArray[np.float64]
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    group: NDArray[np.int64]
    prefix_tokens: NDArray[np.int64]
    shared_tokens: NDArray[np.int64]
    draw: NDArray[np.float64]
    rate: tuple[tuple[float, float], ...] | None = None

    @property
    def count(self) -> int:
        """Number of requests."""
        return len(self.arrival_seconds)

    @property
    def resident_tokens(self) -> float:
        """Mean tokens of one sequence in the KV cache over its life: the prompt and half the answer."""
        return float((self.prompt_tokens + self.output_tokens / 2).mean()) if self.count else 1.0

    @property
    def groups(self) -> int:
        """Number of groups."""
        return int(self.group.max(initial=-1)) + 1
