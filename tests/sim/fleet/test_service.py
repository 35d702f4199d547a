"""Gateway, routing and users of one model, request by request."""

from math import inf

import pytest

from tests.sim.fleet.services import SMALL, service, values
from wva.model.records import replace
from wva.sim.fleet.columns import (
    BROKEN,
    GONE,
    LIST_DONE_FIRST,
    NONE,
    READY,
    REFUSED,
    RETRYING,
    RUNNING,
    SERVED,
    TIMED_OUT,
    TOTAL_RETRIED,
    WAITING,
)
from wva.sim.fleet.counters import (
    GENERATION_TOKENS,
    INTER_TOKEN_LATENCY,
    PREFILL_TIME,
    PROMPT_TOKENS,
    TIME_PER_OUTPUT_TOKEN,
    TIME_TO_FIRST_TOKEN,
)
from wva.sim.fleet.engine import sample
from wva.sim.fleet.service import SIGNALS
from wva.sim.fleet.users import Routing
from wva.sim.stage.view import ScrapedSignal

BIG = replace(SMALL, num_gpu_blocks=128, max_num_seqs=8)
MANY = [0.001 * number for number in range(12)]


def loads(target, *rows):
    """Return the requests in each engine."""
    return [target.load(row) for row in rows or range(3)]


# -- waiting at the gateway --------------------------------------------------------------------------------------------


def test_requests_wait_at_the_gateway_until_a_replica_comes():
    """Without replicas requests queue in order until one is Ready. Latencies count from the arrival."""
    target = service(0.0, 1.0, 2.0, pods=0)
    target.advance(4.0)
    assert (target.at_gateway, target.waiting) == (3, 3)
    target.add(0, ready_at_seconds=5.0)
    target.advance(5.05)
    assert (target.at_gateway, target.waiting) == (0, 0)
    target.advance(10.0)
    assert values(target, "state") == [SERVED] * 3
    first = values(target, "first")
    assert first == sorted(first)
    assert first[0] == pytest.approx(5.03)
    assert values(target, "arrival") == [0.0, 1.0, 2.0]


def test_full_gateway_refuses():
    """A full gateway refuses further requests."""
    target = service(0.0, 0.1, 0.2, pods=0, queue_limit=2)
    target.advance(1.0)
    assert values(target, "state")[2] == REFUSED
    assert target.at_gateway == 2


def test_refused_user_may_ask_again():
    """A refused user is served by a later attempt, when the gateway has room."""
    target = service(0.0, 0.1, pods=0, queue_limit=1, attempts=2, retry_seconds=2.0)
    target.advance(1.0)
    assert values(target, "state")[1] == RETRYING
    target.add(0, ready_at_seconds=1.5)
    target.advance(9.0)
    assert values(target, "state") == [SERVED, SERVED]
    assert values(target, "attempts") == [1, 2]


def test_prompt_too_long_for_the_model_is_refused_for_good():
    """A prompt that is too long is refused once and not retried."""
    target = service((0.0, {"prompt": 200}), attempts=3)
    target.advance(9.0)
    assert values(target, "state") == [REFUSED]
    assert target.columns.totals[TOTAL_RETRIED] == 0
    assert values(target, "attempts") == [1]


# -- routing -----------------------------------------------------------------------------------------------------------


def test_least_loaded_goes_round():
    """Equal replicas get equal shares, beginning with the first."""
    target = service(*MANY, pods=3)
    target.advance(0.0005)
    assert loads(target) == [1, 0, 0]
    target.advance(0.0055)
    assert loads(target) == [2, 2, 2]


def test_share_follows_capacity():
    """A replica of twice the capacity holds twice the requests."""
    target = service(*MANY, pods=0, variants=(SMALL, BIG))
    target.add(0, ready_at_seconds=0.0)
    target.add(1, ready_at_seconds=0.0)
    target.advance(0.012)
    assert loads(target, 0, 1) == [4, 8]


def test_rank_decides_between_equals():
    """Of equal replicas the one with the lowest rank comes first, in any row."""
    target = service(0.0, pods=0)
    rows = [target.add(0, ready_at_seconds=0.0, rank=(name,)) for name in "bca"]
    target.advance(0.001)
    assert loads(target, *rows) == [0, 0, 1]


