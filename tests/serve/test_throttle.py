"""Token buckets and counted refusals: what they let through, and that they stay small."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wva.serve.throttle import Buckets, Latest, Refusals, Throttled
from wva.sim.world.clock import VirtualClock


@given(st.lists(st.floats(0.0, 20.0), min_size=1, max_size=200))
def test_no_window_has_more_than_burst_and_rate_allow(pauses):
    """Between any two moments at most the burst and what the rate adds; a refused try says when the next succeeds."""
    clock = VirtualClock()
    buckets = Buckets(burst=5.0, per_second=0.5, monotonic=clock.monotonic)
    now, taken, waits = 0.0, [], []
    for pause in pauses:
        now += pause
        clock.advance_to(now)
        try:
            buckets.take("key")
            taken.append(now)
        except Throttled as throttled:
            waits.append(throttled.retry_after_seconds)
    assert all(0.0 < seconds <= 2.0 + 1e-6 for seconds in waits)
    for first, start in enumerate(taken):
        for last in range(first, len(taken)):
            assert last - first + 1 <= 5.0 + 0.5 * (taken[last] - start) + 1e-6


def test_keys_do_not_disturb_one_another():
    """One is empty, the other full."""
    buckets = Buckets(burst=1.0, per_second=1.0, monotonic=VirtualClock().monotonic)
    buckets.take("a")
    buckets.take("b")


def test_everything_is_bounded():
    """Any number of keys leaves no more than the capacity behind; what was used last stays."""
    clock = VirtualClock()
    buckets = Buckets(burst=1.0, per_second=1.0, monotonic=clock.monotonic, capacity=3)
    refusals, latest = Refusals(monotonic=clock.monotonic, capacity=3), Latest(capacity=3)
    for number in range(100):
        buckets.take(number)
        refusals.count(str(number))
        latest[number] = None
    assert list(buckets._levels) == list(latest) == [97, 98, 99]
    assert list(refusals._told) == ["97", "98", "99"]
    assert 97 in latest
    assert 96 not in latest


def test_refusals_are_told_at_once_and_then_once_a_minute():
    """Each line has the number of those since the last; callers do not wait for one another."""
    clock = VirtualClock()
    refusals = Refusals(monotonic=clock.monotonic)
    assert [refusals.count("a") for _ in range(5)] == [1, 0, 0, 0, 0]
    assert refusals.count("b") == 1
    clock.advance_to(59.9)
    assert refusals.count("a") == 0
    clock.advance_to(60)
    assert refusals.count("a") == 6
