"""The steady state equals an independent float64 evaluation to 1e-9, and the original's up to its float32 errors."""

from __future__ import annotations

import pytest

from tests.golden.original.results import Performance
from tests.golden.original.sizing import perform
from tests.golden.original.test_chain import direct
from tests.golden.queueing import better, queue, within
from tests.golden.vectors import Case, parameters, tally

NAME = "queue"
TIGHT = 1e-9
LOOSE = 2e-4
ASPECT = "v051 better here"
BETTER = better("golden/test_queue.py::test_what_is_better_here_is_the_sum_over_all_states")


def recorded_words(found: Performance) -> dict[str, float]:
    """Return a performance with the names of the recording."""
    return {
        "throughput": found.throughput,
        "avg_resp_time": (found.wait + found.service),
        "avg_wait_time": found.wait,
        "avg_num_in_serv": found.serving,
        "avg_prefill_time": found.prefill,
        "avg_token_time": found.itl,
        "ttft": found.ttft,
        "rho": found.rho,
    }


def room(response: float, output_tokens: float) -> dict[str, float]:
    """Return the absolute error of the original's single precision per value, on top of a relative 2e-4."""
    return {
        "avg_wait_time": 1e-4 * response,
        "ttft": 1e-4 * response,
        "avg_prefill_time": 2e-5 * response,
        "avg_token_time": 5e-5 * response / output_tokens,
    }


@pytest.mark.parametrize("case", parameters(NAME, section="v051", better=BETTER))
def test_known_parameters(case):
    """The steady state with alpha, beta, gamma and delta is as recorded."""
    tally(NAME, "v051").run += 1
    check(case)


@pytest.mark.parametrize("case", parameters(NAME, section="v080", better=BETTER))
def test_estimated_parameters(case):
    """The steady state with alpha, beta and gamma is as recorded."""
    tally(NAME, "v080").run += 1
    check(case)


@pytest.mark.parametrize("case", parameters(NAME, section="v051", better=BETTER, aspect=ASPECT, recorded=False))
def test_what_is_better_here_is_the_sum_over_all_states(case):
    """Where the recorded latencies cannot be true, WVA's equal the sum over all states."""
    tally(NAME, ASPECT).run += 1
    (found,) = perform([queue(case)], [case["rate_rps"]])
    assert found is not None
    throughput, wait, serving, loss = direct(queue(case), case["rate_rps"])
    assert found.throughput == within(throughput, rel=TIGHT)
    assert found.wait == within(wait, rel=TIGHT, extra=1e-12 * (found.wait + found.service))
    assert found.serving == within(serving, rel=TIGHT)
    assert found.loss == within(loss, rel=TIGHT, extra=1e-300)
    instance = case["instance"]
    law = queue(case).parameters.law(queue(case).request)
    decoding = (instance["avg_output_tokens"] - 1) * found.itl
    assert found.prefill + decoding == within(law.base + law.slope * found.batch, rel=TIGHT)


def check(case: Case) -> None:
    """Compare one case; WVA refuses what the original refused, except a queue with room for a single request."""
    (found,) = perform([queue(case)], [case["rate_rps"]])
    instance = case["instance"]
    if case.get("error") and instance["max_batch_size"] + instance["max_queue_size"] != 1:
        assert found is None
        return
    assert found is not None
    if case.get("error"):
        assert 0 < found.throughput < case["rate_rps"]
        return
    values, response = recorded_words(found), case["ref64"]["avg_resp_time"]
    for name, expected in case["ref64"].items():
        if name in values:
            assert values[name] == within(expected, rel=TIGHT, extra=TIGHT * 1e-6 * response), name
    extra = room(response, instance["avg_output_tokens"])
    for name, value in values.items():
        assert value == within(case["metrics"][name], rel=LOOSE, extra=extra.get(name, 0.0)), name
