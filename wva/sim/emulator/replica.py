"""The fleet's engine tied to a clock: it takes requests, and reports their growing numbers of tokens.

The engine computes in jumps from event to event. The replica keeps it at the clock's time, wakes when the engine has
something to report, and tells each request how many tokens it has. While a request wants each of its tokens, the
replica wakes with every step of the engine, otherwise with its events alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from math import inf
from random import Random
from typing import Final

from wva.clock import Clock
from wva.sim.fleet.engine import DrivenEngine
from wva.sim.fleet.metrics import EngineView, render
from wva.sim.fleet.parameters import EngineParameters
from wva.sim.fleet.replica import PodKey, PoolKey
from wva.sim.fleet.requests import UserRequest

_SHORTEST_TICK_SECONDS: Final = 0.001
_SPREAD: Final = (0.5, 1.5)


class TokenStream:
    """One request in the replica, with its number of tokens and whether it is finished."""

    __slots__ = ("changed", "each", "finished", "number", "output_tokens", "tokens")

    def __init__(self, number: int, output_tokens: int, *, each: bool) -> None:
        """Begin without a token; with ``each`` the stream reports every token, not only the end."""
        self.each = each
        self.number = number
        self.output_tokens = output_tokens
        self.tokens = 0
        self.finished = False
        self.changed = asyncio.Event()

    def tell(self, tokens: int, *, finished: bool) -> None:
        """Set the present number of tokens."""
        if (tokens > self.tokens and self.each) or finished:
            self.tokens = max(tokens, self.tokens)
            self.finished = finished
            self.changed.set()


class EmulatedReplica:
    """One engine in real time. Single-threaded: every method is called on the loop that runs ``run``."""

    def __init__(
        self, parameters: EngineParameters, *, model: str, clock: Clock, mean_output_tokens: int = 150, seed: int = 0
    ) -> None:
        """Start idle; ``mean_output_tokens`` is the mean length of answers without a limit."""
        self.model = model
        self.parameters = parameters
        self._clock = clock
        self._mean = mean_output_tokens
        self._random = Random(seed)
        self._origin = clock.monotonic()
        self._started_seconds = clock.now()
        self._engine = DrivenEngine(parameters)
        self._streams: dict[int, TokenStream] = {}
        self._numbers = 0
        self._woken = asyncio.Event()

    def length(self, limit: int | None, prompt_tokens: int, *, ignore_eos: bool) -> tuple[int, bool]:
        """Return the tokens of an answer, and whether it is cut there: by ``limit`` or by the model's length.

        The length is drawn around the mean; when the end of text is ignored the answer goes as far as it may.
        """
        room = self.parameters.max_model_len - prompt_tokens
        longest = room if limit is None else min(limit, room)
        low, high = (max(1, round(self._mean * factor)) for factor in _SPREAD)
        drawn = longest if ignore_eos else self._random.randint(low, high)
        return min(longest, drawn), drawn >= longest

    async def answer(
        self, prompt_tokens: int, output_tokens: int, *, limited: bool = False, each: bool = True
    ) -> AsyncGenerator[TokenStream]:
        """Compute an answer; yield its stream when it is finished, and with ``each`` whenever it has more tokens.

        Closing the iterator early takes the request out of the engine, as vLLM does when a client goes away.
        Raises ValueError when the prompt does not fit.
        """
        self._catch_up()
        self._numbers += 1
        number = self._numbers
        now = self._engine.now_seconds
        request = UserRequest(number, now, prompt_tokens, output_tokens, limited=limited)
        self._engine.submit(request, at_seconds=now)
        stream = self._streams[number] = TokenStream(number, output_tokens, each=each)
        self._woken.set()
        try:
            while not stream.finished:
                await stream.changed.wait()
                stream.changed.clear()
                yield stream
        finally:
            self._streams.pop(number, None)
            if not stream.finished:
                self._catch_up()
                self._engine.cancel(number)
                self._woken.set()

    def page(self) -> str:
        """Return vLLM's metrics page as of now."""
        self._catch_up()
        engine = self._engine
        view = EngineView(
            model=PoolKey("", self.model),
            pod=PodKey("", ""),
            engine=0,
            parameters=self.parameters,
            sample=engine.sample(),
            started_seconds=self._started_seconds,
        )
        return render([view], pod_labels=False)

    async def run(self) -> None:
        """Keep the engine at the clock's time until cancelled."""
        while True:
            self._catch_up()
            self._woken.clear()
            await self._clock.wait(self._woken, self._pause_seconds())

    def _pause_seconds(self) -> float | None:
        engine = self._engine
        per_token = any(stream.each for stream in self._streams.values())
        wake = engine.next_step_seconds if per_token else engine.next_event_seconds
        return None if wake == inf else max(wake - engine.now_seconds, 0.0) + _SHORTEST_TICK_SECONDS

    def _catch_up(self) -> None:
        engine = self._engine
        engine.advance(max(engine.now_seconds, self._clock.monotonic() - self._origin))
        finished, engine.finished = engine.finished, []
        for result in finished:
            stream = self._streams.get(result.request.number)
            if stream is not None:
                stream.tell(result.output_tokens, finished=True)
        for number, stream in self._streams.items():
            tokens = engine.generated(number) if stream.each and not stream.finished else None
            if tokens is not None:
                stream.tell(tokens, finished=False)
