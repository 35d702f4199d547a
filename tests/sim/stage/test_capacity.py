"""The capacity of a replica between the sizes that are simulated."""

from __future__ import annotations

import pytest

from wva.model.objectives import Objectives
from wva.model.records import replace
from wva.sim.fleet.calibration import operating_point
from wva.sim.fleet.capacity import capacity
from wva.sim.fleet.parameters import PRESETS
from wva.sim.stage.capacity import OUT_OF_REACH, fluent, saturation, within

H100 = PRESETS["H100"]
EASY = Objectives(ttft_seconds=1.0, itl_seconds=0.1)


def test_it_is_what_a_simulation_finds() -> None:
    """At and near a simulated size the capacity is within 5 % of the simulation."""
    carried = within(EASY)
    for prompt, answer in ((500, 250), (520, 260)):
        simulated = capacity(H100, prompt_tokens=prompt, output_tokens=answer, objectives=EASY)
        assert carried(H100, prompt, answer) == pytest.approx(simulated, rel=0.05)


def test_longer_requests_mean_fewer() -> None:
    """Between simulated sizes the capacity falls as requests get longer, and stays below the saturation rate."""
    carried = within(EASY)
    assert carried(H100, 500, 250) > carried(H100, 510, 250) > carried(H100, 510, 255)
    assert carried(H100, 500, 250) < saturation(H100, 500, 250)


def test_objectives_that_nothing_keeps() -> None:
    """No fleet can keep these objectives, so the capacity is the highest rate that a replica serves."""
    never = within(Objectives(ttft_seconds=1e-6, itl_seconds=1e-6))
    assert never(H100, 500, 250) == saturation(H100, 500, 250)


def test_objectives_that_are_kept_only_by_an_idle_replica() -> None:
    """Where a request is in time only if it is nearly alone, a replica still carries a part of what it could."""
    tight = within(Objectives(ttft_seconds=0.045, itl_seconds=0.1))
    simulated = capacity(H100, prompt_tokens=500, output_tokens=250, objectives=Objectives(0.045, 0.1))
    assert 0.0 < simulated < OUT_OF_REACH * saturation(H100, 500, 250)
    assert tight(H100, 500, 250) == OUT_OF_REACH * saturation(H100, 500, 250)


def test_a_few_requests_that_nobody_can_serve_in_time() -> None:
    """The capacity is that for the others: less than without long prompts, and no saturation."""
    sizes = ((500, 250),) * 120 + ((60_000, 250),) * 8
    large = replace(H100, max_model_len=65_536, num_gpu_blocks=8192)
    mixed = within(EASY, sizes)(large, 4200, 250)
    assert mixed < saturation(large, 4200, 250)
    assert within(EASY, ((500, 250),) * 128)(large, 500, 250) == within(EASY)(large, 500, 250)


def test_fluent_is_the_most_within_the_time_between_tokens() -> None:
    """A lower objective lets a replica carry less; one that is never reached, or always, is that of saturation."""
    full = saturation(H100, 500, 250)
    found = [fluent(seconds)(H100, 500, 250) for seconds in (0.001, 0.012, 0.02, 1.0)]
    assert found[0] == found[3] == full
    assert found[1] < found[2] < full
    point = operating_point(H100, kv_cache_usage=0.05, prompt_tokens=500, output_tokens=250)
    near = fluent(point.inter_token_latency_seconds)(H100, 500, 250)
    assert near == pytest.approx(point.requests_per_second, rel=1e-6)
