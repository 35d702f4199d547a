"""A load is the requests of its traffic, piece after piece, from the seed alone, and can be changed at any time."""

from math import inf

import numpy as np
import pytest

from wva.sim.fleet.load import Arrivals, LoadSpec
from wva.sim.traffic import shapes, traces
from wva.sim.traffic.lengths import TokenLengths
from wva.sim.traffic.rates import RateProfile
from wva.sim.traffic.streams import stream

NOTHING = LoadSpec(RateProfile.constant(0.0))


def of(load, *, seed=1, start=0.0):
    """Return the requests of a load."""
    return Arrivals(load, seeds=stream(seed, "m"), start_seconds=start)


def steady(rate, **lengths):
    """Return a load of a rate that never changes."""
    return LoadSpec(RateProfile.constant(rate), **lengths)


def until(arrivals, end):
    """Return the requests that arrive before ``end``."""
    requests = []
    while arrivals.next_seconds < end:
        requests.append(arrivals.take())
    return requests


def test_counts_match_the_rate_in_each_part():
    """Over a ramp, a step and the time after the last point the number of arrivals is the integral, within chance."""
    profile = RateProfile(((0.0, 5.0), (1000.0, 25.0), (1000.0, 0.0), (2000.0, 0.0), (2000.0, 8.0)))
    at = [request.arrival_seconds for request in until(of(LoadSpec(profile), start=700.0), 3700.0)]
    assert at == sorted(at)
    counts, _ = np.histogram(at, bins=[700, 1200, 1700, 2700, 3700])
    assert counts == pytest.approx([5_000, 10_000, 0, 8_000], abs=400)


def test_a_load_without_an_end_is_one_poisson_process():
    """No piece repeats another one, and gaps are exponential where one piece ends and the next begins, too."""
    requests = until(of(steady(20.0)), 1000.0)
    assert len({request.draw for request in requests}) == len(requests)
    assert [request.number for request in requests] == list(range(1, len(requests) + 1))
    gaps = np.diff([request.arrival_seconds for request in requests])
    assert gaps.mean() == pytest.approx(0.05, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.03)


def test_same_seed_same_requests():
    """The same seed gives the same requests, and another seed other ones."""
    first = until(of(steady(20.0)), 300.0)
    assert first == until(of(steady(20.0)), 300.0)
    assert first != until(of(steady(20.0), seed=2), 300.0)


def test_a_changed_load_takes_effect_at_once():
    """It replaces an arrival that was already drawn, and has its own lengths. Silence lasts until the next change."""
    arrivals = of(NOTHING)
    assert arrivals.next_seconds == inf
    arrivals.change(steady(50.0), at_seconds=1000.0)
    requests = until(arrivals, 1010.0)
    assert 400 < len(requests) < 600
    assert requests[0].arrival_seconds >= 1000.0
    arrivals.change(steady(50.0, output=TokenLengths(7, sigma=0)), at_seconds=1010.0)
    changed = until(arrivals, 1020.0)
    assert {request.output_tokens for request in changed} == {7}
    assert not {request.draw for request in changed} & {request.draw for request in requests}
    arrivals.change(NOTHING, at_seconds=1020.0)
    assert arrivals.next_seconds == inf


def test_a_load_that_does_not_fit_into_memory_changes_nothing():
    """The one before goes on."""
    arrivals = of(steady(5.0))
    upcoming = arrivals.next_seconds
    with pytest.raises(ValueError, match="fit into memory"):
        arrivals.change(LoadSpec(RateProfile(((0.0, 1e6), (3600.0, 1e6)))), at_seconds=0.0)
    assert arrivals.next_seconds == upcoming
    assert len(until(arrivals, 100.0)) > 400


@pytest.mark.parametrize(
    "traffic",
    [shapes.step(3, duration_seconds=600.0), traces.mooncake_conversation(3, duration_seconds=300.0, rate=2.0)],
    ids=["alone", "shared"],
)
def test_the_requests_of_a_traffic_come_as_they_are(traffic):
    """One after the other, with all of their columns, and then no more."""
    arrivals = of(traffic)
    requests = until(arrivals, 1e9)
    assert len(requests) == traffic.count > 100
    for name in ("arrival_seconds", "prompt_tokens", "output_tokens", "prefix_tokens", "draw"):
        assert [getattr(request, name) for request in requests] == getattr(traffic, name).tolist()
    assert [-1 if request.group is None else request.group for request in requests] == traffic.group.tolist()
    shared = zip(traffic.shared_tokens.tolist(), traffic.prompt_tokens.tolist(), strict=True)
    assert [request.shared_tokens for request in requests] == [min(pair) for pair in shared]
    assert arrivals.next_seconds == inf
    with pytest.raises(IndexError, match="the load has ended"):
        arrivals.take()


def test_the_rate_is_that_of_the_last_minute():
    """At the beginning it is that of the time since then. A change of the load takes a minute to be seen in full."""
    traffic = shapes.step(1, duration_seconds=1000.0, low=2.0, high=20.0)
    arrivals = of(traffic)
    assert arrivals.rate(0.0) == 0.0
    for at, since in ((30.0, 0.0), (230.0, 170.0), (599.0, 539.0)):
        until(arrivals, at)
        here = (traffic.arrival_seconds >= since) & (traffic.arrival_seconds < at)
        assert arrivals.rate(at) == np.count_nonzero(here) / (at - since)
    arrivals.change(NOTHING, at_seconds=599.0)
    assert arrivals.rate(629.0) == pytest.approx(10.0, abs=3.0)
    assert arrivals.rate(5000.0) == 0.0