def test_load_is_that_of_the_moment():
    """Finished requests no longer count."""
    target = service(0.0, 0.1, 50.0, pods=1)
    target.advance(0.05)
    target.add(0, ready_at_seconds=0.05)
    target.advance(50.001)
    assert loads(target, 0, 1) == [1, 0]


def test_random_routing_follows_the_draws():
    """A draw of [0, 1) picks one of the Ready replicas, at any load."""
    draws = [0.0, 0.1, 0.3, 0.4, 0.7, 0.9, 0.99, 0.2, 0.1, 0.05, 0.6, 0.34]
    target = service(*MANY, pods=3, drawn=draws, routing=Routing.RANDOM)
    target.advance(0.012)
    assert loads(target) == [6, 3, 3]


def test_stale_view_counts_what_waits():
    """Of two full replicas the one with the shorter queue is less loaded."""
    slow = replace(SMALL, num_gpu_blocks=1000, alpha_seconds=0.1)
    long = [(at, {"output": 150}) for at in (*(0.001 * number for number in range(8)), 2.0, 2.001, 2.002, 2.003, 4.0)]
    target = service(*long, variants=(slow,), drawn=[0.0] * len(long), routing=Routing.STALE, view_seconds=0.4)
    target.advance(1.0)
    target.add(0, ready_at_seconds=1.0)
    target.advance(3.9)
    assert loads(target, 0, 1) == [8, 4]
    assert values(target, "state").count(RUNNING) == 8
    target.advance(4.1)
    assert loads(target, 0, 1) == [8, 5]


def test_second_attempt_is_another_draw():
    """The second attempt of a user has its own draw, and goes to the other replica."""
    busy = [(0.001 * number, {"output": 150}) for number in range(4)]
    target = service(
        *busy, 0.1, pods=2, drawn=[0.1] * 5, routing=Routing.RANDOM, patience_seconds=0.5, attempts=2, retry_seconds=0.1
    )
    target.advance(0.2)
    assert loads(target, 0, 1) == [5, 0]
    target.advance(0.705)
    assert loads(target, 0, 1) == [4, 1]


def test_stale_view_sends_everything_to_the_same_replica():
    """With an old view, the replica that was empty gets all requests. The next view corrects this."""
    target = service(0.0, *[0.1 + at for at in MANY], 0.4, pods=2, routing=Routing.STALE, view_seconds=0.3)
    target.advance(0.05)
    busy = 0 if loads(target, 0, 1) == [1, 0] else 1
    target.advance(0.1125)
    assert loads(target, busy, 1 - busy) == [13, 0]  # a draw of 0 takes the first of two idle replicas
    target.advance(0.401)
    assert target.load(1 - busy) == 1


def test_prefix_routing_prefers_the_replica_that_has_the_prompt():
    """A prompt in the cache outweighs a small difference in load, but not a larger one."""
    like = {"prompt": 40, "group": 0, "prefix": 36, "shared": 36, "output": 30}
    requests = [(0.0, like), *((1.0 + 0.001 * number, like) for number in range(4))]
    plain = service(*requests, pods=2)
    aware = service(*requests, pods=2, routing=Routing.PREFIX, prefix_weight=0.6)
    for target in (plain, aware):
        target.advance(1.0035)
    assert loads(plain, 0, 1) == [2, 2]
    assert loads(aware, 0, 1) == [3, 1]


def test_replica_that_is_not_ready_gets_nothing():
    """Neither a starting nor a terminating replica gets requests."""
    for routing in Routing:
        target = service(*MANY, pods=2, routing=routing, drawn=[number / 12 for number in range(12)])
        target.add(0, ready_at_seconds=7.0)
        target.advance(0.0015)
        target.terminate(0, grace_seconds=30.0)
        before = target.load(0)
        target.advance(0.012)
        assert target.load(0) == before
        assert target.load(2) == 0


# -- users -------------------------------------------------------------------------------------------------------------


def test_user_gives_up_at_the_gateway():
    """A request that has no first token in time leaves the gateway."""
    target = service(0.0, 1.0, pods=0, patience_seconds=3.0)
    target.advance(3.5)
    assert (values(target, "state")[0], target.at_gateway) == (TIMED_OUT, 1)
    assert values(target, "finish")[0] == 3.0
    target.add(0, ready_at_seconds=3.6)
    target.advance(9.0)
    assert values(target, "state") == [TIMED_OUT, SERVED]


