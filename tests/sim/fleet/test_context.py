"""Decoding gets slower with the context, and a prompt costs the square of its length."""

import pytest

from wva.model.records import replace
from wva.sim.fleet.engine import DrivenEngine
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.requests import UserRequest

PARAMETERS = EngineParameters(
    alpha_seconds=0.010,
    beta_seconds_per_sequence=0.0001,
    prefill_seconds_per_token=0.0,
    kv_read_seconds_per_token=2e-7,
    num_gpu_blocks=6250,
    max_num_seqs=100,
    max_num_batched_tokens=100_000,
    max_model_len=8192,
)


def gap(parameters, *, sequences, prompt):
    """Return the usage of the KV cache and the mean gap between tokens of sequences that decode together."""
    engine = DrivenEngine(parameters)
    for number in range(sequences):
        engine.submit(UserRequest(number, 0.0, prompt, 100), at_seconds=0.0)
    engine.advance(0.9)
    usage = engine.sample().kv_cache_usage
    engine.advance(1000.0)
    return usage, engine.finished[-1].inter_token_latency_seconds


def test_decoding_gets_slower_as_the_cache_fills():
    """The same batch decodes more slowly at 90 % of the cache than at 6 %, by the time to read the rest."""
    low, short = gap(PARAMETERS, sequences=20, prompt=250)
    high, long = gap(PARAMETERS, sequences=20, prompt=4450)
    assert (low, high) == (pytest.approx(0.06, abs=0.01), pytest.approx(0.9, abs=0.01))
    assert long - short == pytest.approx(2e-7 * 20 * 4200, rel=1e-3)  # the first one ends a step before
    assert long > 2 * short


def test_without_the_price_the_context_does_not_matter():
    """Without a price for reading, steps follow the linear model of the queueing analyzer."""
    flat = replace(PARAMETERS, kv_read_seconds_per_token=0.0)
    gaps = [gap(flat, sequences=20, prompt=prompt)[1] for prompt in (250, 4450)]
    assert gaps[0] == pytest.approx(gaps[1])


def test_each_step_of_a_run_reads_one_token_more_per_sequence():
    """In a lone answer, the n-th step after the prompt reads the prompt and n tokens."""
    engine = DrivenEngine(replace(PARAMETERS, kv_read_seconds_per_token=1e-5))
    engine.submit(UserRequest(1, 0.0, 50, 30), at_seconds=0.0)
    engine.advance(100.0)
    steps = [0.0101 + 1e-5 * (50 + step) for step in range(1, 30)]
    assert engine.finished[0].finish_seconds == pytest.approx(0.0101 + sum(steps))


def test_prompt_costs_the_square_of_its_length_however_it_is_cut():
    """A prompt costs half of all pairs of its tokens, in one chunk or in many."""
    for budget in (8192, 500, 100):
        parameters = replace(PARAMETERS, attention_seconds_per_token_pair=1e-8, max_num_batched_tokens=budget)
        engine = DrivenEngine(parameters)
        engine.submit(UserRequest(1, 0.0, 4000, 1), at_seconds=0.0)
        engine.advance(100.0)
        steps = -(-4000 // budget)
        assert engine.finished[0].finish_seconds == pytest.approx(steps * 0.0101 + 1e-8 * 4000**2 / 2)
