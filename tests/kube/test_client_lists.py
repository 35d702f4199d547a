"""Lists of any size are read in pages, and the event loop goes on meanwhile."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from typing import Any

import pytest
from aiohttp import web

from tests.kube.scripted import ScriptedClient, event, play, pods
from wva.api import resource as resource_module
from wva.api.kinds import PODS
from wva.kube import errors, transport
from wva.kube.client import KubeClient
from wva.kube.watch import Progressed, Upserted
from wva.slices import Slices

BODY_BYTES = 20_000


class Large:
    """A server with large pods. It ignores the limit of a request with resourceVersion 0."""

    def __init__(self, server: Any, *, objects: int, size: int = 1000) -> None:
        """Answer the lists of ``server``."""
        self.server = server
        self.items = [
            {"metadata": {"name": f"p{number:04}", "namespace": "demo", "annotations": {"a": "x" * size}}}
            for number in range(objects)
        ]
        server.answer = self.answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Return a page."""
        query = request.query
        start = int(query.get("continue", 0))
        end = len(self.items) if query.get("resourceVersion") == "0" else start + int(query["limit"])
        metadata = {"resourceVersion": "7", **({"continue": str(end)} if end < len(self.items) else {})}
        return web.json_response({"metadata": metadata, "items": self.items[start:end]})

    @property
    def limits(self) -> list[tuple[str | None, str, str | None]]:
        """Version, limit and continue token of each request."""
        queries = [request.query for request in self.server.received]
        return [(query.get("resourceVersion"), query["limit"], query.get("continue")) for query in queries]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "MAX_BODY_BYTES", BODY_BYTES)


