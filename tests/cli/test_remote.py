"""A controller that is asked too often is asked again later."""

from __future__ import annotations

import ssl
from types import SimpleNamespace

import aiohttp
import pytest
import trustme
from aiohttp import web

from wva.api.meta import Key
from wva.cli import remote
from wva.command_error import CommandError


@pytest.fixture
async def controller():
    """Return a controller at the other end of a forwarded port; ``answers`` are given one after the other."""
    answers = []

    async def answer(_request):
        return answers.pop(0)

    authority, server = trustme.CA(), web.Application()
    server.router.add_get("/page", answer)
    serving, asking = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(serving)
    authority.configure_trust(asking)
    runner = web.AppRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=serving)
    await site.start()
    forward = SimpleNamespace(local_port=runner.addresses[0][1], failure=None)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=asking)) as session:
        found = remote.RemoteController(session, forward, "token", Key("system", "pod"))
        yield SimpleNamespace(get=found.get, answers=answers)
    await runner.cleanup()


@pytest.fixture
def slept(monkeypatch):
    """Return the times that were slept; the clock is that of these sleeps."""
    times = []

    async def sleep(seconds):
        times.append(seconds)

    monkeypatch.setattr(remote, "asyncio", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(remote, "time", SimpleNamespace(monotonic=lambda: sum(times)))
    return times


def busy(seconds):
    """Return the answer of a controller that is asked too often."""
    return web.Response(status=429, text="too many", headers={"Retry-After": str(seconds)})


async def test_a_page_comes_when_the_controller_has_time(controller, slept):
    """The command waits at least as long as it was told to."""
    controller.answers += [busy(3), busy(4), web.Response(text="page")]
    assert await controller.get("/page") == b"page"
    assert slept[0] >= 3
    assert slept[1] >= 4


async def test_a_controller_without_time_is_an_error_in_the_end(controller, slept):
    """The command does not wait longer than 40 seconds for a page."""
    controller.answers += [busy(30), busy(30)]
    with pytest.raises(CommandError, match="answers /page with 429: too many"):
        await controller.get("/page")
    assert len(slept) == 1


async def test_another_refusal_is_not_tried_again(controller, slept):
    """Asking again gives no right."""
    controller.answers.append(web.Response(status=403, text="forbidden"))
    with pytest.raises(CommandError, match="answers /page with 403: forbidden"):
        await controller.get("/page")
    assert slept == []
