"""The time that a prompt takes is learned from engines that compute several of them together, at any load."""

from __future__ import annotations

from random import Random

import pytest

from tests.builders import NOW
from tests.decide.measure.pods import NONE as NOTHING
from tests.decide.roles_loop import PER_TOKEN, SteppingEngine
from wva.decide.measure.demand_arrivals import PodPrefills, VariantChange
from wva.decide.measure.demand_engine import learned_prompts
from wva.model.memory import Fit
from wva.model.vllm_parameters import VllmParameters

pytestmark = pytest.mark.long_story

LOADS = (0.1, 0.3, 0.5, 0.7, 0.9, 1.5)
PROMPTS = ((800.0, 0.0), (2000.0, 0.0), (2000.0, 0.5), (4000.0, 0.0), (8000.0, 0.5))
BY_DAY = {(0.1, 800.0, 0.0), (0.5, 800.0, 0.0), (0.5, 8000.0, 0.5), (1.5, 8000.0, 0.5)}


@pytest.mark.parametrize(
    ("load", "prompt", "varied"),
    [
        pytest.param(*case, marks=() if case in BY_DAY else pytest.mark.nightly)
        for case in ((load, *prompt) for load in LOADS for prompt in PROMPTS)
    ],
)
def test_the_time_of_a_prompt_is_learned_at_every_load(load: float, prompt: float, varied: float) -> None:
    """An engine computes together what came during a step, so a prompt takes longer than it would alone."""
    engine, fit, old = SteppingEngine(prompt, varied, Random(7)), Fit(), NOTHING
    for scrape in range(1, 121):
        engine.run(until=15.0 * scrape, rate=load / (PER_TOKEN * prompt))
        waited = min(engine.waited, engine.waiting)
        engine.waited = engine.waiting
        new = engine.counters
        told = PodPrefills(
            15.0,
            new.prompts - old.prompts,
            new.prompt_tokens - old.prompt_tokens,
            new.prefill_seconds - old.prefill_seconds,
            waited,
        )
        old = new
        fit = learned_prompts(fit, VariantChange(prefills=[told]), VllmParameters(), varied, NOW + 15.0 * scrape)
    assert fit.prompt_seconds / fit.prompt_tokens == pytest.approx(PER_TOKEN, rel=0.07)
