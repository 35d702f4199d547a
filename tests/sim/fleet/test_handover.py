"""Requests go from prefill to decode engines: their times, and conservation of requests, blocks and tokens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from tests.sim.fleet.services import SMALL, traffic, values
from wva.model.records import replace
from wva.sim.fleet.columns import (
    BROKEN,
    GATEWAY,
    GONE,
    KEPT,
    NONE,
    PROMPTING,
    READY,
    RECEIVING,
    REFUSED,
    RETRYING,
    ROLE_DECODE,
    ROLE_PREFILL,
    RUNNING,
    SERVED,
    STAGED,
    TIMED_OUT,
    TOTAL_ARRIVED,
    UPCOMING,
    WAITING,
)
from wva.sim.fleet.counters import (
    COUNT_CUT,
    COUNT_GENERATION_TOKENS,
    COUNT_PREEMPTIONS,
    COUNT_PROMPT_TOKENS,
    COUNT_STOPPED,
    COUNT_TRANSFERRED,
    COUNTS,
)
from wva.sim.fleet.engine import sample
from wva.sim.fleet.metrics import EngineView, render
from wva.sim.fleet.observed import steps_done
from wva.sim.fleet.replica import PodKey, PoolKey
from wva.sim.fleet.service import ModelService
from wva.sim.fleet.transfer import KvTransfer
from wva.sim.fleet.users import GatewaySettings, Routing
from wva.sim.stage.view import ScrapedSignal

SLOW_LINK = KvTransfer(token_seconds=0.001, delay_seconds=0.01, least_prompt_tokens=10)
"""A prompt of 20 tokens takes 30 ms."""
TIGHT = replace(SMALL, num_gpu_blocks=51, max_num_seqs=12)
KINDS = (SMALL, SMALL, TIGHT)
ROLES = (ROLE_PREFILL, ROLE_DECODE, ROLE_DECODE)
PREFILL, DECODE, DECODE_TIGHT = range(3)


def service(*requests, pods=(PREFILL, DECODE), transfer=SLOW_LINK, **settings):
    """Return a service with these requests and a Ready pod of each of these variants."""
    made = ModelService.of(traffic(*requests), KINDS, GatewaySettings(transfer=transfer, **settings), ROLES)
    for variant in pods:
        made.add(variant, ready_at_seconds=0.0)
    return made


def counted(target, row, count):
    """Return a counter of an engine."""
    return int(target.columns.counts[row * COUNTS + count])


def test_first_token_takes_prompt_transfer_and_a_step():
    """A request that is alone: 30 ms for its prompt, 30 ms for its KV cache, and a step with one token of 11 ms."""
    target = service(0.0)
    target.advance(1.0)
    assert values(target, "first")[0] == pytest.approx(0.030 + 0.030 + 0.011)
    assert values(target, "finish")[0] == pytest.approx(0.071 + 9 * 0.010)


def test_short_prompt_is_computed_by_the_decode_engine():
    """Below the threshold nothing comes to the prefill engine."""
    target = service((0.0, {"prompt": 9}))
    target.advance(1.0)
    assert values(target, "first")[0] == pytest.approx(0.010 + 0.009)
    assert counted(target, 0, COUNT_PROMPT_TOKENS) == 0
    assert counted(target, 1, COUNT_TRANSFERRED) == 0


def test_decode_engine_computes_prompts_while_no_prefill_engine_is_ready():
    """As llm-d's picker sends them when its prefill profile finds no pod."""
    target = service(0.0, pods=(DECODE,))
    target.advance(1.0)
    assert values(target, "first")[0] == pytest.approx(0.030)


def test_request_waits_at_the_gateway_without_a_decode_engine():
    """A prefill engine alone serves nothing."""
    target = service(0.0, pods=(PREFILL,))
    target.advance(1.0)
    assert target.at_gateway == 1
    target.add(DECODE, ready_at_seconds=1.0)
    target.advance(2.0)
    assert values(target, "first")[0] == pytest.approx(1.071)


