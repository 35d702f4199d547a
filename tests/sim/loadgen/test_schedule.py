"""A rate is a list of steps, each with seconds and requests per minute; the schedule is the arrivals of these steps."""

from __future__ import annotations

from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.sim.loadgen.schedule import RateStep, arrivals, duration_seconds, expected_requests, parse_rate


def test_rate_of_the_guides():
    """The rate in the guides is twenty minutes at forty requests per minute."""
    steps = parse_rate("[[1200, 40]]")
    assert steps == (RateStep(1200, 40),)
    assert (duration_seconds(steps), expected_requests(steps)) == (1200, 800)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a list of"),
        ("[]", "a list of"),
        ("[[1200]]", "a list of"),
        ("[1200, 40]", "a list of"),
        ("[[0, 1]]", "a step of 0 s"),
        ("[[1e9, 1]]", "a step of 1e.09 s"),
        ("[[1, -1]]", "a rate of -1"),
        ("[[1, 1e6]]", "a rate of 1e.06"),
        ("[" * 100_000, "a list of"),
    ],
)
def test_other_texts_are_refused(text, reason):
    """The error names the part of the rate that is wrong."""
    with pytest.raises(ValueError, match=reason):
        parse_rate(text)


@given(
    st.lists(st.builds(RateStep, st.floats(0.1, 100), st.floats(0, 600)), min_size=1, max_size=4),
    st.integers(0, 9),
    st.booleans(),
)
def test_arrivals_rise_and_stay_within(steps, seed, evenly):
    """Arrivals rise and stay within the schedule, for any steps."""
    found = list(arrivals(tuple(steps), seed=seed, evenly=evenly))
    assert all(early <= late for early, late in pairwise(found))
    assert all(0 < at <= duration_seconds(tuple(steps)) for at in found)


def test_rate_is_kept_on_average():
    """The counts of one seed are within four standard deviations of the Poisson count."""
    steps = (RateStep(1000, 120), RateStep(1000, 0), RateStep(1000, 60))
    found = list(arrivals(steps, seed=3))
    first = sum(at <= 1000 for at in found)
    last = sum(at > 2000 for at in found)
    assert abs(first - 2000) < 4 * 2000**0.5
    assert abs(last - 1000) < 4 * 1000**0.5
    assert first + last == len(found)


def test_evenly_spaced():
    """At 120 requests per minute, an evenly spaced schedule has one arrival every half second."""
    assert list(islice(arrivals((RateStep(2, 120),), seed=0, evenly=True), 9)) == [0.5, 1.0, 1.5, 2.0]


def test_run_is_a_function_of_its_seed():
    """The same seed gives the same times, and another seed gives other times."""
    steps = (RateStep(60, 60),)
    assert list(arrivals(steps, seed=1)) == list(arrivals(steps, seed=1))
    assert list(arrivals(steps, seed=1)) != list(arrivals(steps, seed=2))
