"""Requests, blocks and tokens are conserved for any traffic and any changes of pods."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.sim.fleet.services import SMALL, service, values
from wva.model.records import replace
from wva.sim.fleet.columns import (
    BROKEN,
    DRAINING,
    GATEWAY,
    GONE,
    NONE,
    READY,
    REFUSED,
    RETRYING,
    RUNNING,
    SERVED,
    TIMED_OUT,
    TOTAL_ARRIVED,
    TOTAL_BROKEN,
    TOTAL_RETRIED,
    UPCOMING,
    WAITING,
)
from wva.sim.fleet.counters import COUNT_GENERATION_TOKENS, COUNT_PROMPT_TOKENS, COUNTS
from wva.sim.fleet.observed import steps_done
from wva.sim.fleet.users import Routing

COSTLY = replace(SMALL, kv_read_seconds_per_token=1.37e-5, attention_seconds_per_token_pair=2.9e-6)
OTHER = replace(SMALL, num_gpu_blocks=60, block_size=5, max_num_seqs=7, beta_seconds_per_sequence=0.00131)
TIGHT = replace(SMALL, num_gpu_blocks=50, block_size=4, max_num_seqs=12)
VARIANTS = (COSTLY, OTHER, TIGHT)

requests = st.lists(
    st.tuples(
        st.floats(0.0001, 0.2),
        st.integers(1, 120) | st.just(205),  # the last one is too long for the model
        st.integers(1, 80),
        st.integers(-1, 3),
        st.floats(0, 1),
        st.floats(0, 0.99),
    ),
    min_size=1,
    max_size=60,
)
events = st.lists(st.tuples(st.floats(0.0, 1.5), st.integers(0, 2), st.booleans(), st.floats(0, 1)), max_size=8)
settings = st.fixed_dictionaries(
    {
        "routing": st.sampled_from(Routing),
        "patience_seconds": st.sampled_from([0.3, 2.0, float("inf")]),
        "attempts": st.integers(1, 3),
        "retry_seconds": st.sampled_from([0.0, 0.37]),
        "queue_limit": st.sampled_from([0, 3, 1000]),
        "view_seconds": st.just(0.4),
        "prefix_weight": st.just(0.5),
    }
)


def made(rows, **more):
    """Return a service for these requests, with one pod of each variant."""
    at, given = 0.0, []
    for gap, prompt, output, group, share, _ in rows:
        at += gap * 1.0000711
        shared = int(prompt * share) if group >= 0 else 0
        given.append((at, {"prompt": prompt, "output": output, "group": group, "prefix": shared, "shared": shared}))
    target = service(*given, pods=0, variants=VARIANTS, drawn=[row[5] for row in rows], **more)
    for variant in range(len(VARIANTS)):
        target.add(variant, ready_at_seconds=0.1 * variant)
    return target


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


def check_requests(target):
    """Check that requests in = served + failed + waiting + running + at the gateway + retrying."""
    c, states = target.columns, values(target, "state")
    alive = [row for row in rows_of(target) if target.phase(row) != GONE]
    assert sum(state != UPCOMING for state in states) == c.totals[TOTAL_ARRIVED]
    assert states.count(WAITING) == sum(c.waiting[row] for row in alive)
    assert states.count(RUNNING) == sum(c.running[row] for row in alive)
    assert states.count(GATEWAY) == target.at_gateway
    known = (UPCOMING, GATEWAY, WAITING, RUNNING, RETRYING, SERVED, REFUSED, TIMED_OUT, BROKEN)
    assert set(states) <= set(known)
    assert sum(values(target, "attempts")) == c.totals[TOTAL_ARRIVED] + c.totals[TOTAL_RETRIED]


def check_blocks(target):
    """Check that blocks in use = those of the sequences in the batch, shared ones once, and that all fit."""
    c, states, groups = target.columns, values(target, "state"), target.columns.shape[3]
    for e in rows_of(target):
        inside = [i for i, state in enumerate(states) if state == RUNNING and c.engine[i] == e]
        if target.phase(e) == GONE:
            assert not inside
            continue
        size, blocks = c.block_size[c.variant[e]], c.blocks[c.variant[e]]
        users, own, decoding = [0] * groups, 0, 0
        for i in inside:
            held = c.context[i]
            if c.start_step[i] != NONE:
                held += c.step[e] - c.start_step[i]
                decoding += 1
            own += -(-held // size) - c.shared[i]
            if c.shared[i]:
                users[c.group[i]] += 1
                assert c.shared[i] <= c.cached[e * groups + c.group[i]]
        rows = range(e * groups, (e + 1) * groups)
        assert users == [c.users[row] for row in rows]
        assert c.used[e] == own + sum(c.cached[row] for row in rows if c.users[row])
        assert c.idle[e] == sum(c.cached[row] for row in rows if not c.users[row])
        assert c.decoding[e] == decoding == c.completions[e]
        assert c.used[e] >= 0
        assert c.used[e] + c.idle[e] <= blocks
        assert 0 <= target.kv_cache_usage(e) <= 1


def check_tokens(target):
    """Check that tokens generated = those of answers and of what runs; without killed attempts none is lost."""
    c, states = target.columns, values(target, "state")
    counted = {e: c.counts[e * COUNTS + COUNT_GENERATION_TOKENS] for e in rows_of(target)}
    for e in rows_of(target):
        counted[e] += steps_done(target.handle, e) * c.decoding[e]
    answers = sum(c.length[i] for i, state in enumerate(states) if state == SERVED)
    so_far = 0
    for i, state in enumerate(states):
        if state in {RUNNING, WAITING}:
            e = c.engine[i]
            so_far += c.generated[i]
            if c.start_step[i] != NONE:
                so_far += c.step[e] + steps_done(target.handle, e) - c.start_step[i]
    if c.totals[TOTAL_BROKEN] == 0:
        assert sum(counted.values()) == answers + so_far
    else:
        assert sum(counted.values()) >= answers + so_far
    prompts = sum(c.prompt[i] for i, state in enumerate(states) if state == SERVED)
    assert sum(c.counts[e * COUNTS + COUNT_PROMPT_TOKENS] for e in rows_of(target)) >= prompts


@given(rows=requests, events=events, settings=settings)
def test_requests_tokens_and_blocks_are_conserved(rows, events, settings):
    """The sums hold after every change of pods, and at the end."""
    target = made(rows, **settings)
    now = 0.0
    for pause, variant, add, delay in [*events, (3.0, 0, True, 0.0), (500.0, 0, True, 0.0)]:
        now += pause
        target.advance(now)
        for check in (check_requests, check_blocks, check_tokens):
            check(target)
        change(target, variant, add=add, delay=delay)
    ends = {SERVED, REFUSED, TIMED_OUT, BROKEN}
    assert set(values(target, "state")) <= ends
    for i, state in enumerate(values(target, "state")):
        if state == SERVED:
            assert target.columns.arrival[i] < target.columns.first[i] <= target.columns.finish[i]


@given(rows=requests, events=events, settings=settings, looks=st.lists(st.floats(0, 12), max_size=12))
def test_result_does_not_depend_on_who_looks_when(rows, events, settings, looks):
    """For any division of time, requests end in the same way at the same time, and pages are the same."""
    plain, watched = made(rows, **settings), made(rows, **settings)
    now = 0.0
    for pause, variant, add, delay in [*events, (10.0, 0, True, 0.0)]:
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


@given(rows=requests, events=events)
def test_pods_cost_until_they_have_nothing_to_do(rows, events):
    """GPU time of a terminated pod ends with its last work, at the latest with its grace period."""
    target = made(rows)
    now, terminated = 0.0, {}
    for pause, variant, _, delay in events:
        now += pause
        target.advance(now)
        before = {row for row in rows_of(target) if target.phase(row) == READY}
        change(target, variant, add=False, delay=delay)
        for row in before - {row for row in rows_of(target) if target.phase(row) == READY}:
            terminated[row] = (now, now + delay)
            assert target.phase(row) in {DRAINING, GONE}
    target.advance(now + 2.0)
    for row, (asked, killed) in terminated.items():
        assert target.phase(row) == GONE
        assert target.ended_seconds(row) <= killed
        finished = [target.columns.finish[i] for i, e in enumerate(values(target, "engine")) if e == row]
        assert max([asked, target.ended_seconds(row)]) >= max((at for at in finished if at <= killed), default=0.0)
