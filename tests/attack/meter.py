"""Measures the controller inside the process of the test: the lag of the event loop, and memory.

The embedded servers and the test itself share the event loop with the controller, and other tests on the machine delay
all of them now and then. The meter must count neither as the controller's fault:

- A callback counts as the controller's if a task of the controller scheduled it (``as_controller``).
- A callback counts with the CPU time of its thread, not with wall time.
- Every 10 ms the meter also looks how late the loop is. A look is late only by as much CPU time as the process used
  meanwhile: a thread that keeps the interpreter's lock makes the loop wait, too. The meter subtracts the time of the
  servers and of the test, up to twice their CPU time, because a thread that shares the lock fairly doubles it. It also
  subtracts garbage collection, whose cost depends on the objects of all tests, and the time in which the loop's thread
  waited for a core, because another thread that runs meanwhile does not delay the loop.
- The meter reads its clocks twice per callback, and a burst has a thousand callbacks. So it opens no file for that.
"""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import Callable
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from pathlib import Path

LOOK_SECONDS = 0.01
_STATM = Path("/proc/self/statm")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_SCHEDULED = "/proc/thread-self/schedstat"
_SCHEDULED_BYTES = 100

_controlled: ContextVar[bool] = ContextVar("controlled", default=False)


@contextmanager
def as_controller():
    """Count the tasks that the body starts, and all tasks that these start, as the controller's."""
    token = _controlled.set(True)
    try:
        yield
    finally:
        _controlled.reset(token)


def resident_bytes():
    """Return the memory of the process that is in RAM."""
    return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE_BYTES


@contextmanager
def waits():
    """Yield a function that tells how long this thread was ready to run but had no core, in seconds.

    It tells 0 if the kernel does not tell.
    """
    try:
        opened = os.open(_SCHEDULED, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        yield lambda: 0.0
        return
    try:
        yield lambda: int(os.pread(opened, _SCHEDULED_BYTES, 0).split()[1]) / 1e9
    finally:
        os.close(opened)


class Meter:
    """The measurements: ``piece`` is the longest callback of the controller, ``lag`` the greatest delay, in seconds.

    ``what`` names the longest callback; ``grown_bytes`` is the greatest growth of memory.
    """

    def __init__(self):
        """Nothing is measured before ``running``."""
        self.piece = self.lag = 0.0
        self.what = ""
        self.grown_bytes = 0
        self._others_wall = self._others_cpu = 0.0
        self._collecting = self._collecting_here = 0.0
        """Seconds in all threads, and in the loop's thread alone; only the latter are part of a callback's time."""
        self._collection_began = 0.0
        self._thread = threading.get_ident()
        self._waited_for_a_core = lambda: 0.0

    @asynccontextmanager
    async def running(self, look: Callable[[], None]):
        """Measure during the body, and call ``look`` every 10 ms."""
        handle = asyncio.events.Handle
        original = handle._run
        handle._run = self._measured(original)
        gc.callbacks.append(self._on_collection)
        with waits() as self._waited_for_a_core:
            task = asyncio.create_task(self._looks(look))
            try:
                yield self
            finally:
                handle._run = original
                gc.callbacks.remove(self._on_collection)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _measured(self, run):
        def measured(handle):
            (wall, cpu), began = self._clocks(), time.thread_time() - self._collecting_here
            try:
                run(handle)
            finally:
                spent = time.thread_time() - self._collecting_here - began
                if not handle._context.get(_controlled):
                    until_wall, until_cpu = self._clocks()
                    self._others_wall += min(until_wall - wall, 2 * spent)
                    self._others_cpu += min(until_cpu - cpu, 2 * spent)
                elif spent > self.piece:
                    self.piece, self.what = spent, _named(handle)

        return measured

    def _on_collection(self, phase, _info):
        if phase == "start":
            self._collection_began = time.thread_time()
        else:
            seconds = time.thread_time() - self._collection_began
            self._collecting += seconds
            if threading.get_ident() == self._thread:
                self._collecting_here += seconds

    def _clocks(self):
        """Return wall time and CPU time of the process, both without garbage collection.

        The wall time is also without the time for which this thread waited for a core.
        """
        return time.monotonic() - self._collecting - self._waited_for_a_core(), time.process_time() - self._collecting

    def _not_others(self):
        """Return the same clocks without the time that the servers and the test used."""
        wall, cpu = self._clocks()
        return wall - self._others_wall, cpu - self._others_cpu

    async def _looks(self, look):
        least = resident_bytes()
        while True:
            wall, cpu = self._not_others()
            await asyncio.sleep(LOOK_SECONDS)
            until_wall, until_cpu = self._not_others()
            self.lag = max(self.lag, min(until_wall - wall - LOOK_SECONDS, until_cpu - cpu))
            self.grown_bytes = max(self.grown_bytes, resident_bytes() - least)
            look()


def _named(handle):
    """Return the name of a callback: its coroutine if the callback is a step of a task."""
    owner = getattr(handle._callback, "__self__", None)
    coroutine = owner.get_coro() if isinstance(owner, asyncio.Task) else None
    return getattr(coroutine, "__qualname__", None) or repr(handle._callback)
