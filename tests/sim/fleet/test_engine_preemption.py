"""What happens when the KV cache is full."""

from wva.sim.fleet.engine import Engine
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.requests import Request

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
    engine.submit(Request(number, at, prompt, output), at_seconds=at)


def test_request_waits_until_the_cache_holds_its_whole_prompt():
    """A free slot is not enough: blocks have to be free, too."""
    engine = Engine(SMALL)
    submit(engine, 1, prompt=28, output=4)
    submit(engine, 2, prompt=16, output=4)
    engine.advance(0.025)
    assert (engine.running, engine.waiting) == (1, 1)
    engine.advance(10.0)
    assert [finished.request.number for finished in engine.finished] == [1, 2]
    assert engine.counters.preemptions == 0


def test_last_admitted_goes_back_to_the_head_of_the_queue():
    """When blocks run out, the youngest sequence is preempted and overtakes what waited."""
    engine = Engine(SMALL)
    submit(engine, 1, prompt=16, output=20)
    submit(engine, 2, prompt=16, output=20)
    submit(engine, 3, prompt=16, output=4, at=0.005)
    engine.advance(10.0)
    assert [finished.request.number for finished in engine.finished] == [1, 2, 3]
    assert engine.counters.preemptions == 2  # the youngest, which is admitted again after 2, is the first to go


def test_preempted_sequence_is_computed_anew_and_loses_no_token():
    """Its answer has the length asked for; first token and prompt count once; the pause is an inter-token gap."""
    engine = Engine(SMALL)
    submit(engine, 1, prompt=16, output=20)
    submit(engine, 2, prompt=16, output=20)
    engine.advance(10.0)
    one, two = engine.finished
    assert (one.output_tokens, two.output_tokens) == (20, 20)
    assert engine.counters.generation_tokens == 40
    assert engine.counters.prompt_tokens == 32
    assert engine.counters.time_to_first_token.cumulative()[-1] == 2
    assert engine.counters.inter_token_latency.cumulative()[-1] == 38
    assert two.inter_token_latency_seconds > one.inter_token_latency_seconds
    assert engine.sample().kv_cache_usage == 0


def test_abort_gives_everything_back_and_counts_it():
    """A killed engine returns running and waiting requests and holds no block."""
    engine = Engine(SMALL)
    for number in (1, 2, 3):
        submit(engine, number, prompt=16, output=20)
    engine.advance(0.05)
    assert [request.number for request in engine.abort()] == [1, 2, 3]
    assert engine.sample().kv_cache_usage == 0
    assert engine.counters.finished["abort"] == 3
    engine.advance(10.0)
    assert engine.finished == []


def test_giving_up_the_queue_keeps_what_has_begun():
    """Requests that never ran can be served elsewhere; a preempted one has its answer here."""
    engine = Engine(SMALL)
    submit(engine, 1, prompt=16, output=20)
    submit(engine, 2, prompt=16, output=20)
    submit(engine, 3, prompt=16, output=4)
    engine.advance(0.11)
    assert (engine.running, engine.waiting) == (1, 2)
    assert [request.number for request in engine.take_waiting()] == [3]
    engine.advance(10.0)
    assert [finished.request.number for finished in engine.finished] == [1, 2]
