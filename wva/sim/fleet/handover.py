"""Prefill and decode in separate engines: how a request goes from one to the other.

The picker of the gateway chooses a decode engine first, as llm-d's does: the one with the fewest requests for its size.
A prompt that is long enough goes to the prefill engine with the least backlog, in a row of its own (``twin``) that asks
for one token; a short one is computed by the decode engine, as is every prompt while no prefill engine is Ready. The
prefill engine finishes its row with the prompt, and keeps the blocks (``kept``). The request then waits at its decode
engine until that has blocks for the whole prompt (``staged_first``), takes them, and receives the KV cache. When it is
there, the prefill engine gives its blocks back, and the decode engine computes the last token of the prompt once more
in its next step, which yields the first token. So does vLLM with its NixlConnector.

A decode engine that preempts such a sequence computes its prompt itself. A user who gives up, and a pod that ends, take
a request out of both engines. Events are those of ``gateway``, and those here: the end of a step of an engine that
computes prompts or that a staged request waits for, and the end of a transfer. Transfers do not slow each other down.

Requests of one service have nothing in common here: there is no prefix cache.
"""

from __future__ import annotations

from math import inf

from wva.sim.fleet.blocks import blocks_for, growth
from wva.sim.fleet.columns import (
    BROKEN,
    DRAINING,
    GATEWAY,
    GONE,
    KEPT,
    LIST_DEADLINE_FIRST,
    LIST_DONE_FIRST,
    LIST_DONE_LAST,
    LIST_GATEWAY_FIRST,
    LIST_TRANSFER_FIRST,
    NONE,
    PROMPTING,
    READY,
    RECEIVING,
    REFUSED,
    ROLE_PREFILL,
    RULE_CHANGE,
    RULE_LEAST_PROMPT,
    RULE_NOW,
    RULE_PATIENCE,
    RULE_TRANSFER_DELAY,
    RULE_TRANSFER_TOKEN,
    SHAPE_PODS,
    STAGED,
    STARTING,
    TIMED_OUT,
    TOTAL_BROKEN,
    TOTAL_REFUSED,
    TOTAL_TIMED_OUT,
    UPCOMING,
    WAITING,
    Columns,
)
from wva.sim.fleet.compiled import compiled, entry
from wva.sim.fleet.gateway import (
    end,
    end_attempt,
    give_up,
    leave_gateway,
    lose_patience,
    next_request,
    plan,
    set_deadline,
    take_request,
    wait,
)
from wva.sim.fleet.lists import enqueue_first, unlink, unqueue
from wva.sim.fleet.observed import steps_done, used_now
from wva.sim.fleet.steps import advance, begin_segment, computing, cut_segment, end_segment, leave_batch, submit


@entry
def run_roles(c: Columns, until: float) -> None:
    """Handle every event before ``until`` and bring all engines there. At one instant steps end last."""
    while True:
        due = c.rules[RULE_CHANGE]
        sent, request = next_request(c)
        i = c.lists[LIST_DEADLINE_FIRST]
        deadline = inf if i == NONE else c.deadline[i]
        transfer = c.lists[LIST_TRANSFER_FIRST]
        arrives = inf if transfer == NONE else c.arrives[transfer]
        step, e = next_step(c)
        at = min(due, deadline, sent, arrives, step)
        if at >= until:
            break
        c.rules[RULE_NOW] = at
        if due == at:
            change_roles(c, at)
        elif deadline == at:
            lose_patience_somewhere(c, i, at)
        elif sent == at:
            take_request(c, request)
            offer_to_roles(c, request, at)
        elif arrives == at:
            receive(c, transfer, at)
        else:
            end_step(c, e, at)
    c.rules[RULE_NOW] = until
    for k in range(c.shape[SHAPE_PODS]):
        e = c.order[k]
        if c.phase[e] != GONE:
            advance(c, e, until)
            if c.phase[e] == DRAINING and c.running[e] + c.waiting[e] + c.expected[e] + c.kept[e] == 0:
                c.phase[e] = GONE
                c.due[e] = inf
    plan(c)


# -- steps ------------------------------------------------------------------------------------------------------------


