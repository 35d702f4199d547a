"""The steady state at any load, batch and queue: worked examples, the sum over all states, and general properties."""

from __future__ import annotations

import math
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden.original.chain import Chains
from tests.golden.original.columns import QueueColumns
from tests.golden.original.queues import BoundedQueue, parameter_problem
from tests.golden.original.results import Performance
from tests.golden.original.service import IterationTime, PrefillDecode, RequestSize
from tests.golden.original.sizing import perform, size
from tests.golden.original.targets import OriginalTarget

SAMPLE = PrefillDecode(20.58, 0.41, 5.2, 0.1)


def one(queue: BoundedQueue, rate: float) -> Performance:
    """Return the performance of a queue at a rate; it must be possible."""
    (found,) = perform([queue], [rate])
    assert found is not None
    return found


def test_worked_example_with_known_parameters():
    """Two requests in service at most, two waiting at most, and 8 requests/s arrive."""
    found = one(BoundedQueue(PrefillDecode(10, 2, 20, 0.05), RequestSize(100, 11), 2, 2), 8.0)
    assert found.throughput == pytest.approx(7.24208, rel=1e-6)
    assert (found.wait + found.service) == pytest.approx(208.2285, abs=1e-4)
    assert found.service == pytest.approx(162.8268, abs=1e-4)
    assert found.wait == pytest.approx(45.4017, abs=1e-4)
    assert found.batch == pytest.approx(1.713071, abs=1e-6)
    assert (found.prefill, found.itl) == (pytest.approx(28.5654, abs=1e-4), pytest.approx(13.4261, abs=1e-4))
    assert found.ttft == pytest.approx(73.9671, abs=1e-4)
    assert found.rho == pytest.approx(0.589602, abs=1e-6)
    assert found.busy == pytest.approx(1 - 0.259745, abs=1e-6)
    assert found.loss == pytest.approx(0.094740, abs=1e-6)


def test_worked_example_with_estimated_parameters():
    """With these parameters the time to first token includes the first decode step."""
    found = one(BoundedQueue(IterationTime(8, 0.05, 0.0005), RequestSize(128, 64), 2, 2), 2.0)
    assert found.throughput == pytest.approx(1.879041, rel=1e-6)
    assert found.serving == pytest.approx(1.051441, abs=1e-6)
    assert (found.prefill, found.itl) == (pytest.approx(14.703405, abs=1e-6), pytest.approx(8.513425, abs=1e-6))
    assert found.wait == pytest.approx(121.4017, abs=1e-4)
    assert found.ttft == pytest.approx(144.618491, abs=1e-4)


def direct(queue: BoundedQueue, rate: float) -> tuple[float, float, float, float]:
    """Return throughput, wait, requests in service and loss, summed over the probabilities of all states."""
    law = queue.parameters.law(queue.request)
    logs = [0.0]
    for state in range(1, queue.max_batch + queue.max_queue + 1):
        n = min(state, queue.max_batch)
        logs.append(logs[-1] + math.log(rate / 1000 * (law.base + law.slope * n) / n))
    peak = max(logs)
    weights = [math.exp(each - peak) for each in logs]
    total = math.fsum(weights)
    waiting = math.fsum(w * max(0, n - queue.max_batch) for n, w in enumerate(weights)) / total
    serving = math.fsum(w * min(n, queue.max_batch) for n, w in enumerate(weights)) / total
    throughput = rate * math.fsum(weights[:-1]) / total
    return throughput, waiting / throughput * 1000, serving, weights[-1] / total


parameters = st.builds(
    PrefillDecode, st.floats(0.1, 100), st.floats(0, 5), st.floats(0, 500), st.floats(0, 0.1)
) | st.builds(IterationTime, st.floats(0.1, 100), st.floats(0, 1), st.floats(0, 1e-2))
queues = st.builds(
    BoundedQueue,
    parameters,
    st.builds(RequestSize, st.sampled_from([0.0, 1.0, 128.5, 4000.0]), st.sampled_from([1.0, 2.0, 64.0, 900.5])),
    st.integers(1, 40),
    st.integers(0, 200),
).filter(lambda queue: not queue.problem())
loads = st.floats(-12, 6).map(math.exp) | st.just(1.0)


@given(queues, loads)
def test_closed_form_is_the_sum_over_all_states(queue, load):
    """The closed form equals the sum to 1e-9, from 6e-6 to 400 times the highest rate."""
    law = queue.parameters.law(queue.request)
    rate = load * 1000 * queue.max_batch / (law.base + law.slope * queue.max_batch)
    found = one(queue, rate)
    throughput, wait, serving, loss = direct(queue, rate)
    assert found.throughput == pytest.approx(throughput, rel=1e-9)
    assert found.wait == pytest.approx(wait, rel=1e-9, abs=1e-12 * (found.wait + found.service))
    assert found.serving == pytest.approx(serving, rel=1e-9)
    assert found.loss == pytest.approx(loss, rel=1e-9, abs=1e-300)


