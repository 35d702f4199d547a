"""Sizing finds the highest rate that meets all targets, or reports the targets that no rate meets."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.original import roots
from tests.golden.original.queues import BoundedQueue
from tests.golden.original.results import Where
from tests.golden.original.service import PrefillDecode, RequestSize
from tests.golden.original.sizing import perform, size
from tests.golden.original.targets import OriginalTarget
from tests.golden.original.test_chain import SAMPLE, queues

A100 = BoundedQueue(SAMPLE, RequestSize(100, 178), 4, 40)


def test_worked_example():
    """The time to first token limits the rate; the inter-token latency does not."""
    (found,) = size([A100], [OriginalTarget(500, 24)])
    assert found.rate == pytest.approx(0.5475938, rel=1e-6)
    assert (found.ttft.where, found.itl.where) == (Where.INTERIOR, Where.UNCONSTRAINED)
    assert found.lowest_rate == pytest.approx(2.680656e-4, rel=1e-6)
    assert found.highest_rate == pytest.approx(1.0044895, rel=1e-6)
    assert found.performance.ttft == pytest.approx(500, rel=1e-9)


@pytest.mark.parametrize(
    ("target", "which", "flat"),
    [(OriginalTarget(10, 24), "TTFT is 15.2", False), (OriginalTarget(500, 20), "ITL is 20.99", False)],
)
def test_a_target_below_the_idle_latency_is_infeasible(target, which, flat):
    """No rate meets the target; the message has the target and the lowest latency."""
    (found,) = size([A100], [target])
    assert found.rate is None
    assert found.performance is None
    assert found.problem.startswith(which)
    assert "already at the lowest rate" in found.problem
    assert found.ttft.flat is flat


@pytest.mark.parametrize(
    ("itl", "feasible", "where"),
    [(20.99, True, Where.UNCONSTRAINED), (30.0, True, Where.UNCONSTRAINED), (20.0, False, Where.INFEASIBLE)],
)
def test_a_flat_latency_is_met_at_every_rate_or_at_none(itl, feasible, where):
    """With one request at a time the inter-token latency does not depend on the rate."""
    (found,) = size([BoundedQueue(SAMPLE, RequestSize(100, 178), 1, 10)], [OriginalTarget(0, itl)])
    assert (found.rate is not None) is feasible
    assert (found.itl.where, found.itl.flat) == (where, True)
    assert found.problem == ("" if feasible else "ITL is 20.99 ms at any rate, target 20 ms")


def test_tokens_per_second_keep_a_tenth_in_reserve():
    """With a throughput target the rate is at most nine tenths of the highest."""
    (free,), (capped,) = size([A100], [OriginalTarget()]), size([A100], [OriginalTarget(tps=1)])
    assert capped.tps_rate == pytest.approx(0.9 * free.highest_rate)
    assert capped.rate < free.rate


def test_both_targets_that_cannot_be_met_are_named():
    """The message names both targets if neither can be met."""
    (found,) = size([A100], [OriginalTarget(1, 1)])
    assert "TTFT is" in found.problem
    assert "; ITL is" in found.problem


@pytest.mark.parametrize(
    "target", [OriginalTarget(ttft=-1), OriginalTarget(itl=math.nan), OriginalTarget(tps=math.inf)]
)
def test_a_target_that_is_no_number_is_refused(target):
    """The message says that a target must be a number of at least 0."""
    (found,) = size([A100], [target])
    assert found.rate is None
    assert "expected a number of at least 0" in found.problem


def test_a_prompt_of_nothing_has_a_first_token_at_once():
    """A request without input tokens can be sized, although an idle replica answers it in no time."""
    (found,) = size([BoundedQueue(PrefillDecode(20, 0.4), RequestSize(0, 100), 8, 80)], [OriginalTarget(ttft=5)])
    assert found.performance.ttft == pytest.approx(5, rel=1e-9)


def test_sizings_are_a_sequence():
    """``Sizings`` have a length, indices and slices, and an index beyond the end fails."""
    found = size([A100] * 3, [OriginalTarget(500, 24)] * 3)
    assert len(found) == 3
    assert found[-1] == found[0]
    assert list(found) == list(found[0:3])
    with pytest.raises(IndexError, match="3 of 3 queues"):
        found[3]
    with pytest.raises(ValueError, match="1 queues and 0 targets"):
        size([A100], [])


def test_a_search_ends_within_its_steps(monkeypatch):
    """After three steps the rate is inexact but inside the usable range."""
    monkeypatch.setattr(roots, "MAX_ITERATIONS", 3)
    (found,) = size([A100], [OriginalTarget(500, 24)])
    assert found.lowest_rate < found.rate < found.highest_rate


@given(queues, st.floats(0, 1), st.floats(0, 1))
def test_the_rate_meets_the_targets_and_no_higher_one_does(queue, ttft_share, itl_share):
    """The found rate meets both targets; a rate 0.1 % above it misses one of them."""
    (free,) = size([queue], [OriginalTarget()])
    low, high = perform([queue, queue], [free.lowest_rate, free.highest_rate])
    ttft = low.ttft + ttft_share * (high.ttft - low.ttft)
    itl = low.itl + itl_share * (high.itl - low.itl)
    (found,) = size([queue], [OriginalTarget(ttft, itl)])
    assert found.rate is not None
    rate = min(found.ttft.rate, found.itl.rate, found.highest_rate)
    (at,) = perform([queue], [rate])
    rises = high.ttft >= low.ttft and high.itl >= low.itl
    if rises and ttft > 0:
        assert at.ttft <= ttft * (1 + 1e-6)
        assert at.itl <= itl * (1 + 1e-6)
    above = perform([queue], [rate * 1.001])[0]
    if rises and Where.INTERIOR in {found.ttft.where, found.itl.where}:
        assert above.ttft >= ttft * (1 - 1e-6) or above.itl >= itl * (1 - 1e-6)
