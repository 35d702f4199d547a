"""What made requests late: the step on the way from demand to capacity that was not done when they were served.

The steps are links of a chain. Demand grows beyond what is Ready; a scrape shows it and the policy looks at it
(trigger); the policy asks for enough (decision); spec.replicas follows (actuation); pods exist and have a node
(scheduling); they become Ready (warm-up); they are as fast as their type (slow pod). The cause is the earliest link
that was not done: for a late first token, at the arrival of the request; for tokens that came too slowly one after the
other, in the middle of the answer. Each link is compared as a capacity, all in one unit (requests per second, say), so
that variants of different speed add up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

TRIGGER: Final = "trigger"
"""The policy, which looks now and then, had not looked at anything that was scraped after the demand grew."""
DECISION: Final = "decision"
"""The policy had looked and asked for too little; or it never looks, as the policy of a fixed fleet."""
ACTUATION: Final = "actuation"
"""The policy had asked for enough; spec.replicas did not say so yet."""
SCHEDULING: Final = "scheduling"
"""spec.replicas was enough; the pods had no node yet."""
WARM_UP: Final = "warm-up"
"""The pods had their nodes and were not Ready yet."""
SLOW_POD: Final = "slow pod"
"""Enough would be Ready if pods were as fast as others of their type; or such a pod would have been in time."""
BACKLOG: Final = "backlog"
"""Enough was Ready; the queue of a shortage just before had not drained."""
SERVICE: Final = "service"
"""Enough was Ready all the time, and a first token was late: long prompts, uneven routing, or a replica that ended."""
BATCH: Final = "batch"
"""Enough was Ready all the time, and tokens came slowly: its pod had a large batch, or long prompts between them."""

CAUSES: Final = (TRIGGER, DECISION, ACTUATION, SCHEDULING, WARM_UP, SLOW_POD, BACKLOG, SERVICE, BATCH)

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
    """When the policy looked, and the time of the newest data that it saw: both in seconds, both rising."""

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
        ready: pods that serve, as if each were as fast as others of its type.
        serving: pods that serve, as fast as they are.

    """

    needed: StepFunction
    looks: Looks
    asked: StepFunction
    specified: StepFunction
    placed: StepFunction
    ready: StepFunction
    serving: StepFunction


@dataclass(frozen=True, slots=True)
class LateRequests:
    """Requests that were late or failed, one per entry of each column.

    Attributes:
        seconds: the time whose links decide the cause: the arrival, or the middle of an answer with slow tokens.
        tokens: whether the first token was in time, and the time between tokens was not.
        slow_pod: whether they would have been in time on a pod as fast as others of its type.

    """

    seconds: NDArray[np.float64]
    tokens: NDArray[np.bool_]
    slow_pod: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class LateByCause:
    """How many requests each of ``CAUSES`` accounts for: those with a late first token, and those with slow tokens."""

    first_token: dict[str, int]
    tokens: dict[str, int]


def causes(late: LateRequests, chain: Chain) -> LateByCause:
    """Return how many of some late requests each cause accounts for."""
    order = np.argsort(late.seconds, kind="stable")
    cause_indices = _causes(late.seconds[order], late.tokens[order], late.slow_pod[order], chain)

    def counted(chosen: NDArray[np.bool_]) -> dict[str, int]:
        counts = np.bincount(cause_indices[chosen], minlength=len(CAUSES))
        return {cause: int(count) for cause, count in zip(CAUSES, counts, strict=True)}

    return LateByCause(counted(~late.tokens[order]), counted(late.tokens[order]))


def _causes(
    seconds: NDArray[np.float64], tokens: NDArray[np.bool_], slow_pod: NDArray[np.bool_], chain: Chain
) -> NDArray[np.int64]:
    """Return the index in ``CAUSES`` of each late request's cause; their times rise."""
    needed = chain.needed.at(seconds)
    asked_too_little = chain.asked.at(seconds) < needed
    # A fleet that still shrinks may have enough Ready though too little is asked for: nothing is missing yet.
    short = chain.serving.at(seconds) < needed
    follows = _follows_a_shortage(seconds, short)
    holds = {
        SLOW_POD: slow_pod | short,
        TRIGGER: short & asked_too_little & ~_shortage_noticed(seconds, chain),
        DECISION: short & asked_too_little,
        ACTUATION: short & (chain.specified.at(seconds) < needed),
        SCHEDULING: short & (chain.placed.at(seconds) < needed),
        WARM_UP: short & (chain.ready.at(seconds) < needed),
        BACKLOG: follows,
        SERVICE: ~tokens,
        BATCH: tokens,
    }
    first = np.argmax(np.stack([slow_pod, *(holds[cause] for cause in CAUSES)]), axis=0)
    return np.where(first == 0, CAUSES.index(SLOW_POD), first - 1)


def _shortage_noticed(late_seconds: NDArray[np.float64], chain: Chain) -> NDArray[np.bool_]:
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
    """Return for each late arrival whether late arrivals without a lull lead back from it to one in a shortage."""
    if not len(late_seconds):
        return short
    after_lull = np.concatenate(([True], np.diff(late_seconds) > LULL_SECONDS))
    index = np.arange(len(late_seconds))
    episode_start = np.maximum.accumulate(np.where(after_lull, index, 0))
    last_short = np.maximum.accumulate(np.where(short, index, -1))
    return np.asarray(last_short >= episode_start, dtype=np.bool_)
