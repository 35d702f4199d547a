"""ERROR events, and events of unknown types."""

from __future__ import annotations

import json

import pytest
from structlog.testing import capture_logs

from tests.kube.scripted import ScriptedClient, error_event, event, play, pod, pods
from wva.kube.watch import Deleted, Progressed, Upserted

pytestmark = pytest.mark.looptime


@pytest.mark.parametrize(
    "line", [error_event(410, "Expired"), error_event(410, "Gone"), error_event(410, ""), error_event(0, "Expired")]
)
async def test_expired_in_the_stream_lists_anew(line: bytes) -> None:
    """An ERROR event that says 410, by code or by reason, means a new list."""
    played = await play(ScriptedClient(lists=[pods(), pods(version="30")], streams=[[20.0, line]]))
    assert played.watch_versions == ["10", "30"]
    assert played.metric("wva_watch_restarts_total", cause="expired") == 1
    assert played.metric("wva_watch_events_total", type="error") == 1


async def test_server_error_in_the_stream_is_resumed() -> None:
    """An ERROR event with 5xx waits and resumes from the last version, without a list."""
    stream = [event("ADDED", "a", "11"), error_event(500, "InternalError")]
    client = ScriptedClient(lists=[pods()], streams=[stream])
    played = await play(client)
    assert len(client.listed) == 1
    assert played.watch_versions == ["10", "11"]
    assert played.watch_times == [0.0, 0.8]


async def test_retry_after_in_the_status_is_honoured() -> None:
    """A 429 in the stream has its delay in the details of the Status."""
    line = error_event(429, "TooManyRequests", details={"retryAfterSeconds": 12})
    played = await play(ScriptedClient(lists=[pods()], streams=[[line]]))
    assert played.watch_times == [0.0, 12.0]
    assert played.metric("wva_watch_restarts_total", cause="throttled") == 1


@pytest.mark.parametrize("status", [{"code": 400, "reason": "BadRequest"}, {}, "no status"])
async def test_other_error_in_the_stream_lists_anew(status: object) -> None:
    """After an ERROR event that it does not understand, the watch waits and lists again."""
    line = json.dumps({"type": "ERROR", "object": status}).encode()
    played = await play(ScriptedClient(lists=[pods(), pods(version="30")], streams=[[line]]))
    assert played.watch_versions == ["10", "30"]
    assert played.list_times == [0.0, 0.8]
    assert played.metric("wva_watch_restarts_total", cause="failed") == 1


async def test_event_of_an_unknown_type_is_counted_and_skipped() -> None:
    """An unknown type changes no object, but advances the version."""
    with capture_logs() as logs:
        client = ScriptedClient(lists=[pods()], streams=[[event("RENAMED", "a", "11"), event("DELETED", "b", "12")]])
        played = await play(client)
    assert played.changes[1:] == [Progressed("11"), Deleted(pod("b", "12"))]
    assert played.metric("wva_watch_events_total", type="unknown") == 1
    assert [entry["event"] for entry in logs] == ["watch_event_unknown"]


async def test_every_type_is_counted() -> None:
    """Each event is counted under its type."""
    stream = [event(kind, "a", str(11 + at)) for at, kind in enumerate(["ADDED", "MODIFIED", "MODIFIED", "DELETED"])]
    played = await play(ScriptedClient(lists=[pods()], streams=[stream]))
    assert played.changes[1] == Upserted(pod("a", "11"))
    assert {kind: played.metric("wva_watch_events_total", type=kind) for kind in ("added", "modified", "deleted")} == {
        "added": 1,
        "modified": 2,
        "deleted": 1,
    }
