"""Optional kinds: an absent kind is empty and ready, and is followed when it appears."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import pairwise
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.kube.scripted import ScriptedClient, pod, pods
from tests.kube.test_informer_follows import run_until
from wva.api.kinds import PODS
from wva.instruments import Instruments
from wva.kube import errors
from wva.kube.informer import REPORT_AFTER_SECONDS, Informer
from wva.kube.watch import KEPT_SECONDS

ABSENT = errors.NotFound(404, "NotFound", "the server could not find the requested resource")
DENIED = errors.Forbidden(403, "Forbidden", "pods is forbidden")


@asynccontextmanager
async def running(informer: Informer[Any]) -> AsyncIterator[None]:
    """Run an informer during the body."""
    task = asyncio.create_task(informer.run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def later(informer: Informer[Any], seconds: float) -> str | None:
    """Return ``informer.staleness`` some time later."""
    await asyncio.sleep(seconds)
    return informer.staleness


def kept_caches(instruments: Instruments) -> float | None:
    """Return the gauge of caches that are kept."""
    return instruments.registry.get_sample_value("wva_caches_kept", {"resource": "pods"})


@pytest.mark.looptime
@pytest.mark.parametrize("refusal", [ABSENT, DENIED])
async def test_an_absent_kind_is_empty_and_ready(instruments: Instruments, refusal: errors.ApiError) -> None:
    """A kind that is not served, or that WVA may not read, counts as synced and empty. ``absent`` says why."""
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
    """The informer retries at least every 30 s, and logs the absence once."""
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
@pytest.mark.parametrize("refusal", [ABSENT, DENIED])
async def test_a_kind_that_is_removed_leaves_an_empty_store_once_that_has_lasted(
    instruments: Instruments, refusal: errors.ApiError
) -> None:
    """The kind is deleted, or WVA loses the right to read it.

    The informer stays ready, and keeps the objects for five minutes.
    """
    client = ScriptedClient(lists=[pods(pod("a", "1")), *[refusal] * 40], streams=[[100.0, ABSENT]])
    informer = Informer(client, PODS, instruments=instruments, optional=True)
    with capture_logs() as logs:
        async with running(informer):
            await asyncio.sleep(100.0 + REPORT_AFTER_SECONDS - 1)
            assert informer.staleness is None
            await asyncio.sleep(KEPT_SECONDS - REPORT_AFTER_SECONDS)
            assert len(informer.store) == 1
            assert informer.absent is None
            assert informer.staleness is not None
            assert informer.staleness.startswith(f"{refusal}; in force: pods as known at 20")
            assert informer.staleness == (await later(informer, 0.5)), "the text stands still"
            assert informer.status() is None
            assert kept_caches(instruments) == 1
            await asyncio.sleep(32)
            assert len(informer.store) == 0
            assert informer.absent == str(refusal)
            assert (informer.staleness, kept_caches(instruments)) == (None, 0)
            assert informer.status() is None
    assert [entry["event"] for entry in logs] == ["optional_kind_refused", "optional_kind_absent"]
    assert logs[0]["in_force"] == "as known 100 s ago"


@pytest.mark.looptime
@pytest.mark.parametrize("refusal", [ABSENT, DENIED])
@pytest.mark.parametrize("looks", [1, 5])
async def test_a_refusal_that_does_not_last_changes_nothing(
    instruments: Instruments, refusal: errors.ApiError, looks: int
) -> None:
    """An API server that starts, or a role that is replaced, causes short refusals.

    Handlers see no deletion, and the watch goes on.
    """
    lists = [pods(pod("a", "1")), *[refusal] * looks, pods(pod("a", "1"), pod("b", "12"), version="12")]
    client = ScriptedClient(lists=lists, streams=[[20.0, errors.Gone(410, "Gone", "too old")]])
    informer = Informer(client, PODS, instruments=instruments, optional=True)
    seen: list[tuple[bool, bool]] = []
    informer.store.subscribe(lambda old, new: seen.append((old is None, new is None)))
    with capture_logs() as logs:
        await run_until(informer, client.done)
    assert seen == [(True, False), (True, False)]
    assert (informer.staleness, informer.absent, kept_caches(instruments)) == (None, None, 0)
    assert [entry["event"] for entry in logs if entry["event"].startswith("optional")] == [
        "optional_kind_refused",
        "optional_kind_back",
    ]


@pytest.mark.looptime
async def test_a_long_silence_and_two_looks_are_not_enough(instruments: Instruments) -> None:
    """Only the time of the refusals counts. The outage before them does not."""
    outage = errors.Unreachable(0, "ClientConnectorError", "connection refused")
    lists = [pods(pod("a", "1")), *[outage] * 60, DENIED, DENIED, pods(pod("a", "1"))]
    client = ScriptedClient(lists=lists, streams=[[errors.Gone(410, "Gone", "too old")]])
    informer = Informer(client, PODS, instruments=instruments, optional=True)
    lengths: list[int] = []
    informer.store.subscribe(lambda _old, _new: lengths.append(len(informer.store)))
    await run_until(informer, client.done)
    assert lengths == [1]


@pytest.mark.looptime
async def test_a_watch_that_is_denied_is_replaced_by_lists(instruments: Instruments) -> None:
    """With the right to list but not to watch, the informer lists every few minutes, and its store is never empty."""
    lists = [pods(pod(f"p{number}", "1"), version=str(number + 10)) for number in range(4)]
    client = ScriptedClient(lists=lists, streams=[[DENIED]] * 100)
    informer = Informer(client, PODS, instruments=instruments, optional=True)
    lengths: list[int] = []
    informer.store.subscribe(lambda _old, new: lengths.append(len(informer.store)) if new else None)
    await run_until(informer, client.done)
    assert lengths == [1] * 4
    times = [at for at, _ in client.listed]
    assert all(KEPT_SECONDS <= later - earlier <= KEPT_SECONDS + 61 for earlier, later in pairwise(times))


@pytest.mark.looptime
async def test_an_optional_kind_behind_an_outage_is_waited_for(instruments: Instruments) -> None:
    """If the API server does not answer, the informer does not count the kind as absent."""
    client = ScriptedClient(lists=[errors.Unreachable(0, "ClientConnectorError", "connection refused")])
    informer = Informer(client, PODS, instruments=instruments, optional=True)
    await run_until(informer, client.done)
    assert not informer.store.synced.is_set()
    assert informer.status() == "pods not synced: ClientConnectorError: connection refused"
