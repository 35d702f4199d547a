"""Each late request has one cause: the first unfinished step from demand to capacity when the request came."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.model.records import replace
from wva.sim.stage.late import CAUSES, Chain, LateRequests, Looks, StepFunction, causes


def level(*steps):
    """Return a step function from pairs of time and value."""
    times, values = zip(*steps, strict=True)
    return StepFunction(np.array(times, dtype=float), np.array(values, dtype=float))


def looks(*pairs):
    """Return looks from pairs of their time and the time of their data."""
    at, data = zip(*pairs, strict=True) if pairs else ((), ())
    return Looks(np.array(at, dtype=float), np.array(data, dtype=float))


def late(*seconds, tokens=False, slow_pod=False):
    """Return late requests that are alike but for their times."""
    count = len(seconds)
    return LateRequests(np.array(seconds, dtype=float), np.full(count, tokens), np.full(count, slow_pod))


STEP = Chain(
    needed=level((0, 10), (100, 40)),
    looks=looks((90, 85), (110, 95), (120, 105), (150, 140)),
    asked=level((0, 10), (150, 40)),
    specified=level((0, 10), (165, 40)),
    placed=level((0, 10), (180, 40)),
    ready=level((0, 10), (300, 40)),
    serving=level((0, 10), (300, 40)),
)
"""Demand steps up at 100 s. The look at 120 s sees it, and the one at 150 s asks for enough replicas."""


def cause_at(seconds, chain=STEP, **what):
    """Return the cause of a single late request."""
    found = causes(late(float(seconds), **what), chain)
    told = found.tokens if what.get("tokens") else found.first_token
    assert sum(found.tokens.values()) + sum(found.first_token.values()) == 1
    ((cause, _),) = [pair for pair in told.items() if pair[1]]
    return cause


@pytest.mark.parametrize(
    ("seconds", "cause"),
    [
        (50, "service"),
        (100, "trigger"),
        (119, "trigger"),
        (120, "decision"),
        (149, "decision"),
        (150, "actuation"),
        (165, "scheduling"),
        (180, "warm-up"),
        (299, "warm-up"),
        (300, "service"),
    ],
)
def test_the_earliest_link_that_is_not_done(seconds, cause):
    """The cause changes from the step of the demand until enough replicas are Ready."""
    assert cause_at(seconds) == cause


def test_a_queue_that_still_drains_is_a_backlog():
    """As long as late requests follow each other, the cause is the backlog. After a lull it is another one."""
    counts = causes(late(400.0, 298.0, 305.0, 315.0), STEP).first_token
    assert {cause: count for cause, count in counts.items() if count} == {"warm-up": 1, "backlog": 2, "service": 1}


def test_a_policy_that_never_looks_has_decided():
    """If a policy never looks at the load, as with a static fleet, the cause is its decision."""
    chain = replace(STEP, looks=looks(), asked=level((0, 10)))
    assert cause_at(200, chain) == "decision"


def test_a_fleet_that_shrank_too_far_is_a_new_shortage():
    """The demand did not change, but the policy asked for too little: this is a new shortage."""
    shrunk = level((0, 40), (200, 10))
    chain = Chain(level((0, 40)), looks((190, 185), (220, 210)), shrunk, shrunk, shrunk, shrunk, shrunk)
    assert cause_at(100, chain) == "service"
    assert cause_at(210, chain) == "trigger"
    assert cause_at(230, chain) == "decision"


def test_less_is_asked_for_and_enough_is_ready():
    """Terminating pods still serve, so capacity is not missing yet."""
    enough = level((0, 40))
    chain = replace(STEP, needed=enough, asked=level((0, 10)), ready=enough, serving=enough)
    assert cause_at(50, chain) == "service"


@pytest.mark.parametrize(("seconds", "cause"), [(50, "batch"), (119, "trigger"), (200, "warm-up"), (300, "batch")])
def test_slow_tokens_have_causes_too(seconds, cause):
    """A time between tokens that is late has the causes of a shortage; without one the batch was too large."""
    assert cause_at(seconds, tokens=True) == cause


def test_slow_tokens_follow_a_shortage_as_first_tokens_do():
    """While late requests follow each other after a shortage, slow tokens are of the backlog."""
    both = LateRequests(np.array([298.0, 305.0, 310.0]), np.array([False, True, True]), np.zeros(3, dtype=bool))
    found = causes(both, STEP)
    assert (found.first_token["warm-up"], found.tokens["backlog"]) == (1, 2)


@pytest.mark.parametrize("tokens", [False, True])
def test_a_pod_slower_than_its_type(tokens):
    """Who would have been in time on an ordinary pod is late because of the pod, also while replicas are missing."""
    assert cause_at(50, tokens=tokens, slow_pod=True) == "slow pod"
    assert cause_at(200, tokens=tokens, slow_pod=True) == "slow pod"


def test_pods_that_would_be_enough_if_they_were_as_fast_as_others():
    """Enough pods are Ready by their number, but slow ones carry less than the demand."""
    chain = replace(STEP, serving=level((0, 10), (300, 30)))
    assert cause_at(299, chain) == "warm-up"
    assert cause_at(300, chain) == "slow pod"


def test_nothing_late():
    """Without late requests the counts of all causes are zero."""
    found = causes(late(), STEP)
    assert found.first_token == found.tokens == dict.fromkeys(CAUSES, 0)


steps = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 50)), max_size=6, unique_by=lambda pair: pair[0]).map(
    lambda pairs: level((0, 5), *sorted(pairs))
)


@given(
    columns=st.lists(st.tuples(st.floats(0, 600), st.booleans(), st.booleans()), max_size=30),
    chain=st.builds(
        Chain,
        needed=steps,
        looks=st.lists(st.integers(0, 500), unique=True).map(lambda at: looks(*((t, t - 5) for t in sorted(at)))),
        asked=steps,
        specified=steps,
        placed=steps,
        ready=steps,
        serving=steps,
    ),
)
def test_every_late_request_has_one_cause(columns, chain):
    """Every late request has one cause, for any course of demand and capacity, and is counted with its kind."""
    seconds, tokens, slow = (np.array(column) for column in zip(*columns, strict=True)) if columns else ((),) * 3
    chosen = LateRequests(np.array(seconds, float), np.array(tokens, bool), np.array(slow, bool))
    found = causes(chosen, chain)
    assert sum(found.tokens.values()) == np.count_nonzero(tokens)
    assert sum(found.first_token.values()) == len(columns) - np.count_nonzero(tokens)
