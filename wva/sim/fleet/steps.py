"""One vLLM engine with continuous batching, in virtual time and without a loop over steps.

Scheduling follows vLLM's V1 scheduler: sequences that decode go first, one token each; the rest of the step's token
budget computes prompts, the ones begun first, then waiting ones in order of arrival, as long as there is a free
slot and the KV cache holds the whole prompt. When decoding needs a block and none is free, the sequence admitted last
goes back to the head of the queue and will be computed anew; in such a step nothing is admitted. Two departures: the
blocks of a prompt are taken when it is admitted instead of chunk by chunk, and admission leaves 1% of the blocks free
(vLLM V0's watermark), without which a full cache admits and preempts the same sequence again and again.

A step takes ``alpha``, plus ``beta`` for each sequence in it, ``kv_read`` for each token in the KV cache of those that
decode, ``prefill`` for each prompt token computed, and ``attention`` for each pair of one and a token before it.

Time goes in *segments*: either one step that computes prompt tokens, or a run of steps that only decode, up to the next
completion, the next lack of blocks, or an arrival that could be admitted. In such a run each step is longer than the
one before by the same time, since each sequence has one token more. All state is changed at the end of a segment only,
and the end is a function of its start, never of how often ``advance`` was called; hence the result does not depend on
how the calls are split. ``sampled`` computes the state inside a segment without touching it.

Instants are left-limits: ``advance(t)`` completes what ends before t, so that a request submitted at t meets the same
engine whether or not it was asked at t.

Blocks. Every decoding sequence gains one token per step, so it needs a new block once per ``block_size`` steps; in
which step depends only on its remainder. The number of sequences per remainder gives the growth over any number of
steps in at most ``block_size`` additions. The prefix that the prompts of a group have in common is in the cache once,
however many sequences use it; without users its blocks are idle: free for others, but still usable until taken.
"""

from __future__ import annotations

from math import inf

from wva.sim.fleet.blocks import (
    blocks_for,
    cut_prefix,
    evict,
    growth,
    hits,
    leave_prefix,
    next_growth,
    share_prefix,
    steps_in_blocks,
    trim,
    use_prefix,
)
from wva.sim.fleet.columns import (
    NONE,
    RUNNING,
    SERVED,
    SHAPE_BLOCK,
    SHAPE_GROUPS,
    SHAPE_SEQUENCES,
    TIMED_OUT,
    WAITING,
    Columns,
)
from wva.sim.fleet.compiled import compiled, entry
from wva.sim.fleet.counters import (
    COMPUTED_TOKENS,
    COUNT_CUT,
    COUNT_GENERATION_TOKENS,
    COUNT_PREEMPTIONS,
    COUNT_PREFIX_HITS,
    COUNT_PREFIX_QUERIES,
    COUNT_PROMPT_CACHED,
    COUNT_PROMPT_TOKENS,
    COUNT_STOPPED,
    COUNT_TRANSFERRED,
    COUNTS,
    DECODE_TIME,
    E2E_LATENCY,
    GENERATION_TOKENS,
    INFERENCE_TIME,
    INTER_TOKEN_LATENCY,
    LONGEST_ANSWER,
    PREEMPTIONS,
    PREFILL_TIME,
    PROMPT_TOKENS,
    QUEUE_TIME,
    STEP_TOKENS,
    TIME_PER_OUTPUT_TOKEN,
    TIME_TO_FIRST_TOKEN,
)
from wva.sim.fleet.lists import (
    done,
    enqueue,
    enqueue_first,
    forget_deadline,
    leave_prefill,
    push_completion,
    remove_completion,
    unlink,
    unqueue,
)
from wva.sim.fleet.observed import duration, observe, observe_steps, steps_within

# -- what others call -------------------------------------------------------------------------------------------------


