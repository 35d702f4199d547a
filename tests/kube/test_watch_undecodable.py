"""Objects that cannot be decoded are counted, logged and left out. Everything else goes on."""

from __future__ import annotations

import json

import pytest
from structlog.testing import capture_logs

from tests.kube.scripted import ScriptedClient, event, play, pod, pods
from wva.api.meta import Key
from wva.kube.watch import Deleted, Progressed, Upserted

pytestmark = pytest.mark.looptime


def broken(kind: str, name: str, version: str) -> bytes:
    """Return an event whose labels are no mapping."""
    return event(kind, name, version, labels="oops")


async def test_undecodable_event_is_skipped_and_the_version_advances() -> None:
    """The events around a broken one arrive, and the next watch starts after it."""
    stream = [event("ADDED", "a", "11"), broken("MODIFIED", "b", "12")]
    played = await play(ScriptedClient(lists=[pods()], streams=[stream, [event("ADDED", "c", "13")]]))
    assert played.changes[1:] == [Upserted(pod("a", "11")), Progressed("12"), Upserted(pod("c", "13"))]
    assert played.watch_versions == ["10", "12", "13"]
    assert played.metric("wva_undecodable_objects_total") == 1


async def test_undecodable_deletion_still_deletes() -> None:
    """A deletion needs only the key of the object."""
    played = await play(ScriptedClient(lists=[pods()], streams=[[broken("DELETED", "b", "12")]]))
    assert played.changes[1:] == [Deleted(Key("demo", "b")), Progressed("12")]


async def test_deletion_without_version_keeps_the_last_one() -> None:
    """An object without a version does not change the version of the watch."""
    line = json.dumps({"type": "DELETED", "object": {"metadata": {"name": "b", "namespace": "demo"}, "status": 1}})
    played = await play(ScriptedClient(lists=[pods()], streams=[[event("ADDED", "a", "11"), line.encode()]]))
    assert played.changes[-1] == Deleted(Key("demo", "b"))
    assert played.watch_versions == ["10", "11"]


async def test_lines_that_are_no_events_are_skipped() -> None:
    """Text in the stream (an error page of a proxy, half a line) is counted, and the events around it arrive."""
    stream = [b"<html>", event("ADDED", "a", "11"), b'{"type":"ADDED","obj', b'{"type":3}', b"[]"]
    played = await play(ScriptedClient(lists=[pods()], streams=[stream]))
    assert played.changes[1:] == [Upserted(pod("a", "11"))]
    assert played.watch_versions == ["10", "11"]
    assert played.metric("wva_undecodable_objects_total") == 4


async def test_stream_of_nothing_but_garbage_is_a_failure() -> None:
    """Text that is no event does not count as an event, so the watch backs off."""
    played = await play(ScriptedClient(lists=[pods()], streams=[[b"upstream connect error"], [b"x", b"y"]]))
    assert played.watch_times == [0.0, 0.8, 2.4]


async def test_event_without_metadata_is_skipped() -> None:
    """An object without metadata changes neither the objects nor the version."""
    line = json.dumps({"type": "ADDED", "object": "no object"}).encode()
    played = await play(ScriptedClient(lists=[pods()], streams=[[line, event("ADDED", "a", "11")]]))
    assert played.changes[1:] == [Upserted(pod("a", "11"))]


async def test_broken_items_of_a_list_are_counted() -> None:
    """The good items of the list are used."""
    played = await play(ScriptedClient(lists=[pods(pod("a", "1"), undecodable=3)]))
    assert len(played.changes) == 1
    assert played.metric("wva_undecodable_objects_total") == 3


async def test_undecodable_objects_are_logged_once_per_minute() -> None:
    """Many undecodable objects do not fill the log."""
    lines = [broken("ADDED", f"p{number}", str(number)) for number in range(11, 31)]
    with capture_logs() as logs:
        await play(ScriptedClient(lists=[pods()], streams=[[*lines, 61.0, *lines]]))
    assert [entry["event"] for entry in logs] == ["object_undecodable"] * 2
    assert "labels" in logs[0]["problem"]
