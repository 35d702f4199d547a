"""Watch streams of the embedded server: bookmarks, ends, and network faults."""

import asyncio
import json

import aiohttp
import msgspec
import pytest

from tests.sim.apiserver.widgets import WIDGETS, config_map
from wva.api.meta import Key
from wva.sim.apiserver import EmbeddedApiServer, Patch, ServerOptions
from wva.sim.apiserver import collection as collection_module
from wva.sim.apiserver import watches as watches_module
from wva.sim.apiserver.selectors import Selection

CONFIG_MAPS = "/api/v1/configmaps"
A = Key("default", "a")
BOOKMARKS = {"allowWatchBookmarks": "true"}


class Lines:
    """The events of one open watch."""

    def __init__(self, response):
        """Read from ``response``."""
        self.response = response

    async def next(self):
        """Return type and object of the next event, None at the end of the stream."""
        async with asyncio.timeout(10):
            line = await self.response.content.readline()
        event = json.loads(line) if line else None
        return event and (event["type"], event["object"])

    async def names(self, count):
        """Return type and name of the next events."""
        events = [await self.next() for _ in range(count)]
        return [(kind, value["metadata"]["name"]) for kind, value in events]


def watching(session, path=CONFIG_MAPS, **query):
    """Open a watch."""
    timeout = aiohttp.ClientTimeout(total=None)
    return session.get(path, params={"watch": "1", **query}, timeout=timeout)