@entry
def submit(c: Columns, e: int, i: int, at: float) -> None:
    """Put request ``i``, whose prompt leaves room for an answer, into the queue of engine ``e``, at time ``at``."""
    if c.next_event[e] < at:
        advance(c, e, at)
    c.now[e] = at
    blocked = c.waiting[e] > 0
    c.state[i] = WAITING
    c.engine[i] = e
    c.queued[i] = at
    c.admitted[i] = inf
    c.first[i] = inf
    c.length[i] = min(c.output[i], c.max_model_len[c.variant[e]] - c.prompt[i])
    c.generated[i] = 0
    c.preempted[i] = 0
    c.cancelled[i] = 0
    c.transferred[i] = 0
    enqueue(c, e, i)
    if c.next_event[e] == inf:
        begin_segment(c, e, at)
    elif not blocked and not computing(c, e):
        cut_segment(c, e, at)


@entry
def advance(c: Columns, e: int, until: float) -> None:
    """Let time pass up to ``until``; completes what ends before it."""
    while c.next_event[e] < until:
        end = c.next_event[e]
        end_segment(c, e, end)
        begin_segment(c, e, end)
    c.now[e] = until


@entry
def cancel(c: Columns, i: int) -> None:
    """Stop computing a request whose user has gone; one in the batch leaves with the end of the step in progress."""
    e = c.engine[i]
    if c.state[i] == WAITING:
        unqueue(c, e, i)
        c.state[i] = TIMED_OUT
        done(c, i)
    elif c.state[i] == RUNNING and c.cancelled[i] == 0:
        c.cancelled[i] = 1
        c.leaving[e] += 1
        if not computing(c, e):
            cut_segment(c, e, c.now[e])


# -- segments ---------------------------------------------------------------------------------------------------------


@compiled
def computing(c: Columns, e: int) -> bool:
    """Tell whether the current segment computes prompt tokens."""
    i = c.prefill_first[e]
    return i != NONE and c.chunk[i] > 0


@compiled
def begin_segment(c: Columns, e: int, at: float) -> None:
    """Begin the next segment, or become idle."""
    c.segment_start[e] = at
    if c.decoding[e] > 0 and next_growth(c, e) > c.blocks[c.variant[e]] - c.used[e]:
        make_room(c, e)
    if c.prefill_first[e] != NONE or (c.queue_first[e] != NONE and admissible(c, e)):
        begin_prefill_step(c, e)
    elif c.running[e] > 0:
        begin_decode_run(c, e)
    else:
        c.next_event[e] = inf


@compiled
def begin_prefill_step(c: Columns, e: int) -> None:
    """Plan a step with prompt tokens: those begun first, then those that wait."""
    v = c.variant[e]
    budget = c.max_num_batched_tokens[v] - c.decoding[e]
    seconds = 0.0
    chunks = 0
    i = c.prefill_first[e]
    while budget > 0:
        if i == NONE:
            if c.queue_first[e] == NONE or not admissible(c, e):
                break
            i = admit(c, e)
        tokens = min(c.left[i], budget)
        c.chunk[i] = tokens
        computed = c.context[i] - c.left[i]
        seconds += tokens * (c.prefill[v] + c.attention[v] * (computed + 0.5 * tokens))
        chunks += 1
        budget -= tokens
        i = c.prefill_after[i]
    c.segment_steps[e] = 1
    c.step_growth[e] = 0.0
    c.step_seconds[e] = c.alpha[v] + c.beta[v] * (c.decoding[e] + chunks) + c.kv_read[v] * c.resident[e] + seconds
    c.next_event[e] = c.segment_start[e] + c.step_seconds[e]


@compiled
def begin_decode_run(c: Columns, e: int) -> None:
    """Plan steps that only decode, up to the next completion or lack of blocks."""
    v = c.variant[e]
    limit = c.ends[c.heap[e * c.shape[SHAPE_SEQUENCES]]] - c.step[e]
    c.segment_steps[e] = steps_in_blocks(c, e, limit)
    c.step_growth[e] = c.kv_read[v] * c.decoding[e]
    c.step_seconds[e] = c.alpha[v] + c.beta[v] * c.running[e] + c.kv_read[v] * c.resident[e]
    c.next_event[e] = c.segment_start[e] + duration(c.step_seconds[e], c.step_growth[e], c.segment_steps[e])


