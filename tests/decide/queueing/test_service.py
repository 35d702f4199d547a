"""How long a replica takes, from parameters that are given and from learned ones."""

from __future__ import annotations

import math

import pytest

from tests.decide.queueing.chain import steady
from wva.decide.amounts import LARGEST
from wva.decide.measure.demand_engine import EngineModel
from wva.decide.measure.queueing import Target, bounded, known_batch, known_service, learned_service
from wva.model.records import replace
from wva.model.service import MAX_BATCH_SIZE, PerformanceProfile

PROFILE = PerformanceProfile(20.58, 0.41, 5.2, 0.1)
ENGINE = EngineModel(
    base=0.02,
    slope=0.0003,
    prefill=0.064,
    answer=200.0,
    prompt_steps=2.0,
    most=64.0,
    allowed=64.0,
    limit="",
)


def test_given_parameters_are_those_of_the_request_itself_and_of_others():
    """A decode step of one takes alpha + beta, and so on."""
    found = known_service(PROFILE, 100.0, 178.0, 4.0)
    assert (found.decode, found.decode_slope) == (pytest.approx(20.99), 0.41)
    assert (found.prefill, found.prefill_slope) == (pytest.approx(15.2), pytest.approx(10.0))
    assert found.base == pytest.approx(5.2 + 177 * 20.58 + 10 + 177 * 0.41)
    assert found.slope == pytest.approx(10 + 177 * 0.41)
    assert found.first == 0


def test_a_replica_with_two_places():
    """The worked example of docs/design/queueing-formulas.md: two more requests may wait, and 8 arrive per second."""
    service = known_service(PerformanceProfile(10, 2, 20, 0.05), 100.0, 11.0, 2.0)
    found = steady(service.base - service.slope, service.slope, 2, 2, 8.0)
    others = (found.service - service.base) / service.slope
    prefill, step = service.prefill + service.prefill_slope * others, service.decode + service.decode_slope * others
    assert found.throughput == pytest.approx(7.24208, rel=1e-6)
    assert (found.wait, found.service) == (pytest.approx(45.4017, abs=1e-4), pytest.approx(162.8268, abs=1e-4))
    assert (prefill, step) == (pytest.approx(28.5654, abs=1e-4), pytest.approx(13.4261, abs=1e-4))
    assert found.wait + prefill == pytest.approx(73.9671, abs=1e-4)


def test_learned_parameters_let_the_prompts_of_others_interrupt_each_step():
    """Each answer of 200 tokens comes with one prompt of 64 ms: 0.32 ms of it per step."""
    found = learned_service(ENGINE, 64.0)
    assert (found.decode, found.decode_slope) == (pytest.approx(20.3), pytest.approx(0.62))
    assert found.prefill == pytest.approx(2 * 20 + 64)
    assert found.base == pytest.approx(104 + 200 * 20.3)
    assert found.slope == pytest.approx(201 * 0.62)
    assert found.most == pytest.approx(64 / (found.base + 64 * found.slope))
    assert (found.first, found.work, found.size) == (1, pytest.approx(64), 64)


@pytest.mark.parametrize("alpha", [math.nan, -1.0, 1e13])
def test_what_cannot_be_true_is_no_replica(alpha):
    """Nor one that takes no time, or longer than any number has a meaning for."""
    assert known_service(replace(PROFILE, alpha=alpha), 100.0, 178.0, 4.0) is None
    assert known_service(PerformanceProfile(0.0, 0.0), 100.0, 178.0, 4.0) is None
    assert learned_service(replace(ENGINE, base=1e9), 1e6) is None


def test_a_batch_is_one_of_as_many_tokens_as_the_profile_says():
    """Where it says none the usual one, and never more than the largest."""
    assert known_batch(PROFILE, 256.0, 100.0) == 256
    assert known_batch(replace(PROFILE, max_batch_size=8), 256.0, 100.0) == 8
    assert known_batch(replace(PROFILE, max_batch_size=8, at_tokens=50), 256.0, 100.0) == 4
    assert known_batch(replace(PROFILE, max_batch_size=8, at_tokens=50), 256.0, 1000.0) == 1
    assert known_batch(replace(PROFILE, max_batch_size=10**5, at_tokens=50), 256.0, 1.0) == MAX_BATCH_SIZE


def test_a_target_is_within_what_can_be_calculated_with():
    """The nearest number of the range otherwise."""
    assert bounded(Target(-1.0, 1e300, 5.0)) == Target(0.0, LARGEST, 5.0)
