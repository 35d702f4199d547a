"""Arrivals follow the profile, lengths follow their distribution, and both depend on the seed alone."""

from itertools import pairwise
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.sim.fleet.load import ArrivalProcess, LoadSpec, TrafficArrivals
from wva.sim.traffic import shapes, traces
from wva.sim.traffic.lengths import TokenLengths
from wva.sim.traffic.rates import RateProfile


def until(process, end):
    """Return the requests that arrive before ``end``."""
    requests = []
    while process.next_seconds < end:
        requests.append(process.take())
    return requests


points = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 9)), min_size=1, max_size=6).map(
    lambda pairs: RateProfile(tuple(sorted((float(at), float(rate)) for at, rate in pairs)))
)


@given(profile=points, start=st.floats(0, 60), expected=st.floats(0, 200))
def test_inverse_of_the_cumulated_rate(profile, start, expected):
    """The integral of the rate up to the returned time is the given expectation."""
    end = profile.after(start, expected=expected)
    horizon = min(end, 1000.0)
    bounds = sorted({start, horizon, *(at for at, _ in profile.points if start < at < horizon)})
    total = 0.0
    for low, high in pairwise(bounds):
        middle = (low + high) / 2  # exact for linear pieces
        total += profile.rate(middle) * (high - low)
    if end == inf:
        assert total <= expected + 1e-6
        assert profile.points[-1][1] == 0
    elif end <= horizon:
        assert total == pytest.approx(expected, abs=1e-6)


def test_counts_match_the_rate_in_each_part():
    """Over a ramp and a step the number of arrivals is the integral, within a few standard deviations."""
    profile = RateProfile(((0.0, 5.0), (1000.0, 25.0), (1000.0, 0.0), (2000.0, 0.0), (2000.0, 8.0)))
    times = [request.arrival_seconds for request in until(ArrivalProcess(LoadSpec(profile), seed="1"), 3000)]
    assert times == sorted(times)
    assert sum(at < 1000 for at in times) == pytest.approx(15_000, abs=500)
    assert sum(at < 500 for at in times) == pytest.approx(5_000, abs=300)
    assert not [at for at in times if 1000 <= at < 2000]
    assert sum(at >= 2000 for at in times) == pytest.approx(8_000, abs=400)


def test_same_seed_same_requests():
    """The same seed gives the same requests, and another seed other ones."""
    spec = LoadSpec(RateProfile.constant(20.0))
    first = until(ArrivalProcess(spec, seed="a"), 30)
    assert first == until(ArrivalProcess(spec, seed="a"), 30)
    assert first != until(ArrivalProcess(spec, seed="b"), 30)


def test_another_rate_leaves_the_lengths_alone():
    """Lengths have their own random streams, so scenarios with different rates have the same lengths."""
    slow = until(ArrivalProcess(LoadSpec(RateProfile.constant(1.0)), seed="a"), 50)
    fast = until(ArrivalProcess(LoadSpec(RateProfile.constant(9.0)), seed="a"), 50)
    lengths = [(request.prompt_tokens, request.output_tokens) for request in fast]
    assert [(request.prompt_tokens, request.output_tokens) for request in slow] == lengths[: len(slow)]


def test_changed_profile_takes_effect_at_once():
    """A changed profile replaces an arrival that was already drawn."""
    process = ArrivalProcess(LoadSpec(RateProfile.constant(0.0)), seed="a")
    assert process.next_seconds == inf
    process.change_profile(RateProfile.constant(50.0), at_seconds=1000.0)
    requests = until(process, 1010)
    assert 400 < len(requests) < 600
    assert requests[0].arrival_seconds >= 1000
    process.change_profile(RateProfile.constant(0.0), at_seconds=1010.0)
    assert process.next_seconds == inf


def test_lengths_have_the_mean_and_the_bounds():
    """The lognormal has the given mean, bounds cut it, and sigma 0 makes it constant."""
    random = Random(3)
    draws = [TokenLengths(256, sigma=0.5, maximum_tokens=100_000).draw(random) for _ in range(20_000)]
    assert sum(draws) / len(draws) == pytest.approx(256, rel=0.02)
    cut = [TokenLengths(256, sigma=2.0, minimum_tokens=20, maximum_tokens=900).draw(random) for _ in range(2_000)]
    assert (min(cut), max(cut)) == (20, 900)
    assert TokenLengths(77, sigma=0).draw(random) == 77


@pytest.mark.parametrize(
    "traffic",
    [shapes.step(3, duration_seconds=600.0), traces.mooncake_conversation(3, duration_seconds=300.0, rate=2.0)],
    ids=["alone", "shared"],
)
def test_the_requests_of_a_traffic_come_as_they_are(traffic):
    """One after the other, with all of their columns, and then no more."""
    arrivals = TrafficArrivals(traffic)
    assert (arrivals.groups, arrivals.resident_tokens) == (traffic.groups, traffic.resident_tokens)
    requests = until(arrivals, 1e9)
    assert len(requests) == traffic.count > 100
    for name in ("arrival_seconds", "prompt_tokens", "output_tokens", "prefix_tokens", "draw"):
        assert [getattr(request, name) for request in requests] == getattr(traffic, name).tolist()
    assert [-1 if request.group is None else request.group for request in requests] == traffic.group.tolist()
    shared = zip(traffic.shared_tokens.tolist(), traffic.prompt_tokens.tolist(), strict=True)
    assert [request.shared_tokens for request in requests] == [min(pair) for pair in shared]
    assert arrivals.next_seconds == inf
    with pytest.raises(IndexError, match="the traffic has ended"):
        arrivals.take()


def test_the_rate_of_a_traffic_is_that_of_the_last_minute():
    """At the beginning it is that of the time since then."""
    traffic = shapes.step(1, duration_seconds=1000.0, low=2.0, high=20.0)
    arrivals = TrafficArrivals(traffic)
    assert arrivals.rate(0.0) == 0.0
    assert arrivals.rate(30.0) == sum(traffic.arrival_seconds < 30.0) / 30.0
    assert arrivals.rate(599.0) == pytest.approx(20.0, abs=3.0)
    assert arrivals.rate(5000.0) == 0.0