def test_pages_of_both_engines_are_those_of_vllm():
    """Both count the request; the prefill engine has an answer of one token, and no time between tokens."""
    target = service(0.0)
    target.advance(1.0)
    prefill, decode = (dict(zip(ScrapedSignal, target.scrape(row), strict=True)) for row in (0, 1))
    assert prefill[ScrapedSignal.SUCCESS] == decode[ScrapedSignal.SUCCESS] == 1
    assert (prefill[ScrapedSignal.REQUEST_GENERATION_SUM], decode[ScrapedSignal.REQUEST_GENERATION_SUM]) == (1, 10)
    assert (prefill[ScrapedSignal.ITL_COUNT], decode[ScrapedSignal.ITL_COUNT]) == (0, 9)
    assert prefill[ScrapedSignal.PREFILL_SECONDS] == pytest.approx(0.030)
    assert prefill[ScrapedSignal.PROMPT_TOKENS] == decode[ScrapedSignal.PROMPT_TOKENS] == 20
    assert (prefill[ScrapedSignal.TRANSFERRED], decode[ScrapedSignal.TRANSFERRED]) == (0, 19)
    assert decode[ScrapedSignal.TTFT_SUM] == pytest.approx(0.041), "from when the decode engine gets it"
    assert counted(target, 0, COUNT_CUT) == 1
    assert counted(target, 1, COUNT_STOPPED) == 1


def test_exposition_tells_where_prompt_tokens_come_from():
    """The decode engine counts the transferred ones among the cached ones, as vLLM does, and computes one token."""
    target = service(0.0)
    target.advance(0.045)

    def lines():
        shown = sample(target.columns, target.handle, 1)
        view = EngineView(PoolKey("ns", "org/model"), PodKey("ns", "decode"), 0, KINDS[DECODE], shown)
        return [line.rpartition("} ") for line in render([view], pod_labels=False).splitlines()]

    deferred = [value for name, _, value in lines() if 'reason="deferred"' in name]
    target.advance(1.0)
    sources = {
        name.partition('source="')[2].rstrip('"'): value
        for name, _, value in lines()
        if name.startswith("vllm:prompt_tokens_by_source_total")
    }
    cached = [value for name, _, value in lines() if name.startswith("vllm:prompt_tokens_cached_total")]
    assert deferred == ["1.0"]
    assert sources == {"local_compute": "1.0", "local_cache_hit": "0.0", "external_kv_transfer": "19.0"}
    assert cached == ["19.0"]


def test_what_is_on_its_way_shows_on_the_pages():
    """During a transfer both engines hold the blocks, and the decode engine's request waits, as a deferred one."""
    target = service(0.0)
    target.advance(0.045)
    pages = [dict(zip(ScrapedSignal, target.scrape(row), strict=True)) for row in (0, 1)]
    assert [page[ScrapedSignal.KV_USAGE] * 64 for page in pages] == [5.0, 5.0]
    assert [page[ScrapedSignal.WAITING] for page in pages] == [0, 1]
    assert target.load(1) == 1
    target.advance(0.02 + 0.041)
    assert target.scrape(0)[ScrapedSignal.KV_USAGE] == 0.0


def test_prefill_engine_keeps_blocks_while_decode_has_none():
    """A decode engine that is full holds up prompts at the prefill engine, whose cache fills."""
    many = [(0.001 * number, {"prompt": 100, "output": 90}) for number in range(8)]
    target = service(*many)
    target.advance(2.0)
    kept, usage = int(target.columns.kept[0]), target.kv_cache_usage(0)
    assert kept >= 2
    assert usage == pytest.approx(kept * 25 / 64)
    target.advance(60.0)
    assert values(target, "state")[:8] == [SERVED] * 8
    assert target.kv_cache_usage(0) == target.kv_cache_usage(1) == 0.0


@pytest.mark.parametrize("gone", [0, 1])
def test_request_breaks_with_either_engine(gone):
    """Whoever ends takes the requests that it computes, keeps or receives with it; its user tries again."""
    target = service(0.0, 0.05, attempts=2, retry_seconds=0.5)
    target.advance(0.055)
    assert values(target, "state")[:2] == [RECEIVING, PROMPTING]
    target.terminate(gone, grace_seconds=0.0)
    target.settle()
    assert values(target, "state")[:2] == [RETRYING, RETRYING]
    target.add((PREFILL, DECODE)[gone], ready_at_seconds=0.1)
    target.advance(5.0)
    assert values(target, "state")[:2] == [SERVED, SERVED]