def test_user_gives_up_in_the_queue_and_during_the_prefill():
    """A request leaves the engine while it waits or is computed, and its blocks become free."""
    long = {"prompt": 190, "output": 10}  # three steps of 64, 64 and 62 tokens: 220 ms
    two = (0.0, long), (0.01, {"prompt": 100})
    target = service(*two, patience_seconds=0.2)
    target.advance(0.199)
    assert values(target, "state") == [RUNNING, WAITING]
    target.advance(2.0)
    assert values(target, "state") == [TIMED_OUT, TIMED_OUT]
    assert target.kv_cache_usage(0) == 0
    patient = service(*two, patience_seconds=1.0)
    patient.advance(2.0)
    assert values(patient, "state") == [SERVED, SERVED]


def test_first_token_ends_the_patience():
    """After the first token a user waits for the answer for any time."""
    target = service((0.0, {"output": 150}), patience_seconds=0.05)
    target.advance(9.0)
    assert values(target, "state") == [SERVED]
    assert values(target, "finish")[0] == pytest.approx(0.03 + 149 * 0.01)


def test_user_asks_again_after_a_moment_and_not_for_ever():
    """Each attempt has the same patience. The request ends with its last attempt."""
    target = service(0.0, pods=0, patience_seconds=2.0, attempts=3, retry_seconds=0.5)
    ends = []
    for tenth in range(1, 100):
        target.advance(tenth / 10)
        if values(target, "state")[0] == TIMED_OUT:
            ends.append(tenth / 10)
    assert ends[0] == pytest.approx(7.1)
    assert values(target, "attempts") == [3]
    assert values(target, "finish") == [7.0]


def test_answer_to_a_later_attempt_counts_from_the_first():
    """The latency of a later attempt counts from the user's first attempt."""
    target = service(0.0, pods=0, patience_seconds=2.0, attempts=2, retry_seconds=0.5)
    target.add(0, ready_at_seconds=2.2)
    target.advance(9.0)
    assert values(target, "state") == [SERVED]
    assert values(target, "first")[0] - values(target, "arrival")[0] == pytest.approx(2.53)


# -- engines that come and go ------------------------------------------------------------------------------------------


def test_engine_that_is_killed_breaks_what_it_has():
    """A killed engine fails its running and waiting requests. A new engine can use its row."""
    target = service(*MANY)
    target.advance(0.05)
    target.terminate(0, grace_seconds=0.2)
    target.advance(0.3)
    assert target.phase(0) == GONE
    assert target.ended_seconds(0) == pytest.approx(0.25)
    states = values(target, "state")
    assert set(states) == {SERVED, BROKEN}
    assert states.count(SERVED) == 4
    target.forget(0)
    assert target.add(0, ready_at_seconds=0.3) == 0
    target.advance(0.4)
    assert target.phase(0) == READY
    assert target.scrape(0) == (0.0,) * SIGNALS


def test_engine_that_drains_ends_when_its_queue_is_empty():
    """A draining engine ends exactly when its queue is empty, before the end of its grace period."""
    target = service(*MANY)
    target.advance(0.05)
    target.terminate(0, grace_seconds=30.0)
    target.advance(10.0)
    assert target.phase(0) == GONE
    assert set(values(target, "state")) == {SERVED}
    assert target.ended_seconds(0) == max(values(target, "finish"))


def test_idle_engine_ends_at_once():
    """An idle engine ends as soon as it is terminated."""
    target = service(9.0)
    target.advance(1.0)
    target.terminate(0, grace_seconds=30.0)
    assert target.phase(0) == GONE


def test_variant_may_come_later_and_be_larger():
    """Running engines go on as if the variant had been known from the start."""
    larger = replace(SMALL, num_gpu_blocks=500, block_size=16, max_num_seqs=9, max_num_batched_tokens=128)
    early, late = service(*MANY, variants=(SMALL, larger)), service(*MANY)
    for target in (early, late):
        target.advance(0.045)
    capacity = early.columns.capacity[1]
    late.add_variant(larger, capacity=capacity)
    for target in (early, late):
        target.add(1, ready_at_seconds=0.0)
        target.advance(5.0)
    for name in ("state", "finish", "engine"):
        assert values(early, name) == values(late, name)
    assert early.scrape(0) == late.scrape(0)


