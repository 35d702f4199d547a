"""One engine by itself, and what its metrics page shows: the columns, with a name for each value."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate, pairwise
from math import inf
from typing import Any

from wva.sim.fleet import observed, steps
from wva.sim.fleet.columns import (
    LIST_DONE_FIRST,
    LIST_DONE_LAST,
    LONGEST_MODEL,
    NONE,
    SERVED,
    SHAPE_GROUPS,
    UPCOMING,
    Columns,
    build,
    clear_engine,
    handle,
    more_engines,
    more_requests,
    more_variants,
)
from wva.sim.fleet.counters import (
    ANSWER_BOUNDS,
    COUNT_GENERATION_TOKENS,
    COUNT_PREEMPTIONS,
    COUNT_PREFIX_HITS,
    COUNT_PREFIX_QUERIES,
    COUNT_PROMPT_CACHED,
    COUNT_PROMPT_TOKENS,
    COUNT_TRANSFERRED,
    COUNTS,
    FINISH_REASONS,
    GENERATION_TOKENS,
    HISTOGRAMS,
    TOKEN_HISTOGRAMS,
    bucket_bounds,
)
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.requests import FinishedRequest, UserRequest

_ROWS = 256
"""By how many rows the columns grow."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """A Prometheus histogram: upper bounds in rising order without ``+Inf``, cumulative counts with it, and the sum."""

    bounds: tuple[float, ...]
    cumulative: tuple[int, ...]
    total: float

    @property
    def count(self) -> int:
        """Values observed."""
        return self.cumulative[-1]


@dataclass(frozen=True, slots=True)
class EngineSample:
    """What the metrics page shows of an engine at one instant. ``histograms`` are those of ``counters``, in order.

    ``prompt_tokens_cached`` are those of ``prompt_tokens`` that a prefix cache held, and those that a prefill engine
    computed are ``prompt_tokens_transferred``. ``deferred`` are those of ``waiting`` whose KV cache is there.
    """

    running: int
    waiting: int
    kv_cache_usage: float
    finished: Mapping[str, int]
    preemptions: int
    prompt_tokens: int
    prompt_tokens_cached: int
    generation_tokens: int
    prefix_cache_queries: int
    prefix_cache_hits: int
    histograms: tuple[Histogram, ...]
    prompt_tokens_transferred: int = 0
    deferred: int = 0


def sample(c: Columns, pointer: Any, e: int) -> EngineSample:
    """Return the state of an engine at the last ``advance``, inside the current segment if there is one.

    ``pointer`` is the ``handle`` of the columns.
    """
    done, decoding = int(observed.steps_done(pointer, e)), int(c.decoding[e])
    first = e * COUNTS
    return EngineSample(
        running=int(c.running[e]),
        waiting=int(c.waiting[e] + c.deferred[e]),
        kv_cache_usage=int(observed.used_now(pointer, e)) / int(c.blocks[c.variant[e]]),
        finished={reason: int(c.counts[first + row]) for reason, row in FINISH_REASONS.items()},
        preemptions=int(c.counts[first + COUNT_PREEMPTIONS]),
        prompt_tokens=int(c.counts[first + COUNT_PROMPT_TOKENS]),
        prompt_tokens_cached=int(c.counts[first + COUNT_PROMPT_CACHED]),
        generation_tokens=int(c.counts[first + COUNT_GENERATION_TOKENS]) + done * decoding,
        prefix_cache_queries=int(c.counts[first + COUNT_PREFIX_QUERIES]),
        prefix_cache_hits=int(c.counts[first + COUNT_PREFIX_HITS]),
        histograms=_histograms(c, pointer, e, done=done if decoding else 0),
        prompt_tokens_transferred=int(c.counts[first + COUNT_TRANSFERRED]),
        deferred=int(c.deferred[e]),
    )


def _histograms(c: Columns, pointer: Any, e: int, *, done: int) -> tuple[Histogram, ...]:
    """Return the histograms, with the ``done`` steps of the segment that has not ended."""
    size = len(c.bounds) + HISTOGRAMS
    of_buckets, of_sums = slice(e * size, (e + 1) * size), slice(e * HISTOGRAMS, (e + 1) * HISTOGRAMS)
    buckets, sums = list(map(int, c.buckets[of_buckets])), list(map(float, c.sums[of_sums]))
    if done:
        saved = buckets, sums
        observed.observe_running(pointer, e, done, int(c.decoding[e]))
        buckets, sums = list(map(int, c.buckets[of_buckets])), list(map(float, c.sums[of_sums]))
        c.buckets[of_buckets], c.sums[of_sums] = saved
    longest = int(c.max_model_len[c.variant[e]])
    histograms = []
    for row, (start, bounds) in enumerate(_bounds(longest)):
        cumulative = tuple(accumulate(buckets[start : int(c.bounds_at[row + 1]) + row + 1]))
        histograms.append(Histogram(bounds, (*cumulative[: len(bounds)], cumulative[-1]), sums[row]))
    requests = histograms[GENERATION_TOKENS].count
    answers = Histogram(ANSWER_BOUNDS, (requests,) * (len(ANSWER_BOUNDS) + 1), float(requests))
    return (*histograms, answers)


def shown_bounds(longest: int) -> tuple[tuple[float, ...], ...]:
    """Return the bounds of a sample's histograms, for a model whose longest sequence is given in tokens."""
    return (*(bounds for _, bounds in _bounds(longest)), ANSWER_BOUNDS)