@compiled
def next_step(c: Columns) -> tuple[float, int]:
    """Return when the next step ends that a request waits for, and of which engine."""
    soonest, engine = inf, NONE
    for k in range(c.shape[SHAPE_PODS]):
        e = c.order[k]
        watched = c.role[c.variant[e]] == ROLE_PREFILL or c.staged_first[e] != NONE
        if watched and c.next_event[e] < soonest:
            soonest, engine = c.next_event[e], e
    return soonest, engine


@compiled
def end_step(c: Columns, e: int, at: float) -> None:
    """End the segment of an engine and begin the next one; hand on computed prompts, or take staged requests."""
    if c.role[c.variant[e]] != ROLE_PREFILL:
        end_segment(c, e, at)
        begin_segment(c, e, at)
        take_staged(c, e, at)
        return
    last = c.lists[LIST_DONE_LAST]
    end_segment(c, e, at)
    j = c.lists[LIST_DONE_FIRST] if last == NONE else c.after[last]
    c.lists[LIST_DONE_LAST] = last
    if last == NONE:
        c.lists[LIST_DONE_FIRST] = NONE
    else:
        c.after[last] = NONE
    while j != NONE:
        following = c.after[j]
        keep(c, e, j, at)
        j = following
    begin_segment(c, e, at)


@compiled
def prompt_blocks(c: Columns, e: int, i: int) -> int:
    """Return the blocks of the prompt of a request in an engine."""
    return blocks_for(c.prompt[i], c.block_size[c.variant[e]])


@compiled
def keep(c: Columns, e: int, j: int, at: float) -> None:
    """Keep the blocks of a prompt that has been computed, and tell its decode engine."""
    c.backlog[e] -= c.prompt[j]
    c.used[e] += prompt_blocks(c, e, j)
    c.kept[e] += 1
    c.state[j] = KEPT
    i = c.twin[j]
    d = c.engine[i]
    c.state[i] = STAGED
    c.queued[i] = at
    c.deferred[d] += 1
    c.before[i] = c.staged_last[d]
    c.after[i] = NONE
    if c.staged_last[d] == NONE:
        c.staged_first[d] = i
    else:
        c.after[c.staged_last[d]] = i
    c.staged_last[d] = i
    take_staged(c, d, at)


# -- transfers --------------------------------------------------------------------------------------------------------


@compiled
def take_staged(c: Columns, d: int, at: float) -> None:
    """Take blocks for the requests that are staged at a decode engine, in order, and begin their transfers."""
    if c.staged_first[d] == NONE or c.phase[d] == GONE:
        return
    advance(c, d, at)
    while c.staged_first[d] != NONE:
        i = c.staged_first[d]
        if not fits(c, d, i):
            return
        leave_staged(c, d, i)
        c.state[i] = RECEIVING
        c.used[d] += prompt_blocks(c, d, i)
        c.receiving[d] += 1
        c.arrives[i] = at + c.rules[RULE_TRANSFER_DELAY] + c.rules[RULE_TRANSFER_TOKEN] * c.prompt[i]
        join_transfers(c, i)
        if c.next_event[d] < inf and not computing(c, d):
            cut_segment(c, d, at)  # the segment was planned with more blocks


@compiled
def fits(c: Columns, d: int, i: int) -> bool:
    """Tell whether a decode engine has a place and blocks for a staged request: those that waited before go first."""
    v, first = c.variant[d], c.queue_first[d]
    if first != NONE and c.queued[first] <= c.queued[i]:
        return False
    if c.running[d] + c.receiving[d] >= c.max_num_seqs[v]:
        return False
    needed = prompt_blocks(c, d, i) + used_now(c, d)
    if c.running[d] + c.receiving[d] > 0:
        needed += growth(c, d, c.step[d] + steps_done(c, d) + 1, 1) + c.watermark[v]  # decoding takes its blocks first
    return needed <= c.blocks[v]


@compiled
def leave_staged(c: Columns, d: int, i: int) -> None:
    """Take a request off the list of those that wait for the blocks of a decode engine."""
    unlink(c, i)
    if c.staged_first[d] == i:
        c.staged_first[d] = c.after[i]
    if c.staged_last[d] == i:
        c.staged_last[d] = c.before[i]