@compiled
def cut_segment(c: Columns, e: int, at: float) -> None:
    """End a run of decode steps with the step in progress."""
    elapsed = at - c.segment_start[e]
    steps = steps_within(c.step_seconds[e], c.step_growth[e], elapsed)
    if duration(c.step_seconds[e], c.step_growth[e], steps) < elapsed:
        steps += 1
    steps = max(1, steps)
    if steps < c.segment_steps[e]:
        c.segment_steps[e] = steps
        c.next_event[e] = c.segment_start[e] + duration(c.step_seconds[e], c.step_growth[e], steps)


@compiled
def end_segment(c: Columns, e: int, end: float) -> None:
    """Change the state to that after the segment."""
    steps, decoding = c.segment_steps[e], c.decoding[e]
    counts = e * COUNTS
    tokens_before = tokens_counted(c, counts)
    if decoding > 0:
        c.used[e] += growth(c, e, c.step[e], steps)
        c.resident[e] += steps * decoding
        c.counts[counts + COUNT_GENERATION_TOKENS] += steps * decoding
        observe_steps(c, e, steps, decoding)
        if c.idle[e] > 0:
            evict(c, e)
        c.step[e] += steps
        complete(c, e, end)
    else:
        c.step[e] += steps
    i = c.prefill_first[e]
    while i != NONE and c.chunk[i] > 0:
        following = c.prefill_after[i]
        c.left[i] -= c.chunk[i]
        c.chunk[i] = 0
        if c.left[i] == 0:
            leave_prefill(c, e, i)
            if c.group[i] != NONE:
                share_prefix(c, e, i)
            give_token(c, e, i, end)
        i = following
    observe(c, e, STEP_TOKENS, (tokens_counted(c, counts) - tokens_before) / steps, steps)
    if c.leaving[e] > 0:
        drop_cancelled(c, e)


@compiled
def tokens_counted(c: Columns, counts: int) -> int:
    """Return the tokens that the engine with these counters has processed: transferred tokens took no step."""
    prompts = c.counts[counts + COUNT_PROMPT_TOKENS] - c.counts[counts + COUNT_TRANSFERRED]
    return prompts + c.counts[counts + COUNT_GENERATION_TOKENS]


@compiled
def drop_cancelled(c: Columns, e: int) -> None:
    """Take out of the batch the sequences whose users have gone; some may have finished in the meantime."""
    i = c.batch_first[e]
    while i != NONE:
        following = c.after[i]
        if c.cancelled[i] == 1:
            leave_batch(c, e, i)
            c.state[i] = TIMED_OUT
            done(c, i)
        i = following
    c.leaving[e] = 0


@compiled
def make_room(c: Columns, e: int) -> None:
    """Preempt until the next step's growth fits into the blocks.

    The sequence preempted last heads the queue and needs at least the blocks that it just gave up, which are still
    lacking. So it is not admissible in the same step, and nothing else is.
    """
    trim(c, e)
    while next_growth(c, e) > c.blocks[c.variant[e]] - c.used[e]:
        i = c.batch_last[e]
        c.counts[e * COUNTS + COUNT_PREEMPTIONS] += 1
        c.preempted[i] += 1
        if c.start_step[i] != NONE:
            c.last[i] = c.segment_start[e]
            generated = c.generated[i] + c.step[e] - c.start_step[i]
        else:
            generated = c.generated[i]
        leave_batch(c, e, i)
        c.generated[i] = generated
        c.transferred[i] = 0  # what a prefill engine computed is gone, too
        c.state[i] = WAITING
        enqueue_first(c, e, i)


