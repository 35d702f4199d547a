"""Which streams have a place."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from wva.model.variant import VariantKey
from wva.serve import followers
from wva.serve.followers import Followers, NoPlaceError


class Open:
    """Streams that stay open, of variants in ``there``."""

    def __init__(self, *there):
        """Begin without streams."""
        self.there = set(there)
        self.followers = Followers(lambda key: key.name in self.there)
        self.stack = ExitStack()

    def follow(self, name):
        """Open a stream."""
        return self.stack.enter_context(self.followers.follow(VariantKey("ns", name)))


@pytest.fixture
def small(monkeypatch):
    """Have few places."""
    monkeypatch.setattr(followers, "FOLLOWERS", 3)
    monkeypatch.setattr(followers, "FOLLOWERS_OF_ONE", 2)
    monkeypatch.setattr(followers, "STRANGERS", 2)


@pytest.mark.usefixtures("small")
def test_names_that_do_not_exist_take_no_place_of_those_that_do():
    """The oldest of them gives way to the newest."""
    streams = Open("a", "b", "c")
    strange = [streams.follow(f"x{number}") for number in range(5)]
    assert [each.displaced for each in strange] == [True, True, True, False, False]
    known = [streams.follow(name) for name in "abc"]
    assert not any(each.displaced for each in known)
    assert len(streams.followers) == 5
    streams.there.add("d")
    with pytest.raises(NoPlaceError):
        streams.follow("d")
    streams.stack.close()
    assert len(streams.followers) == 0


@pytest.mark.usefixtures("small")
def test_many_streams_of_one_variant_give_way():
    """At its own limit, and when another variant has no place."""
    streams = Open("a", "b", "c")
    first, second, third = (streams.follow("a") for _ in range(3))
    assert (first.displaced, first.changed.is_set()) == (True, True)
    streams.follow("b")
    streams.follow("c")
    assert second.displaced
    assert not third.displaced


@pytest.mark.usefixtures("small")
def test_a_stream_counts_among_the_others_once_its_variant_exists():
    """And no longer when that is gone."""
    streams = Open()
    late = streams.follow("late")
    streams.there.add("late")
    streams.followers.look(late)
    for number in range(3):
        streams.follow(f"x{number}")
    assert not late.displaced
    streams.there.clear()
    streams.followers.look(late)
    streams.follow("x4")
    streams.follow("x5")
    assert late.displaced
    streams.followers.look(late)
    assert len(streams.followers) == 2
    assert not streams.followers.follows(VariantKey("ns", "late"))
