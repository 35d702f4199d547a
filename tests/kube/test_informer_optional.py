"""Kinds that need not exist: an absent one is empty and ready, and taken up when it appears."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from tests.kube.scripted import ScriptedClient, pod, pods
from tests.kube.test_informer_follows import run_until
from wva.api.kinds import PODS
from wva.instruments import Instruments
from wva.kube import errors
from wva.kube.informer import SILENCE_LIMIT_SECONDS, Informer

ABSENT = errors.NotFound(404, "NotFound", "the server could not find the requested resource")
DENIED = errors.Forbidden(403, "Forbidden", "pods is forbidden")


@pytest.mark.looptime
@pytest.mark.parametrize("refusal", [ABSENT, DENIED])
async def test_an_absent_kind_is_empty_and_ready(instruments: Instruments, refusal: errors.ApiError) -> None:
    """Nobody waits for a kind that is not served or not ours; why it is not there can be asked for."""
    client = ScriptedClient(lists=[refusal])
    informer = Informer(client, PODS, instruments=instruments, optional=True)
    assert informer.status() == "pods not synced", "whether it is there is not known yet"
    await run_until(informer, client.done)
    assert informer.store.synced.is_set()
    assert len(informer.store) == 0
    assert informer.status() is None
    assert informer.absent == str(refusal)


@pytest.mark.looptime
async def test_a_kind_that_appears_is_taken_up(instruments: Instruments) -> None:
    """Looked for again within the longest back-off, and said once, not each time."""
    client = ScriptedClient(lists=[*[ABSENT] * 20, pods(pod("a", "1"))])
    informer = Informer(client, PODS, instruments=instruments, optional=True)
    with capture_logs() as logs:
        appeared = asyncio.Event()
        informer.store.subscribe(lambda _old, _new: appeared.set())
        await run_until(informer, appeared)
    assert informer.absent is None
    assert [entry["event"] for entry in logs] == ["optional_kind_absent"]
    times = [at for at, _ in client.listed]
    assert max(later - earlier for earlier, later in pairwise(times)) <= 30.0


@pytest.mark.looptime
async def test_a_kind_that_is_removed_leaves_an_empty_store(instruments: Instruments) -> None:
    """Its definition was deleted: what was known of it is no longer true, and nothing becomes unready for it."""
    client = ScriptedClient(lists=[pods(pod("a", "1")), *[ABSENT] * 40], streams=[[ABSENT]])
    informer = Informer(client, PODS, instruments=instruments, optional=True)
    running = asyncio.create_task(informer.run())
    await asyncio.sleep(SILENCE_LIMIT_SECONDS + 10)
    assert len(informer.store) == 0
    assert informer.status() is None
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.looptime
async def test_an_optional_kind_behind_an_outage_is_waited_for(instruments: Instruments) -> None:
    """An API server that does not answer says nothing about what it serves."""
    client = ScriptedClient(lists=[errors.Unreachable(0, "ClientConnectorError", "connection refused")])
    informer = Informer(client, PODS, instruments=instruments, optional=True)
    await run_until(informer, client.done)
    assert not informer.store.synced.is_set()
    assert informer.status() == "pods not synced: ClientConnectorError: connection refused"
