"""Failures of watches and lists: how long the watch waits, and that it resumes a lost stream without a new list.

The delays themselves are tested in test_client_backoff.
"""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.kube.scripted import ScriptedClient, Step, event, play, pods
from wva.kube import errors

pytestmark = pytest.mark.looptime

REFUSED = errors.Unreachable(0, "ClientConnectorError", "connection refused")
THROTTLED = errors.TooManyRequests(429, "TooManyRequests", "slow down", 20.0)
DENIED = errors.Forbidden(403, "Forbidden", "pods is forbidden")


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (REFUSED, "unreachable"),
        (errors.Unavailable(503, "", "down"), "unavailable"),
        (errors.TooManyRequests(429, "", "slow down"), "throttled"),
        (errors.Unauthorized(401, "Unauthorized", "who?"), "denied"),
        (DENIED, "denied"),
    ],
)
async def test_failing_watch_is_resumed_with_growing_waits(error: Exception, cause: str) -> None:
    """The watch resumes from the same version without a list, after 0.8, 1.6, 3.2 ...

    seconds (the upper bounds of the jitter).
    """
    client = ScriptedClient(lists=[pods()], streams=[[error]] * 3)
    played = await play(client)
    assert len(client.listed) == 1
    assert played.watch_versions == ["10"] * 4
    assert played.watch_times == [0.0, 0.8, 2.4, 5.6]
    assert played.metric("wva_watch_restarts_total", cause=cause) == 3


async def test_stream_lost_in_the_middle_is_resumed_from_the_last_event() -> None:
    """After a connection breaks, the watch resumes from its last event and needs no list."""
    client = ScriptedClient(lists=[pods()], streams=[[event("ADDED", "a", "11"), 5.0, REFUSED]])
    played = await play(client)
    assert len(client.listed) == 1
    assert played.watch_versions == ["10", "11"]


async def test_retry_after_is_honoured() -> None:
    """After a 429 with Retry-After: 20 the watch waits for 20 seconds, although its own delay is shorter."""
    played = await play(ScriptedClient(lists=[pods()], streams=[[THROTTLED]]))
    assert played.watch_times == [0.0, 20.0]


async def test_absurd_retry_after_does_not_blind_us() -> None:
    """A Retry-After of a day is cut to two minutes."""
    error = errors.Unavailable(503, "", "maintenance", 86_400.0)
    played = await play(ScriptedClient(lists=[pods()], streams=[[error]]))
    assert played.watch_times == [0.0, 120.0]


async def test_waits_are_capped_and_start_over_after_quiet_minutes() -> None:
    """The wait stops growing at 30 s; after a watch of more than 2 minutes it starts at 0.8 s again."""
    streams: list[list[Step]] = [[REFUSED] for _ in range(8)]
    client = ScriptedClient(lists=[pods()], streams=[*streams, [200.0, REFUSED]])
    played = await play(client)
    waits = [
        round(after - before, 3) for before, after in zip(played.watch_times, played.watch_times[1:], strict=False)
    ]
    assert waits[5:] == [25.6, 30.0, 30.0, 200.8]


async def test_watch_that_ends_at_once_is_a_failure() -> None:
    """A server that closes every watch at once without an event gets 4 requests in 6 s."""
    played = await play(ScriptedClient(lists=[pods()], streams=[[], [0.5], []]))
    assert played.watch_times == [0.0, 0.8, 2.9, 6.1]
    assert played.metric("wva_watch_restarts_total", cause="unavailable") == 3


async def test_watch_cut_after_each_event_takes_a_rest() -> None:
    """A stream that is cut after an event is no failure, but the watch waits 0.2 s before the next one."""
    streams = [[event("ADDED", "a", str(version))] for version in (11, 12, 13)]
    played = await play(ScriptedClient(lists=[pods()], streams=streams))
    assert played.watch_times == [0.0, 0.2, 0.4, 0.6]
    assert played.metric("wva_watch_restarts_total", cause="ended") == 3


async def test_failing_list_is_retried_with_growing_waits() -> None:
    """Lists wait like watches. After the first success the watch begins."""
    client = ScriptedClient(lists=[REFUSED, errors.Unavailable(503, "", "down", 5.0), pods()])
    played = await play(client)
    assert played.list_times == [0.0, 0.8, 5.8]
    assert played.watch_versions == ["10"]
    assert played.metric("wva_lists_total") == 1


async def test_kind_that_is_not_served_is_awaited() -> None:
    """A 404 (the CRD is not installed) is retried for ever, and logged once per minute."""
    missing = errors.NotFound(404, "NotFound", "the server could not find the requested resource")
    with capture_logs() as logs:
        played = await play(ScriptedClient(lists=[missing] * 9))
    assert played.list_times[-1] == pytest.approx(140.4)
    assert [entry["event"] for entry in logs] == ["resource_not_served"] * 2
    assert played.target.error == "404 NotFound: the server could not find the requested resource"


async def test_denial_is_logged_once_per_minute_and_retried() -> None:
    """A 403 does not end the watch, because the right may be granted later."""
    with capture_logs() as logs:
        client = ScriptedClient(lists=[pods()], streams=[[DENIED]] * 5)
        await play(client)
    assert len(client.watched) == 6
    assert [entry["event"] for entry in logs] == ["watch_denied"]
    assert logs[0]["resource"] == "pods"


async def test_watch_refused_for_good_lists_anew() -> None:
    """A version that the server cannot read (400) would fail for ever. So the watch waits, and lists again."""
    refused = errors.ApiError(400, "BadRequest", "invalid resource version")
    played = await play(ScriptedClient(lists=[pods(), pods(version="20")], streams=[[refused]]))
    assert played.list_times == [0.0, 0.8]
    assert played.watch_versions == ["10", "20"]
    assert played.metric("wva_watch_restarts_total", cause="failed") == 1


async def test_success_clears_the_reported_error() -> None:
    """The reported error is that of the last request."""
    played = await play(ScriptedClient(lists=[REFUSED, pods()], streams=[[event("ADDED", "a", "11")]]))
    assert played.target.error is None
