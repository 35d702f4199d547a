"""An informer with a real client over a real socket, and what it reports to /readyz."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from aiohttp import web

from tests.kube.scripted import Idle, ScriptedClient, bookmark, error_event, event, pod, pods
from wva.api.kinds import PODS
from wva.api.meta import Key
from wva.instruments import Instruments
from wva.kube import errors
from wva.kube.client import KubeClient
from wva.kube.informer import Informer


def item(name: str, version: str) -> dict[str, Any]:
    """Return a pod as JSON."""
    return {"metadata": {"name": name, "namespace": "demo", "resourceVersion": version}}


async def run_until(informer: Informer[Any], event_: asyncio.Event) -> None:
    """Run an informer until the event is set."""
    running = asyncio.create_task(informer.run())
    waiting = asyncio.create_task(event_.wait())
    await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    assert event_.is_set()


async def test_store_follows_the_server(server: Any, client: KubeClient, instruments: Instruments) -> None:
    """After a list, changes, a deletion, a 410 and a second list, the store has the state of the server."""
    lists = iter([("10", [item("a", "1"), item("b", "2")]), ("20", [item("c", "20")])])
    streams = iter(
        [
            [event("MODIFIED", "a", "11"), event("DELETED", "b", "12")],
            [event("ADDED", "d", "13"), error_event(410, "Expired")],
        ]
    )
    over = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            version, items = next(lists)
            return web.json_response({"metadata": {"resourceVersion": version}, "items": items})
        lines = next(streams, None)
        response = web.StreamResponse()
        await response.prepare(request)
        if lines is None:
            over.set()
            lines = [bookmark("21")]
        for line in lines:
            await response.write(line + b"\n")
        return response

    server.answer = answer
    informer = Informer(client, PODS, instruments=instruments)
    history: list[tuple[str, str, str]] = []

    def remember(old: Any, new: Any) -> None:
        name = (new or old).metadata.name
        history.append((name, *(obj.metadata.resource_version if obj else "" for obj in (old, new))))

    informer.store.subscribe(remember)
    await run_until(informer, over)
    assert history == [
        ("a", "", "1"),
        ("b", "", "2"),
        ("a", "1", "11"),
        ("b", "2", ""),
        ("d", "", "13"),
        ("a", "11", ""),
        ("d", "13", ""),
        ("c", "", "20"),
    ]
    assert informer.store.keys() == [Key("demo", "c")]
    assert instruments.registry.get_sample_value("wva_cache_objects", {"resource": "pods"}) == 1
    assert json.loads(json.dumps(server.received[0].query)) == {"resourceVersion": "0", "limit": "500"}


async def test_options_reach_the_server(server: Any, client: KubeClient, instruments: Instruments) -> None:
    """List and watch have the namespace and the selectors."""
    over = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            over.set()
        return web.json_response({"metadata": {"resourceVersion": "10"}, "items": []})

    server.answer = answer
    informer = Informer(
        client, PODS, instruments=instruments, namespace="demo", label_selector="a=b", field_selector="c=d"
    )
    await run_until(informer, over)
    assert {request.path for request in server.received} == {"/api/v1/namespaces/demo/pods"}
    assert {(request.query["labelSelector"], request.query["fieldSelector"]) for request in server.received} == {
        ("a=b", "c=d")
    }


@pytest.mark.looptime
async def test_status_until_the_first_list(instruments: Instruments) -> None:
    """Before the first list the cache is not ready, and the status has the last error."""
    refused = errors.Forbidden(403, "Forbidden", "pods is forbidden", attempted="GET /api/v1/pods")
    client = ScriptedClient(lists=[refused])
    informer = Informer(client, PODS, instruments=instruments)
    assert informer.status() == "pods not synced"
    await run_until(informer, client.done)
    assert informer.status() == "pods not synced: GET /api/v1/pods: 403 Forbidden: pods is forbidden"


@pytest.mark.looptime
async def test_status_is_fine_while_streams_are_quiet(instruments: Instruments) -> None:
    """A collection without changes, on a server without bookmarks, stays ready."""
    client = ScriptedClient(lists=[pods(pod("a", "1"))], streams=[[Idle()]] * 10)
    informer = Informer(client, PODS, instruments=instruments)
    await run_until(informer, client.done)
    assert asyncio.get_running_loop().time() == pytest.approx(700.0, abs=0.1)
    assert informer.status() is None


@pytest.mark.looptime
async def test_status_is_fine_during_one_long_stream(instruments: Instruments) -> None:
    """Every event and bookmark counts as contact, not only the start and the end of a stream."""
    lines = [step for version in range(11, 21) for step in (60.0, bookmark(str(version)))]
    client = ScriptedClient(lists=[pods()], streams=[[*lines, 1000.0]])
    informer = Informer(client, PODS, instruments=instruments)
    running = asyncio.create_task(informer.run())
    await asyncio.sleep(650.0)
    assert informer.status() is None
    assert informer.store.resource_version == "20"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.looptime
async def test_idle_limit_can_be_set(instruments: Instruments) -> None:
    """A server without bookmarks needs a longer idle limit."""
    client = ScriptedClient(lists=[pods()])
    await run_until(Informer(client, PODS, instruments=instruments, idle_seconds=300.0), client.done)
    assert [watched.idle_seconds for watched in client.watched] == [300.0]


@pytest.mark.looptime
async def test_status_reports_an_outage_that_lasts(instruments: Instruments) -> None:
    """The cache is not ready after three minutes of failures."""
    lost = errors.Unreachable(0, "ClientConnectorError", "connection refused")
    client = ScriptedClient(lists=[pods()], streams=[[lost]] * 20)
    informer = Informer(client, PODS, instruments=instruments)
    running = asyncio.create_task(informer.run())
    await asyncio.sleep(175.0)
    assert informer.status() is None
    await asyncio.sleep(10.0)
    assert informer.status() == "pods without contact for 185 s: ClientConnectorError: connection refused"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.looptime
async def test_two_informers_of_a_kind_share_the_gauge(instruments: Instruments) -> None:
    """The gauge is the sum over both namespaces."""
    first = ScriptedClient(lists=[pods(pod("a", "1"), pod("b", "1"))])
    second = ScriptedClient(lists=[pods(pod("c", "1"))], streams=[[event("DELETED", "c", "11")]])
    await run_until(Informer(first, PODS, instruments=instruments, namespace="x"), first.done)
    await run_until(Informer(second, PODS, instruments=instruments, namespace="y"), second.done)
    assert instruments.registry.get_sample_value("wva_cache_objects", {"resource": "pods"}) == 2


@pytest.mark.looptime
async def test_transform_reaches_the_store(instruments: Instruments) -> None:
    """The store does not keep fields that the transform drops."""
    client = ScriptedClient(lists=[pods(pod("a", "1"))])
    informer = Informer(client, PODS, instruments=instruments, transform=lambda obj: type(obj)(metadata=obj.metadata))
    await run_until(informer, client.done)
    assert informer.store.list() == [pod("a", "1")]
