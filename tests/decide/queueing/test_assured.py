"""Rates at which a share of the requests meets the targets, against a simulation of single requests."""

from __future__ import annotations

import random
from collections import deque
from typing import NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.decide.queueing.chain import steady
from wva.decide.measure.demand_engine import EngineModel
from wva.decide.measure.queueing import (
    ATTAINMENT,
    ITL,
    SEQUENCES,
    TTFT,
    ServiceTimes,
    Target,
    assure,
    known_service,
    learned_service,
)
from wva.model.service import PerformanceProfile


class RequestSize(NamedTuple):
    """Mean tokens of a request: its prompt, its answer, and those in the KV cache (0: prompt and half the answer)."""

    input_tokens: float
    output_tokens: float
    resident: float = 0.0


class IterationTime(NamedTuple):
    """Milliseconds of an iteration, and for each token that it computes and that the KV cache holds."""

    alpha: float
    beta: float
    gamma: float


A100 = PerformanceProfile(20.58, 0.41, 5.2, 0.1)
H100 = PerformanceProfile(7.47, 0.044, 15.415, 0.000337)
L40S = IterationTime(22.7, 0.067, 1.5e-4)
SHORT = RequestSize(100, 178)


def queue(
    parameters: PerformanceProfile | IterationTime, batch: int, request: RequestSize = SHORT
) -> ServiceTimes | None:
    """Return a replica; None where its parameters cannot be true."""
    prompt, answer = request.input_tokens, request.output_tokens
    if isinstance(parameters, PerformanceProfile):
        return known_service(parameters, prompt, answer, float(batch))
    held = request.resident or prompt + answer / 2
    slope, prefill = parameters.beta + parameters.gamma * held, parameters.beta * prompt
    engine = EngineModel(parameters.alpha / 1000, slope / 1000, prefill / 1000, answer, 1.0, 0.0, 0.0, "")
    return learned_service(engine, float(batch))


def one(parameters, batch, target, request=SHORT, pooled=1.0):
    """Return what one replica takes."""
    (found,) = assure([(queue(parameters, batch, request), target, pooled)])
    return found


def share_in_time(replica: ServiceTimes, rate: float, target: float, *, requests: int = 20_000) -> float:
    """Return which share of Poisson arrivals sees a first token in time, one event after the other."""
    dice = random.Random(1)
    # In the known form n counts the request itself, which the times of a request among others have already.
    own = 1.0 - replica.first
    arriving, running, waiting = rate / 1000, 0, deque()
    now, seen, late = 0.0, 0, 0
    while seen < requests:
        leaving = running / (replica.base + replica.slope * (running - own)) if running else 0.0
        now += dice.expovariate(arriving + leaving)
        if dice.random() < arriving / (arriving + leaving):
            if running == replica.size:
                waiting.append(now)
                continue
            running, waited = running + 1, 0.0
        elif waiting:
            waited = now - waiting.popleft()
        else:
            running -= 1
            continue
        decode = replica.decode + replica.decode_slope * (running - own)
        prefill = replica.prefill + replica.prefill_slope * (running - own)
        seen, late = seen + 1, late + (waited + prefill + replica.first * decode > target)
    return 1 - late / seen


@pytest.mark.parametrize(
    ("parameters", "batch", "request_size", "ttft"),
    [
        (A100, 1, SHORT, 500),
        (A100, 4, SHORT, 500),
        (A100, 4, SHORT, 2000),
        (H100, 16, SHORT, 500),
        (A100, 32, SHORT, 500),
        (L40S, 122, RequestSize(1024, 512, 1424), 2000),
    ],
)
def test_the_share_that_is_asked_for_is_in_time(parameters, batch, request_size, ttft):
    """This holds for batches of one to a hundred; 1.6 times the rate would be too much."""
    found = one(parameters, batch, Target(ttft), request_size)
    replica = queue(parameters, batch, request_size)
    assert share_in_time(replica, found.rate, ttft) >= ATTAINMENT
    if batch > 1:
        assert share_in_time(replica, 1.6 * found.rate, ttft) < ATTAINMENT


