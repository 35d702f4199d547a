"""The gateway of one model and its users: what happens in which order.

Events are requests that arrive or are sent again, users whose patience ends, and pods that become Ready or whose grace
period ends. They are handled in order of time; at one instant pods change first, then users give up, then requests
come. While no replica is Ready, requests wait here, which is the queue that
``inference_extension_flow_control_queue_size`` shows and that starts a model from zero; it is bounded.

A user who has no first token in time gives up: the request is taken out, and may be sent again after a moment.
The same happens when a pod ends with the request in it. A pod that is being terminated takes nothing new and finishes
what runs and what waits in it, as long as its grace period lasts.
"""

from __future__ import annotations

from math import inf
from typing import Final

from wva.sim.fleet.blocks import hits
from wva.sim.fleet.columns import (
    BROKEN,
    DRAINING,
    GATEWAY,
    GONE,
    LIST_DEADLINE_FIRST,
    LIST_DEADLINE_LAST,
    LIST_GATEWAY_FIRST,
    LIST_GATEWAY_LAST,
    LIST_GATEWAY_LENGTH,
    LIST_RETRY_FIRST,
    LIST_RETRY_LAST,
    LIST_UPCOMING_FIRST,
    LIST_UPCOMING_LAST,
    NONE,
    READY,
    REFUSED,
    RETRYING,
    ROUTING_PREFIX,
    ROUTING_RANDOM,
    ROUTING_STALE,
    RULE_ATTEMPTS,
    RULE_CHANGE,
    RULE_GATEWAY_LIMIT,
    RULE_NOW,
    RULE_PATIENCE,
    RULE_PREFIX_WEIGHT,
    RULE_RETRY_DELAY,
    RULE_ROUTING,
    RULE_VIEW_SECONDS,
    RULE_VIEWED,
    SHAPE_PODS,
    STARTING,
    TIMED_OUT,
    TOTAL_ARRIVED,
    TOTAL_BROKEN,
    TOTAL_REFUSED,
    TOTAL_RETRIED,
    TOTAL_TIMED_OUT,
    WAITING,
    Columns,
)
from wva.sim.fleet.compiled import compiled, entry
from wva.sim.fleet.lists import done, forget_deadline, unlink, unqueue
from wva.sim.fleet.steps import advance, leave_batch, submit

ANOTHER: Final = 0.6180339887498949
"""What is added to a random number for the next one: multiples of the golden ratio lie evenly in [0, 1)."""


@entry
def run(c: Columns, until: float) -> None:
    """Handle every event before ``until`` and bring all engines there."""
    while True:
        due = c.rules[RULE_CHANGE]
        sent, request = next_request(c)
        i = c.lists[LIST_DEADLINE_FIRST]
        deadline = inf if i == NONE else c.deadline[i]
        at = min(due, deadline, sent)
        if at >= until:
            break
        c.rules[RULE_NOW] = at
        if due == at:
            change(c, at)
        elif deadline == at:
            lose_patience(c, at)
        else:
            take_request(c, request)
            offer(c, request, at)
    c.rules[RULE_NOW] = until
    for k in range(c.shape[SHAPE_PODS]):
        e = c.order[k]
        if c.phase[e] != GONE:
            advance(c, e, until)
            if c.phase[e] == DRAINING and c.running[e] + c.waiting[e] == 0:
                c.phase[e] = GONE
                c.due[e] = inf
    plan(c)


# -- pods -------------------------------------------------------------------------------------------------------------


@compiled
def plan(c: Columns) -> None:
    """Note when the phase of an engine ends next."""
    due = inf
    for k in range(c.shape[SHAPE_PODS]):
        due = min(due, c.due[c.order[k]])
    c.rules[RULE_CHANGE] = due


@entry
def change(c: Columns, at: float) -> None:
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
            give_up(c, e, at)
    plan(c)
    open_gateway(c, at)


@compiled
def give_up(c: Columns, e: int, at: float) -> None:
    """Fail every request of an engine whose process ends."""
    while c.batch_first[e] != NONE:
        i = c.batch_first[e]
        leave_batch(c, e, i)
        fail(c, i, at)
    while c.queue_first[e] != NONE:
        i = c.queue_first[e]
        unqueue(c, e, i)
        fail(c, i, at)
    c.leaving[e] = 0
    c.next_event[e] = inf
    c.segment_start[e] = at


@compiled
def fail(c: Columns, i: int, at: float) -> None:
    """Tell the user of a request that its replica went away."""
    c.totals[TOTAL_BROKEN] += 1
    end_attempt(c, i, BROKEN, at)