def test_router_with_another_view_is_refused():
    """Where pods have roles, routing by prefix or by chance is not built."""
    with pytest.raises(ValueError, match="routing is RANDOM"):
        GatewaySettings(transfer=SLOW_LINK, routing=Routing.RANDOM)
    with pytest.raises(ValueError, match="no transfer from prefill to decode"):
        service(0.0, transfer=None)
    with pytest.raises(ValueError, match="prompts begin alike"):
        service((0.0, {"group": 0, "prefix": 5}))


def test_transfer_of_a_model_has_the_size_of_its_cache():
    """A token of Llama 3.1 8B has 128 KiB; 4.3 GB/s are those of a measured NixlConnector."""
    found = KvTransfer.of("Llama-3.1-8B")
    assert found.seconds(1000) - found.seconds(0) == pytest.approx(1000 * 128 * 1024 / 4.3e9)


requests = st.lists(
    st.tuples(st.floats(0.0001, 0.2), st.integers(1, 120) | st.just(205), st.integers(1, 80)), min_size=1, max_size=40
)
events = st.lists(st.tuples(st.floats(0.0, 1.5), st.integers(0, 2), st.booleans(), st.floats(0, 1)), max_size=8)
settings = st.fixed_dictionaries(
    {
        "patience_seconds": st.sampled_from([0.2, 2.0, float("inf")]),
        "attempts": st.integers(1, 3),
        "retry_seconds": st.sampled_from([0.0, 0.37]),
        "queue_limit": st.sampled_from([0, 3, 1000]),
        "transfer": st.sampled_from([SLOW_LINK, KvTransfer(0.0001, 0.0, 1), KvTransfer(0.02, 0.3, 30)]),
    }
)


def made(rows, **more):
    """Return a service for these requests, with one pod of each variant."""
    at, given_requests = 0.0, []
    for gap, prompt, output in rows:
        at += gap * 1.0000711
        given_requests.append((at, {"prompt": prompt, "output": output}))
    return service(*given_requests, pods=(PREFILL, DECODE, DECODE_TIGHT), **more)


def change(target, variant, *, add, delay):
    """Add a pod of a variant, or terminate its first Ready pod."""
    if add:
        target.add(variant, ready_at_seconds=target.now_seconds + delay)
        return
    ready = [row for row in rows_of(target) if target.phase(row) == READY and target.columns.variant[row] == variant]
    for row in ready[:1]:
        target.terminate(row, grace_seconds=delay)


def rows_of(target):
    """Return the rows of all engines that there have been."""
    return range(target._added)


def check_requests(target, count):
    """Check that requests in = served + failed + at either kind of engine + between them + waiting."""
    c, states = target.columns, values(target, "state")
    users, prompts = states[:count], states[count:]
    alive = [row for row in rows_of(target) if target.phase(row) != GONE]
    assert sum(state != UPCOMING for state in users) == c.totals[TOTAL_ARRIVED]
    assert users.count(GATEWAY) == target.at_gateway
    assert states.count(WAITING) == sum(int(c.waiting[row]) for row in alive)
    assert states.count(RUNNING) == sum(int(c.running[row]) for row in alive)
    assert users.count(PROMPTING) == prompts.count(WAITING) + prompts.count(RUNNING)
    assert users.count(STAGED) + users.count(RECEIVING) == prompts.count(KEPT) == sum(int(c.kept[e]) for e in alive)
    assert users.count(STAGED) + users.count(RECEIVING) == sum(int(c.deferred[e]) for e in alive)
    assert users.count(RECEIVING) == sum(int(c.receiving[e]) for e in alive)
    on_the_way = [i for i, state in enumerate(users) if state in {PROMPTING, STAGED, RECEIVING}]
    for e in alive:
        assert c.expected[e] == sum(c.engine[i] == e for i in on_the_way)
        own = [i for i in on_the_way if users[i] == PROMPTING and c.engine[c.twin[i]] == e]
        assert c.backlog[e] == sum(c.prompt[i] for i in own)
    known = {UPCOMING, GATEWAY, WAITING, RUNNING, PROMPTING, STAGED, RECEIVING, RETRYING, SERVED, REFUSED, TIMED_OUT}
    assert set(users) <= known | {BROKEN}
    assert set(prompts) <= {UPCOMING, WAITING, RUNNING, KEPT}


