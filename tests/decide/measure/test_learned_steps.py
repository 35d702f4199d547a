"""What is learned of the steps of an engine, also of one whose steps are unlike those of engines on GPUs."""

from __future__ import annotations

import pytest

from tests.decide.measure.test_demand import PATIENT
from wva.decide.measure.demand_arrivals import VariantChange
from wva.decide.measure.demand_engine import engine_of, learned
from wva.model.memory import Fit
from wva.model.vllm_parameters import VllmParameters

PROMPT, ANSWER = 60.0, 40.0
SEQUENCES = 16
KV_TOKENS = 1_024_000.0
ON_A_CORE = ((3.97, 1.4, 11.0), (5.97, 2.9, 13.5), (7.91, 4.7, 15.0), (9.89, 8.3, 20.6))
"""Requests per second, requests in progress, and milliseconds between tokens of a real vLLM 0.32 on a core of a CPU."""
SATURATED = 14.6
"""The requests per second that it answered when 32 clients sent more than it could answer."""


def change(rate: float, batch: float, step_milliseconds: float, seconds: float) -> VariantChange:
    """Return what a cycle shows of an engine."""
    gaps, step = rate * ANSWER * seconds, step_milliseconds / 1000.0
    found = VariantChange(gaps=gaps, step=gaps * step, batch=gaps * batch)
    found.prefilled = gaps * rate * PROMPT * step
    return found


def carried(loads: tuple[tuple[float, float, float], ...], cycles: int, seconds: float = 60.0) -> float:
    """Return the requests per second that the engine is known to serve at most, after so many cycles of each load."""
    fit = Fit()
    for number in range(cycles * len(loads)):
        shown = change(*loads[number % len(loads)], seconds)
        fit = learned(fit, shown, held=PROMPT + ANSWER / 2.0, now=seconds * (number + 1.0))
    parameters = VllmParameters(max_num_seqs=SEQUENCES)
    engine = engine_of(fit, parameters, KV_TOKENS, (PROMPT, ANSWER, PROMPT + ANSWER / 2.0), 0.0, PATIENT)
    assert engine is not None
    return engine.rate(SEQUENCES)


@pytest.mark.parametrize("cycles", [2, 5, 30])
def test_an_engine_on_a_cpu_is_known_from_loads_of_up_to_two_thirds(cycles: int) -> None:
    """Its step takes a tenth longer for each sequence, which is a hundred times as much as usual."""
    assert carried(ON_A_CORE, cycles) == pytest.approx(SATURATED, rel=0.2)


def test_more_of_the_same_brings_the_engine_nearer() -> None:
    """The usual ratios of engines are where it begins, not where it stays."""
    errors = [abs(carried(ON_A_CORE, cycles) - carried(ON_A_CORE, 1000)) for cycles in (1, 2, 5, 30)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.1


def test_one_wrong_reading_of_few_is_not_believed() -> None:
    """A pod that has just started gave this one: its steps were half as long again as at this load later."""
    right = ((7.2, 3.7, 13.5),) * 4
    assert carried((*right, (7.2, 4.5, 20.8)), 1) > 0.6 * SATURATED
