"""The KV cache of an engine, counted in blocks.

Every decoding sequence gains one token per step, so it needs a new block once per ``block_size`` steps; in which step
depends only on its remainder. The number of sequences per remainder gives the growth over any number of steps in at
most ``block_size`` additions.

The prefix that the prompts of a group have in common is in the cache once, however many sequences use it; without users
its blocks are idle: free for others, but still usable until taken.
"""

from __future__ import annotations

from wva.sim.fleet.columns import NONE, SHAPE_BLOCK, SHAPE_GROUPS, TOTAL_CACHE_USES, Columns
from wva.sim.fleet.compiled import compiled, total


@compiled
def blocks_for(tokens: int, size: int) -> int:
    """Return the blocks that hold ``tokens``."""
    return (tokens + size - 1) // size


@compiled
def growth(c: Columns, e: int, step: int, steps: int) -> int:
    """Return how many blocks the ``steps`` steps after ``step`` will take."""
    size = c.block_size[c.variant[e]]
    row = e * c.shape[SHAPE_BLOCK]
    # The sequences with the remainder ``last`` need a block next, then those with the remainders below it.
    rest, last = steps % size, -step % size
    blocks = steps // size * c.decoding[e]
    if rest <= last + 1:
        return blocks + total(c.remainders, row + last + 1 - rest, row + last + 1)
    wrapped = row + size + last + 1 - rest
    return blocks + total(c.remainders, row, row + last + 1) + total(c.remainders, wrapped, row + size)


@compiled
def next_growth(c: Columns, e: int) -> int:
    """Return how many blocks the next step will take."""
    return c.remainders[e * c.shape[SHAPE_BLOCK] + -c.step[e] % c.block_size[c.variant[e]]]


@compiled
def steps_in_blocks(c: Columns, e: int, limit: int) -> int:
    """Return how many of the next ``limit`` steps fit into the blocks that are not in use."""
    v = c.variant[e]
    size, count, free = c.block_size[v], c.decoding[e], c.blocks[v] - c.used[e]
    if free >= (limit // size + 1) * count:
        return limit
    row = e * c.shape[SHAPE_BLOCK]
    cycles = free // count
    steps = cycles * size
    if steps >= limit:
        return limit
    free -= cycles * count
    while steps < limit:
        free -= c.remainders[row + (-c.step[e] - steps) % size]
        if free < 0:
            break
        steps += 1
    return steps


# -- prefixes ---------------------------------------------------------------------------------------------------------


@compiled
def hits(c: Columns, e: int, i: int) -> int:
    """Return how many blocks of the prompt of ``i``, which has a group, are cached; the last token never counts."""
    size = c.block_size[c.variant[e]]
    cached = c.cached[e * c.shape[SHAPE_GROUPS] + c.group[i]]
    return min(cached, c.prefix[i] // size, (c.prompt[i] - 1) // size)


@compiled
def trim(c: Columns, e: int) -> None:
    """Give up the ends of prefixes in use that no sequence uses: they are kept only while there is room."""
    groups = c.shape[SHAPE_GROUPS]
    if groups == 0:
        return
    for row in range(e * groups, (e + 1) * groups):
        if c.users[row] > 0:
            c.used[e] -= c.cached[row]
            c.cached[row] = 0
    i = c.batch_first[e]
    while i != NONE:
        if c.shared[i] > 0:
            row = e * groups + c.group[i]
            more = max(0, c.shared[i] - c.cached[row])
            c.used[e] += more
            c.cached[row] += more
        i = c.after[i]


@compiled
def cut_prefix(c: Columns, e: int, i: int, blocks: int) -> None:
    """Give up the end of an idle prefix, beyond these blocks."""
    row = e * c.shape[SHAPE_GROUPS] + c.group[i]
    c.idle[e] -= c.cached[row] - blocks
    c.cached[row] = blocks


@compiled
def use_prefix(c: Columns, e: int, i: int) -> None:
    """Count one more user of the prefix of the group of ``i``."""
    row = e * c.shape[SHAPE_GROUPS] + c.group[i]
    if c.users[row] == 0:
        c.idle[e] -= c.cached[row]
        c.used[e] += c.cached[row]
    c.users[row] += 1


@compiled
def leave_prefix(c: Columns, e: int, i: int) -> None:
    """Count one user of the prefix less; without users its blocks are idle."""
    row = e * c.shape[SHAPE_GROUPS] + c.group[i]
    c.users[row] -= 1
    c.shared[i] = 0
    c.totals[TOTAL_CACHE_USES] += 1
    c.used_at[row] = c.totals[TOTAL_CACHE_USES]
    if c.users[row] == 0:
        c.used[e] -= c.cached[row]
        c.idle[e] += c.cached[row]


@compiled
def share_prefix(c: Columns, e: int, i: int) -> None:
    """Count blocks of a prompt just computed with its group, if it has more of the prefix than others computed."""
    blocks = c.leaves[i] // c.block_size[c.variant[e]]
    row = e * c.shape[SHAPE_GROUPS] + c.group[i]
    cached = c.cached[row]
    if blocks <= cached or c.shared[i] != (cached if c.users[row] > 0 else 0):
        return  # others have computed as much, or it did not begin with all cached blocks
    if c.shared[i] == 0:
        if cached > 0:  # idle, and not used by this prompt: it is replaced
            c.idle[e] -= cached
        c.users[row] += 1
    c.cached[row] = blocks
    c.shared[i] = blocks


@compiled
def evict(c: Columns, e: int) -> None:
    """Give up idle prefixes, those used longest ago first, until the blocks in use fit."""
    capacity = c.blocks[c.variant[e]]
    first = e * c.shape[SHAPE_GROUPS]
    while c.idle[e] > 0 and c.used[e] + c.idle[e] > capacity:
        oldest = NONE
        for row in range(first, first + c.shape[SHAPE_GROUPS]):
            if c.cached[row] > 0 and c.users[row] == 0 and (oldest == NONE or c.used_at[row] < c.used_at[oldest]):
                oldest = row
        c.idle[e] -= c.cached[oldest]
        c.cached[oldest] = 0
