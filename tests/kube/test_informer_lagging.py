"""An informer whose API server is behind the other servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.kube.conftest import Connect
from wva.api.kinds import CONFIG_MAPS
from wva.api.meta import Key
from wva.instruments import Instruments
from wva.kube.informer import Informer
from wva.sim.apiserver import EmbeddedApiServer, Patch

NAME = Key("default", "a")


async def until(check: Callable[[], Any]) -> None:
    """Wait until ``check`` is true."""
    async with asyncio.timeout(20):
        while not check():  # noqa: ASYNC110 - a store sets no event
            await asyncio.sleep(0.005)


@pytest.fixture
async def api(clean_environment: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[EmbeddedApiServer]:
    """Serve one ConfigMap."""
    async with EmbeddedApiServer() as server:
        clean_environment.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path / "kubeconfig")))
        server.store.create("configmaps", {"metadata": {"name": "a", "namespace": "default"}, "data": {"n": "0"}})
        yield server


@pytest.fixture
async def informer(api: EmbeddedApiServer, connect: Connect, instruments: Instruments) -> AsyncIterator[Informer[Any]]:
    """Follow ConfigMaps."""
    async with connect() as client:
        following = Informer(client, CONFIG_MAPS, instruments=instruments)
        task = asyncio.create_task(following.run())
        await until(lambda: api.requests.count("watch", resource="configmaps"))
        yield following
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def number(informer: Informer[Any]) -> str:
    """Return the value in the store of the informer."""
    found = informer.store.get(NAME)
    return "" if found is None else str(found.data["n"])


def change(api: EmbeddedApiServer, value: str) -> None:
    """Change the value on the server."""
    api.store.patch("configmaps", NAME, Patch(body={"data": {"n": value}}))


async def test_a_server_that_is_behind_never_takes_the_store_back(
    api: EmbeddedApiServer, informer: Informer[Any]
) -> None:
    """After a 410 the informer waits until the server has seen the last changes."""
    seen: list[str] = []
    informer.store.subscribe(lambda _, new: seen.append("gone" if new is None else str(new.data["n"])))
    change(api, "1")
    api.faults.lag()
    change(api, "2")
    api.store.create("configmaps", {"metadata": {"name": "b", "namespace": "default"}, "data": {"n": "b"}})
    await until(lambda: len(seen) == 3)
    api.faults.compact()
    api.faults.expire_watches()
    await until(lambda: api.requests.count("list", resource="configmaps") >= 2)
    await asyncio.sleep(0.1)
    assert seen == ["1", "2", "b"]
    api.faults.catch_up()
    change(api, "3")
    await until(lambda: number(informer) == "3")
    assert seen == ["1", "2", "b", "3"]


async def test_a_server_that_stays_behind_is_passed_by(api: EmbeddedApiServer, informer: Informer[Any]) -> None:
    """If the cache of the server does not catch up, the informer requests the newest state."""
    api.faults.lag()
    change(api, "2")
    await until(lambda: number(informer) == "2")
    api.faults.expire_watches()
    await until(lambda: api.requests.count("watch", resource="configmaps") >= 2)
    change(api, "3")
    await until(lambda: number(informer) == "3")


async def test_a_loop_that_is_started_again_still_knows_its_version(
    api: EmbeddedApiServer, connect: Connect, instruments: Instruments
) -> None:
    """The restarted loop does not take a list that is older than its store."""
    async with connect() as client:
        following = Informer(client, CONFIG_MAPS, instruments=instruments)
        task = asyncio.create_task(following.run())
        await until(lambda: api.requests.count("watch", resource="configmaps"))
        api.faults.lag()
        change(api, "2")
        await until(lambda: number(following) == "2")
        seen: list[str] = []
        following.store.subscribe(lambda _, new: seen.append("gone" if new is None else str(new.data["n"])))
        for _ in range(2):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            watches = api.requests.count("watch", resource="configmaps")
            task = asyncio.create_task(following.run())
            await until(lambda before=watches: api.requests.count("watch", resource="configmaps") > before or seen)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert seen == []
