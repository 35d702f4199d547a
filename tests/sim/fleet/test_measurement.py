"""An engine under a load of equal requests."""

import pytest

from wva.sim.fleet.accelerators import engine_parameters
from wva.sim.fleet.measurement import OfferedLoad, measure

ENGINE = engine_parameters("H100", "Llama-3.1-8B")


def test_request_alone_takes_its_steps():
    """A lone request takes one prefill step and a step for each further token.

    Each step is a little longer than the last.
    """
    outcome = measure(ENGINE, OfferedLoad(512, 101))
    prefill = ENGINE.prefill_seconds_per_token + ENGINE.attention_seconds_per_token_pair * 256
    first = ENGINE.alpha_seconds + ENGINE.beta_seconds_per_sequence + 512 * prefill
    assert outcome.ttft == outcome.ttft_p99 == pytest.approx(first)
    context = 512 + 1 + 99 / 2
    step = ENGINE.alpha_seconds + ENGINE.beta_seconds_per_sequence + context * ENGINE.kv_read_seconds_per_token
    assert outcome.tpot == pytest.approx(step, rel=1e-3)
    assert outcome.latency == pytest.approx(first + 100 * outcome.tpot)
    assert outcome.output_tokens_per_second == pytest.approx(101 / outcome.latency)


def test_users_keep_their_number():
    """By Little's law, the engine has as many requests as there are users."""
    outcome = measure(ENGINE, OfferedLoad(256, 64, requests=400, users=8))
    inside = outcome.requests_per_second * (outcome.ttft + 63 * outcome.tpot)
    assert inside == pytest.approx(8, rel=0.02)


def test_more_users_than_requests():
    """With more users than requests, all requests come at once."""
    assert measure(ENGINE, OfferedLoad(256, 64, requests=4, users=8)) == measure(
        ENGINE, OfferedLoad(256, 64, requests=4)
    )


def test_rush_ends_with_the_measurement():
    """Requests that are not served by the end do not count."""
    outcome = measure(ENGINE, OfferedLoad(512, 128, requests=2000, seconds=30.0))
    assert 20.0 < outcome.latency < 30.0
    assert 10 < outcome.requests_per_second < 100


def test_measurement_that_ends_before_any_answer():
    """A measurement that ends before the first answer is an error."""
    with pytest.raises(ValueError, match="no request is served within 5 s"):
        measure(ENGINE, OfferedLoad(512, 128, requests=2000, seconds=5.0))


def test_repeated_prompts_come_from_the_prefix_cache():
    """A repeated prompt takes almost no time to compute."""
    new, repeated = (measure(ENGINE, OfferedLoad(4000, 16, requests=200, rate=1.0, prompts=n)) for n in (0, 10))
    assert new.ttft > 0.1
    assert repeated.ttft < 0.02