async def test_a_list_is_read_page_by_page(server: Any, client: KubeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pages belong to the state of the first one."""
    monkeypatch.setattr("wva.kube.client.PAGE_OBJECTS", 10)
    large = Large(server, objects=25)
    listed = await client.list(PODS)
    assert [pod.metadata.name for pod in listed.items] == [f"p{number:04}" for number in range(25)]
    assert listed.resource_version == "7"
    assert large.limits == [(None, "10", None), (None, "10", "10"), (None, "10", "20")]


async def test_pages_that_are_too_large_are_asked_for_again_with_fewer_objects(server: Any, client: KubeClient) -> None:
    """A list with resourceVersion 0 has no pages.

    If it is too large, the client requests the newest state in smaller pages.
    """
    large = Large(server, objects=100)
    listed = await client.list(PODS, resource_version="0")
    assert len(listed.items) == 100
    assert large.limits[:3] == [("0", "500", None), (None, "62", None), (None, "7", None)]
    assert {limit for _, limit, _ in large.limits[2:]} == {"7"}


async def test_a_version_that_must_be_reached_is_kept_when_pages_get_smaller(server: Any, client: KubeClient) -> None:
    """Only resourceVersion 0 has to be dropped, because its lists have no pages."""
    large = Large(server, objects=30)
    assert len((await client.list(PODS, resource_version="5")).items) == 30
    assert {version for version, _, place in large.limits if place is None} == {"5"}


async def test_one_object_beyond_all_bounds_is_an_error_of_that_kind_alone(server: Any, client: KubeClient) -> None:
    """The client gives up after a few requests, and the error names the path."""
    large = Large(server, objects=1, size=BODY_BYTES)
    with pytest.raises(errors.TooLarge, match=f"GET /api/v1/pods: 200 TooLarge: more than {BODY_BYTES} bytes"):
        await client.list(PODS)
    assert [limit for _, limit, _ in large.limits] == ["500", "62", "7", "1"]


async def test_a_body_without_a_length_is_cut_as_well(server: Any, client: KubeClient) -> None:
    """The limit also holds for a chunked body."""
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse()
        await response.prepare(request)
        while sent < 100 * BODY_BYTES:
            await response.write(b" " * 1000)
            sent += 1000
            await asyncio.sleep(0)
        return response

    server.answer = answer
    with pytest.raises(errors.TooLarge):
        await client.request_json("GET", "/version")


async def test_a_list_whose_rest_has_expired_is_gone(
    server: Any, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller has to list again, because half a list is of no use."""
    monkeypatch.setattr("wva.kube.client.PAGE_OBJECTS", 10)
    large = Large(server, objects=25)

    async def answer(request: web.Request) -> web.StreamResponse:
        if "continue" in request.query:
            return web.json_response({"kind": "Status", "code": 410, "reason": "Expired"}, status=410)
        return await large.answer(request)

    server.answer = answer
    with pytest.raises(errors.Gone):
        await client.list(PODS)


async def test_objects_that_are_too_large_are_counted_and_left_out(
    server: Any, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list has its other objects."""
    monkeypatch.setattr(resource_module, "MAX_OBJECT_BYTES", 2000)
    large = Large(server, objects=3)
    large.items[1]["metadata"]["annotations"]["a"] = "x" * 3000
    listed = await client.list(PODS)
    assert [pod.metadata.name for pod in listed.items] == ["p0000", "p0002"]
    assert listed.undecodable == 1


@pytest.mark.looptime
async def test_a_change_that_is_too_large_keeps_what_was_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The change is counted and skipped, the object keeps its last state, and the watch goes on."""
    monkeypatch.setattr(resource_module, "MAX_OBJECT_BYTES", 2000)
    large = event("MODIFIED", "a", "12", annotations={"a": "x" * 3000})
    client = ScriptedClient(lists=[pods()], streams=[[event("ADDED", "a", "11"), large, event("ADDED", "b", "13")]])
    played = await play(client)
    assert [type(change) for change in played.changes[1:]] == [Upserted, Progressed, Upserted]
    assert played.metric("wva_undecodable_objects_total") == 1
    assert played.watch_versions == ["10", "13"]


async def turns(work: Any) -> int:
    """Return how often another task ran during ``work``."""
    count = 0

    async def other() -> None:
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(other())
    await asyncio.sleep(0)
    before = count
    await work
    task.cancel()
    return count - before


async def test_others_have_their_turn_during_a_long_list(
    server: Any, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other tasks run between objects when a time slice is over. In this test the slices have no length."""
    Large(server, objects=150, size=10)
    monkeypatch.setattr("wva.kube.client.Slices", partial(Slices, 0.0))
    assert await turns(client.list(PODS)) >= 150


async def test_others_have_their_turn_during_a_burst_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tasks run although thousands of lines may wait in the buffer of the connection."""
    monkeypatch.setattr("wva.kube.watch.Slices", partial(Slices, 0.0))
    burst = [event("ADDED", f"p{number}", str(number)) for number in range(11, 500)]
    client = ScriptedClient(lists=[pods()], streams=[burst])
    assert await turns(play(client)) >= len(burst)


async def test_a_list_of_many_large_objects_is_read_in_little_pieces(
    server: Any, client: KubeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Objects have 1.5 MiB each, no page is above the limit, and all objects arrive."""
    monkeypatch.setattr(transport, "MAX_BODY_BYTES", 8 * 1024**2)
    sizes: list[int] = []
    decode = PODS.decode_page

    def measured(data: bytes) -> Any:
        sizes.append(len(data))
        return decode(data)

    monkeypatch.setattr(type(PODS), "decode_page", lambda _, data: measured(data))
    item = json.dumps({"metadata": {"name": "p", "namespace": "demo"}, "spec": {"x": "y" * (3 * 1024**2 // 2)}})

    async def answer(request: web.Request) -> web.StreamResponse:
        start = int(request.query.get("continue", 0))
        end = min(40, start + int(request.query["limit"]))
        rest = f', "continue": "{end}"' if end < 40 else ""
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(f'{{"metadata": {{"resourceVersion": "7"{rest}}}, "items": ['.encode())
        for number in range(start, end):
            await response.write((("," if number > start else "") + item).encode())
        await response.write(b"]}")
        return response

    server.answer = answer
    assert len((await client.list(PODS)).items) == 40
    assert max(sizes) <= 8 * 1024**2