@compiled
def open_gateway(c: Columns, at: float) -> None:
    """Hand the requests that wait at the gateway to the engines, if there are any."""
    while c.lists[LIST_GATEWAY_FIRST] != NONE:
        e = chosen(c, c.lists[LIST_GATEWAY_FIRST], at)
        if e == NONE:
            return
        i = c.lists[LIST_GATEWAY_FIRST]
        leave_gateway(c, i)
        hand_over(c, e, i, at)


# -- users ------------------------------------------------------------------------------------------------------------


@compiled
def next_request(c: Columns) -> tuple[float, int]:
    """Return when the next request is sent, for the first time or again, and which."""
    upcoming, retry = c.lists[LIST_UPCOMING_FIRST], c.lists[LIST_RETRY_FIRST]
    if upcoming != NONE and (retry == NONE or c.arrival[upcoming] <= c.again[retry]):
        return c.arrival[upcoming], upcoming
    if retry != NONE:
        return c.again[retry], retry
    return inf, NONE


@compiled
def take_request(c: Columns, i: int) -> None:
    """Take the next request out of the list of those still to come."""
    first = LIST_RETRY_FIRST if c.state[i] == RETRYING else LIST_UPCOMING_FIRST
    last = LIST_RETRY_LAST if c.state[i] == RETRYING else LIST_UPCOMING_LAST
    if c.state[i] == RETRYING:
        c.totals[TOTAL_RETRIED] += 1
    else:
        c.totals[TOTAL_ARRIVED] += 1
    c.lists[first] = c.after[i]
    if c.after[i] == NONE:
        c.lists[last] = NONE
    else:
        c.before[c.after[i]] = NONE


@compiled
def offer(c: Columns, i: int, at: float) -> None:
    """Route a request, or keep it at the gateway, or refuse it."""
    c.attempts[i] += 1
    set_deadline(c, i, at + c.rules[RULE_PATIENCE])
    e = chosen(c, i, at)
    if e != NONE:
        hand_over(c, e, i, at)
    else:
        wait(c, i, at)


@compiled
def wait(c: Columns, i: int, at: float) -> None:
    """Keep a request at the gateway, or refuse it."""
    if c.lists[LIST_GATEWAY_LENGTH] < c.rules[RULE_GATEWAY_LIMIT]:
        c.after[i] = NONE
        c.before[i] = c.lists[LIST_GATEWAY_LAST]
        if c.lists[LIST_GATEWAY_LAST] == NONE:
            c.lists[LIST_GATEWAY_FIRST] = i
        else:
            c.after[c.lists[LIST_GATEWAY_LAST]] = i
        c.lists[LIST_GATEWAY_LAST] = i
        c.lists[LIST_GATEWAY_LENGTH] += 1
        c.state[i] = GATEWAY
    else:
        c.totals[TOTAL_REFUSED] += 1
        end_attempt(c, i, REFUSED, at)


@compiled
def hand_over(c: Columns, e: int, i: int, at: float) -> None:
    """Give a request to an engine; a prompt that is too long for the model is refused for good."""
    if c.prompt[i] < c.max_model_len[c.variant[e]]:
        submit(c, e, i, at)
    else:
        c.totals[TOTAL_REFUSED] += 1
        end(c, i, REFUSED, at)


@compiled
def leave_gateway(c: Columns, i: int) -> None:
    """Take a request out of the gateway's queue."""
    unlink(c, i)
    if c.lists[LIST_GATEWAY_FIRST] == i:
        c.lists[LIST_GATEWAY_FIRST] = c.after[i]
    if c.lists[LIST_GATEWAY_LAST] == i:
        c.lists[LIST_GATEWAY_LAST] = c.before[i]
    c.lists[LIST_GATEWAY_LENGTH] -= 1


@compiled
def set_deadline(c: Columns, i: int, deadline: float) -> None:
    """Note when the user of a request gives up. All users are equally patient, so deadlines are set in order."""
    if deadline == inf:
        return
    c.deadline[i] = deadline
    last = c.lists[LIST_DEADLINE_LAST]
    if last == NONE:
        c.lists[LIST_DEADLINE_FIRST] = i
    else:
        c.deadline_after[last] = i
    c.deadline_before[i] = last
    c.deadline_after[i] = NONE
    c.lists[LIST_DEADLINE_LAST] = i


@compiled
def lose_patience(c: Columns, at: float) -> None:
    """Let the user whose deadline is next give up, unless there has been a first token."""
    i = c.lists[LIST_DEADLINE_FIRST]
    if c.state[i] == GATEWAY:
        leave_gateway(c, i)
    else:
        e = c.engine[i]
        advance(c, e, at)
        if c.first[i] < inf:  # the first token has taken the deadline off the list
            return
        if c.state[i] == WAITING:
            unqueue(c, e, i)
        else:
            leave_batch(c, e, i)  # at once: it does not decode, so no step changes
    c.totals[TOTAL_TIMED_OUT] += 1
    end_attempt(c, i, TIMED_OUT, at)


