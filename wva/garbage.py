"""When Python looks for cyclic garbage: among young objects only, while a fleet is read and while it is decided on.

The first lists and each cycle over thousands of variants make a million objects. Python then looks through all objects
many times in a row, and the event loop waits each time. Nearly all objects go without this search, as soon as nothing
refers to them. So WVA lets Python search only young objects. After a cycle it sets the remaining ones aside, and only a
search of all objects every few hours looks at them again.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Final

_SEARCHES_OF_YOUNG: Final = 1_000_000
"""How many searches of young objects come before one of all objects: more than in any cycle."""

EVERYTHING_EVERY: Final = 500
"""How many cycles lie between two searches of all objects: four hours with an interval of 30 s."""

_cycles = count(1)


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
