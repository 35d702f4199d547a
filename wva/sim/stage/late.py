"""What made late requests wait: the step on the way from demand to capacity that was not done when they arrived.

The steps are links of a chain. Demand grows beyond what is Ready; a scrape shows it and the policy looks at it
(trigger); the policy asks for enough (decision); spec.replicas follows (actuation); pods exist and have a node
(scheduling); they become Ready (warm-up). The cause of a late first token is the earliest link that was not done when
the request arrived. What is compared at each link is a capacity, all in one unit (requests per second, say), so that
variants of different speed add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

TRIGGER: Final = "trigger"
"""The policy, which looks now and then, had not looked at anything that was scraped after the demand grew."""
DECISION: Final = "decision"
"""It had, and asked for too little; or it never looks, as one of a fixed fleet."""
ACTUATION: Final = "actuation"
"""It had asked for enough; spec.replicas did not say so yet."""
SCHEDULING: Final = "scheduling"
"""spec.replicas said so; the pods had no place yet."""
WARM_UP: Final = "warm-up"
"""The pods were there, and not Ready."""
BACKLOG: Final = "backlog"
"""Enough was Ready; the queue of a shortage just before had not drained."""
SERVICE: Final = "service"
"""Enough was Ready all the time: long prompts, uneven routing, or a replica that ended."""

CAUSES: Final = (TRIGGER, DECISION, ACTUATION, SCHEDULING, WARM_UP, BACKLOG, SERVICE)

LULL_SECONDS: Final = 15.0
"""A backlog has drained when no request has been late for this long."""


@dataclass(frozen=True, slots=True)
class StepFunction:
    """A capacity over time: ``values[i]`` holds from ``times[i]`` seconds until the next; times rise from 0."""

    times: NDArray[np.float64]
    values: NDArray[np.float64]

    def at(self, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the capacity at each of some times."""
        return self.values[np.searchsorted(self.times, seconds, side="right") - 1]


@dataclass(frozen=True, slots=True)
class Looks:
    """When the policy looked, and how new what it saw was: both in seconds, both rising."""

    at_seconds: NDArray[np.float64]
    data_seconds: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Chain:
    """The links between demand and capacity. Each level is the capacity that this link has done its part for.

    Attributes:
        needed: what the demand needs at least.
        looks: when the policy looked, and at how new data.
        asked: what the policy has asked for.
        specified: what spec.replicas says.
        placed: pods that exist and have a node.
        ready: pods that serve.

    """

    needed: StepFunction
    looks: Looks
    asked: StepFunction
    specified: StepFunction
    placed: StepFunction
    ready: StepFunction


def causes(late_seconds: NDArray[np.float64], chain: Chain) -> dict[str, int]:
    """Return how many late requests each of ``CAUSES`` accounts for, given their arrival times in rising order."""
    needed = chain.needed.at(late_seconds)
    links = ((ACTUATION, chain.specified), (SCHEDULING, chain.placed), (WARM_UP, chain.ready))
    missing = {cause: level.at(late_seconds) < needed for cause, level in links}
    asked_too_little = chain.asked.at(late_seconds) < needed
    # A fleet that still shrinks may have enough Ready though too little is asked for: nothing is missing yet.
    short = missing[WARM_UP]
    seen = _seen(late_seconds, chain)
    counts = dict.fromkeys(CAUSES, 0)
    open_ = short.copy()
    for cause, holds in (
        (TRIGGER, asked_too_little & ~seen),
        (DECISION, asked_too_little),
        *((cause, missing[cause]) for cause, _ in links),
    ):
        counts[cause] = int(np.count_nonzero(open_ & holds))
        open_ &= ~holds
    follows = _follows_a_shortage(late_seconds, short)
    counts[BACKLOG] = int(np.count_nonzero(~short & follows))
    counts[SERVICE] = int(np.count_nonzero(~short & ~follows))
    return counts


def _seen(late_seconds: NDArray[np.float64], chain: Chain) -> NDArray[np.bool_]:
    """Return for each arrival whether the policy has looked at data from after the demand outgrew what is asked for."""
    times = np.union1d(chain.needed.times, chain.asked.times)
    lacking = chain.asked.at(times) < chain.needed.at(times)
    begins = times[lacking & ~np.concatenate(([False], lacking[:-1]))]
    if not len(begins) or not len(chain.looks.at_seconds):
        return np.ones(len(late_seconds), dtype=np.bool_)
    since = begins[np.maximum(np.searchsorted(begins, late_seconds, side="right") - 1, 0)]
    last_look = np.searchsorted(chain.looks.at_seconds, late_seconds, side="right") - 1
    newest = np.where(last_look >= 0, chain.looks.data_seconds[np.maximum(last_look, 0)], -np.inf)
    return np.asarray(newest > since, dtype=np.bool_)


def _follows_a_shortage(late_seconds: NDArray[np.float64], short: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return for each late arrival whether late ones lead back from it to one in a shortage, without a lull."""
    if not len(late_seconds):
        return short
    after_lull = np.concatenate(([True], np.diff(late_seconds) > LULL_SECONDS))
    index = np.arange(len(late_seconds))
    episode_start = np.maximum.accumulate(np.where(after_lull, index, 0))
    last_short = np.maximum.accumulate(np.where(short, index, -1))
    return np.asarray(last_short >= episode_start, dtype=np.bool_)
