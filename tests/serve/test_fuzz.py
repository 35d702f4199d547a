"""Malformed HTTP and malformed TLS: the server stays up, keeps no connection, and sends no metrics."""

from __future__ import annotations

import asyncio
import random
import ssl
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from tests.serve.doubles import Guarded, exchange, rest, serving, until
from wva.instruments import Instruments
from wva.serve.certs import SelfSignedCertificate
from wva.serve.http import Limits
from wva.serve.pages import metrics_handler

LIMITS = Limits(request_seconds=0.2, handshake_seconds=0.2, idle_seconds=0.2, connections=16)
TRIES = 20
GOOD = b"GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nConnection: close\r\n\r\n"

METHODS = st.sampled_from([b"GET", b"HEAD", b"POST", b"OPTIONS", b"CONNECT", b"PRI", b"get", b"G\x00T", b"", b"\xff"])
PATHS = st.sampled_from(
    [b"/metrics", b"*", b"", b"//", b"http://x/metrics", b"/%00", b"/%", b"/\xff", b"x:443", b"/metrics?a=b#c", b"/.."]
)
VERSIONS = st.sampled_from([b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"HTTP/0.9", b"http/1.1", b"", b"HTTP/1.1 x"])
HEADERS = st.lists(
    st.sampled_from(
        [
            b"Host: x",
            b"Host: x\r\nHost: y",
            b"Authorization: Bearer bad",
            b"Authorization: Bearer \x00",
            b"Authorization:",
            b"Authorization: Bearer bad\r\nAuthorization: Bearer bad",
            b"Content-Length: -1",
            b"Content-Length: 5",
            b"Content-Length: 99999999999999999999",
            b"Content-Length: 5\r\nContent-Length: 6",
            b"Transfer-Encoding: chunked",
            b"Transfer-Encoding: chunked, gzip",
            b"Transfer-Encoding: chunked\r\nContent-Length: 3",
            b"Connection: Upgrade\r\nUpgrade: h2c",
            b"Connection: keep-alive",
            b"Expect: 100-continue",
            b"Content-Encoding: gzip",
            b" folded: x",
            b": empty",
            b"X y: z",
            b"X: \xff\xfe",
            b"X",
        ]
    ),
    max_size=5,
)
BODIES = st.one_of(
    st.just(b""), st.sampled_from([b"5\r\nhello\r\n0\r\n\r\n", b"zz\r\n", b"\r\n\r\n"]), st.binary(max_size=64)
)


@st.composite
def requests(draw):
    """Return up to three requests, well-formed or not, maybe cut off."""
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        line = b" ".join((draw(METHODS), draw(PATHS), draw(VERSIONS)))
        parts += [b"\r\n".join((line, *draw(HEADERS), b"", b"")), draw(BODIES)]
    whole = b"".join(parts)
    return whole[: draw(st.integers(0, len(whole)))] if draw(st.booleans()) else whole


class Fortress:
    """A server with a gate, for attacks."""

    def __init__(self, certificate=None):
        """Serve the metrics, with TLS if there is a certificate."""
        self.guarded = Guarded()
        handler = metrics_handler(self.guarded.instruments.registry, gate=self.guarded.gate)
        tls = None if certificate is None else lambda: certificate.context
        self.server = serving(handler, instruments=self.guarded.instruments, limits=LIMITS, tls=tls)

    async def check(self, context=None):
        """Assert that no connection is left, that no attack got the metrics, and that a scraper is answered."""
        await until(lambda: self.server.open_connections == 0)
        served = self.guarded.metric("wva_endpoint_requests_total", server="metrics", code="200")
        assert not served, "somebody else got in"
        for _ in range(TRIES):
            # On a busy machine this connection can exceed the time limits, too. So there are several tries.
            answer = await exchange(self.server.port, GOOD, context=context)
            if answer.startswith(b"HTTP/1.1 200"):
                return
        pytest.fail(f"the scraper was not answered, last with {answer!r}")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(requests(), min_size=1, max_size=8))
def test_malformed_http(shots):
    """No malformed request gets the metrics, every connection ends, and the scraper is answered afterwards."""

    async def play():
        fortress = Fortress()
        async with fortress.server:
            answers = await asyncio.gather(*(exchange(fortress.server.port, shot) for shot in shots))
            for answer in answers:
                assert b"HTTP/1.1 200" not in answer
                assert b"wva_" not in answer
            await fortress.check()

    asyncio.run(play())


@pytest.fixture(scope="module")
def certificate():
    """Return a self-signed certificate."""
    return SelfSignedCertificate([], instruments=Instruments(CollectorRegistry()), now=time.time)


def _hello(seed):
    """Return the first bytes of a genuine TLS handshake, some of them changed or cut off."""
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    handshake = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        handshake.do_handshake()
    data = bytearray(outgoing.read())
    chance = random.Random(seed)
    for _ in range(chance.randint(0, 6)):
        data[chance.randrange(len(data))] = chance.randrange(256)
    cut = chance.choice([len(data), chance.randrange(len(data))])
    return bytes(data[:cut]) + chance.randbytes(chance.choice([0, 0, 40, 20_000]))


async def test_malformed_tls(certificate):
    """Broken handshakes, incomplete handshakes, random records and plain HTTP all end, and are counted."""
    shots = [
        b"",
        b"\x16\x03\x01",
        b"\x16\x03\x01\xff\xff" + b"\x00" * 70_000,
        b"\x80\x2e\x01\x00\x02",
        b"\x15\x03\x03\x00\x02\x02\x28",
        GOOD,
        b"\x00" * 100_000,
        *(_hello(seed) for seed in range(40)),
    ]
    fortress = Fortress(certificate)
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    async with fortress.server:
        for start in range(0, len(shots), 8):
            batch = shots[start : start + 8]
            answers = await asyncio.gather(*(exchange(fortress.server.port, shot) for shot in batch))
            assert not [answer for answer in answers if b"HTTP" in answer]
        await fortress.check(trusting)
        closed = {"server": "metrics", "cause": "handshake"}
        assert fortress.guarded.metric("wva_endpoint_connections_closed_total", **closed) >= 10


async def test_half_handshakes_do_not_keep_the_scraper_out(certificate):
    """The scraper is answered although unfinished handshakes take all connections."""
    fortress = Fortress(certificate)
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    async with fortress.server:
        held = [await asyncio.open_connection("127.0.0.1", fortress.server.port) for _ in range(3 * LIMITS.connections)]
        assert fortress.server.open_connections <= LIMITS.connections
        answer = await exchange(fortress.server.port, GOOD, context=trusting)
        assert answer.startswith(b"HTTP/1.1 200")
        for reader, writer in held:
            assert await rest(reader) == b""
            writer.close()


async def test_plain_http_on_the_tls_port_gets_nothing(certificate):
    """Plain HTTP on the TLS port gets no answer, and its token is not reviewed."""
    fortress = Fortress(certificate)
    async with fortress.server:
        assert b"HTTP" not in await exchange(fortress.server.port, GOOD)
    assert fortress.guarded.reviewer.asked == {}
