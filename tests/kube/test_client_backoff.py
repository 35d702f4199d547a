"""The delays between retries."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from tests.kube.scripted import Highest
from wva.kube.backoff import MAX_RETRY_AFTER_SECONDS, Backoff


@given(seed=st.integers(), waits=st.lists(st.floats(0, 100), max_size=30))
def test_delays_stay_below_a_doubling_bound(seed: int, waits: list[float]) -> None:
    """Full jitter: each delay is between 0 and base x 2^n, with a cap, as long as no quiet time passes."""
    backoff = Backoff(random=Random(seed))
    now = 0.0
    for number, wait in enumerate(waits):
        delay = backoff.next(now)
        assert 0.0 <= delay <= min(0.8 * 2**number, 30.0)
        now += delay + wait


def test_jitter_spreads_clients() -> None:
    """Two clients that fail at the same time do not retry at the same time."""
    first, second = Backoff(random=Random(1)), Backoff(random=Random(2))
    assert [first.next(0.0) for _ in range(5)] != [second.next(0.0) for _ in range(5)]


def test_bound_starts_over_after_quiet_time() -> None:
    """If more than ``reset_after_seconds`` pass after the last delay, the delays start again at the first bound."""
    backoff = Backoff(base_seconds=1.0, cap_seconds=60.0, reset_after_seconds=100.0, random=Highest())
    assert [backoff.next(0.0), backoff.next(1.0), backoff.next(3.0)] == [1.0, 2.0, 4.0]
    assert backoff.next(3.0 + 4.0 + 100.0) == 8.0
    assert backoff.next(107.0 + 8.0 + 100.1) == 1.0


def test_reset_forgets() -> None:
    """After a reset the delays start again at the first bound."""
    backoff = Backoff(random=Highest())
    backoff.next(0.0)
    backoff.next(0.0)
    backoff.reset()
    assert backoff.next(0.0) == 0.8


def test_retry_after_is_a_minimum_with_a_limit() -> None:
    """The server can make a delay longer, up to two minutes, but not shorter."""
    backoff = Backoff(random=Highest())
    assert backoff.next(0.0, retry_after_seconds=5.0) == 5.0
    assert backoff.next(0.0, retry_after_seconds=0.1) == 1.6
    assert backoff.next(0.0, retry_after_seconds=1e9) == MAX_RETRY_AFTER_SECONDS
