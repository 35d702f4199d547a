"""The token buckets and the log of refused requests: how much they let through, and that their memory is bounded."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from wva.serve.gate import CAPACITY, Buckets, Gate, Latest, Throttled
from wva.sim.world.clock import VirtualClock


@given(st.lists(st.floats(0.0, 20.0), min_size=1, max_size=200))
def test_no_window_has_more_than_burst_and_rate_allow(pauses):
    """Between any two moments, a bucket allows at most the burst plus the rate. A refusal says how long to wait."""
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
    """An empty bucket does not limit another key."""
    buckets = Buckets(burst=1.0, per_second=1.0, monotonic=VirtualClock().monotonic)
    buckets.take("a")
    buckets.take("b")


def test_everything_is_bounded():
    """The buckets keep only the keys that were used last."""
    clock = VirtualClock()
    buckets = Buckets(burst=1.0, per_second=1.0, monotonic=clock.monotonic, capacity=3)
    latest = Latest(capacity=3)
    for number in range(100):
        buckets.take(number)
        latest[number] = None
    assert list(buckets._levels) == list(latest) == [97, 98, 99]
    assert 97 in latest
    assert 96 not in latest


def test_refusals_are_told_at_once_and_then_once_a_minute():
    """Each line counts the refusals since the last line. Each caller has lines of its own."""
    clock = VirtualClock()
    gate = Gate(None, monotonic=clock.monotonic, now=clock.now)

    def told(caller):
        with capture_logs() as lines:
            gate._tell("client_forbidden", caller, user=caller)
        return [line["requests"] for line in lines]

    assert [told("a") for _ in range(5)] == [[1], [], [], [], []]
    assert told("b") == [1]
    clock.advance_to(59.9)
    assert told("a") == []
    clock.advance_to(60)
    assert told("a") == [6]


def test_callers_that_are_counted_are_bounded():
    """The gate counts the refusals of a limited number of callers."""
    clock = VirtualClock()
    gate = Gate(None, monotonic=clock.monotonic, now=clock.now)
    with capture_logs() as lines:
        for number in range(3 * CAPACITY):
            gate._tell("client_throttled", str(number))
    assert len(lines) == CAPACITY
    assert len(gate._refused) <= CAPACITY