# -- sequences --------------------------------------------------------------------------------------------------------


@compiled
def admissible(c: Columns, e: int) -> bool:
    """Tell whether the first request of the queue, which is not empty, may join the batch."""
    i = c.queue_first[e]
    v = c.variant[e]
    if c.running[e] >= c.max_num_seqs[v]:
        return False
    if lacking(c, e, i) <= 0:
        return True
    trim(c, e)  # also the prefix of this one, when its users use less of it
    if lacking(c, e, i) > 0 and c.group[i] != NONE and c.users[e * c.shape[SHAPE_GROUPS] + c.group[i]] == 0:
        hit_blocks = hits(c, e, i)
        if hit_blocks > 0:
            cut_prefix(c, e, i, hit_blocks)
    return lacking(c, e, i) <= 0


@compiled
def lacking(c: Columns, e: int, i: int) -> int:
    """Return how many blocks the first request of the queue lacks to join the batch; none if it is not above 0."""
    v = c.variant[e]
    hit_blocks = hits(c, e, i) if c.group[i] != NONE else 0
    needed = blocks_for(c.prompt[i] + c.generated[i], c.block_size[v]) - hit_blocks
    if hit_blocks > 0:
        needed += idle_prefix(c, e, i)
    if c.running[e] > 0:
        needed += next_growth(c, e) + c.watermark[v]  # decoding takes its blocks first
    return needed + c.used[e] - c.blocks[v]


@compiled
def idle_prefix(c: Columns, e: int, i: int) -> int:
    """Return how many blocks come into use with the prefix of ``i``: none, if others use it already."""
    row = e * c.shape[SHAPE_GROUPS] + c.group[i]
    return 0 if c.users[row] > 0 else c.cached[row]


@compiled
def admit(c: Columns, e: int) -> int:
    """Move the first request of the queue into the batch and return it."""
    i = c.queue_first[e]
    v = c.variant[e]
    unqueue(c, e, i)
    c.state[i] = RUNNING
    c.context[i] = c.prompt[i] + c.generated[i]
    hit_blocks = hits(c, e, i) if c.group[i] != NONE else 0
    c.left[i] = c.context[i] - hit_blocks * c.block_size[v] - c.transferred[i]
    c.shared[i] = hit_blocks
    c.used[e] += blocks_for(c.context[i], c.block_size[v]) - hit_blocks
    if hit_blocks > 0:
        use_prefix(c, e, i)
    if c.idle[e] > 0:
        evict(c, e)
    if c.admitted[i] == inf:
        c.admitted[i] = c.segment_start[e]
        c.found[i] = hit_blocks * c.block_size[v]
        c.counts[e * COUNTS + COUNT_PREFIX_QUERIES] += c.prompt[i]
        c.counts[e * COUNTS + COUNT_PREFIX_HITS] += c.found[i]
    c.before[i] = c.batch_last[e]
    c.after[i] = NONE
    if c.batch_last[e] == NONE:
        c.batch_first[e] = i
    else:
        c.after[c.batch_last[e]] = i
    c.batch_last[e] = i
    c.running[e] += 1
    c.prefill_before[i] = c.prefill_last[e]
    c.prefill_after[i] = NONE
    if c.prefill_last[e] == NONE:
        c.prefill_first[e] = i
    else:
        c.prefill_after[c.prefill_last[e]] = i
    c.prefill_last[e] = i
    return i


