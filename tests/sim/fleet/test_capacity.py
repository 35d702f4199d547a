"""The capacity of one replica."""

import pytest

from wva.model.objectives import Objectives
from wva.model.records import replace
from wva.sim.fleet.accelerators import engine_parameters
from wva.sim.fleet.calibration import saturation
from wva.sim.fleet.capacity import capacity

ENGINE = engine_parameters("L40S", "Llama-3.1-8B")


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