def test_time_at_an_engine_is_that_of_its_own_clock():
    """The time at an engine is its own clock's. An idle engine has no next event."""
    target = service(0.0)
    target.advance(20.0)
    assert target.columns.next_event[0] == inf
    assert target.columns.now[0] == 20.0


def test_those_that_end_together_end_in_order():
    """Equal answers that end at the same time end in the order of their requests."""
    target = service((0.0, {"output": 11}), *[0.0] * 3)  # the first one begins a step before the others
    target.advance(9.0)
    assert len(set(values(target, "finish"))) == 1
    row, done = int(target.columns.lists[LIST_DONE_FIRST]), []
    while row != NONE:
        done.append(row)
        row = int(target.columns.after[row])
    assert done == [0, 1, 2, 3]


def test_scrape_says_what_the_page_says():
    """A scrape has the values of the page, even inside a run of steps, in the order of a policy's signals."""
    prefixed = {"prompt": 40, "group": 0, "prefix": 36, "shared": 36, "output": 90}
    target = service(*[(at, prefixed) for at in MANY], variants=(replace(SMALL, kv_read_seconds_per_token=1e-5),))
    target.judge(ttft_seconds=0.3, itl_seconds=0.02)  # the bounds below these are 0.25 and 0.01 s
    for at in (0.3, 1.234, 2.5, 9.0):
        target.advance(at)
        page = sample(target.columns, target.handle, 0)
        sums = [(page.histograms[row].total, page.histograms[row].count) for row in range(len(page.histograms))]
        assert dict(zip(ScrapedSignal, target.scrape(0), strict=True)) == {
            ScrapedSignal.RUNNING: page.running,
            ScrapedSignal.WAITING: page.waiting,
            ScrapedSignal.KV_USAGE: page.kv_cache_usage,
            ScrapedSignal.SUCCESS: sum(page.finished.values()),
            ScrapedSignal.PROMPT_TOKENS: page.prompt_tokens,
            ScrapedSignal.GENERATION_TOKENS: page.generation_tokens,
            ScrapedSignal.PREFIX_QUERIES: page.prefix_cache_queries,
            ScrapedSignal.PREFIX_HITS: page.prefix_cache_hits,
            ScrapedSignal.PREEMPTIONS: page.preemptions,
            ScrapedSignal.TTFT_SUM: sums[TIME_TO_FIRST_TOKEN][0],
            ScrapedSignal.TTFT_COUNT: sums[TIME_TO_FIRST_TOKEN][1],
            ScrapedSignal.ITL_SUM: sums[INTER_TOKEN_LATENCY][0],
            ScrapedSignal.ITL_COUNT: sums[INTER_TOKEN_LATENCY][1],
            ScrapedSignal.REQUEST_PROMPT_SUM: sums[PROMPT_TOKENS][0],
            ScrapedSignal.REQUEST_PROMPT_COUNT: sums[PROMPT_TOKENS][1],
            ScrapedSignal.REQUEST_GENERATION_SUM: sums[GENERATION_TOKENS][0],
            ScrapedSignal.REQUEST_GENERATION_COUNT: sums[GENERATION_TOKENS][1],
            ScrapedSignal.PREFILL_SECONDS: sums[PREFILL_TIME][0],
            ScrapedSignal.TRANSFERRED: page.prompt_tokens_transferred,
            ScrapedSignal.FIRST_IN_TIME: up_to(page.histograms[TIME_TO_FIRST_TOKEN], 0.25),
            ScrapedSignal.BETWEEN_IN_TIME: up_to(page.histograms[TIME_PER_OUTPUT_TOKEN], 0.01),
        }
    assert 0 < target.scrape(0)[ScrapedSignal.FIRST_IN_TIME] < target.scrape(0)[ScrapedSignal.TTFT_COUNT]


def up_to(histogram, bound):
    """Return how many values a histogram has up to one of its bounds."""
    return histogram.cumulative[histogram.bounds.index(bound)]