@compiled
def join_transfers(c: Columns, i: int) -> None:
    """Put a request among the transfers, in the order in which they end."""
    before, following = NONE, c.lists[LIST_TRANSFER_FIRST]
    while following != NONE and c.arrives[following] <= c.arrives[i]:
        before, following = following, c.after[following]
    c.before[i], c.after[i] = before, following
    if following != NONE:
        c.before[following] = i
    if before == NONE:
        c.lists[LIST_TRANSFER_FIRST] = i
    else:
        c.after[before] = i


@compiled
def leave_transfers(c: Columns, i: int) -> None:
    """Take a request off the transfers, and give back the blocks at both ends that were for it."""
    unlink(c, i)
    if c.lists[LIST_TRANSFER_FIRST] == i:
        c.lists[LIST_TRANSFER_FIRST] = c.after[i]
    c.arrives[i] = inf
    d = c.engine[i]
    c.used[d] -= prompt_blocks(c, d, i)
    c.receiving[d] -= 1


@compiled
def receive(c: Columns, i: int, at: float) -> None:
    """End a transfer: the request joins the queue of its decode engine, before those that still need blocks."""
    d = c.engine[i]
    leave_transfers(c, i)
    let_go(c, c.twin[i], at)
    c.expected[d] -= 1
    c.deferred[d] -= 1
    advance(c, d, at)
    c.state[i] = WAITING
    c.length[i] = min(c.output[i], c.max_model_len[c.variant[d]] - c.prompt[i])
    c.generated[i] = 0
    c.preempted[i] = 0
    c.cancelled[i] = 0
    c.transferred[i] = c.prompt[i] - 1
    enqueue_first(c, d, i)
    if c.next_event[d] == inf:
        begin_segment(c, d, at)
    elif not computing(c, d):
        cut_segment(c, d, at)


@compiled
def let_go(c: Columns, j: int, at: float) -> None:
    """Give back the blocks that a prefill engine has kept; a prompt may have waited for them."""
    e = c.engine[j]
    c.used[e] -= prompt_blocks(c, e, j)
    c.kept[e] -= 1
    c.state[j] = UPCOMING
    if c.next_event[e] == inf and c.queue_first[e] != NONE and c.phase[e] != GONE:
        begin_segment(c, e, at)


# -- requests ---------------------------------------------------------------------------------------------------------


@compiled
def offer_to_roles(c: Columns, i: int, at: float) -> None:
    """Route a request, or keep it at the gateway, or refuse it."""
    c.attempts[i] += 1
    set_deadline(c, i, at + c.rules[RULE_PATIENCE])
    d = least_requests(c, at)
    if d == NONE:
        wait(c, i, at)
    else:
        dispatch(c, d, i, at)


@compiled
def least_requests(c: Columns, at: float) -> int:
    """Return the engine that decodes and has the fewest requests for its size, NONE when no pod is Ready."""
    lowest, least = inf, NONE
    for k in range(c.shape[SHAPE_PODS]):
        e = c.order[k]
        v = c.variant[e]
        if c.phase[e] != READY or c.role[v] == ROLE_PREFILL:
            continue
        if c.next_event[e] < at:
            advance(c, e, at)
        weight = (c.running[e] + c.waiting[e] + c.expected[e] + 1) / c.capacity[v]
        if weight < lowest:
            lowest, least = weight, e
    return least


@compiled
def least_backlog(c: Columns) -> int:
    """Return the prefill engine that will have computed its prompts first, NONE when no pod is Ready."""
    lowest, least = inf, NONE
    for k in range(c.shape[SHAPE_PODS]):
        e = c.order[k]
        v = c.variant[e]
        if c.phase[e] == READY and c.role[v] == ROLE_PREFILL and c.backlog[e] * c.prefill[v] < lowest:
            lowest, least = c.backlog[e] * c.prefill[v], e
    return least


@compiled
def dispatch(c: Columns, d: int, i: int, at: float) -> None:
    """Send a request to its decode engine, and its prompt to a prefill engine if that is worth it."""
    e = least_backlog(c) if c.prompt[i] >= c.rules[RULE_LEAST_PROMPT] else NONE
    if e != NONE and c.prompt[i] >= c.max_model_len[c.variant[e]]:
        e = NONE
    if c.prompt[i] >= c.max_model_len[c.variant[d]]:
        c.totals[TOTAL_REFUSED] += 1
        end(c, i, REFUSED, at)
    elif e == NONE:
        submit(c, d, i, at)
    else:
        c.state[i] = PROMPTING
        c.engine[i] = d
        c.queued[i] = at
        c.admitted[i] = inf
        c.first[i] = inf
        c.expected[d] += 1
        j = c.twin[i]
        c.prompt[j] = c.prompt[i]
        c.output[j] = 1
        c.limited[j] = 1
        c.backlog[e] += c.prompt[j]
        submit(c, e, j, at)


