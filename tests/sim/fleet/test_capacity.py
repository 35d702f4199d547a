"""The capacity of one replica."""

import pytest

from wva.model.objectives import Objectives
from wva.model.records import replace
from wva.sim.fleet.accelerators import engine_parameters
from wva.sim.fleet.calibration import alone_seconds, saturation
from wva.sim.fleet.capacity import capacity, capacity_of_mix
from wva.sim.fleet.engine import DrivenEngine
from wva.sim.fleet.requests import UserRequest

ENGINE = engine_parameters("L40S", "Llama-3.1-8B")
LONG_ENGINE = engine_parameters("L40S", "Llama-3.1-8B", max_model_len=32_768)


def carried(engine=ENGINE, *, ttft=1.0, itl=0.1, prompt=512, output=128, seed=0):
    """Return the capacity of an engine."""
    return capacity(
        engine,
        prompt_tokens=prompt,
        output_tokens=output,
        objectives=Objectives(ttft_seconds=ttft, itl_seconds=itl),
        seed=seed,
    )


def test_generous_objectives_allow_almost_the_saturation():
    """With generous objectives the capacity is near the saturation rate."""
    most = saturation(ENGINE, prompt_tokens=512, output_tokens=128).requests_per_second
    assert 0.75 * most < carried(ttft=5.0, itl=1.0) < 1.05 * most


def test_each_objective_can_bind():
    """A stricter objective for the first token, or for decoding, lowers the capacity."""
    loose = carried(ttft=5.0, itl=0.2)
    assert carried(ttft=0.3, itl=0.2) < loose
    assert carried(ttft=5.0, itl=0.04) < loose


def test_nothing_satisfies_impossible_objectives():
    """If no step is short enough for an objective, the capacity is 0."""
    assert carried(ttft=0.01) == 0.0
    assert carried(itl=0.001) == 0.0


def test_same_question_has_the_same_answer():
    """The seed decides the arrivals. Another seed changes the capacity little."""
    assert carried(replace(ENGINE)) == carried()
    assert carried(seed=1) == pytest.approx(carried(), rel=0.1)


def test_faster_engine_carries_more():
    """An engine that is twice as fast has about twice the capacity, and a little more, because waiting halves."""
    fast = replace(
        ENGINE,
        alpha_seconds=ENGINE.alpha_seconds / 2,
        beta_seconds_per_sequence=ENGINE.beta_seconds_per_sequence / 2,
        prefill_seconds_per_token=ENGINE.prefill_seconds_per_token / 2,
        kv_read_seconds_per_token=ENGINE.kv_read_seconds_per_token / 2,
        attention_seconds_per_token_pair=ENGINE.attention_seconds_per_token_pair / 2,
    )
    assert 1.8 * carried() < carried(fast) < 3.0 * carried()


@pytest.mark.parametrize("prompt", [10, 512, 9000, 20_000])
def test_a_request_that_is_alone(prompt):
    """The formula for a request that has the engine to itself is what the engine takes."""
    engine = DrivenEngine(LONG_ENGINE)
    engine.submit(UserRequest(number=0, arrival_seconds=0.0, prompt_tokens=prompt, output_tokens=2), at_seconds=0.0)
    engine.advance(60.0)
    (served,) = engine.finished
    assert served.time_to_first_token_seconds == pytest.approx(alone_seconds(LONG_ENGINE, prompt), rel=0.03)


def test_prompts_that_cannot_be_in_time_do_not_count():
    """Of a mix the capacity is that at which those are in time that can be; the others take their share of it."""
    objectives = Objectives(ttft_seconds=1.0, itl_seconds=0.2)
    short, long = (512, 128), (16_000, 128)
    assert alone_seconds(LONG_ENGINE, long[0]) > 1.0
    many, few = (
        capacity_of_mix(LONG_ENGINE, sizes=(short,) * count + (long,), objectives=objectives) for count in (19, 99)
    )
    assert 0.0 < many < few < carried(itl=0.2), "who comes behind a long prompt waits for it"
    assert capacity_of_mix(LONG_ENGINE, sizes=(long,), objectives=objectives) == 0.0
    assert capacity_of_mix(ENGINE, sizes=(short, long), objectives=objectives) == carried(itl=0.2), (
        "refused, not served"
    )
