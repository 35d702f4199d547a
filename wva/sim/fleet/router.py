"""The gateway of one model: spreads requests over the Ready replicas of all its variants.

Like an endpoint picker: a request goes to the engine that will be least loaded with it, load being the requests queued
and running relative to what the engine holds at once. Ties go to the first in the order of deployment, pod and engine,
so the same fleet always routes the same way. While no replica is ready, requests wait here, which is the queue that
``inference_extension_flow_control_queue_size`` shows and that starts a model from zero; it is bounded, and what does
not fit is dropped, as is a prompt longer than the model allows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from wva.sim.fleet.engine import Engine
from wva.sim.fleet.replica import Replica
from wva.sim.fleet.requests import Request


class Router:
    """Queue and picker of one model. Its owner tells it which replicas take requests."""

    def __init__(self, *, queue_limit: int, tokens_per_sequence: float) -> None:
        """Start without replicas.

        Args:
            queue_limit: most requests that wait while no replica is ready.
            tokens_per_sequence: mean resident size of a sequence, by which an engine's capacity is judged.

        """
        self.queue: deque[Request] = deque()
        self.dropped = 0
        self.retried = 0
        self._queue_limit = queue_limit
        self.tokens_per_sequence = tokens_per_sequence
        self._targets: list[tuple[Engine, float]] = []

    @property
    def queued_prompt_tokens(self) -> int:
        """Tokens of the prompts that wait here."""
        return sum(request.prompt_tokens for request in self.queue)

    def use(self, replicas: Iterable[Replica], *, at_seconds: float) -> None:
        """Take ``replicas`` for the ones that accept requests from now on, and hand them what waits here."""
        ordered = sorted(replicas, key=lambda replica: (replica.variant.deployment, replica.pod.name))
        self._targets = [
            (
                engine,
                replica.variant.parameters.concurrent_sequences(tokens_per_sequence=self.tokens_per_sequence),
            )
            for replica in ordered
            for engine in replica.engines
        ]
        while self.queue and self._targets:
            self._dispatch(self.queue.popleft(), at_seconds)

    def offer(self, request: Request, *, at_seconds: float) -> None:
        """Route a request, or queue it, or drop it."""
        if self._targets:
            self._dispatch(request, at_seconds)
        elif len(self.queue) < self._queue_limit:
            self.queue.append(request)
        else:
            self.dropped += 1

    def offer_again(self, requests: Iterable[Request], *, at_seconds: float) -> None:
        """Route what a vanishing replica gave up. The user keeps waiting, so the arrival time stays."""
        for request in requests:
            self.retried += 1
            self.offer(request.retried(), at_seconds=at_seconds)

    def _dispatch(self, request: Request, at_seconds: float) -> None:
        chosen, lowest = self._targets[0][0], float("inf")
        for engine, capacity in self._targets:
            if engine.next_event_seconds < at_seconds:
                engine.advance(at_seconds)
            load = (engine.unfinished + 1) / capacity
            if load < lowest:
                chosen, lowest = engine, load
        if request.prompt_tokens < chosen.parameters.max_model_len:
            chosen.submit(request, at_seconds=at_seconds)
        else:
            self.dropped += 1
