"""Comparison of the time of two pieces of work in one run, so that the speed of the machine cancels out."""

from __future__ import annotations

import gc
import time

SHORTEST_SECONDS = 0.0002
"""A shorter time cannot be measured: clocks and caches make up most of it."""


def cpu_seconds(work, *, tries=3):
    """Return the least CPU time of this thread over some calls.

    Garbage collection does not count, because it looks through the objects of all tests.
    """
    took = []
    for _ in range(tries):
        gc.collect(0)
        gc.disable()
        try:
            began = time.thread_time()
            work()
            took.append(time.thread_time() - began)
        finally:
            gc.enable()
    return min(took)


def times_as_long(work, yardstick, *, tries=3):
    """Return how many times as long as ``yardstick`` the call ``work`` takes.

    They take turns, so that a machine that is slow for some seconds is slow for both.
    """
    took = [(cpu_seconds(work, tries=1), cpu_seconds(yardstick, tries=1)) for _ in range(tries)]
    return min(first for first, _ in took) / max(min(second for _, second in took), SHORTEST_SECONDS)
