"""What follows when the server has forgotten our version: a new list, and which one.

Not here: how a 410 looks on the wire (test_watch_error_events, test_client_errors).
"""

from __future__ import annotations

import pytest

from tests.kube.scripted import ScriptedClient, error_event, event, play, pod, pods
from wva.kube import errors
from wva.kube.watch import Listed, Upserted

pytestmark = pytest.mark.looptime

EXPIRED = error_event(410, "Expired")


async def test_expired_watch_lists_from_the_cache_again() -> None:
    """After a 410 the collection is listed with resourceVersion=0 and watched from the new list's version."""
    client = ScriptedClient(
        lists=[pods(pod("a", "1"), version="10"), pods(pod("a", "20"), version="21")],
        streams=[[30.0, event("ADDED", "b", "11"), EXPIRED]],
    )
    played = await play(client)
    assert played.list_versions == ["0", "0"]
    assert played.watch_versions == ["10", "21"]
    assert played.changes == [
        Listed((pod("a", "1"),), "10"),
        Upserted(pod("b", "11")),
        Listed((pod("a", "20"),), "21"),
    ]
    assert played.metric("wva_watch_restarts_total", cause="expired") == 1


async def test_expired_watch_that_lived_long_lists_without_waiting() -> None:
    """The first 410 after a healthy time is no failure: the list follows at once."""
    played = await play(ScriptedClient(lists=[pods(), pods()], streams=[[30.0, EXPIRED]]))
    assert played.list_times == [0.0, 30.0]


async def test_second_410_in_a_row_asks_for_the_newest_state() -> None:
    """When the cache's own version is expired, the next list carries no resourceVersion."""
    client = ScriptedClient(lists=[pods(), pods(), pods(version="99")], streams=[[EXPIRED], [EXPIRED]])
    played = await play(client)
    assert played.list_versions == ["0", "0", None]
    assert played.watch_versions == ["10", "10", "99"]


async def test_an_event_between_two_410_starts_the_count_again() -> None:
    """Two 410 with an event between them are not in a row: the cache is good enough."""
    client = ScriptedClient(
        lists=[pods(), pods(), pods()], streams=[[20.0, EXPIRED], [20.0, event("ADDED", "a", "11"), EXPIRED]]
    )
    played = await play(client)
    assert played.list_versions == ["0", "0", "0"]


async def test_lists_that_expire_at_once_are_slowed_down() -> None:
    """A server that expires every list at once is not asked in a hot loop: the waits double."""
    client = ScriptedClient(lists=[pods()] * 4, streams=[[EXPIRED]] * 4)
    played = await play(client)
    assert played.list_times == [0.0, 0.8, 2.4, 5.6, 12.0]
    assert played.list_versions == ["0", "0", None, None, None]


async def test_expired_stream_is_closed_before_the_list() -> None:
    """The old connection is given back at once, not when the garbage collector comes by."""
    played = await play(ScriptedClient(lists=[pods(), pods()], streams=[[20.0, EXPIRED, 1000.0]]))
    assert played.client.closed_before_lists == [0, 1]


async def test_410_by_status_is_the_same_as_in_the_stream() -> None:
    """A watch that is answered with HTTP 410 leads to a new list."""
    played = await play(ScriptedClient(lists=[pods(), pods()], streams=[[errors.Gone(410, "Gone", "too old")]]))
    assert played.list_versions == ["0", "0"]
    assert played.metric("wva_watch_restarts_total", cause="expired") == 1
