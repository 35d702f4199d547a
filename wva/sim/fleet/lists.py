"""The lists that requests are in, and the heap of an engine's decoding sequences.

A list links its requests with ``after`` and ``before``; its ends are in the columns of its owner.
"""

from __future__ import annotations

from math import inf

from wva.sim.fleet.columns import (
    LIST_DEADLINE_FIRST,
    LIST_DEADLINE_LAST,
    LIST_DONE_FIRST,
    LIST_DONE_LAST,
    NONE,
    SHAPE_SEQUENCES,
    Columns,
)
from wva.sim.fleet.compiled import compiled

# -- the queue of an engine -------------------------------------------------------------------------------------------


@compiled
def enqueue(c: Columns, e: int, i: int) -> None:
    """Put a request at the end of the queue."""
    c.before[i] = c.queue_last[e]
    c.after[i] = NONE
    if c.queue_last[e] == NONE:
        c.queue_first[e] = i
    else:
        c.after[c.queue_last[e]] = i
    c.queue_last[e] = i
    c.waiting[e] += 1


@compiled
def enqueue_first(c: Columns, e: int, i: int) -> None:
    """Put a request at the head of the queue."""
    c.after[i] = c.queue_first[e]
    c.before[i] = NONE
    if c.queue_first[e] == NONE:
        c.queue_last[e] = i
    else:
        c.before[c.queue_first[e]] = i
    c.queue_first[e] = i
    c.waiting[e] += 1


@compiled
def unqueue(c: Columns, e: int, i: int) -> None:
    """Take a request out of the queue."""
    unlink(c, i)
    if c.queue_first[e] == i:
        c.queue_first[e] = c.after[i]
    if c.queue_last[e] == i:
        c.queue_last[e] = c.before[i]
    c.waiting[e] -= 1


@compiled
def unlink(c: Columns, i: int) -> None:
    """Join the neighbours of a request in its list."""
    if c.before[i] != NONE:
        c.after[c.before[i]] = c.after[i]
    if c.after[i] != NONE:
        c.before[c.after[i]] = c.before[i]


# -- other lists ------------------------------------------------------------------------------------------------------


@compiled
def leave_prefill(c: Columns, e: int, i: int) -> None:
    """Take a sequence out of the list of those with prompt tokens to compute."""
    if c.prefill_before[i] == NONE:
        c.prefill_first[e] = c.prefill_after[i]
    else:
        c.prefill_after[c.prefill_before[i]] = c.prefill_after[i]
    if c.prefill_after[i] == NONE:
        c.prefill_last[e] = c.prefill_before[i]
    else:
        c.prefill_before[c.prefill_after[i]] = c.prefill_before[i]


@compiled
def done(c: Columns, i: int) -> None:
    """Put a request that has ended at the end of the list that its owner reads."""
    c.after[i] = NONE
    c.before[i] = NONE
    if c.lists[LIST_DONE_LAST] == NONE:
        c.lists[LIST_DONE_FIRST] = i
    else:
        c.after[c.lists[LIST_DONE_LAST]] = i
    c.lists[LIST_DONE_LAST] = i


@compiled
def forget_deadline(c: Columns, i: int) -> None:
    """Take a request out of the list of deadlines, if it is in it."""
    if c.deadline[i] == inf:
        return
    c.deadline[i] = inf
    if c.deadline_before[i] == NONE:
        c.lists[LIST_DEADLINE_FIRST] = c.deadline_after[i]
    else:
        c.deadline_after[c.deadline_before[i]] = c.deadline_after[i]
    if c.deadline_after[i] == NONE:
        c.lists[LIST_DEADLINE_LAST] = c.deadline_before[i]
    else:
        c.deadline_before[c.deadline_after[i]] = c.deadline_before[i]


# -- the heap: the sequence that ends first is on top -----------------------------------------------------------------


@compiled
def sooner(c: Columns, i: int, j: int) -> bool:
    """Tell whether ``i`` ends before ``j``; of two that end together, the one with the lower number does."""
    return c.ends[i] < c.ends[j] or (c.ends[i] == c.ends[j] and c.number[i] < c.number[j])


@compiled
def push_completion(c: Columns, e: int, i: int) -> None:
    """Put a decoding sequence into the heap."""
    c.completions[e] += 1
    sift_up(c, e, i, c.completions[e] - 1)


@compiled
def remove_completion(c: Columns, e: int, i: int) -> None:
    """Take a sequence out of the heap."""
    top = e * c.shape[SHAPE_SEQUENCES]
    c.completions[e] -= 1
    size, hole = c.completions[e], c.place[i]
    c.place[i] = NONE
    if hole == size:
        return
    moved = c.heap[top + size]
    if hole > 0 and sooner(c, moved, c.heap[top + (hole - 1) // 2]):
        sift_up(c, e, moved, hole)
    else:
        sift_down(c, e, moved, hole)


@compiled
def sift_up(c: Columns, e: int, i: int, place: int) -> None:
    """Move a sequence from a place towards the top, as far as it belongs."""
    top = e * c.shape[SHAPE_SEQUENCES]
    while place > 0:
        above = (place - 1) // 2
        j = c.heap[top + above]
        if not sooner(c, i, j):
            break
        c.heap[top + place] = j
        c.place[j] = place
        place = above
    c.heap[top + place] = i
    c.place[i] = place


@compiled
def sift_down(c: Columns, e: int, i: int, place: int) -> None:
    """Move a sequence from a place towards the bottom, as far as it belongs."""
    top, size = e * c.shape[SHAPE_SEQUENCES], c.completions[e]
    heap, ends, number, places = c.heap, c.ends, c.number, c.place
    end, own_number = ends[i], number[i]
    while True:
        below = 2 * place + 1
        if below >= size:
            break
        j = heap[top + below]
        if below + 1 < size:
            right = heap[top + below + 1]
            if ends[right] < ends[j] or (ends[right] == ends[j] and number[right] < number[j]):
                below += 1
                j = right
        if ends[j] > end or (ends[j] == end and number[j] > own_number):
            break
        heap[top + place] = j
        places[j] = place
        place = below
    heap[top + place] = i
    places[i] = place
