"""The exact times of single requests, computed from the step model."""

import pytest

from wva.sim.fleet.counters import INTER_TOKEN_LATENCY, TIME_TO_FIRST_TOKEN
from wva.sim.fleet.engine import DrivenEngine
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.requests import UserRequest

PARAMETERS = EngineParameters(
    alpha_seconds=0.010,
    beta_seconds_per_sequence=0.001,
    prefill_seconds_per_token=0.0001,
    num_gpu_blocks=1000,
    max_num_seqs=8,
    max_num_batched_tokens=200,
    max_model_len=1000,
)


def request(number, *, at=0.0, prompt=100, output=5, **more):
    """Return a request of moderate length."""
    return UserRequest(number=number, arrival_seconds=at, prompt_tokens=prompt, output_tokens=output, **more)


def served(engine, *requests, until=1000.0):
    """Return the finished requests by number."""
    for each in requests:
        engine.submit(each, at_seconds=each.arrival_seconds)
    engine.advance(until)
    return {finished.request.number: finished for finished in engine.finished}


def test_lone_request_pays_one_prefill_step_and_one_step_per_further_token():
    """TTFT is alpha + beta + prompt * price; each further token costs alpha + beta."""
    finished = served(DrivenEngine(PARAMETERS), request(1, at=2.0))[1]
    assert finished.time_to_first_token_seconds == pytest.approx(0.010 + 0.001 + 100 * 0.0001)
    assert finished.inter_token_latency_seconds == pytest.approx(0.011)
    assert finished.finish_seconds == pytest.approx(2.0 + 0.021 + 4 * 0.011)


def test_answer_of_one_token_has_no_inter_token_latency():
    """An answer of one token has no gap, so its inter-token latency is None."""
    finished = served(DrivenEngine(PARAMETERS), request(1, output=1))[1]
    assert finished.inter_token_latency_seconds is None
    assert finished.finish_seconds == pytest.approx(0.021)


def test_second_sequence_in_the_batch_adds_beta():
    """While two requests decode, a step takes alpha + 2 beta."""
    finished = served(DrivenEngine(PARAMETERS), request(1, output=90), request(2, output=50))
    assert finished[2].inter_token_latency_seconds == pytest.approx(0.012)


def test_arrival_at_the_end_of_a_step_is_in_the_next():
    """A request that arrives at the end of a step joins the next step, whether or not the engine was read before."""
    exact = EngineParameters(0.25, 0.0, 0.0, num_gpu_blocks=1000, max_model_len=1000)
    for looks in ((), (1.0,)):
        engine = DrivenEngine(exact)
        engine.submit(request(1, output=50), at_seconds=0.0)
        engine.submit(request(3, at=0.0, output=3), at_seconds=0.0)  # begins a step later, ends at 1.0
        for look in looks:
            engine.advance(look)
        assert served(engine, request(2, at=1.0))[2].time_to_first_token_seconds == 0.25


def test_long_prompt_is_computed_in_chunks_of_the_token_budget():
    """450 tokens with a budget of 200 take three steps."""
    finished = served(DrivenEngine(PARAMETERS), request(1, prompt=450))[1]
    assert finished.time_to_first_token_seconds == pytest.approx(3 * 0.011 + 450 * 0.0001)


def test_decoding_sequences_keep_their_share_of_the_budget_while_a_prompt_is_computed():
    """With one sequence decoding, a chunk is one token smaller, and the decoder gets a token per chunk."""
    engine = DrivenEngine(PARAMETERS)
    finished = served(engine, request(1, prompt=16, output=100), request(2, at=0.1, prompt=399, output=2))
    begin = 0.0126 + 8 * 0.011  # the first step boundary of request 1 after the arrival
    chunks = 3 * 0.012 + 399 * 0.0001  # 199 + 199 + 1 tokens
    assert finished[2].time_to_first_token_seconds == pytest.approx(begin + chunks - 0.1)


