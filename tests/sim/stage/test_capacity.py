"""The capacity of a replica between the sizes that are simulated."""

from __future__ import annotations

import pytest

from wva.model.objectives import Objectives
from wva.sim.fleet.capacity import capacity
from wva.sim.fleet.parameters import PRESETS
from wva.sim.stage.capacity import saturation, within

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
