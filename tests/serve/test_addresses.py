"""Bind addresses: which text switches a server off, which are valid, which are refused."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from tests.serve.doubles import serving
from wva.numbers import shown
from wva.serve.addresses import Address, AddressError


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
    """``0`` and an empty text switch the server off. The host is optional, and an IPv6 address stands in brackets."""
    assert Address.parse(text, setting="--x") == expected


@pytest.mark.parametrize(
    "text", ["8443", "localhost", ":http", ":65536", ":-1", "host:", "a:b:c", ":80 ", ":٣x", ":٣", ":" + "9" * 5000]
)
def test_what_is_refused(text):
    """The message names the setting, the text and the expected form."""
    with pytest.raises(AddressError) as refused:
        Address.parse(text, setting="--metrics-bind-address")
    message = str(refused.value)
    assert message.startswith(f"--metrics-bind-address={shown(text)}: expected host:port")


async def test_a_taken_port_is_one_clear_error():
    """The error names the address and the server."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(AddressError, match=f"cannot listen on 127.0.0.1:{port} for metrics: "):
            async with serving(port=port, name="metrics"):
                pass


async def test_a_host_that_is_not_ours_is_one_clear_error():
    """The error names the address and the server."""
    with pytest.raises(AddressError, match=r"cannot listen on 192\.0\.2\.1:0 for probes: "):
        async with serving(host="192.0.2.1", name="probes"):
            pass


async def test_a_closed_server_listens_no_more():
    """The server accepts no connection after it is closed."""
    async with serving() as server:
        port = server.port
        assert port > 0
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", port)) != 0


async def test_every_interface_means_both_families():
    """Without a host, one port answers over IPv4, and over IPv6 if the machine has it."""
    async with serving(host=None) as server:
        for family, place in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")):
            if family == socket.AF_INET6 and not socket.has_dualstack_ipv6():
                continue
            with socket.socket(family) as probe:
                assert probe.connect_ex((place, server.port)) in {0, errno.EADDRNOTAVAIL, errno.ENETUNREACH}
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", server.port)) == 0


async def test_a_name_with_several_addresses_has_one_port(monkeypatch):
    """The server listens on all addresses of the name, with the same port."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (place, 0)) for place in ("127.0.0.1", "127.0.0.2")]

    async def resolve(*_, **__):
        return found

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    async with serving(host="both") as server:
        for place in ("127.0.0.1", "127.0.0.2"):
            with socket.socket() as probe:
                assert probe.connect_ex((place, server.port)) == 0


async def test_a_name_that_nobody_knows_is_one_clear_error(monkeypatch):
    """The error has the words of the resolver."""

    async def resolve(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
    with pytest.raises(AddressError, match="cannot listen on nowhere:0 for metrics: Name or service not known"):
        async with serving(host="nowhere", name="metrics"):
            pass