def test_cached_prompt_tokens_cost_no_time_but_memory():
    """A prefix cache hit shortens the prefill by whole blocks; the last prompt token is always computed."""
    engine = DrivenEngine(PARAMETERS, groups=1)
    cold = served(engine, request(1, prompt=160, output=20, group=0, prefix_tokens=150), until=5.0)[1]
    assert cold.time_to_first_token_seconds == pytest.approx(0.011 + 160 * 0.0001)
    engine.submit(request(2, at=5.0, prompt=160, output=20, group=0, prefix_tokens=150), at_seconds=5.0)
    engine.advance(5.001)
    assert engine.sample().kv_cache_usage == 10 / 1000
    warm = served(engine, request(3, at=9.0, group=0, prefix_tokens=100))
    assert warm[2].time_to_first_token_seconds == pytest.approx(0.011 + 16 * 0.0001)  # 9 of 10 blocks are cached
    assert warm[3].time_to_first_token_seconds == pytest.approx(0.011 + 4 * 0.0001)  # 6 blocks of 16
    whole = served(engine, request(4, at=1000.0, prompt=96, group=0, prefix_tokens=96), until=2000.0)[4]
    assert whole.time_to_first_token_seconds == pytest.approx(0.011 + 16 * 0.0001)


def test_answer_ends_at_the_models_length():
    """An answer is cut at max_model_len, and counts as finished by length."""
    engine = DrivenEngine(PARAMETERS)
    finished = served(engine, request(1, prompt=990, output=50))[1]
    assert finished.output_tokens == 10
    assert engine.sample().finished == {"stop": 0, "length": 1}


def test_prompt_without_room_for_an_answer_is_refused():
    """The engine raises an error where vLLM answers 400."""
    with pytest.raises(ValueError, match="max_model_len"):
        DrivenEngine(PARAMETERS).submit(request(1, prompt=1000), at_seconds=0.0)


def test_group_that_the_engine_does_not_know_is_refused():
    """The number of groups is fixed when the engine starts."""
    with pytest.raises(ValueError, match="below 2 groups"):
        DrivenEngine(PARAMETERS, groups=2).submit(request(1, group=2), at_seconds=0.0)


def test_time_does_not_go_back():
    """An advance or a request in the past is an error."""
    engine = DrivenEngine(PARAMETERS)
    engine.advance(5.0)
    with pytest.raises(ValueError, match="cannot go back"):
        engine.advance(4.0)
    with pytest.raises(ValueError, match="cannot go back"):
        engine.submit(request(1, at=4.0), at_seconds=4.0)


def test_sequences_beyond_the_slots_wait_in_order():
    """With eight slots the ninth request waits until the first has finished."""
    engine = DrivenEngine(PARAMETERS)
    for number in range(1, 11):
        engine.submit(request(number, prompt=10, output=20 if number > 1 else 5), at_seconds=0.0)
    engine.advance(0.05)
    assert (engine.running, engine.waiting) == (8, 2)
    engine.advance(1000.0)
    first = {finished.request.number: finished.time_to_first_token_seconds for finished in engine.finished}
    assert first[9] < first[10]
    assert (engine.running, engine.waiting) == (0, 0)


def test_counters_follow_the_tokens():
    """Prompt, generated and looked-up tokens are counted once each."""
    engine = DrivenEngine(PARAMETERS, groups=1)
    served(engine, request(1, group=0, prefix_tokens=64), request(2, at=0.5, output=7, group=0, prefix_tokens=64))
    sample = engine.sample()
    assert sample.prompt_tokens == 200
    assert sample.generation_tokens == 12
    assert (sample.prefix_cache_queries, sample.prefix_cache_hits) == (200, 64)
    assert sample.histograms[INTER_TOKEN_LATENCY].count == 10
    assert sample.histograms[TIME_TO_FIRST_TOKEN].count == 2


def test_sample_inside_a_jump_shows_the_steps_done_so_far():
    """Between events the sample counts tokens and blocks as if every step had been made."""
    engine = DrivenEngine(PARAMETERS)
    engine.submit(request(1, prompt=16, output=100), at_seconds=0.0)
    engine.advance(0.0126 + 20.5 * 0.011)
    sample = engine.sample()
    assert sample.generation_tokens == 21
    assert sample.kv_cache_usage == 3 / 1000  # 16 + 21 tokens during the 21st decode step
    assert sample.histograms[INTER_TOKEN_LATENCY].count == 20
    assert engine.sample() == sample
