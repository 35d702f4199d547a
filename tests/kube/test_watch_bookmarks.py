"""Bookmarks: no change, but progress, so that a quiet collection does not fall out of the server's window."""

from __future__ import annotations

import pytest

from tests.kube.scripted import ScriptedClient, bookmark, error_event, play, pods
from wva.kube.watch import Listed, Progressed

pytestmark = pytest.mark.looptime


async def test_bookmark_moves_the_version() -> None:
    """The next watch starts from the bookmark, though no object changed."""
    played = await play(ScriptedClient(lists=[pods()], streams=[[60.0, bookmark("500")]]))
    assert played.changes == [Listed((), "10"), Progressed("500")]
    assert played.watch_versions == ["10", "500"]
    assert played.metric("wva_watch_events_total", type="bookmark") == 1


async def test_bookmark_counts_as_an_event() -> None:
    """A short watch with only a bookmark is no failure."""
    played = await play(ScriptedClient(lists=[pods()], streams=[[bookmark("11")]]))
    assert played.metric("wva_watch_restarts_total", cause="ended") == 1


async def test_bookmark_between_two_410_starts_the_count_again() -> None:
    """A cache that sent a bookmark is not behind."""
    expired = error_event(410, "Expired")
    client = ScriptedClient(
        lists=[pods(), pods(), pods(version="11")], streams=[[20.0, expired], [20.0, bookmark("11"), expired]]
    )
    played = await play(client)
    assert played.list_versions == ["0", "10", "11"]