@compiled
def end_attempt(c: Columns, i: int, state: int, at: float) -> None:
    """Let the user send a request again after a moment, or end it in ``state``."""
    if c.attempts[i] >= c.rules[RULE_ATTEMPTS]:
        end(c, i, state, at)
        return
    forget_deadline(c, i)
    c.state[i] = RETRYING
    c.again[i] = at + c.rules[RULE_RETRY_DELAY]
    c.after[i] = NONE
    c.before[i] = c.lists[LIST_RETRY_LAST]
    if c.lists[LIST_RETRY_LAST] == NONE:
        c.lists[LIST_RETRY_FIRST] = i
    else:
        c.after[c.lists[LIST_RETRY_LAST]] = i
    c.lists[LIST_RETRY_LAST] = i


@compiled
def end(c: Columns, i: int, state: int, at: float) -> None:
    """End a request in ``state``, for good."""
    forget_deadline(c, i)
    c.state[i] = state
    c.finish[i] = at
    done(c, i)


# -- the router -------------------------------------------------------------------------------------------------------


@compiled
def load(c: Columns, e: int) -> float:
    """Return how loaded an engine would be with one request more, relative to what it holds at once."""
    return (c.running[e] + c.waiting[e] + 1) / c.capacity[c.variant[e]]


@compiled
def chosen(c: Columns, i: int, at: float) -> int:
    """Return the engine for a request, NONE when no pod is Ready. Of equally loaded ones it is the first."""
    routing = int(c.rules[RULE_ROUTING])
    if routing == ROUTING_RANDOM:
        return by_chance(c, lot(c, i), inf)
    if routing == ROUTING_STALE:
        look(c, at)
        return by_chance(c, lot(c, i), lowest_view(c))
    return least_loaded(c, i, at)


@compiled
def lot(c: Columns, i: int) -> float:
    """Return the random number of this attempt; a repeated attempt gets another one, for another engine."""
    return (c.draw[i] + ANOTHER * (c.attempts[i] - 1)) % 1.0


@compiled
def least_loaded(c: Columns, i: int, at: float) -> int:
    """Return the engine that will be least loaded with the request, NONE when no pod is Ready."""
    worth = c.rules[RULE_PREFIX_WEIGHT] if c.rules[RULE_ROUTING] == ROUTING_PREFIX and c.group[i] != NONE else 0.0
    order, phase, next_event, running, waiting = c.order, c.phase, c.next_event, c.running, c.waiting
    lowest, least = inf, NONE
    for k in range(c.shape[SHAPE_PODS]):
        e = order[k]
        if phase[e] != READY:
            continue
        if next_event[e] < at:
            advance(c, e, at)
        v = c.variant[e]
        weight = (running[e] + waiting[e] + 1) / c.capacity[v]
        if worth > 0.0:
            weight -= worth * (hits(c, e, i) * c.block_size[v]) / c.prompt[i]
        if weight < lowest:
            lowest, least = weight, e
    return least


@compiled
def look(c: Columns, at: float) -> None:
    """Take a new view of all Ready engines, if the last one is too old. A pod that was not in it counts as idle."""
    if at < c.rules[RULE_VIEWED] + c.rules[RULE_VIEW_SECONDS]:
        return
    c.rules[RULE_VIEWED] = at
    for k in range(c.shape[SHAPE_PODS]):
        e = c.order[k]
        if c.phase[e] == READY:
            advance(c, e, at)
            c.viewed_load[e] = (c.running[e] + c.waiting[e]) / c.capacity[c.variant[e]]


@compiled
def lowest_view(c: Columns) -> float:
    """Return the lowest load in the view."""
    lowest = inf
    for k in range(c.shape[SHAPE_PODS]):
        e = c.order[k]
        if c.phase[e] == READY:
            lowest = min(lowest, c.viewed_load[e])
    return lowest


@compiled
def by_chance(c: Columns, draw: float, most: float) -> int:
    """Return one of the Ready engines whose load in the view is at most ``most``; NONE when there is none."""
    count = 0
    for k in range(c.shape[SHAPE_PODS]):
        count += c.phase[c.order[k]] == READY and c.viewed_load[c.order[k]] <= most
    left = min(int(draw * count), count - 1)
    for k in range(c.shape[SHAPE_PODS]):
        e = c.order[k]
        if c.phase[e] == READY and c.viewed_load[e] <= most:
            if left == 0:
                return e
            left -= 1
    return NONE
