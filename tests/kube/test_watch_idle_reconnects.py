"""Streams that are silent or end: the watch resumes from the last version, without a new list."""

from __future__ import annotations

import pytest

from tests.kube.scripted import Idle, ScriptedClient, event, play, pods

pytestmark = pytest.mark.looptime


async def test_idle_stream_is_resumed_without_a_list() -> None:
    """When the idle limit of 70 s is over, the watch starts again from the last version."""
    client = ScriptedClient(lists=[pods()], streams=[[event("ADDED", "a", "11"), Idle()]])
    played = await play(client)
    assert len(client.listed) == 1
    assert played.watch_versions == ["10", "11"]
    assert played.watch_times == [0.0, 70.0]
    assert played.metric("wva_watch_restarts_total", cause="idle") == 1


async def test_idle_stream_counts_as_contact() -> None:
    """A stream without data is no outage, because a quiet collection sends none."""
    played = await play(ScriptedClient(lists=[pods()], streams=[[Idle()]]))
    assert played.target.reached_at == pytest.approx(70.0, abs=0.01)
    assert played.target.error is None


async def test_clean_end_is_resumed_at_once() -> None:
    """When the server ends a watch, it is resumed without a list and without waiting."""
    client = ScriptedClient(lists=[pods()], streams=[[300.0, event("ADDED", "a", "11")]])
    played = await play(client)
    assert len(client.listed) == 1
    assert played.watch_versions == ["10", "11"]
    assert played.watch_times == [0.0, 300.0]
    assert played.metric("wva_watch_restarts_total", cause="ended") == 1


async def test_quiet_watch_of_a_second_is_no_failure() -> None:
    """A watch that lasted a second without events has ended cleanly."""
    played = await play(ScriptedClient(lists=[pods()], streams=[[1.5]]))
    assert played.watch_times == [0.0, 1.5]
    assert played.metric("wva_watch_restarts_total", cause="ended") == 1


async def test_watch_time_is_spread() -> None:
    """Each watch requests a random time between 290 and 590 seconds."""
    client = ScriptedClient(lists=[pods()], streams=[[2.0]] * 20)
    await play(client)
    asked = {watched.timeout_seconds for watched in client.watched}
    assert len(asked) > 5
    assert min(asked) >= 290
    assert max(asked) <= 590


async def test_selectors_and_limits_reach_every_request() -> None:
    """The list and each watch have the namespace, the selectors and the idle limit."""
    client = ScriptedClient(lists=[pods()], streams=[[2.0]])
    await play(
        client, namespace="demo", label_selector="app=vllm", field_selector="status.phase=Running", idle_seconds=7
    )
    assert set(client.selectors) == {("demo", "app=vllm", "status.phase=Running")}
    assert {watched.idle_seconds for watched in client.watched} == {7}


async def test_every_stream_is_closed() -> None:
    """No stream is left open when the next one starts or the watch is cancelled."""
    client = ScriptedClient(lists=[pods()], streams=[[2.0], [event("ADDED", "a", "11"), Idle()]])
    await play(client)
    assert client.closed == len(client.watched) == 3
