"""What prompts have in common: templates that many requests begin with, and sessions whose prompts grow turn by turn.

A request belongs to a template, to a session, or to neither. Prompts keep the lengths that were drawn: the turns of a
session get them in rising order, because each turn repeats the history and adds to it. At the end all prefixes are
shortened by one factor, so that the achievable hit ratio, that of a cache without bounds, is the one that was asked
for. This stands for the part of every history that is rewritten, dated or trimmed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from wva.sim.traffic.assembly import ALONE, Prefixes
from wva.sim.traffic.statistics import held_tokens

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


LARGEST_SEARCH: Final = 64
"""Turns that are drawn at most, per request. What is missing then, in a time shorter than a turn, is first turns."""


@dataclass(frozen=True, slots=True)
class Mix:
    """A ``Sharing`` of templates and sessions.

    Attributes:
        hit_ratio: share of the prompt tokens that a cache without bounds would hold; less if the requests are too few.
        session_share: share of the requests that belong to sessions.
        template_share: share of the requests that begin with a template.
        turns: mean turns of a session; geometric.
        think_seconds: mean time between two turns of a session; exponential.
        templates: how many there are; the k-th is used in proportion to 1 / k.
        template_tokens: mean length of a template; log-normal with a sigma of 0.5.

    """

    hit_ratio: float
    session_share: float
    template_share: float
    turns: float = 5.0
    think_seconds: float = 60.0
    templates: int = 40
    template_tokens: float = 4000.0

    def __call__(self, generator: np.random.Generator, /, *, arrival_seconds: Floats, prompt_tokens: Ints) -> Prefixes:
        """Return the prefixes of prompts that arrive at these times, in order of arrival."""
        count = len(arrival_seconds)
        chance = generator.random(count)
        in_session = np.flatnonzero(chance < self.session_share)
        templated = np.flatnonzero((chance >= self.session_share) & (chance < self.session_share + self.template_share))
        group = np.full(count, ALONE, dtype=np.int64)
        prefix = np.zeros(count, dtype=np.int64)
        shared = np.zeros(count, dtype=np.int64)
        prompts = prompt_tokens.copy()

        weights = np.cumsum(1.0 / np.arange(1, self.templates + 1))
        lengths = np.rint(self.template_tokens * np.exp(0.5 * generator.standard_normal(self.templates) - 0.125))
        group[templated] = np.searchsorted(weights, generator.random(len(templated)) * weights[-1], side="right")
        prefix[templated] = np.minimum(lengths[group[templated]].astype(np.int64), prompts[templated] - 1)
        shared[templated] = prefix[templated]

        session = self._sessions(generator, arrival_seconds[in_session])
        # Sorted by session, then turn: turns are in order of arrival, and the lengths of a session rise with its turns.
        turns = np.argsort(session, kind="stable")
        rows = in_session[turns]
        prompts[rows] = prompts[in_session][np.lexsort((prompts[in_session], session))]
        is_first = np.concatenate(([True], np.diff(session[turns]) > 0))[: len(turns)]
        previous = np.concatenate(([0], prompts[rows][:-1]))[: len(turns)]
        group[in_session] = self.templates + session
        prefix[rows] = np.where(is_first, 0, np.minimum(previous, prompts[rows] - 1))
        shared[in_session] = prompts[in_session]

        held = held_tokens(group, prefix_tokens=prefix, shared_tokens=shared)
        factor = min(self.hit_ratio * float(prompts.sum()) / held, 1.0) if held else 1.0
        # What a prompt leaves and what the next one looks for shrink alike: each turn begins with all known tokens.
        return Prefixes(prompts, group, _part(prefix, factor), _part(shared, factor))

    def _sessions(self, generator: np.random.Generator, arrival_seconds: Floats) -> Ints:
        """Return the session of each request. Some sessions begin before the first request, some go on after the last.

        Turns are sorted by the time at which they are due; the n-th turn is the n-th request.
        """
        count = len(arrival_seconds)
        if not count:
            return np.zeros(0, dtype=np.int64)
        last = float(arrival_seconds[-1])
        lead_seconds = 3.0 * self.turns * self.think_seconds
        size = 2 * count
        while True:
            size *= 2
            number = np.repeat(np.arange(size), generator.geometric(1.0 / self.turns, size))[:size]
            elapsed = np.cumsum(generator.standard_exponential(size) * self.think_seconds)
            starts = generator.random(size) * (last + lead_seconds) - lead_seconds
            due = starts[number] + elapsed - elapsed[np.searchsorted(number, number)]
            inside = np.flatnonzero((due >= 0.0) & (due <= last))[:count]
            if len(inside) == count or size > count * LARGEST_SEARCH:
                break
        ordered = number[inside][np.argsort(due[inside], kind="stable")]
        alone = size + np.arange(count - len(ordered))
        numbers = np.concatenate((ordered, alone))
        return np.searchsorted(np.unique(numbers), numbers)


def _part(tokens: Ints, factor: float) -> Ints:
    shortened: Ints = np.floor(tokens * factor).astype(np.int64)
    return shortened