@compiled
def give_token(c: Columns, e: int, i: int, at: float) -> None:
    """End a prefill: it yields one token, the first or the next one after a preemption."""
    c.generated[i] += 1
    c.counts[e * COUNTS + COUNT_GENERATION_TOKENS] += 1
    if c.first[i] == inf:
        c.first[i] = at
        forget_deadline(c, i)
        c.counts[e * COUNTS + COUNT_PROMPT_TOKENS] += c.prompt[i]
        c.counts[e * COUNTS + COUNT_PROMPT_CACHED] += c.found[i]
        c.counts[e * COUNTS + COUNT_TRANSFERRED] += c.transferred[i]
        observe(c, e, TIME_TO_FIRST_TOKEN, at - c.queued[i], 1)
    else:
        observe(c, e, INTER_TOKEN_LATENCY, at - c.last[i], 1)
    if c.generated[i] >= c.length[i]:
        finish(c, e, i, at)
        return
    c.start_step[i] = c.step[e]
    c.ends[i] = c.step[e] + c.length[i] - c.generated[i]
    size = c.block_size[c.variant[e]]
    c.remainders[e * c.shape[SHAPE_BLOCK] + (c.context[i] - c.step[e]) % size] += 1
    c.decoding[e] += 1
    c.resident[e] += c.context[i] + 1
    push_completion(c, e, i)


@compiled
def complete(c: Columns, e: int, at: float) -> None:
    """Finish the sequences that have all their tokens."""
    top = e * c.shape[SHAPE_SEQUENCES]
    while c.completions[e] > 0 and c.ends[c.heap[top]] <= c.step[e]:
        finish(c, e, c.heap[top], at)


@compiled
def finish(c: Columns, e: int, i: int, at: float) -> None:
    """Take a sequence that has all its tokens out of the batch."""
    leave_batch(c, e, i)
    c.state[i] = SERVED
    c.finish[i] = at
    cut = c.limited[i] == 1 or c.length[i] < c.output[i]
    c.counts[e * COUNTS + (COUNT_CUT if cut else COUNT_STOPPED)] += 1
    observe(c, e, E2E_LATENCY, at - c.queued[i], 1)
    observe(c, e, QUEUE_TIME, c.admitted[i] - c.queued[i], 1)
    observe(c, e, PREFILL_TIME, c.first[i] - c.admitted[i], 1)
    observe(c, e, DECODE_TIME, at - c.first[i], 1)
    observe(c, e, INFERENCE_TIME, at - c.admitted[i], 1)
    observe(c, e, TIME_PER_OUTPUT_TOKEN, (at - c.first[i]) / max(1, c.length[i] - 1), 1)
    observe(c, e, PROMPT_TOKENS, float(c.prompt[i]), 1)
    observe(c, e, COMPUTED_TOKENS, float(c.prompt[i] - c.found[i] - c.transferred[i]), 1)
    observe(c, e, GENERATION_TOKENS, float(c.length[i]), 1)
    longest = c.length[i] if cut else c.max_model_len[c.variant[e]] - c.prompt[i]
    observe(c, e, LONGEST_ANSWER, float(longest), 1)
    observe(c, e, PREEMPTIONS, float(c.preempted[i]), 1)
    done(c, i)


@compiled
def leave_batch(c: Columns, e: int, i: int) -> None:
    """Take a sequence out of the batch and free its blocks."""
    v = c.variant[e]
    held_tokens = c.context[i]
    if c.start_step[i] != NONE:
        held_tokens += c.step[e] - c.start_step[i]
        c.remainders[e * c.shape[SHAPE_BLOCK] + (c.context[i] - c.start_step[i]) % c.block_size[v]] -= 1
        c.decoding[e] -= 1
        c.resident[e] -= held_tokens + 1
        remove_completion(c, e, i)
        c.start_step[i] = NONE
    elif c.left[i] > 0:
        leave_prefill(c, e, i)
        c.chunk[i] = 0
        c.left[i] = 0
    c.used[e] -= blocks_for(held_tokens, c.block_size[v]) - c.shared[i]
    if c.shared[i] > 0:
        leave_prefix(c, e, i)
    unlink(c, i)
    if c.batch_first[e] == i:
        c.batch_first[e] = c.after[i]
    if c.batch_last[e] == i:
        c.batch_last[e] = c.before[i]
    c.running[e] -= 1
    c.engine[i] = e