async def until(condition):
    """Let the loop run until a condition holds."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  # the condition is the other side of a socket
            await asyncio.sleep(0.005)


async def test_a_bookmark_tells_the_version_of_the_whole_world(api, session):
    """A bookmark has the version of the whole store, even if no object of the kind changed."""
    async with watching(session, **BOOKMARKS) as response:
        lines = Lines(response)
        assert (await lines.next())[1]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        api.store.create("secrets", config_map("s"))
        api.faults.send_bookmarks()
        kind, value = await lines.next()
    assert kind == "BOOKMARK"
    assert value == {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"resourceVersion": str(api.store.version)}}


async def test_bookmarks_come_by_themselves_and_only_to_those_who_ask():
    """Bookmarks come at the set interval. A watch that does not ask for them gets none."""
    options = ServerOptions(bookmark_seconds=0.02)
    async with EmbeddedApiServer(options=options) as api, aiohttp.ClientSession(api.url) as session:
        version = str(api.store.version)
        async with watching(session, resourceVersion=version, **BOOKMARKS) as response:
            lines = Lines(response)
            assert [(await lines.next())[0] for _ in range(3)] == ["BOOKMARK"] * 3
        async with watching(session, resourceVersion=version, timeoutSeconds="1") as response:
            assert await Lines(response).next() is None


async def test_the_end_of_a_watch_follows_its_last_events(api, session):
    """Before an orderly end, the watch still sends all events that were written earlier."""
    async with watching(session) as response:
        await until(lambda: len(api.watches) == 1)
        api.store.create("configmaps", config_map("a"))
        api.faults.end_watches()
        lines = Lines(response)
        assert await lines.names(1) == [("ADDED", "a")]
        assert await lines.next() is None
    await until(lambda: len(api.watches) == 0)


async def test_a_cut_watch_breaks(api, session):
    """The client sees a broken connection instead of an end, and the server forgets the watch."""
    async with watching(session) as response:
        await until(lambda: len(api.watches) == 1)
        api.faults.cut_watches()
        with pytest.raises(aiohttp.ClientError):
            await response.content.readline()
    await until(lambda: len(api.watches) == 0)


async def test_a_stalled_watch_says_nothing_and_catches_up(api, session):
    """A stalled server sends no bytes, not even on a new watch or at its end. Afterwards all events come in order."""
    async with watching(session, resourceVersion=str(api.store.version), **BOOKMARKS) as response:
        await until(lambda: len(api.watches) == 1)
        api.faults.stall_watches()
        api.store.create("configmaps", config_map("a"))
        api.faults.send_bookmarks()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await response.content.readline()
        async with watching(session) as late:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.05):
                    await late.content.readline()
        api.faults.resume_watches()
        lines = Lines(response)
        assert await lines.names(1) == [("ADDED", "a")]
        assert (await lines.next())[0] == "BOOKMARK"


async def test_an_expired_watch_carries_410(api, session):
    """An open watch gets an ERROR event with 410, and ends."""
    async with watching(session) as response:
        await until(lambda: len(api.watches) == 1)
        api.faults.expire_watches()
        kind, value = await Lines(response).next()
        assert (kind, value["code"], value["reason"]) == ("ERROR", 410, "Expired")
        assert await Lines(response).next() is None


async def test_after_a_compaction_only_new_lists_help(api, session):
    """An older watch gets 410 in its stream, an older list 410 as status. Watches from the present version work."""
    for name in "abc":
        api.store.create("configmaps", config_map(name))
    async with session.get(CONFIG_MAPS, params={"limit": "1"}) as response:
        metadata = (await response.json())["metadata"]
    old = str(api.store.version - 1)
    api.faults.compact()
    async with watching(session, resourceVersion=old) as response:
        assert response.status == 200
        assert (await Lines(response).next())[1]["code"] == 410
    async with session.get(CONFIG_MAPS, params={"limit": "1", "continue": metadata["continue"]}) as response:
        assert response.status == 410
        assert (await response.json())["reason"] == "Expired"
    async with watching(session, resourceVersion=str(api.store.version)) as response:
        api.store.delete("configmaps", A)
        assert await Lines(response).names(1) == [("DELETED", "a")]


async def test_a_client_that_goes_away_is_forgotten(api, session):
    """When a client closes the connection, the server ends its watch before the next event."""
    async with watching(session) as response:
        await until(lambda: len(api.watches) == 1)
        response.close()
        await until(lambda: len(api.watches) == 0)


async def test_a_client_that_does_not_read_is_dropped(api, session, monkeypatch):
    """The server ends a stream with too many waiting lines instead of filling its memory."""
    monkeypatch.setattr(watches_module, "BACKLOG_LINES", 3)
    api.faults.stall_watches()
    async with watching(session, resourceVersion=str(api.store.version)) as response:
        await until(lambda: len(api.watches) == 1)
        for name in "abcdef":
            api.store.create("configmaps", config_map(name))
        api.faults.resume_watches()
        lines = Lines(response)
        assert await lines.names(4) == [("ADDED", name) for name in "abcd"]
        assert await lines.next() is None


async def test_many_watchers_cost_one_encoding(api, session, monkeypatch):
    """The server encodes a state of an object once, for any number of watches and lists."""
    encoded = []

    def encode(value):
        encoded.append(value["metadata"]["name"])
        return msgspec.json.encode(value)

    monkeypatch.setattr(collection_module, "_encode", encode)
    async with watching(session) as one, watching(session) as two, watching(session, labelSelector="x!=y") as three:
        await until(lambda: len(api.watches) == 3)
        api.store.create("configmaps", config_map("a"))
        for response in (one, two, three):
            assert await Lines(response).names(1) == [("ADDED", "a")]
        async with session.get(CONFIG_MAPS) as response:
            assert len((await response.json())["items"]) == 1
    assert encoded == ["a"]


def test_watchers_of_a_change_share_its_line(store):
    """All watchers of a change get the same text object. The server drops it afterwards."""
    lines, kept = [], []

    def follow(change):
        kept.append(change)
        lines.append(store.collection("configmaps").line(change, Selection()))

    store.subscribe("configmaps", follow)
    store.subscribe("configmaps", follow)
    store.create("configmaps", config_map("a"))
    assert lines[0] is lines[1]
    assert kept[0].lines == {}


async def test_one_object_can_be_watched_by_its_path(api, session):
    """A watch on the path of an object has the events of that object alone."""
    api.store.create("configmaps", config_map("a"))
    api.store.create("configmaps", config_map("b"))
    async with watching(session, "/api/v1/namespaces/default/configmaps/b") as response:
        assert await Lines(response).names(1) == [("ADDED", "b")]
        api.store.patch("configmaps", A, Patch(body={"data": {"key": "2"}}))
        api.store.patch("configmaps", Key("default", "b"), Patch(body={"data": {"key": "2"}}))
        assert await Lines(response).names(1) == [("MODIFIED", "b")]


async def test_the_end_of_a_kind_ends_its_watches(api, session):
    """When the server no longer serves a kind, its watches end."""
    async with watching(session, "/apis/test.example.com/v1/widgets") as response:
        await until(lambda: len(api.watches) == 1)
        api.store.journal.stop_serving(WIDGETS)
        assert await Lines(response).next() is None
    async with session.get("/apis/test.example.com/v1/widgets") as response:
        assert response.status == 404


async def test_the_server_stops_with_open_watches():
    """When the server stops, it ends all watches, stalled ones too, and no longer accepts connections."""
    async with aiohttp.ClientSession() as session:
        async with EmbeddedApiServer() as api:
            url = api.url
            api.faults.stall_watches()
            response = await watching(session, url + CONFIG_MAPS)
            await until(lambda: len(api.watches) == 1)
        assert await response.content.read() == b""
        with pytest.raises(RuntimeError):
            assert api.url
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(url + CONFIG_MAPS)
