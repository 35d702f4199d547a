"""The engine with a full KV cache: requests wait or are preempted."""

import pytest

from wva.sim.fleet.counters import INTER_TOKEN_LATENCY, TIME_TO_FIRST_TOKEN
from wva.sim.fleet.engine import DrivenEngine
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.requests import UserRequest

SMALL = EngineParameters(
    alpha_seconds=0.01,
    beta_seconds_per_sequence=0.0,
    prefill_seconds_per_token=0.0,
    num_gpu_blocks=10,
    block_size=4,
    max_num_seqs=4,
    max_num_batched_tokens=64,
    max_model_len=40,
)


def submit(engine, number, *, prompt, output, at=0.0):
    """Submit one request."""
    engine.submit(UserRequest(number, at, prompt, output), at_seconds=at)


def test_request_waits_until_the_cache_holds_its_whole_prompt():
    """A request needs a free slot and free blocks for its whole prompt."""
    engine = DrivenEngine(SMALL)
    submit(engine, 1, prompt=28, output=4)
    submit(engine, 2, prompt=16, output=4)
    engine.advance(0.025)
    assert (engine.running, engine.waiting) == (1, 1)
    engine.advance(10.0)
    assert [finished.request.number for finished in engine.finished] == [1, 2]
    assert engine.sample().preemptions == 0


def test_last_admitted_goes_back_to_the_head_of_the_queue():
    """When no blocks are free, the engine preempts the youngest sequence and puts it before the waiting ones."""
    engine = DrivenEngine(SMALL)
    submit(engine, 1, prompt=16, output=20)
    submit(engine, 2, prompt=16, output=20)
    submit(engine, 3, prompt=16, output=4, at=0.005)
    engine.advance(10.0)
    assert [finished.request.number for finished in engine.finished] == [1, 2, 3]
    assert engine.sample().preemptions == 2  # the youngest is preempted again after its second admission


def test_preempted_sequence_is_computed_anew_and_loses_no_token():
    """The answer has its full length, first token and prompt count once, and the pause is an inter-token gap."""
    engine = DrivenEngine(SMALL)
    submit(engine, 1, prompt=16, output=20)
    submit(engine, 2, prompt=16, output=20)
    engine.advance(10.0)
    one, two = engine.finished
    assert (one.output_tokens, two.output_tokens) == (20, 20)
    sample = engine.sample()
    assert sample.generation_tokens == 40
    assert sample.prompt_tokens == 32
    assert sample.histograms[TIME_TO_FIRST_TOKEN].count == 2
    assert sample.histograms[INTER_TOKEN_LATENCY].count == 38
    assert two.inter_token_latency_seconds > one.inter_token_latency_seconds
    assert sample.kv_cache_usage == 0


@pytest.mark.parametrize(("blocks", "admitted"), [(97, 2), (98, 1)])
def test_admission_leaves_one_percent_of_the_blocks_free(blocks, admitted):
    """With 101 of 200 blocks in use, the engine admits a prompt of 97 blocks, and not one of 98."""
    parameters = EngineParameters(
        alpha_seconds=0.01,
        beta_seconds_per_sequence=0.0,
        prefill_seconds_per_token=0.0,
        num_gpu_blocks=200,
        max_num_seqs=4,
        max_num_batched_tokens=4096,
        max_model_len=2048,
    )
    engine = DrivenEngine(parameters)
    engine.submit(UserRequest(1, 0.0, 1600, 12), at_seconds=0.0)
    engine.submit(UserRequest(2, 0.045, 16 * blocks, 2), at_seconds=0.045)
    engine.advance(0.065)
    assert (engine.running, engine.waiting) == (admitted, 2 - admitted)
    engine.advance(1.0)
    assert len(engine.finished) == 2
