"""Records, and how to change a field of one.

Records that a cycle makes by the thousand are ``Struct``s of msgspec, the others are dataclasses. Both look alike in a
recording. A struct is made, compared and hashed in C, several times as fast, and with ``gc=False`` the search for
cyclic garbage leaves it out, which holds the event loop less.
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

    To free all that thousands of models needed in one piece, as the end of a function does, holds the interpreter for
    longer than the event loop should wait. Between two items it may be given away.
    """
    for items in many:
        take = items.popitem if isinstance(items, dict) else items.pop
        while items:
            take()


def split(items: Iterable[T], place: Callable[[T], int | None], count: int) -> list[tuple[T, ...]]:
    """Return so many tuples, each with the items that ``place`` gives its place, in order. None is no place."""
    found: list[list[T]] = [[] for _ in range(count)]
    for item in items:
        where = place(item)
        if where is not None:
            found[where].append(item)
    return [tuple(each) for each in found]
