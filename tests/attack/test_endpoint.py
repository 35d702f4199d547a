"""Clients that may not read ``/metrics`` attack it while the victim's scraper reads it from the same address."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections import Counter
from http import HTTPStatus
from itertools import cycle, islice

import aiohttp
import pytest
from cryptography.x509 import load_der_x509_certificate
from structlog.testing import capture_logs

from tests.app.stage import until
from tests.attack.harness import Attack, Says, survive
from tests.attack.world import TENANT
from tests.rows import by_day
from tests.serve.certificates import IssuedPair, handshake
from wva.serve.decisions import explain_path
from wva.sim.apiserver import User, matching

TOKEN_REVIEWS = "tokenreviews.authentication.k8s.io"
ACCESS_REVIEWS = "subjectaccessreviews.authorization.k8s.io"
SECURE = {"METRICS_SECURE": "true"}
MANY = 300
MAX_LOG_CHARACTERS = 20_000
FEW = 40
"""How many reviews a whole attack may cause."""


class Peer:
    """A client that reaches the port of the metrics and has tokens of a user without rights."""

    def __init__(self, world):
        """Attack this world."""
        self.world = world

    @property
    def port(self):
        """Return the port of the metrics."""
        return self.world.app.metrics_port

    def token(self, name="evil", **more):
        """Return a valid token of a user."""
        return self.world.api.access.issue(User(name, **more), audiences=(), lifetime_seconds=3600)[0]

    async def ask(self, requests):
        """Send requests (method, path, headers), four at a time, and count the answers by status."""
        waiting, statuses = iter(requests), {}

        async def send(session):
            for method, path, headers in waiting:
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    url = f"https://127.0.0.1:{self.port}{path}"
                    async with session.request(method, url, headers=headers) as response:
                        statuses[response.status] = statuses.get(response.status, 0) + 1
                        await response.read()

        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False), timeout=timeout) as session:
            await asyncio.gather(*(send(session) for _ in range(4)))
        return statuses

    async def send(self, *pieces, connections=1):
        """Open connections, send bytes without TLS, and close the connections half a second later."""
        opened = []
        for _ in range(connections):
            with contextlib.suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                opened.append(writer)
                for piece in pieces:
                    writer.write(piece)
                del reader
        await asyncio.sleep(0.5)
        for writer in opened:
            writer.close()


def bearer(token):
    """Return the headers with a token."""
    return {"Authorization": f"Bearer {token}"}


def reviews(world):
    """Return how many token reviews and access reviews the API server has answered."""
    requests = world.api.requests
    return sum(requests.count("create", resource=resource) for resource in (TOKEN_REVIEWS, ACCESS_REVIEWS))


def row(name, attack, *, cost=FEW, **more):
    """Return an attack that begins when the scraper has access; it may cause few reviews and few log lines."""

    async def during(world):
        await until(lambda: world.metric("wva_endpoint_requests_total", server="metrics", code="200"))
        before = reviews(world)
        with capture_logs() as lines:
            await attack(Peer(world))
        world.cost = reviews(world) - before
        world.log_characters = sum(len(str(line)) for line in lines if line["component"].startswith("serve"))

    shows = (
        Says(f"at most {cost} reviews", lambda world: world.cost <= cost),
        Says("a short log", lambda world: world.log_characters <= MAX_LOG_CHARACTERS),
    )
    before = more.pop("before", lambda _: None)
    return Attack(
        name,
        before=lambda world: (world.protect(), before(world)),
        during=during,
        shows=shows,
        environment=SECURE,
        **more,
    )


async def refused_paths(peer):
    """Ask for a new long path each time."""
    headers = bearer(peer.token())
    await peer.ask(("GET", f"/{number}/" + "x" * 3000, headers) for number in range(MANY))


async def refused_methods(peer):
    """Ask for a page that exists with all methods."""
    headers, methods = bearer(peer.token()), cycle(("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "GET"))
    await peer.ask((method, "/metrics", headers) for method in islice(methods, MANY))


async def made_up_tokens(peer):
    """Send a different token each time; none of them exists."""
    await peer.ask(("GET", "/metrics", bearer(f"made-up-{number}")) for number in range(MANY))


async def long_tokens(peer):
    """Send made-up tokens of the greatest allowed length."""
    await peer.ask(("GET", "/metrics", bearer(f"{number}-" + "x" * 12_000)) for number in range(MANY))


async def many_valid_tokens(peer):
    """Send a different valid token of one user each time; each token has its own id."""
    key = "authentication.kubernetes.io/credential-id"
    tokens = [peer.token(extra={key: (f"JTI={number}",)}) for number in range(MANY)]
    await peer.ask(("GET", "/metrics", bearer(token)) for token in tokens)


async def many_users(peer):
    """Send valid tokens of many users with long names."""
    tokens = [peer.token(f"evil-{number}-" + "x" * 1000) for number in range(MANY)]
    await peer.ask(("GET", "/metrics", bearer(token)) for token in tokens)


async def control_characters(peer):
    """Ask for paths with terminal control codes and line breaks, as a user whose name has them too."""
    headers = bearer(peer.token("evil\n\x1b[2J" * 100))
    await peer.ask(("GET", f"/%0a%1b%5b2J{number}" * 100, headers) for number in range(MANY))


async def wrong_headers(peer):
    """Send headers that are no bearer token."""
    wrong = cycle(["Basic eDp5", "Bearer", "Bearer a b", "bearer\tx", "Negotiate x", ""])
    await peer.ask(("GET", "/metrics", {"Authorization": value}) for value in islice(wrong, MANY))


async def slow_reviews(peer):
    """Send made-up tokens while each review takes half a second."""
    peer.world.api.faults.delay(0.5, times=20, match=matching(resource=TOKEN_REVIEWS))
    await made_up_tokens(peer)


async def failing_reviews(peer):
    """Send made-up tokens while the API server fails to review them."""
    peer.world.api.faults.answer(500, times=None, match=matching(resource=TOKEN_REVIEWS))
    await made_up_tokens(peer)
    peer.world.api.faults.clear()


async def no_tls(peer):
    """Send plain text on many connections that expect TLS."""
    await peer.send(b"GET /metrics HTTP/1.1\r\n\r\n", b"\x00" * 1000, connections=60)


async def silent_connections(peer):
    """Open more connections than the server accepts, and send nothing."""
    await peer.send(connections=200)


async def huge_headers(peer):
    """Send headers that are longer than the limit."""
    await peer.ask(("GET", "/metrics", {"X": "y" * 60_000}) for _ in range(50))


async def debug_pages(peer):
    """Guess the names of pages."""
    names = ("/debug/config", "/debug/pprof", "/healthz", "/", "/metrics/", "/METRICS", "//metrics", "/-/unknown")
    await peer.ask(("GET", path, bearer(peer.token())) for path in islice(cycle(names), MANY))


async def many_explanations(peer):
    """Ask why one variant has its number on 140 connections, each time about another moment, for three seconds."""
    headers, statuses = bearer(peer.token("tenant")), Counter()

    async def ask(session, number):
        url = f"https://127.0.0.1:{peer.port}{explain_path(TENANT, 'bad')}?at={time.time() - number / 100}"
        with contextlib.suppress(aiohttp.ClientError, TimeoutError):
            async with session.get(url, headers=headers) as response:
                statuses[response.status] += 1

    connector, timeout = aiohttp.TCPConnector(ssl=False, limit=0), aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            await asyncio.gather(*(ask(session, number) for number in range(140)))
    # How many are refused in this time depends on the machine; the first 140 at once are too many on any.
    assert statuses[HTTPStatus.TOO_MANY_REQUESTS] + statuses[HTTPStatus.SERVICE_UNAVAILABLE] > 0


ATTACKS = [
    row("three_hundred_refused_paths", refused_paths),
    row("three_hundred_methods_on_a_page", refused_methods),
    row("three_hundred_made_up_tokens", made_up_tokens),
    row("tokens_of_twelve_kilobytes", long_tokens),
    row("three_hundred_valid_tokens_of_one_user", many_valid_tokens, cost=2 * FEW),
    row("three_hundred_users_with_long_names", many_users, cost=2 * FEW),
    row("control_characters_in_paths_and_names", control_characters),
    row("headers_that_are_no_bearer_token", wrong_headers),
    row("made_up_tokens_while_reviews_are_slow", slow_reviews),
    row("made_up_tokens_while_reviews_fail", failing_reviews, cost=4 * FEW),
    row("connections_without_tls", no_tls),
    row("silent_connections", silent_connections),
    row("headers_beyond_their_limits", huge_headers),
    row("names_of_pages_are_guessed", debug_pages),
    row("explanations_on_more_connections_than_there_are", many_explanations),
]


BY_DAY = (
    "silent_connections",
    "headers_beyond_their_limits",
    "three_hundred_made_up_tokens",
    "connections_without_tls",
    "explanations_on_more_connections_than_there_are",
    "made_up_tokens_while_reviews_are_slow",
    "control_characters_in_paths_and_names",
)
"""Each takes a way of its own through the code. The others, one more value on such a way, are played each night."""


@pytest.mark.parametrize("attack", by_day(ATTACKS, BY_DAY), ids=str)
async def test_the_scraper_does_not_notice(world, attack):
    """The scraper reads the victim's number every time, although the attack comes from the same address."""
    await survive(world, attack)


