"""Records, and how to change a field of one.

Records that a cycle makes by the thousand are ``Struct``s of msgspec, the others are dataclasses. Both look alike in a
recording. A struct is made, compared and hashed in C, several times as fast, and with ``gc=False`` the search for
cyclic garbage leaves it out, so that the search holds the event loop for less time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

import msgspec

R = TypeVar("R")
T = TypeVar("T")


def replace(record: R, /, **changes: Any) -> R:
    """Return a record with other values of some fields."""
    if isinstance(record, msgspec.Struct):
        return cast("R", msgspec.structs.replace(record, **changes))
    return cast("R", dataclasses.replace(cast("Any", record), **changes))


def let_go(*many: list[Any] | dict[Any, Any]) -> None:
    """Empty lists and mappings, one item after the other.

    The end of a function would free all that thousands of models needed in one piece. That holds the interpreter for
    longer than the event loop should wait. Between two items another thread may get the interpreter.
    """
    for items in many:
        take = items.popitem if isinstance(items, dict) else items.pop
        while items:
            take()


def split(items: Iterable[T], index_of: Callable[[T], int | None], count: int) -> list[tuple[T, ...]]:
    """Return ``count`` tuples. An item goes into the tuple whose index ``index_of`` gives, into none if it is None."""
    groups: list[list[T]] = [[] for _ in range(count)]
    for item in items:
        index = index_of(item)
        if index is not None:
            groups[index].append(item)
    return [tuple(group) for group in groups]