@cache
def _bounds(longest: int) -> tuple[tuple[int, tuple[float, ...]], ...]:
    """Return where the buckets of each histogram begin, and its bounds; those of tokens end with the model's length."""
    bounds, starts = bucket_bounds(LONGEST_MODEL)
    shown = [bounds[start:end] for start, end in pairwise(starts)]
    for row in TOKEN_HISTOGRAMS:
        shown[row] = shown[row][: bisect_right(shown[row], longest)]
    return tuple((start + row, shown[row]) for row, start in enumerate(starts[:-1]))


class DrivenEngine:
    """One engine that its owner feeds request by request. Time is what the caller says it is.

    Rows of requests are used again once their results have been read, so it can live for ever.
    """

    def __init__(self, parameters: EngineParameters, *, groups: int = 0, start_seconds: float = 0.0) -> None:
        """Start idle at ``start_seconds``; requests belong to ``groups`` groups of prompts at most."""
        self.parameters = parameters
        self.finished: list[FinishedRequest] = []
        """Requests served since the caller last emptied the list."""
        self._columns = more_engines(more_variants(build(groups=groups), parameters), 1)
        self._handle = handle(self._columns)
        clear_engine(self._columns, 0, variant=0, at_seconds=start_seconds)
        self._requests: dict[int, UserRequest] = {}  # by row
        self._rows: dict[int, int] = {}  # by number
        self._free: list[int] = []

    @property
    def now_seconds(self) -> float:
        """The time that it has reached."""
        return float(self._columns.now[0])

    @property
    def next_event_seconds(self) -> float:
        """When something changes next; infinite when idle."""
        return float(self._columns.next_event[0])

    @property
    def next_step_seconds(self) -> float:
        """When the step in progress ends; infinite when idle."""
        c = self._columns
        if self.next_event_seconds == inf:
            return inf
        step = observed.steps_done(self._handle, 0) + 1
        return float(c.segment_start[0] + observed.duration(float(c.step_seconds[0]), float(c.step_growth[0]), step))

    @property
    def running(self) -> int:
        """Sequences in the batch."""
        return int(self._columns.running[0])

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return int(self._columns.waiting[0])

    def submit(self, request: UserRequest, *, at_seconds: float) -> None:
        """Queue a request at ``at_seconds``, which must not lie before the last ``advance``.

        Raises:
            ValueError: the prompt leaves no room for an answer within ``max_model_len``, its group is unknown, or time
                went backwards.

        """
        if request.prompt_tokens >= self.parameters.max_model_len:
            raise ValueError(f"prompt of {request.prompt_tokens} tokens exceeds max_model_len")
        groups = self._columns.shape[SHAPE_GROUPS]
        if request.group is not None and not 0 <= request.group < groups:
            raise ValueError(f"group is {request.group}: expected None or a number from 0, below {groups} groups")
        self.advance(at_seconds)
        if not self._free:
            count = len(self._columns.prompt)
            self._columns = more_requests(self._columns, _ROWS)
            self._handle = handle(self._columns)
            self._free = list(range(count + _ROWS - 1, count - 1, -1))
        row = self._free.pop()
        write_request(self._columns, row, request)
        self._requests[row], self._rows[request.number] = request, row
        steps.submit(self._handle, 0, row, float(at_seconds))

    def advance(self, until_seconds: float) -> None:
        """Let time pass up to ``until_seconds``; completes what ends before it.

        Raises:
            ValueError: ``until_seconds`` lies before the last call's.

        """
        if until_seconds < self.now_seconds:
            raise ValueError(f"cannot go back from {self.now_seconds} s to {until_seconds} s")
        steps.advance(self._handle, 0, float(until_seconds))
        self._collect()

    def sample(self) -> EngineSample:
        """Return what its metrics page shows."""
        return sample(self._columns, self._handle, 0)

    def generated(self, number: int) -> int | None:
        """Return how many tokens an unfinished request has at the last ``advance``; None once it is no longer here."""
        row = self._rows.get(number)
        if row is None:
            return None
        c = self._columns
        more = 0 if c.start_step[row] == NONE else c.step[0] + observed.steps_done(self._handle, 0) - c.start_step[row]
        return int(c.generated[row] + more)

    def cancel(self, number: int) -> None:
        """Stop computing a request whose user has gone; a running one leaves with the end of the step in progress."""
        row = self._rows.get(number)
        if row is not None:
            steps.cancel(self._handle, row)
            self._collect()

    def _collect(self) -> None:
        c = self._columns
        row = int(c.lists[LIST_DONE_FIRST])
        c.lists[LIST_DONE_FIRST] = c.lists[LIST_DONE_LAST] = NONE
        while row != NONE:
            request = self._requests.pop(row)
            del self._rows[request.number]
            if c.state[row] == SERVED:
                self.finished.append(finished(c, row, request))
            self._free.append(row)
            row = int(c.after[row])


def write_request(c: Columns, i: int, request: UserRequest) -> None:
    """Fill in the row of a new request."""
    c.number[i] = request.number
    c.arrival[i] = request.arrival_seconds
    c.prompt[i] = request.prompt_tokens
    c.output[i] = request.output_tokens
    c.limited[i] = int(request.limited)
    c.group[i] = NONE if request.group is None else request.group
    c.prefix[i] = request.prefix_tokens
    c.leaves[i] = request.prefix_tokens if request.shared_tokens is None else request.shared_tokens
    c.draw[i] = request.draw
    c.state[i] = UPCOMING
    c.attempts[i] = 0


def finished(c: Columns, i: int, request: UserRequest) -> FinishedRequest:
    """Return what the user of a served request experienced."""
    first, end, tokens = float(c.first[i]), float(c.finish[i]), int(c.length[i])
    return FinishedRequest(
        request=request,
        finish_seconds=end,
        time_to_first_token_seconds=first - request.arrival_seconds,
        inter_token_latency_seconds=(end - first) / (tokens - 1) if tokens > 1 else None,
        output_tokens=tokens,
    )