def check_blocks(target):
    """Check that blocks in use = those of the batch, those kept, and those taken for what is on the way."""
    c, states = target.columns, values(target, "state")
    for e in rows_of(target):
        if target.phase(e) == GONE:
            continue
        size, held = c.block_size[c.variant[e]], 0
        for i, state in enumerate(states):
            if c.engine[i] != e:
                continue
            if state == RUNNING:
                grown = 0 if c.start_step[i] == NONE else c.step[e] - c.start_step[i]
                held += -(-(c.context[i] + grown) // size)
            elif state in {KEPT, RECEIVING}:
                held += -(-c.prompt[i] // size)
        assert c.used[e] == held
        assert 0 <= held <= c.blocks[c.variant[e]]
        assert 0 <= target.kv_cache_usage(e) <= 1


def check_tokens(target, count):
    """Check that tokens generated = those of answers and of what runs, and one for each prompt at a prefill engine."""
    c, states = target.columns, values(target, "state")
    decode = [e for e in rows_of(target) if ROLES[c.variant[e]] == ROLE_DECODE]
    generated = sum(
        counted(target, e, COUNT_GENERATION_TOKENS) + steps_done(target.handle, e) * c.decoding[e] for e in decode
    )
    expected = 0
    for i, state in enumerate(states[:count]):
        if state == SERVED:
            expected += c.length[i]
        elif state in {RUNNING, WAITING}:
            e = c.engine[i]
            expected += c.generated[i]
            if c.start_step[i] != NONE:
                expected += c.step[e] + steps_done(target.handle, e) - c.start_step[i]
    assert generated >= expected
    for e in rows_of(target):
        if e not in decode:
            done = counted(target, e, COUNT_CUT)
            assert counted(target, e, COUNT_GENERATION_TOKENS) == done
            assert counted(target, e, COUNT_STOPPED) == counted(target, e, COUNT_PREEMPTIONS) == 0
    transferred = sum(counted(target, e, COUNT_TRANSFERRED) for e in decode)
    computed = sum(counted(target, e, COUNT_PROMPT_TOKENS) for e in rows_of(target) if e not in decode)
    assert transferred <= computed


@examples(max_examples=30)
@given(rows=requests, events=events, settings=settings)
def test_requests_tokens_and_blocks_are_conserved(rows, events, settings):
    """The sums hold after every change of pods, and at the end nothing is left anywhere."""
    target, count = made(rows, **settings), len(rows)
    now = 0.0
    last = [(3.0, variant, True, 0.0) for variant in (PREFILL, DECODE, DECODE_TIGHT)]
    for pause, variant, add, delay in [*events, *last, (900.0, PREFILL, True, 0.0)]:
        now += pause
        target.advance(now)
        check_requests(target, count)
        check_blocks(target)
        check_tokens(target, count)
        change(target, variant, add=add, delay=delay)
    states = values(target, "state")
    assert set(states[:count]) <= {SERVED, REFUSED, TIMED_OUT, BROKEN}
    assert set(states[count:]) == {UPCOMING}
    assert all(int(target.columns.used[e]) == 0 for e in rows_of(target) if target.phase(e) != GONE)
    for i, state in enumerate(states[:count]):
        if state == SERVED:
            assert target.columns.arrival[i] < target.columns.first[i] <= target.columns.finish[i]


@examples(max_examples=20)
@given(rows=requests, events=events, settings=settings, looks=st.lists(st.floats(0, 12), max_size=12))
def test_result_does_not_depend_on_who_looks_when(rows, events, settings, looks):
    """For any division of time, requests end in the same way at the same time, and pages are the same."""
    plain, watched = made(rows, **settings), made(rows, **settings)
    now = 0.0
    for pause, variant, add, delay in [*events, (10.0, PREFILL, True, 0.0)]:
        now += pause
        for look in sorted(looks):
            if watched.now_seconds < look < now:
                watched.advance(look)
                for row in rows_of(watched):
                    watched.scrape(row)
        for target in (plain, watched):
            target.advance(now)
            change(target, variant, add=add, delay=delay)
    for name in ("state", "attempts", "first", "finish", "engine", "length", "queued"):
        assert values(plain, name) == values(watched, name)
    assert [plain.scrape(row) for row in rows_of(plain)] == [watched.scrape(row) for row in rows_of(watched)]
