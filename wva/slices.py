"""Long work beside the event loop, which has to serve probes, watches and the renewal of the Lease meanwhile.

Work on what may change on the loop (the caches, the ledger) is done there, in slices: ``Slices.rest`` lets the others
take their turn once a slice is used up. A generator that yields between its ``Steps`` can be run in slices or in one
go. Pure work on values of its own goes into a thread, and the interpreter switches between both (``switch_often``).
Small work is done at once: it takes less time than a thread does.

The search for cyclic garbage holds the loop, too. The first lists and each cycle over thousands of variants make a
million objects. Python then looks through all objects many times in a row, although nearly all objects go without this
search, as soon as nothing refers to them. So WVA lets Python search only young objects. After a cycle it sets the
remaining ones aside, and only a search of all objects every few hours looks at them again.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final, TypeAlias, TypeVar

R = TypeVar("R")
T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, R]
"""Work that yields wherever it may be interrupted, and returns its result."""

SLICE_SECONDS: Final = 0.005
"""How long one task keeps the loop.

Others may wait for three slices: asyncio reads sockets and timers between two turns, and what they wake comes after the
sliced work in the next turn, twice.
"""
SWITCH_SECONDS: Final = 0.0005
"""How long a thread may keep the interpreter from the loop."""
_FREED_AT_ONCE: Final = 100
SMALL: Final = 64
"""Variants, or things that cost about as much. Deciding on a variant with ten replicas takes half a millisecond."""

_SEARCHES_OF_YOUNG: Final = 1_000_000
"""How many searches of young objects come before one of all objects: more than in any cycle."""
EVERYTHING_EVERY: Final = 500
"""How many cycles lie between two searches of all objects: four hours with an interval of 30 s."""

_cycles = count(1)


class Slices:
    """Measures how long one task has kept the loop, or several tasks that share a slice in each turn of the loop."""

    def __init__(self, seconds: float = SLICE_SECONDS) -> None:
        """Begin the first slice."""
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._used_up = self._begun = False

    async def rest(self) -> None:
        """Return at once, or after the turn of all others if the slice is used up.

        Of many tasks that share a slice, those that find it used up again wait for one more turn.
        """
        while time.monotonic() >= self._end and not self._begun:
            if not self._used_up:
                # The next turn begins with a new slice. Those who share it find it used up until then.
                self._used_up = True
                asyncio.get_running_loop().call_soon(self._renew)
            await asyncio.sleep(0)
        self._begun = False

    def _renew(self) -> None:
        self._used_up, self._begun = False, True  # whoever comes first goes on, however short the slice is
        self._end = time.monotonic() + self._seconds


async def forget(things: list[T]) -> None:
    """Let go of things in slices: to free a hundred thousand at once takes longer than others should wait."""
    slices = Slices()
    while things:
        del things[-_FREED_AT_ONCE:]
        await slices.rest()


async def beside(size: int, work: Callable[[], R]) -> R:
    """Return the result of ``work``, which runs in a thread if there are more than ``SMALL`` things.

    It must not read what the loop may change, nor change what the loop may read. Raises what ``work`` raises.
    """
    return work() if size <= SMALL else await asyncio.to_thread(work)


def switch_often() -> None:
    """Let the loop run again soon after each of its system calls, although a thread is at work.

    The loop gives the interpreter away whenever it reads, writes or waits. By Python's default the thread then keeps it
    for 5 ms, so a loop that serves fifty connections would be late by a quarter of a second.
    """
    sys.setswitchinterval(SWITCH_SECONDS)


def at_once(steps: Steps[R]) -> R:
    """Return the result of all steps."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: R = end.value
        return result


async def in_slices(steps: Steps[R]) -> R:
    """Return the result of all steps, and let other tasks run between them."""
    slices = Slices()
    try:
        while True:
            next(steps)
            await slices.rest()
    except StopIteration as end:
        result: R = end.value
        return result


def young_only() -> Callable[[], None]:
    """Search only young objects from now on. Returns a function that ends this and sets all present objects aside."""
    young, older, all_ = gc.get_threshold()
    gc.set_threshold(young, older, _SEARCHES_OF_YOUNG)

    def end() -> None:
        gc.set_threshold(young, older, all_)
        gc.freeze()

    return end


@contextmanager
def searched_afterwards() -> Iterator[None]:
    """Search only young objects in the body and after it, then set the rest aside; every few hours search all."""
    end = young_only()
    try:
        yield
    finally:
        if next(_cycles) % EVERYTHING_EVERY == 0:
            gc.unfreeze()
            gc.collect()
        else:
            gc.collect(1)
        end()
