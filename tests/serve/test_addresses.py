"""Bind addresses: what switches a server off, what is understood, what is refused."""

from __future__ import annotations

import socket

import pytest
from aiohttp import web

from wva.serve.http import Address, AddressError, Server


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("0", None),
        (":8443", Address(None, 8443)),
        (":0", Address(None, 0)),
        ("127.0.0.1:8080", Address("127.0.0.1", 8080)),
        ("0.0.0.0:65535", Address("0.0.0.0", 65535)),  # noqa: S104 - parsed, not bound
        ("[::1]:8081", Address("::1", 8081)),
        ("localhost:9", Address("localhost", 9)),
    ],
)
def test_what_is_understood(text, expected):
    """``0`` and nothing switch the server off; a host is optional; IPv6 stands in brackets."""
    assert Address.parse(text, setting="--x") == expected


@pytest.mark.parametrize("text", ["8443", "localhost", ":http", ":65536", ":-1", "host:", "a:b:c", ":80 ", ":٣x"])
def test_what_is_refused(text):
    """The message names the setting, the text, and what is expected."""
    with pytest.raises(AddressError) as refused:
        Address.parse(text, setting="--metrics-bind-address")
    message = str(refused.value)
    assert message.startswith(f"--metrics-bind-address={text!r}: expected host:port")


async def test_a_taken_port_is_one_clear_error():
    """It names the address and what wanted it."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(AddressError, match=f"cannot listen on 127.0.0.1:{port} for metrics: "):
            async with Server(web.Application(), Address("127.0.0.1", port), name="metrics"):
                pass


async def test_a_host_that_is_not_ours_is_one_clear_error():
    """The same."""
    with pytest.raises(AddressError, match=r"cannot listen on 192\.0\.2\.1:0 for probes: "):
        async with Server(web.Application(), Address("192.0.2.1", 0), name="probes"):
            pass


async def test_a_closed_server_listens_no_more():
    """The port is free again."""
    async with Server(web.Application(), Address("127.0.0.1", 0), name="x") as server:
        port = server.port
        assert port > 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0
