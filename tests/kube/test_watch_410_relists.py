"""A 410 of the server leads to a new list: which version the watch requests, and which list it refuses.

The forms of a 410 are tested in test_watch_error_events and test_client_errors.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.kube.scripted import ScriptedClient, bookmark, error_event, event, play, pod, pods
from wva.kube import errors
from wva.kube.watch import Listed, Progressed, Upserted, Versions

pytestmark = pytest.mark.looptime

EXPIRED = error_event(410, "Expired")


async def test_an_expired_watch_lists_from_the_last_version_again() -> None:
    """After a 410 the watch lists at its last version or later, and goes on from the version of the list."""
    client = ScriptedClient(
        lists=[pods(pod("a", "1"), version="10"), pods(pod("a", "20"), version="21")],
        streams=[[30.0, event("ADDED", "b", "11"), EXPIRED]],
    )
    played = await play(client)
    assert played.list_versions == ["0", "11"]
    assert played.watch_versions == ["10", "21"]
    assert played.changes == [
        Listed((pod("a", "1"),), "10"),
        Upserted(pod("b", "11")),
        Listed((pod("a", "20"),), "21"),
    ]
    assert played.metric("wva_watch_restarts_total", cause="expired") == 1


async def test_expired_watch_that_lived_long_lists_without_waiting() -> None:
    """The first 410 after a healthy time is no failure, so the list follows at once."""
    played = await play(ScriptedClient(lists=[pods(), pods()], streams=[[30.0, EXPIRED]]))
    assert played.list_times == [0.0, 30.0]


async def test_second_410_in_a_row_asks_for_the_newest_state() -> None:
    """If the version of the cached list has expired, too, the next list has no resourceVersion."""
    client = ScriptedClient(lists=[pods(), pods(), pods(version="99")], streams=[[EXPIRED], [EXPIRED]])
    played = await play(client)
    assert played.list_versions == ["0", "10", None]
    assert played.watch_versions == ["10", "10", "99"]


async def test_an_event_between_two_410_starts_the_count_again() -> None:
    """Two 410 with an event between them do not count as two in a row."""
    client = ScriptedClient(
        lists=[pods(), pods(), pods(version="11")],
        streams=[[20.0, EXPIRED], [20.0, event("ADDED", "a", "11"), EXPIRED]],
    )
    played = await play(client)
    assert played.list_versions == ["0", "10", "11"]


async def test_lists_that_expire_at_once_are_slowed_down() -> None:
    """If every list expires at once, the waits between lists double."""
    client = ScriptedClient(lists=[pods()] * 4, streams=[[EXPIRED]] * 4)
    played = await play(client)
    assert played.list_times == [0.0, 0.8, 2.4, 5.6, 12.0]
    assert played.list_versions == ["0", "10", None, None, None]


async def test_expired_stream_is_closed_before_the_list() -> None:
    """The old connection is closed before the new list is requested."""
    played = await play(ScriptedClient(lists=[pods(), pods()], streams=[[20.0, EXPIRED, 1000.0]]))
    assert played.client.closed_before_lists == [0, 1]


async def test_410_by_status_is_the_same_as_in_the_stream() -> None:
    """A watch that is answered with HTTP 410 leads to a new list."""
    played = await play(ScriptedClient(lists=[pods(), pods()], streams=[[errors.Gone(410, "Gone", "too old")]]))
    assert played.list_versions == ["0", "10"]
    assert played.metric("wva_watch_restarts_total", cause="expired") == 1


# --- servers that are behind -----------------------------------------------------------------------------------------


BEHIND = errors.VersionTooLarge(504, "Timeout", "Too large resource version: 11, current: 5", 1.0)


async def test_a_server_that_is_behind_is_waited_for() -> None:
    """The server answers 504, and the watch tries the same version again."""
    client = ScriptedClient(lists=[pods(), BEHIND, pods(version="12")], streams=[[30.0, EXPIRED]])
    played = await play(client)
    assert played.list_versions == ["0", "10", "10"]
    assert played.list_times == [0.0, 30.0, 31.0]
    assert played.changes == [Listed((), "10"), Listed((), "12")]


async def test_a_server_that_stays_behind_is_asked_for_the_newest_state() -> None:
    """After two such answers the watch requests the newest state, which always exists."""
    client = ScriptedClient(lists=[pods(), BEHIND, BEHIND, pods(version="12")], streams=[[30.0, EXPIRED]])
    played = await play(client)
    assert played.list_versions == ["0", "10", "10", None]


@pytest.mark.parametrize("refusal", [errors.ApiError(400, "BadRequest", "?"), errors.Invalid(422, "Invalid", "?")])
async def test_a_server_that_cannot_read_the_version_is_asked_for_the_newest_state(refusal: errors.ApiError) -> None:
    """Another storage backend may use other versions."""
    client = ScriptedClient(lists=[pods(), refusal, pods(version="12")], streams=[[30.0, EXPIRED]])
    assert (await play(client)).list_versions == ["0", "10", None]


async def test_a_list_that_is_older_all_the_same_is_not_taken() -> None:
    """A server or proxy may ignore the condition. The watch keeps its state until a newer list comes."""
    old = pods(pod("gone", "3"), version="9")
    client = ScriptedClient(lists=[pods(), old, pods(version="12")], streams=[[30.0, EXPIRED]])
    played = await play(client)
    assert played.list_versions == ["0", "10", None]
    assert played.changes == [Listed((), "10"), Listed((), "12")]


async def test_a_restored_store_is_taken_when_two_newest_lists_say_the_same() -> None:
    """A restored store has lower versions for ever. The watch logs that once, and goes on from there."""
    restored = pods(pod("a", "3"), version="5")
    client = ScriptedClient(
        lists=[pods(version="1000"), restored, restored, restored, pods(version="7")],
        streams=[[30.0, EXPIRED], [30.0, bookmark("6"), EXPIRED]],
    )
    with capture_logs() as logs:
        played = await play(client)
    assert played.list_versions == ["0", "1000", None, None, "6"]
    assert played.changes == [Listed((), "1000"), Listed((pod("a", "3"),), "5"), Progressed("6"), Listed((), "7")]
    assert played.watch_versions == ["1000", "5", "7"]
    (said,) = [entry for entry in logs if entry["event"] == "collection_went_back"]
    assert said["resource_version"] == "5"


async def test_versions_that_are_no_numbers_are_taken_as_they_come() -> None:
    """The watch cannot compare such versions."""
    client = ScriptedClient(
        lists=[pods(version="b"), pods(version="a")], streams=[[30.0, event("ADDED", "x", "c"), EXPIRED]]
    )
    played = await play(client)
    assert played.list_versions == ["0", "c"]
    assert played.changes[-1] == Listed((), "a")


async def test_an_event_from_before_does_not_take_the_watch_back() -> None:
    """A stream is resumed at the newest version, not at the last one."""
    client = ScriptedClient(
        lists=[pods()], streams=[[event("ADDED", "a", "15"), event("MODIFIED", "b", "12"), 5.0], [EXPIRED]]
    )
    played = await play(client)
    assert played.watch_versions == ["10", "15"]
    assert played.list_versions == ["0", "15"]


STATES = st.lists(st.tuples(st.sampled_from(["list", "event", "expired", "behind"]), st.integers(1, 40)), max_size=30)


@given(STATES)
def test_what_is_taken_never_goes_back_unless_the_newest_state_does(steps: list[tuple[str, int]]) -> None:
    """A version below the newest one is only accepted after two requests for the newest state."""
    versions, newest, consistent_and_older = Versions(), 0, 0
    for kind, number in steps:
        asked = versions.to_ask
        assert asked in (None, "0" if newest == 0 else str(newest))
        if kind == "event":
            versions.note_change(str(number))
            newest = max(newest, number)
        elif kind == "expired":
            versions.note_expiry(changed=False)
        elif kind == "behind":
            versions.note_refusal(BEHIND)
        else:
            consistent_and_older += asked is None and number < newest
            try:
                back = versions.note_list(str(number))
            except errors.WentBack:
                assert number < newest
                continue
            assert back == (number < newest)
            assert not back or consistent_and_older >= 2
            newest, consistent_and_older = number, 0