def test_each_limit_is_named():
    """The inter-token latency, the time to the first token where prompts are long, and the sequences at once."""
    chat = RequestSize(1024, 512, 1424)
    assert one(L40S, 122, Target(1000, 50), chat).limit == ITL
    assert one(L40S, 122, Target(2000, 200), chat).limit == SEQUENCES
    assert one(L40S, 122, Target(800, 0), RequestSize(8192, 16)).limit == TTFT


def test_the_size_of_a_request_bounds_the_sequences_and_slows_them_down():
    """Twice as many tokens in the KV cache: each step takes longer, also for the same number of sequences."""
    small = one(L40S, 60, Target(1000, 50), RequestSize(1024, 512, 1424))
    large = one(L40S, 60, Target(1000, 50), RequestSize(1024, 512, 2848))
    assert large.rate < small.rate


def test_targets_out_of_reach_say_so():
    """A single request alone takes longer than the target; the rate is that at the other limit."""
    found = one(L40S, 122, Target(1000, 20), RequestSize(1024, 512))
    assert not found.feasible
    assert found.least_ttft < 1000
    assert found.least_itl > 20
    assert found.rate > 0
    assert not one(L40S, 122, Target(50, 0), RequestSize(1024, 512)).feasible


def test_several_replicas_may_be_used_more():
    """A router evens out the load, so each of several replicas needs less reserve than a single one."""
    target = Target(1000, 50)
    assert one(L40S, 122, target, RequestSize(1024, 512), 4).rate > one(L40S, 122, target, RequestSize(1024, 512)).rate


def test_no_target_leaves_the_sequences():
    """A target of 0 is no target."""
    found = one(H100, 16, Target())
    assert found.limit == SEQUENCES
    assert found.feasible


def test_nothing_to_size():
    """Without a queue there is no answer."""
    assert assure([]) == []


parameters = st.one_of(
    st.builds(PerformanceProfile, *[st.floats(0.01, 1e3)] * 2, *[st.floats(0, 1e3)] * 2),
    st.builds(IterationTime, st.floats(0.01, 1e3), *[st.floats(1e-6, 10)] * 2),
)


replicas = st.builds(
    lambda law, batch, prompt, answer: queue(law, batch, RequestSize(prompt, answer)),
    parameters,
    st.integers(1, 1000),
    st.floats(1, 1e5),
    st.floats(1, 1e4),
)


@given(replicas, st.floats(0, 1e5), st.floats(0, 1e4), st.floats(1, 1e3))
def test_a_looser_target_never_takes_less(replica, ttft, itl, pooled):
    """Every rate is a number above 0."""
    assume(replica is not None)
    found, looser = assure([(replica, Target(times * ttft, times * itl), pooled) for times in (1, 2)])
    assert found.rate > 0
    assert found.used >= 0
    if found.feasible:
        assert looser.rate >= found.rate * (1 - 1e-9)


def test_the_model_agrees_with_the_chain():
    """The mean latencies of a birth-death chain at the assured rate are within the targets, and not by far too much.

    Here each iteration computes the mean tokens of a request, so that prompts slow down the steps of all.
    """
    target, (prompt, answer) = Target(1000, 50), (1024, 512)
    replica = queue(L40S, 122, RequestSize(prompt, answer))
    (found,) = assure([(replica, target, 1.0)])
    slope = L40S.beta * (prompt + answer) / (answer + 1) + L40S.gamma * (prompt + answer / 2)
    alone = L40S.alpha + (L40S.beta + L40S.gamma) * prompt
    step = L40S.alpha + L40S.beta + L40S.gamma * (prompt + answer / 2)
    exact = steady(alone + answer * step, slope * (1 + answer), 122, 1220, found.rate)
    prefill = alone + slope * exact.serving
    itl = (exact.service - prefill) / answer
    assert 0.7 * found.itl < itl < found.itl <= target.itl * (1 + 1e-6)
    assert exact.wait + prefill + itl < found.ttft < target.ttft