def spoilt(pair, folder):
    """Yield after each way to spoil the files of a certificate."""
    certificate, key = pair.files.certificate, pair.files.key
    good = certificate.read_bytes(), key.read_bytes()
    other = folder / "other"
    other.mkdir(exist_ok=True)
    strange = IssuedPair(other).files.key.read_bytes()
    for texts in ((b"garbage", good[1]), (good[0], b"garbage"), (good[0], strange), (b"", b""), (b"\xff" * 2**21, b"")):
        certificate.write_bytes(texts[0])
        key.write_bytes(texts[1])
        yield
    certificate.unlink()
    os.mkfifo(certificate)
    yield
    certificate.unlink()
    yield
    certificate.mkdir()
    yield
    certificate.rmdir()
    certificate.write_bytes(good[0])
    key.unlink()
    key.symlink_to(key.name)
    yield
    key.unlink()


async def test_the_scraper_does_not_notice_that_the_certificate_is_replaced(world, tmp_path):
    """Good pairs and all kinds of bad ones, while the scraper reads: each handshake gets the last good pair."""
    folder = tmp_path / "certificate"
    folder.mkdir()
    pair = IssuedPair(folder)
    polls = "wva_certificate_reloads_total"

    async def during(world):
        await until(lambda: world.metric("wva_endpoint_requests_total", server="metrics", code="200"))
        served_serials, stopped = Counter(), asyncio.Event()

        async def scrape():
            while not stopped.is_set():
                _, _, certificate = await handshake(world.app.metrics_port, pair.trusting())
                served_serials[load_der_x509_certificate(certificate).serial_number] += 1

        with capture_logs() as lines:
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(scrape())
                good = set()
                for _ in range(4):
                    pair.issue()
                    good.add(pair.serial())
                    await until(lambda: pair.serial() in served_serials)
                    for _ in spoilt(pair, tmp_path):
                        before = world.metric(polls, result="rejected")
                        await until(lambda n=before: world.metric(polls, result="rejected") > n, seconds=5)
                stopped.set()
        world.serials, world.good = set(served_serials), good
        world.told = {line["reason"] for line in lines if line["event"] == "certificate_rejected"}

    attack = Attack(
        "the_certificate_is_replaced",
        before=lambda world: world.protect(),
        during=during,
        shows=(
            Says("good certificates alone are served", lambda world: len(world.serials - world.good) <= 1),
            Says("each fault is told", lambda world: len(world.told) >= 7),
        ),
        environment={**SECURE, "METRICS_CERT_PATH": str(folder)},
        setting={"wva.serve.certs.ServingCertificate.period_seconds": 0.02},
    )
    await survive(world, attack)
