"""Answers that are good for a while: bounded, and asked for once however many want the same at a time."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Answer(Generic[V]):
    """A value and for how many seconds it may be used again."""

    value: V
    lifetime_seconds: float


@dataclass(frozen=True, slots=True)
class _Kept(Generic[V]):
    value: V
    until: float


class ReviewCache(Generic[K, V]):
    """Keeps at most ``capacity`` answers; the one unused longest goes first."""

    def __init__(self, *, capacity: int, monotonic: Callable[[], float]) -> None:
        """Start empty; ``monotonic`` tells seconds."""
        self._capacity = capacity
        self._monotonic = monotonic
        self._kept: OrderedDict[K, _Kept[V]] = OrderedDict()
        self._asked: dict[K, asyncio.Future[V | BaseException]] = {}

    def __len__(self) -> int:
        """Return how many answers are kept, outdated ones included."""
        return len(self._kept)

    async def get(self, key: K, ask: Callable[[], Awaitable[Answer[V]]]) -> tuple[V, bool]:
        """Return the answer and whether it was there already; else ask, and let all who come meanwhile wait for it.

        What ``ask`` raises is raised to all callers that wait, and not kept. If the asking one is cancelled, the next
        of those who wait asks again.
        """
        while True:
            kept = self._kept.get(key)
            if kept is not None and self._monotonic() < kept.until:
                self._kept.move_to_end(key)
                return kept.value, True
            running = self._asked.get(key)
            if running is None:
                return await self._ask(key, ask), False
            outcome = await asyncio.shield(running)
            if isinstance(outcome, Exception):
                raise outcome
            if not isinstance(outcome, BaseException):
                return outcome, True

    async def _ask(self, key: K, ask: Callable[[], Awaitable[Answer[V]]]) -> V:
        running: asyncio.Future[V | BaseException] = asyncio.get_running_loop().create_future()
        self._asked[key] = running
        try:
            answer = await ask()
        except BaseException as error:
            running.set_result(error)
            raise
        else:
            running.set_result(answer.value)
            self._keep(key, answer)
            return answer.value
        finally:
            del self._asked[key]

    def _keep(self, key: K, answer: Answer[V]) -> None:
        self._kept[key] = _Kept(answer.value, self._monotonic() + answer.lifetime_seconds)
        self._kept.move_to_end(key)
        while len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
