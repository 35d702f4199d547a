"""Bookmarks change no object but advance the version, so that the version of a quiet collection does not expire."""

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
    """Two 410 with a bookmark between them do not count as two in a row."""
    expired = error_event(410, "Expired")
    client = ScriptedClient(
        lists=[pods(), pods(), pods(version="11")], streams=[[20.0, expired], [20.0, bookmark("11"), expired]]
    )
    played = await play(client)
    assert played.list_versions == ["0", "10", "11"]
