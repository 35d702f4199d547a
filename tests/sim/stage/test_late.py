"""Each late request has one cause: the first unfinished step from demand to capacity when the request came."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.model.records import replace
from wva.sim.stage.late import CAUSES, Chain, Looks, StepFunction, causes


def level(*steps):
    """Return a step function from pairs of time and value."""
    times, values = zip(*steps, strict=True)
    return StepFunction(np.array(times, dtype=float), np.array(values, dtype=float))


def looks(*pairs):
    """Return looks from pairs of their time and the time of their data."""
    at, data = zip(*pairs, strict=True) if pairs else ((), ())
    return Looks(np.array(at, dtype=float), np.array(data, dtype=float))


STEP = Chain(
    needed=level((0, 10), (100, 40)),
    looks=looks((90, 85), (110, 95), (120, 105), (150, 140)),
    asked=level((0, 10), (150, 40)),
    specified=level((0, 10), (165, 40)),
    placed=level((0, 10), (180, 40)),
    ready=level((0, 10), (300, 40)),
)
"""Demand steps up at 100 s. The look at 120 s sees it, and the one at 150 s asks for enough replicas."""


def cause_at(seconds, chain=STEP):
    """Return the cause of a single late request."""
    ((cause, _),) = [pair for pair in causes(np.array([float(seconds)]), chain).items() if pair[1]]
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
    counts = causes(np.array([298.0, 305.0, 315.0, 400.0]), STEP)
    assert {cause: count for cause, count in counts.items() if count} == {"warm-up": 1, "backlog": 2, "service": 1}


def test_a_policy_that_never_looks_has_decided():
    """If a policy never looks at the load, as with a static fleet, the cause is its decision."""
    chain = replace(STEP, looks=looks(), asked=level((0, 10)))
    assert cause_at(200, chain) == "decision"


def test_a_fleet_that_shrank_too_far_is_a_new_shortage():
    """The demand did not change, but the policy asked for too little: this is a new shortage."""
    shrunk = level((0, 40), (200, 10))
    chain = Chain(level((0, 40)), looks((190, 185), (220, 210)), shrunk, shrunk, shrunk, shrunk)
    assert cause_at(100, chain) == "service"
    assert cause_at(210, chain) == "trigger"
    assert cause_at(230, chain) == "decision"


def test_less_is_asked_for_and_enough_is_ready():
    """Terminating pods still serve, so capacity is not missing yet."""
    chain = replace(STEP, needed=level((0, 40)), asked=level((0, 10)), ready=level((0, 40)))
    assert cause_at(50, chain) == "service"


def test_nothing_late():
    """Without late requests the counts of all causes are zero."""
    assert causes(np.array([]), STEP) == dict.fromkeys(CAUSES, 0)


steps = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 50)), max_size=6, unique_by=lambda pair: pair[0]).map(
    lambda pairs: level((0, 5), *sorted(pairs))
)


@given(
    late=st.lists(st.floats(0, 600), max_size=30).map(sorted),
    chain=st.builds(
        Chain,
        needed=steps,
        looks=st.lists(st.integers(0, 500), unique=True).map(lambda at: looks(*((t, t - 5) for t in sorted(at)))),
        asked=steps,
        specified=steps,
        placed=steps,
        ready=steps,
    ),
)
def test_every_late_request_has_one_cause(late, chain):
    """Every late request has one cause, for any course of demand and capacity."""
    assert sum(causes(np.array(late, dtype=float), chain).values()) == len(late)