@given(queues, loads)
def test_what_holds_for_every_queue(queue, load):
    """Little's law holds, batches and shares are within their bounds, and nothing is negative."""
    law = queue.parameters.law(queue.request)
    top = 1000 * queue.max_batch / (law.base + law.slope * queue.max_batch)
    found = one(queue, load * top)
    assert found.serving == pytest.approx(found.throughput / 1000 * found.service, rel=1e-9)
    assert 1 - 1e-9 <= found.batch <= queue.max_batch * (1 + 1e-9)
    assert 0 <= found.rho <= 1
    assert 0 <= found.loss <= 1
    assert 0 <= found.busy <= 1
    assert found.throughput <= min(load, 1.0) * top * (1 + 1e-9)
    assert min(found.wait, found.prefill, found.ttft) >= 0
    assert found.itl > 0


def test_a_hundred_thousand_at_once():
    """The largest batch is evaluated and sized quickly, because its states are counted only once."""
    queue = BoundedQueue(PrefillDecode(7.47, 0.044, 15.415, 0.000337), RequestSize(512, 256), 100_000, 1_000_000)
    (sizing,) = size([queue], [OriginalTarget(2000, 500)])
    assert sizing.performance.itl == pytest.approx(500, rel=1e-6)
    assert sizing.performance.ttft < 2000


def test_queues_of_all_kinds_and_sizes_together_are_as_alone():
    """Queues with both kinds of parameters and different batches get the same results together as alone."""
    many = [BoundedQueue(SAMPLE, RequestSize(100, 178), batch, 10 * batch) for batch in (1000, 1, 64, 3, 2000)] + [
        BoundedQueue(IterationTime(8, 0.05, 5e-4), RequestSize(128, 64), batch, 100) for batch in (500, 2)
    ]
    rates = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7]
    for queue, rate, found in zip(many, rates, perform(many, rates), strict=True):
        assert asdict(one(queue, rate)) == pytest.approx(asdict(found), rel=1e-12)


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        (
            BoundedQueue(PrefillDecode(math.nan, 1), RequestSize(1, 1), 1, 1),
            "alpha is nan, expected a number from 0 to 1e+12",
        ),
        (BoundedQueue(PrefillDecode(1, -1), RequestSize(1, 1), 1, 1), "beta is -1, expected a number from 0 to 1e+12"),
        (
            BoundedQueue(PrefillDecode(1, 1, 1, math.inf), RequestSize(1, 1), 1, 1),
            "delta is inf, expected a number from",
        ),
        (
            BoundedQueue(IterationTime(1, 1, -0.5), RequestSize(1, 1), 1, 1),
            "gamma is -0.5, expected a number from 0 to 1e+12",
        ),
        (
            BoundedQueue(PrefillDecode(0, 0), RequestSize(1, 1), 1, 1),
            "a request would take 0 ms, expected 1e-06 to 1e+12",
        ),
        (
            BoundedQueue(PrefillDecode(1, 4e307), RequestSize(1, 1), 9, 1),
            "beta is 4e+307, expected a number from 0 to 1e+12",
        ),
        (BoundedQueue(PrefillDecode(1, 1e9), RequestSize(1, 1e300), 9, 1), "a request would take 1e+309 ms"),
        (BoundedQueue(SAMPLE, RequestSize(-1, 1), 1, 1), "input tokens -1, expected a number of at least 0"),
        (BoundedQueue(SAMPLE, RequestSize(math.nan, 1), 1, 1), "input tokens nan, expected a number of at least 0"),
        (BoundedQueue(SAMPLE, RequestSize(1, 0), 1, 1), "output tokens 0, expected a number of at least 1"),
        (BoundedQueue(SAMPLE, RequestSize(1, 1), 0, 1), "batch size 0, expected 1 to 100000"),
        (BoundedQueue(SAMPLE, RequestSize(1, 1), 100_001, 1), "batch size 100001, expected 1 to 100000"),
        (BoundedQueue(SAMPLE, RequestSize(1, 1), 1, -1), "queue size -1, expected 0 to 1000000"),
    ],
)
def test_what_cannot_be_evaluated_says_why(queue, words):
    """A queue with impossible numbers gets an error in words; the other queues are still evaluated."""
    good = BoundedQueue(SAMPLE, RequestSize(100, 178), 4, 40)
    sizings = size([queue, good], [OriginalTarget(500, 24)] * 2)
    assert sizings[0].rate is None
    if "309" not in words:
        assert sizings[0].problem.startswith(words)
    assert sizings[1].rate == pytest.approx(0.5475938, rel=1e-6)
    assert perform([queue, good], [1.0, 1.0])[0] is None


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_that_is_no_rate_has_no_answer(rate):
    """A rate that is zero, negative, NaN or infinite gets None."""
    assert perform([BoundedQueue(SAMPLE, RequestSize(100, 178), 4, 40)], [rate]) == (None,)


def test_parameters_speak_for_themselves():
    """Valid parameters and queues report no problem."""
    assert parameter_problem(SAMPLE) == ""
    assert BoundedQueue(SAMPLE, RequestSize(1, 1), 1, 1).problem() == ""
    assert np.isfinite(one(BoundedQueue(SAMPLE, RequestSize(0, 1), 1, 0), 1.0).ttft)


def test_a_load_next_to_nothing_has_a_logarithm():
    """The logarithm of the smallest possible rate is finite."""
    chains = Chains.of(QueueColumns.of([BoundedQueue(SAMPLE, RequestSize(128, 64), 8, 8)]))
    assert np.isfinite(chains.log_load(np.array([5e-324]))).all()
