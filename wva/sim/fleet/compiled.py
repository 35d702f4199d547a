"""Machine code for the inner loops of the fleet, where numba is installed.

The same functions run with and without it and give the same bits: with it their columns are numpy arrays, without it
lists, which the interpreter reads faster. ``NUMBA_DISABLE_JIT=1`` switches it off.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree
from typing import Any, Final, TypeVar, cast

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

COMPILED: Final = os.environ.get("NUMBA_DISABLE_JIT", "0") in {"", "0"} and find_spec("numba") is not None

if COMPILED:
    import numba
    import numpy as np

    _config: Any = numba.config

SOURCES: Final = ("blocks", "columns", "compiled", "counters", "gateway", "handover", "lists", "observed", "steps")
"""The modules whose code goes into the machine code."""
_KEPT: Final = 3
"""So many directories of other sources are kept: a program that began before a change may still use one."""


@cache
def _digest() -> str:
    """Return a name for the machine code of these sources.

    A cached function holds the code of all that it calls, but numba looks it up by its own file alone. The name of the
    directory depends on all sources, so an old function is not found.
    """
    here = Path(__file__).parent
    return sha256(b"".join((here / f"{name}.py").read_bytes() for name in SOURCES)).hexdigest()[:16]


def _directory() -> Path:
    """Return where machine code of these sources is kept: in ``NUMBA_CACHE_DIR``, else beside the bytecode."""
    return Path(_config.CACHE_DIR or Path(__file__).parent / "__pycache__") / f"wva-{_digest()}"


def forget_others() -> None:
    """Remove machine code of other sources, except for the newest: each change of the program makes a new directory."""
    if COMPILED:
        own = _directory()
        with suppress(OSError):  # another process does the same
            directories = sorted(own.parent.glob(f"wva-{'[0-9a-f]' * 16}"), key=lambda path: path.stat().st_mtime)
            for old in [path for path in directories if path != own][:-_KEPT]:
                rmtree(old, ignore_errors=True)


def compiled(function: FunctionT) -> FunctionT:
    """Compile a function that works on columns, when it is first called."""
    return cast("FunctionT", numba.njit(function)) if COMPILED else function


def entry(function: FunctionT) -> FunctionT:
    """Compile a function that Python calls: its machine code, with that of all it calls, is kept on disk.

    Processes that compile at the same time write the same files, each by renaming a whole one. For that, all callers
    pass arguments of the same types: times are floats.
    """
    if not COMPILED:
        return function
    previous = _config.CACHE_DIR
    _config.CACHE_DIR = str(_directory())
    try:
        return cast("FunctionT", numba.njit(cache=True)(function))
    finally:
        _config.CACHE_DIR = previous


def _first_not_below(values: Any, value: float, low: int, high: int) -> int:
    while low < high:
        middle = (low + high) // 2
        if values[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


def _total(values: Any, first: int, end: int) -> int:
    result = 0
    for row in range(first, end):
        result += values[row]
    return result


def _total_of_list(values: list[int], first: int, end: int) -> int:
    return sum(values[first:end])


first_not_below: Final = compiled(_first_not_below) if COMPILED else bisect_left
"""Find the first of the rows ``low`` to ``high`` of a rising column whose value is not below ``value``."""
total: Final = compiled(_total) if COMPILED else _total_of_list
"""Add up the rows ``first`` to ``end`` of a column of whole numbers."""


def column(values: list[Any]) -> Any:
    """Return a column with these numbers, which must be all ints or all floats."""
    return np.array(values) if COMPILED else values


def column_of(values: Any) -> Any:
    """Return a column with the numbers of a numpy array: all of them 64 bits wide. The array stays as it is."""
    return np.array(values) if COMPILED else values.tolist()


def ints(count: int, value: int = 0) -> Any:
    """Return a column of ``count`` whole numbers."""
    return np.full(count, value, dtype=np.int64) if COMPILED else [value] * count


def floats(count: int, value: float = 0.0) -> Any:
    """Return a column of ``count`` real numbers."""
    return np.full(count, value, dtype=np.float64) if COMPILED else [value] * count


def extended(values: Any, by: Any) -> Any:
    """Return a column followed by another; the first one must not be used any more."""
    if COMPILED:
        return np.concatenate((values, by))
    values.extend(by)
    return values
