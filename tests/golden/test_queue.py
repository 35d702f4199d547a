"""A replica with known parameters takes as long as the original's, at any load.

The original has a queue for each replica; here its steady state is summed over all states.
"""

from __future__ import annotations

import math

import pytest

from tests.decide.queueing.chain import SteadyState, steady
from tests.golden.vectors import Better, Case, parameters, tally
from wva.decide.measure.queueing import known_service
from wva.decide.measure.queues import ServiceTimes
from wva.model.service import PerformanceProfile

NAME = "queue"
SECTION = "v051"
TIGHT = 1e-9
LOOSE = 2e-4
ASPECT = "v051 better here"
TESTED = "golden/test_queue.py::test_a_request_takes_as_long_as_its_prompt_and_its_steps"


def better(case: Case) -> Better | None:
    """Return the verdict on cases whose recorded latencies cannot be true.

    For requests without a prompt the original subtracts a prefill time that it never added. If service times do not
    depend on the batch, it divides 0 by 0.
    """
    times = case["instance"]["parms"]
    if case["instance"]["avg_input_tokens"] == 0:
        return Better("requests without prompt have a prefill as long as gamma", TESTED)
    if times["beta"] == times["delta"] == 0:
        return Better("service times that do not depend on the batch", TESTED)
    return None


def played(case: Case) -> tuple[ServiceTimes, SteadyState]:
    """Return the replica of a case, and its steady state at the recorded rate."""
    instance = case["instance"]
    service = known_service(
        PerformanceProfile(**instance["parms"]),
        instance["avg_input_tokens"],
        instance["avg_output_tokens"],
        instance["max_batch_size"],
    )
    assert service is not None
    size, room = instance["max_batch_size"], instance["max_queue_size"]
    return service, steady(service.base - service.slope, service.slope, size, room, case["rate_rps"])


def recorded_words(service: ServiceTimes, found: SteadyState) -> dict[str, float]:
    """Return latencies with the names of the recording; they are those in the batch that the mean request is in."""
    others = (found.service - service.base) / service.slope
    prefill = service.prefill + service.prefill_slope * others
    return {
        "throughput": found.throughput,
        "avg_resp_time": found.wait + found.service,
        "avg_wait_time": found.wait,
        "avg_num_in_serv": found.serving,
        "avg_prefill_time": prefill,
        "avg_token_time": service.decode + service.decode_slope * others,
        "ttft": found.wait + prefill,
        "rho": found.serving / service.size,
    }


def room_of(response: float, output_tokens: float) -> dict[str, float]:
    """Return the absolute error of the original's single precision per value, on top of a relative 2e-4."""
    return {
        "avg_wait_time": 1e-4 * response,
        "ttft": 1e-4 * response,
        "avg_prefill_time": 2e-5 * response,
        "avg_token_time": 5e-5 * response / output_tokens,
    }


@pytest.mark.long_story
@pytest.mark.parametrize("case", parameters(NAME, section=SECTION, better=better))
def test_known_parameters(case):
    """The latencies equal those of an independent evaluation to 1e-9, and the original's up to its float32 errors."""
    tally(NAME, SECTION).run += 1
    service, found = played(case)
    values, response = recorded_words(service, found), case["ref64"]["avg_resp_time"]
    for name, value in values.items():
        expected = case["ref64"][name]
        assert value == pytest.approx(expected, rel=TIGHT, abs=TIGHT * 1e-6 * response), name
    extra = room_of(response, case["instance"]["avg_output_tokens"])
    for name, value in values.items():
        assert value == pytest.approx(case["metrics"][name], rel=LOOSE, abs=extra.get(name, 0.0)), name


@pytest.mark.parametrize("case", parameters(NAME, section=SECTION, better=better, aspect=ASPECT, recorded=False))
def test_a_request_takes_as_long_as_its_prompt_and_its_steps(case):
    """Where the recorded latencies cannot be true, prefill and decode steps add up to the time in service."""
    tally(NAME, ASPECT).run += 1
    service, found = played(case)
    others = (found.service - service.base) / service.slope if service.slope else 0.0
    prefill, step = service.prefill + service.prefill_slope * others, service.decode + service.decode_slope * others
    steps = case["instance"]["avg_output_tokens"] - 1
    assert prefill + steps * step == pytest.approx(found.service, rel=TIGHT)
    assert math.isfinite(found.wait)
