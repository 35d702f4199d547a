"""A tenant's endpoint pickers give bad answers while the controller must start a model of the victim from zero."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from aiohttp import web

from tests.app.gateways import QUEUE
from tests.app.stage import DEPLOYMENTS, MODEL
from tests.attack.harness import Attack, ExpectedCondition, Says, survive
from tests.attack.world import SLEEPING_MODEL, TENANT, VICTIM
from tests.rows import by_day
from wva.api.meta import Key

UNREADABLE = ExpectedCondition("GatewayReadable", "False", "GatewayUnreadable", name="zero")


def text(page, **options):
    """Return a picker that answers with this page every time."""

    async def answer(_):
        return web.Response(text=page, **options)

    return answer


def raw(data, *, pause_seconds=None):
    """Return a picker that writes these bytes to the connection, once or every ``pause_seconds``."""

    async def answer(request):
        transport = request.transport
        transport.write(data)
        while pause_seconds is not None and not transport.is_closing():
            await asyncio.sleep(pause_seconds)
            transport.write(data)
        transport.close()
        return web.Response()

    return answer


def streamed(piece, *, pause_seconds):
    """Return a picker whose answer never ends and comes piece by piece."""

    async def answer(request):
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        while True:
            await response.write(piece)
            await asyncio.sleep(pause_seconds)

    return answer


async def redirect(request):
    """Redirect the client to the same address."""
    raise web.HTTPFound(str(request.url))


def line(model, value=1):
    """Return one series of a picker's page."""
    return f'{QUEUE}{{target_model_name="{model}"}} {value}\n'


def picker(answer, **options):
    """Return a step that puts the tenant's model at zero behind this picker."""
    return lambda world: world.picker(answer, **options)


def started(world):
    """Tell whether the controller has started the tenant's model."""
    return world.api.store.get(DEPLOYMENTS, Key(TENANT, "zero"))["spec"]["replicas"] >= 1


def running(world):
    """Tell whether the victim's running Deployment still has two replicas."""
    return world.api.store.get(DEPLOYMENTS, Key(VICTIM, "d"))["spec"]["replicas"] == 2


BOMB = gzip.compress(b"# a\n" * 4_000_000)


async def bomb(_):
    """Answer with a few kilobytes of gzip that unpack to 16 MB."""
    return web.Response(body=BOMB, headers={"Content-Encoding": "gzip"})


STARTED, RUNNING = Says("the tenant's own model is started", started), Says("d keeps its replicas", running)
HEAD = b"HTTP/1.1 200 OK\r\n"

PICKERS = {
    "redirects_in_circles": (redirect, UNREADABLE),
    "sends_a_byte_now_and_then": (streamed(b"#", pause_seconds=0.05), UNREADABLE),
    "sends_without_end": (streamed(b"# x\n" * 50_000, pause_seconds=0.01), UNREADABLE),
    "sends_headers_without_end": (raw(HEAD + b"X-A: " + b"b" * 4000 + b"\r\n", pause_seconds=0.01), UNREADABLE),
    "promises_a_terabyte": (raw(HEAD + b"Content-Length: 1000000000000\r\n\r\n# x\n"), UNREADABLE),
    "continues_and_continues": (raw(b"HTTP/1.1 100 Continue\r\n\r\n" * 2000), UNREADABLE),
    "switches_protocols": (
        raw(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"),
        UNREADABLE,
    ),
    "answers_without_http": (raw(b"\x00" * 10_000), UNREADABLE),
    "sends_a_charset_that_is_none": (text("a 1\n", headers={"Content-Type": "text/plain; charset=utf-99"}), ()),
    "sends_a_bomb": (bomb, UNREADABLE),
    "sends_a_hundred_cookies": (text("a 1\n", headers=[("Set-Cookie", f"a{n}=b") for n in range(100)]), ()),
    "repeats_one_line": (text(line("org/zero") * 5_000), STARTED),
    "names_ten_thousand_models": (text("".join(line(f"m{number}") for number in range(10_000))), ()),
    "names_the_victims_models": (text(line(SLEEPING_MODEL, 100) + line(MODEL, 100)), RUNNING),
    "counts_1e308_requests": (text(line("org/zero", "1e308") * 2), ()),
    "counts_minus_one_request": (text(line("org/zero", -1)), ()),
    "sends_nul_and_direction_marks": (text("a 1\n\x00\n" + line("org/\u202ezero\x00")), ()),
    "sends_a_line_of_a_megabyte": (text(line("x" * 1_000_000)), ()),
    "sends_half_a_line": (text(f'{QUEUE}{{target_model_name="org/zero'), ()),
    "sends_a_value_of_ten_thousand_digits": (text(line("org/zero", "9" * 10_000)), ()),
}
ADDRESSES = {
    "that_is_link_local": "169.254.169.254",
    "of_all_interfaces": "::",
    "of_everybody": "255.255.255.255",
    "of_a_group": "224.0.0.1",
    "with_a_zone": "fe80::1%eth0",
    "with_a_path": "127.0.0.1:80/x?",
    "that_is_long": "1" * 100_000,
}


ATTACKS = [
    *(
        Attack(f"a_picker_that_{name}", before=picker(answer), shows=shows, gateway=True)
        for name, (answer, shows) in PICKERS.items()
    ),
    *(
        Attack(f"a_picker_at_an_address_{name}", before=picker(redirect, ip=ip), shows=UNREADABLE, gateway=True)
        for name, ip in ADDRESSES.items()
    ),
    Attack(
        "fifty_pools_with_a_silent_picker",
        before=picker(streamed(b"", pause_seconds=1), pools=50),
        shows=UNREADABLE,
        gateway=True,
    ),
]


BY_DAY = (
    "a_picker_that_sends_a_bomb",
    "a_picker_that_names_ten_thousand_models",
    "a_picker_that_counts_1e308_requests",
    "a_picker_at_an_address_that_is_link_local",
    "a_picker_that_sends_without_end",
    "a_picker_that_names_the_victims_models",
    "a_picker_that_answers_without_http",
    "fifty_pools_with_a_silent_picker",
    "a_picker_that_sends_half_a_line",
)
"""Each takes a way of its own through the code. The others, one more value on such a way, are played each night."""


@pytest.mark.parametrize("attack", by_day(ATTACKS, BY_DAY), ids=str)
async def test_the_victim_does_not_notice(world, attack):
    """The controller starts the victim's model at zero as soon as a request waits."""
    await survive(world, attack)
