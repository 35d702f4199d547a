"""Times two ways of doing the same thing in turn, so that a drift of the machine's speed cancels out."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def cpu_seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of one call, garbage collection included as it comes."""
    started = time.process_time()
    work()
    return time.process_time() - started


def ratio(slow: Callable[[], object], fast: Callable[[], object], *, pairs: int = 5) -> float:
    """Return the median over pairs of (time of ``slow`` / time of ``fast``), after one warm-up of each."""
    slow()
    fast()
    ratios = []
    for _ in range(pairs):
        first, second = cpu_seconds(slow), cpu_seconds(fast)
        ratios.append(first / max(second, 1e-9))
    return statistics.median(ratios)
