"""Garbage collection: a small search after each cycle of decisions, and a full one from time to time."""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress
from itertools import count

import pytest

from wva import slices


class Knot:
    """An object that refers to itself."""

    def __init__(self):
        """Refer to itself."""
        self.itself = self


@pytest.fixture(autouse=True)
def _thawed():
    yield
    gc.unfreeze()


def test_no_search_of_everything_falls_into_the_body():
    """The body causes no full search, however many objects it creates.

    The old thresholds return afterwards, even after an error.
    """
    before, seen = gc.get_threshold(), []
    gc.callbacks.append(lambda phase, info: seen.append(info["generation"]) if phase == "start" else None)
    try:
        with suppress(LookupError), slices.searched_afterwards():
            kept = [Knot() for _ in range(200_000)]
            within = list(seen)
            raise LookupError
    finally:
        gc.callbacks.pop()
    assert within
    assert 2 not in seen
    assert gc.get_threshold() == before
    assert len(kept) == 200_000


def test_what_is_left_is_searched_once_and_set_aside(monkeypatch):
    """Garbage of the body is freed after it. Objects that survive are freed by the next full search."""
    monkeypatch.setattr(slices, "EVERYTHING_EVERY", 3)
    monkeypatch.setattr(slices, "_cycles", count(1))
    with slices.searched_afterwards():
        lost, kept = weakref.ref(Knot()), Knot()
    assert lost() is None
    later = weakref.ref(kept)
    del kept
    with slices.searched_afterwards():
        pass
    assert later() is not None
    assert gc.get_freeze_count() > 0
    with slices.searched_afterwards():
        pass
    assert later() is None
