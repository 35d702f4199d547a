"""One vLLM engine with continuous batching, in virtual time and without a loop over steps.

In: requests, submitted in order of time. Out: finished requests, counters, and a sample of what the metrics page shows.

Scheduling follows vLLM's V1 scheduler: sequences that decode go first, one token each; the rest of the step's token
budget computes prompts, the ones begun first, then waiting ones in order of arrival, as long as there is a free
slot and the KV cache holds the whole prompt. When decoding needs a block and none is free, the sequence admitted last
goes back to the head of the queue and will be computed anew; in such a step nothing is admitted. Two departures: the
blocks of a prompt are taken when it is admitted instead of chunk by chunk, and admission leaves 1% of the blocks free
(vLLM V0's watermark), without which a full cache admits and preempts the same sequence again and again.

Time goes in *segments*: either one step that computes prompt tokens, or a run of equal steps that only decode, up to
the next completion, the next lack of blocks, or an arrival that could be admitted. All state is changed at the end of a
segment only, and the end is a function of its start, never of how often ``advance`` was called; hence the result does
not depend on how the calls are split. ``sample`` computes the state inside a segment without touching it.

Instants are left-limits: ``advance(t)`` completes what ends before t, so that a request submitted at t meets the same
engine whether or not it was asked at t.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil, inf
from typing import Final

from wva.sim.fleet.counters import EngineCounters
from wva.sim.fleet.histogram import Histogram
from wva.sim.fleet.kv_blocks import KvBlocks
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.requests import FinishedRequest, Request, Sequence

WATERMARK: Final = 0.01
"""Share of the KV blocks that admission leaves free."""


@dataclass(frozen=True, slots=True)
class EngineSample:
    """What the metrics page shows of an engine at one instant."""

    running: int
    waiting: int
    kv_cache_usage: float
    generation_tokens: int
    inter_token_latency: Histogram


class Engine:
    """One engine. Owns its sequences; time is what the caller says it is."""

    def __init__(self, parameters: EngineParameters, *, start_seconds: float = 0.0) -> None:
        """Start idle at ``start_seconds``."""
        self.parameters = parameters
        self.counters = EngineCounters(max_model_len=parameters.max_model_len)
        self.finished: list[FinishedRequest] = []
        """Served since the caller last emptied it."""
        self.now_seconds = start_seconds
        self.next_event_seconds = inf
        """End of the current segment; infinite when idle. Until then nothing changes that a router looks at."""
        self._blocks = KvBlocks(parameters.num_gpu_blocks, block_size=parameters.block_size)
        self._watermark_blocks = int(parameters.num_gpu_blocks * WATERMARK)
        self._waiting: deque[Sequence] = deque()
        self._running: dict[int, Sequence] = {}  # in order of admission; keyed by request number
        self._prefilling: deque[Sequence] = deque()  # those of _running that have prompt tokens to compute
        self._completions: list[tuple[int, int]] = []  # heap of (finish step, request number); stale after preemption
        self._step = 0
        self._segment_start_seconds = start_seconds
        self._segment_steps = 0
        self._step_seconds = 0.0
        self._chunks: list[tuple[Sequence, int]] = []  # prompt tokens the current segment computes
        self._cancelled: set[int] = set()  # request numbers that leave with the current segment

    @property
    def running(self) -> int:
        """Sequences admitted."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def unfinished(self) -> int:
        """Requests in the queue or running."""
        return len(self._running) + len(self._waiting)

    def submit(self, request: Request, *, at_seconds: float) -> None:
        """Queue a request at ``at_seconds``, which must not lie before the last ``advance``.

        Raises:
            ValueError: the prompt leaves no room for an answer within ``max_model_len``, or time went backwards.

        """
        room = self.parameters.max_model_len - request.prompt_tokens
        if room < 1:
            raise ValueError(f"prompt of {request.prompt_tokens} tokens exceeds max_model_len")
        self.advance(at_seconds)
        self.counters.submitted += 1
        blocked = bool(self._waiting)
        self._waiting.append(Sequence(request, at_seconds, output_tokens=min(request.output_tokens, room)))
        if self.next_event_seconds == inf:
            self._begin_segment(at_seconds)
        elif not blocked and not self._chunks:
            self._cut_segment(at_seconds)

    def advance(self, until_seconds: float) -> None:
        """Let time pass up to ``until_seconds``; completes what ends before it.

        Raises:
            ValueError: ``until_seconds`` lies before the last call's.

        """
        if until_seconds < self.now_seconds:
            raise ValueError(f"cannot go back from {self.now_seconds} s to {until_seconds} s")
        while self.next_event_seconds < until_seconds:
            end_seconds = self.next_event_seconds
            self._end_segment(end_seconds)
            self._begin_segment(end_seconds)
        self.now_seconds = until_seconds

    def sample(self) -> EngineSample:
        """Return the state at the last ``advance``, inside the current segment if there is one."""
        counters = self.counters
        latencies = counters.inter_token_latency.copy()
        done, used = self._steps_done(), self._blocks.used
        if self.next_event_seconds != inf:
            used += self._blocks.growth(self._step, steps=done + 1)
            if done and self._blocks.decoding:
                latencies.observe(self._step_seconds, weight=done * self._blocks.decoding)
        return EngineSample(
            running=len(self._running),
            waiting=len(self._waiting),
            kv_cache_usage=used / self._blocks.total,
            generation_tokens=counters.generation_tokens + done * self._blocks.decoding,
            inter_token_latency=latencies,
        )

    def generated(self, number: int) -> int | None:
        """Return how many tokens an unfinished request has at the last ``advance``; None once it is no longer here."""
        sequence = self._running.get(number)
        if sequence is None:
            return next((waiting.generated for waiting in self._waiting if waiting.request.number == number), None)
        if not sequence.decoding:
            return sequence.generated
        return sequence.generated + self._step + self._steps_done() - sequence.start_step

    def cancel(self, number: int) -> None:
        """Stop computing a request whose user has gone; a running one leaves with the end of the step in progress."""
        waiting = [sequence for sequence in self._waiting if sequence.request.number != number]
        if len(waiting) < len(self._waiting):
            self._waiting = deque(waiting)
            self.counters.finished["abort"] += 1
        elif number in self._running:
            self._cancelled.add(number)
            if not self._chunks:
                self._cut_segment(self.now_seconds)

    def take_waiting(self) -> list[Request]:
        """Give up the requests that never ran here, in order: another replica may serve them."""
        untouched = [sequence.request for sequence in self._waiting if sequence.admitted_seconds is None]
        self._waiting = deque(sequence for sequence in self._waiting if sequence.admitted_seconds is not None)
        return untouched

    def abort(self) -> list[Request]:
        """Stop at once and give up everything unfinished, in order of admission and then of the queue."""
        unfinished = [sequence.request for sequence in (*self._running.values(), *self._waiting)]
        self.counters.finished["abort"] += len(unfinished)
        self._running.clear()
        self._waiting.clear()
        self._prefilling.clear()
        self._completions.clear()
        self._chunks = []
        self._cancelled.clear()
        self._blocks = KvBlocks(self.parameters.num_gpu_blocks, block_size=self.parameters.block_size)
        self.next_event_seconds = inf
        return unfinished

    # -- segments ---------------------------------------------------------------------------------------------------

    def _begin_segment(self, start_seconds: float) -> None:
        self._segment_start_seconds = start_seconds
        self._make_room()
        if self._prefilling or (self._waiting and self._admissible(self._waiting[0])):
            self._begin_prefill_step()
        elif self._running:
            self._begin_decode_run()
        else:
            self.next_event_seconds = inf

    def _begin_prefill_step(self) -> None:
        parameters = self.parameters
        decoding = self._blocks.decoding
        budget = parameters.max_num_batched_tokens - decoding
        chunks = []
        for sequence in self._prefilling:
            chunk = min(sequence.prefill_remaining, budget)
            if chunk <= 0:
                break
            chunks.append((sequence, chunk))
            budget -= chunk
        while budget > 0 and self._waiting and self._admissible(self._waiting[0]):
            sequence = self._admit(self._waiting.popleft())
            chunk = min(sequence.prefill_remaining, budget)
            chunks.append((sequence, chunk))
            budget -= chunk
        computed = parameters.max_num_batched_tokens - decoding - budget
        self._chunks = chunks
        self._segment_steps = 1
        self._step_seconds = (
            parameters.alpha_seconds
            + parameters.beta_seconds_per_sequence * (decoding + len(chunks))
            + parameters.prefill_seconds_per_token * computed
        )
        self.next_event_seconds = self._segment_start_seconds + self._step_seconds

    def _begin_decode_run(self) -> None:
        parameters = self.parameters
        self._segment_steps = self._blocks.steps_within(self._step, limit=self._next_completion_step() - self._step)
        self._step_seconds = parameters.alpha_seconds + parameters.beta_seconds_per_sequence * len(self._running)
        self.next_event_seconds = self._segment_start_seconds + self._segment_steps * self._step_seconds

    def _cut_segment(self, at_seconds: float) -> None:
        """End a run of decode steps with the step in progress, since a request waits that may be admitted."""
        steps = max(1, ceil((at_seconds - self._segment_start_seconds) / self._step_seconds))
        if steps < self._segment_steps:
            self._segment_steps = steps
            self.next_event_seconds = self._segment_start_seconds + steps * self._step_seconds

    def _end_segment(self, end_seconds: float) -> None:
        steps, blocks = self._segment_steps, self._blocks
        self.counters.steps += steps
        if blocks.decoding:
            tokens = steps * blocks.decoding
            blocks.used += blocks.growth(self._step, steps=steps)
            self.counters.generation_tokens += tokens
            self.counters.inter_token_latency.observe(self._step_seconds, weight=tokens)
        self._step += steps
        self._complete(end_seconds)
        if self._chunks:
            chunks, self._chunks = self._chunks, []
            for sequence, chunk in chunks:
                sequence.prefill_remaining -= chunk
                if not sequence.prefill_remaining:
                    self._prefilling.popleft()  # prompts are computed in order, so the first one ends first
                    self._give_token(sequence, end_seconds)
        for number in self._cancelled:
            self._drop(number)
        self._cancelled.clear()

    def _steps_done(self) -> int:
        """Return the finished steps of the current segment; its last one ends only with the segment."""
        if self.next_event_seconds == inf:
            return 0
        elapsed = self.now_seconds - self._segment_start_seconds
        return max(0, min(int(elapsed / self._step_seconds), self._segment_steps - 1))

    def _drop(self, number: int) -> None:
        """Take a running sequence out and free its blocks; it may have finished in the meantime."""
        sequence = self._running.pop(number, None)
        if sequence is None:
            return
        held_tokens = sequence.prefill_tokens
        if sequence.decoding:
            held_tokens += self._step - sequence.start_step
            self._blocks.stop_decoding(sequence.prefill_tokens - sequence.start_step)
        else:
            self._prefilling.remove(sequence)
        self._blocks.release(held_tokens)
        self.counters.finished["abort"] += 1

    # -- sequences --------------------------------------------------------------------------------------------------

    def _admissible(self, sequence: Sequence) -> bool:
        if len(self._running) >= self.parameters.max_num_seqs:
            return False
        blocks = self._blocks
        needed = blocks.blocks_for(sequence.request.prompt_tokens + sequence.generated)
        if self._running:
            needed += blocks.growth(self._step, steps=1) + self._watermark_blocks  # decoding takes its blocks first
        return needed <= blocks.free

    def _admit(self, sequence: Sequence) -> Sequence:
        request = sequence.request
        sequence.prefill_tokens = request.prompt_tokens + sequence.generated
        cached = min(request.cached_prompt_tokens, sequence.prefill_tokens - 1)  # the last token is always computed
        sequence.prefill_remaining = sequence.prefill_tokens - cached
        self._blocks.reserve(sequence.prefill_tokens)
        if sequence.admitted_seconds is None:
            sequence.admitted_seconds = self._segment_start_seconds
            self.counters.count_admission(sequence)
        self._running[request.number] = sequence
        self._prefilling.append(sequence)
        return sequence

    def _give_token(self, sequence: Sequence, at_seconds: float) -> None:
        """End a prefill: it yields one token, the first or the next one after a preemption."""
        sequence.generated += 1
        self.counters.generation_tokens += 1
        if sequence.first_token_seconds is None:
            sequence.first_token_seconds = at_seconds
            self.counters.count_first_token(sequence, at_seconds=at_seconds)
        else:
            self.counters.inter_token_latency.observe(at_seconds - sequence.last_token_seconds)
        if sequence.generated >= sequence.output_tokens:
            self._finish(sequence, at_seconds)
            return
        sequence.start_step = self._step
        sequence.finish_step = self._step + sequence.output_tokens - sequence.generated
        sequence.decoding = True
        self._blocks.start_decoding(sequence.prefill_tokens - self._step)
        heappush(self._completions, (sequence.finish_step, sequence.request.number))

    def _next_completion_step(self) -> int:
        completions, running = self._completions, self._running
        while True:
            step, number = completions[0]
            sequence = running.get(number)
            if sequence is not None and sequence.decoding and sequence.finish_step == step:
                return step
            heappop(completions)

    def _complete(self, at_seconds: float) -> None:
        completions, running = self._completions, self._running
        while completions and completions[0][0] <= self._step:
            step, number = heappop(completions)
            sequence = running.get(number)
            if sequence is not None and sequence.decoding and sequence.finish_step == step:
                self._blocks.stop_decoding(sequence.prefill_tokens - sequence.start_step)
                self._finish(sequence, at_seconds)

    def _finish(self, sequence: Sequence, at_seconds: float) -> None:
        request = sequence.request
        del self._running[request.number]
        held_tokens = sequence.prefill_tokens
        if sequence.decoding:
            held_tokens += self._step - sequence.start_step
        self._blocks.release(held_tokens)
        first = at_seconds if sequence.first_token_seconds is None else sequence.first_token_seconds
        output = sequence.output_tokens
        cut = request.limited or output < request.output_tokens
        self.counters.count_finish(sequence, at_seconds=at_seconds, reason="length" if cut else "stop")
        self.finished.append(
            FinishedRequest(
                request=request,
                finish_seconds=at_seconds,
                time_to_first_token_seconds=first - request.arrival_seconds,
                inter_token_latency_seconds=(at_seconds - first) / (output - 1) if output > 1 else None,
                output_tokens=output,
            )
        )

    def _make_room(self) -> None:
        """Preempt until the next step's growth fits into the free blocks.

        The last one preempted heads the queue and needs at least the blocks it just gave up, which lack still: so it is
        not admissible in the same step, and nothing is.
        """
        blocks = self._blocks
        while blocks.growth(self._step, steps=1) > blocks.total - blocks.used:
            self._preempt_last()

    def _preempt_last(self) -> None:
        _, sequence = self._running.popitem()
        self.counters.preemptions += 1
        if sequence.decoding:
            grown = self._step - sequence.start_step
            self._blocks.stop_decoding(sequence.prefill_tokens - sequence.start_step)
            self._blocks.release(sequence.prefill_tokens + grown)
            sequence.generated += grown
            sequence.decoding = False
            sequence.last_token_seconds = self._segment_start_seconds
        else:
            self._prefilling.pop()
            self._blocks.release(sequence.prefill_tokens)
        self._waiting.appendleft(sequence)
