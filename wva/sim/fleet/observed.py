"""What an engine shows of itself: histograms, and its state inside a segment."""

from __future__ import annotations

from math import inf, sqrt

from wva.sim.fleet.blocks import growth
from wva.sim.fleet.columns import Columns, Floats
from wva.sim.fleet.compiled import compiled, entry, first_not_below, total
from wva.sim.fleet.counters import (
    COUNT_CUT,
    COUNT_GENERATION_TOKENS,
    COUNT_PREEMPTIONS,
    COUNT_PREFIX_HITS,
    COUNT_PREFIX_QUERIES,
    COUNT_PROMPT_TOKENS,
    COUNT_STOPPED,
    COUNT_TRANSFERRED,
    COUNTS,
    GENERATION_TOKENS,
    HISTOGRAMS,
    INTER_TOKEN_LATENCY,
    PREFILL_TIME,
    PROMPT_TOKENS,
    STEP_TOKENS,
    TIME_PER_OUTPUT_TOKEN,
    TIME_TO_FIRST_TOKEN,
)

# -- the time of steps ------------------------------------------------------------------------------------------------


@compiled
def duration(first: float, longer: float, steps: int) -> float:
    """Return how long ``steps`` steps take if each takes ``longer`` more than the one before."""
    return steps * first + longer * (0.5 * steps * (steps - 1))


@compiled
def steps_within(first: float, longer: float, seconds: float) -> int:
    """Return how many of such steps end within ``seconds``."""
    if seconds <= 0.0:
        return 0
    if longer == 0.0:
        steps = int(seconds / first)
    else:
        lead = first - 0.5 * longer
        steps = int((sqrt(lead * lead + 2.0 * longer * seconds) - lead) / longer)
    while duration(first, longer, steps + 1) <= seconds:
        steps += 1
    while steps > 0 and duration(first, longer, steps) > seconds:
        steps -= 1
    return steps


# -- histograms -------------------------------------------------------------------------------------------------------


@compiled
def observe(c: Columns, e: int, histogram: int, value: float, weight: int) -> None:
    """Count a value ``weight`` times. A value equal to a bucket's bound belongs to it (``le``)."""
    bucket = first_not_below(c.bounds, value, c.bounds_at[histogram], c.bounds_at[histogram + 1])
    c.buckets[e * (len(c.bounds) + HISTOGRAMS) + bucket + histogram] += weight
    c.sums[e * HISTOGRAMS + histogram] += value * weight


@entry
def observe_running(c: Columns, e: int, steps: int, decoding: int) -> None:
    """Count the first ``steps`` steps of a segment that has not ended: ``decoding`` tokens each."""
    observe_steps(c, e, steps, decoding)
    observe(c, e, STEP_TOKENS, float(decoding), steps)


@compiled
def observe_steps(c: Columns, e: int, steps: int, weight: int) -> None:
    """Count the gap between tokens of each of the segment's first ``steps`` steps for ``weight`` sequences."""
    first, longer = c.step_seconds[e], c.step_growth[e]
    row = e * (len(c.bounds) + HISTOGRAMS) + INTER_TOKEN_LATENCY
    bucket, end = c.bounds_at[INTER_TOKEN_LATENCY], c.bounds_at[INTER_TOKEN_LATENCY + 1]
    counted = 0
    while counted < steps:
        value = first + longer * counted
        while bucket < end and c.bounds[bucket] < value:
            bucket += 1
        until = steps
        if bucket < end and longer > 0.0 and c.bounds[bucket] < first + longer * (steps - 1):
            until = min(steps, max(counted + 1, int((c.bounds[bucket] - first) / longer) + 1))
        c.buckets[row + bucket] += (until - counted) * weight
        counted = until
    c.sums[e * HISTOGRAMS + INTER_TOKEN_LATENCY] += duration(first, longer, steps) * weight


# -- inside a segment -------------------------------------------------------------------------------------------------


@entry
def steps_done(c: Columns, e: int) -> int:
    """Return the finished steps of the current segment; its last one ends only with the segment."""
    if c.next_event[e] == inf:
        return 0
    done = steps_within(c.step_seconds[e], c.step_growth[e], c.now[e] - c.segment_start[e])
    return max(0, min(done, c.segment_steps[e] - 1))


@entry
def used_now(c: Columns, e: int) -> int:
    """Return the blocks in use, those of the step in progress included."""
    if c.next_event[e] == inf:
        return c.used[e]
    return c.used[e] + growth(c, e, c.step[e], steps_done(c, e) + 1)


@entry
def signals(c: Columns, e: int, first: int, between: int, values: Floats) -> None:
    """Fill in what the page of an engine says, as the numbers of ``stage.view.ScrapedSignal`` in their order.

    ``first`` and ``between`` are the numbers of buckets that hold the requests in time: by their first token, and by
    the time between their tokens.
    """
    counts, sums = e * COUNTS, e * HISTOGRAMS
    decoding = c.decoding[e]
    done = steps_done(c, e) if decoding > 0 else 0
    finished = c.counts[counts + COUNT_STOPPED] + c.counts[counts + COUNT_CUT]
    running_seconds = duration(c.step_seconds[e], c.step_growth[e], done) * decoding
    values[0] = c.running[e]
    values[1] = c.waiting[e] + c.deferred[e]
    values[2] = used_now(c, e) / c.blocks[c.variant[e]]
    values[3] = finished
    values[4] = c.counts[counts + COUNT_PROMPT_TOKENS]
    values[5] = c.counts[counts + COUNT_GENERATION_TOKENS] + done * decoding
    values[6] = c.counts[counts + COUNT_PREFIX_QUERIES]
    values[7] = c.counts[counts + COUNT_PREFIX_HITS]
    values[8] = c.counts[counts + COUNT_PREEMPTIONS]
    values[9] = c.sums[sums + TIME_TO_FIRST_TOKEN]
    values[10] = values_of(c, e, TIME_TO_FIRST_TOKEN)
    values[11] = c.sums[sums + INTER_TOKEN_LATENCY] + running_seconds
    values[12] = values_of(c, e, INTER_TOKEN_LATENCY) + done * decoding
    values[13] = c.sums[sums + PROMPT_TOKENS]
    values[14] = finished
    values[15] = c.sums[sums + GENERATION_TOKENS]
    values[16] = finished
    values[17] = c.sums[sums + PREFILL_TIME]
    values[18] = c.counts[counts + COUNT_TRANSFERRED]
    values[19] = values_up_to(c, e, TIME_TO_FIRST_TOKEN, first)
    values[20] = values_up_to(c, e, TIME_PER_OUTPUT_TOKEN, between)


@compiled
def values_of(c: Columns, e: int, histogram: int) -> int:
    """Return how many values a histogram has."""
    row = e * (len(c.bounds) + HISTOGRAMS) + histogram
    return total(c.buckets, row + c.bounds_at[histogram], row + c.bounds_at[histogram + 1] + 1)


@compiled
def values_up_to(c: Columns, e: int, histogram: int, buckets: int) -> int:
    """Return how many values the first buckets of a histogram have."""
    row = e * (len(c.bounds) + HISTOGRAMS) + histogram + c.bounds_at[histogram]
    return total(c.buckets, row, row + buckets)