@compiled
def withdraw(c: Columns, i: int, at: float) -> None:
    """Take out a request whose prompt is at a prefill engine, or that is staged or being received."""
    j, d = c.twin[i], c.engine[i]
    e = c.engine[j]
    c.expected[d] -= 1
    if c.state[i] == PROMPTING:
        c.backlog[e] -= c.prompt[j]
        if c.state[j] == WAITING:
            unqueue(c, e, j)
        else:
            leave_batch(c, e, j)  # at once: it does not decode, so no step changes
        c.state[j] = UPCOMING
        return
    if c.state[i] == STAGED:
        leave_staged(c, d, i)
    else:
        leave_transfers(c, i)
    c.deferred[d] -= 1
    let_go(c, j, at)
    take_staged(c, d, at)


@compiled
def lose_patience_somewhere(c: Columns, i: int, at: float) -> None:
    """Let the user whose deadline is next give up, wherever the request is."""
    if c.state[i] == PROMPTING or c.state[i] == STAGED or c.state[i] == RECEIVING:
        withdraw(c, i, at)
        c.totals[TOTAL_TIMED_OUT] += 1
        end_attempt(c, i, TIMED_OUT, at)
        return
    d = c.engine[i]
    in_engine = c.state[i] != GATEWAY
    lose_patience(c, at)
    if in_engine:
        take_staged(c, d, at)


# -- pods -------------------------------------------------------------------------------------------------------------


@entry
def change_roles(c: Columns, at: float) -> None:
    """End the phases that are due by now, and plan the next end: STARTING becomes READY, DRAINING becomes GONE."""
    for k in range(c.shape[SHAPE_PODS]):
        e = c.order[k]
        if c.due[e] > at:
            continue
        c.due[e] = inf
        advance(c, e, at)
        if c.phase[e] == STARTING:
            c.phase[e] = READY
        else:
            c.phase[e] = GONE
            break_handovers(c, e, at)
            if c.role[c.variant[e]] != ROLE_PREFILL:
                give_up(c, e, at)
            c.next_event[e] = inf
            c.segment_start[e] = at
    plan(c)
    while c.lists[LIST_GATEWAY_FIRST] != NONE:
        d = least_requests(c, at)
        if d == NONE:
            return
        i = c.lists[LIST_GATEWAY_FIRST]
        leave_gateway(c, i)
        dispatch(c, d, i, at)


@compiled
def break_handovers(c: Columns, gone: int, at: float) -> None:
    """Fail the requests on their way between engines in which the engine ``gone`` has a part."""
    i = part_of(c, gone)
    while i != NONE:
        withdraw(c, i, at)
        c.totals[TOTAL_BROKEN] += 1
        end_attempt(c, i, BROKEN, at)
        i = part_of(c, gone)


@compiled
def part_of(c: Columns, gone: int) -> int:
    """Return a request on its way between engines of which ``gone`` is one; NONE when there is none."""
    request = part_in(c, gone, c.lists[LIST_TRANSFER_FIRST])
    for k in range(c.shape[SHAPE_PODS]):
        e = c.order[k]
        if request == NONE:
            request = part_in(c, gone, c.staged_first[e])
        if request == NONE and c.role[c.variant[e]] == ROLE_PREFILL:
            request = part_in(c, gone, c.queue_first[e])
            if request == NONE:
                request = part_in(c, gone, c.batch_first[e])
    return request


@compiled
def part_in(c: Columns, gone: int, i: int) -> int:
    """Return the first request of a list, from ``i`` on, in which ``gone`` has a part; for a prompt, the user's."""
    while i != NONE:
        if c.engine[i] == gone or c.engine[c.twin[i]] == gone:
            return c.twin[i] if c.state[c.twin[i]] == PROMPTING else i
        i = c.after[i]
    return NONE
