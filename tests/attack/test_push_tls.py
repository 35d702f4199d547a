"""Anonymous peers attack the port that KEDA asks, over TLS, or in place of TLS."""

from __future__ import annotations

import ssl

import pytest
import trustme

from tests.app.stage import until
from tests.attack.harness import Attack, Says, survive
from tests.attack.test_push import (
    ANSWER_SECONDS,
    HELD_ANSWER_SECONDS,
    HELD_SECONDS,
    PUSH,
    SECONDS,
    PushAsker,
    asks_for_push,
    decided_on_time,
    peer,
)
from tests.rows import by_day

SECURE = {**PUSH, "METRICS_SECURE": "true"}


def trust(authority=None):
    """Return the context of a client, with a certificate of an authority if there is one."""
    made = ssl.create_default_context()
    made.check_hostname = False
    made.verify_mode = ssl.CERT_NONE
    made.set_alpn_protocols(["h2"])
    if authority is not None:
        authority.issue_cert("keda").configure_cert(made)
    return made


@pytest.fixture(scope="module")
def authority():
    """Return the authority of KEDA's certificate."""
    return trustme.CA()


@pytest.fixture
def demanding(authority, tmp_path):
    """Return the settings of a controller that wants certificates of the authority."""
    file = tmp_path / "keda-ca.crt"
    file.write_bytes(authority.cert_pem.bytes())
    return {**SECURE, "KEDA_PUSH_CLIENT_CA_PATH": str(file)}


def row(attack, tls, *, environment=SECURE, connections=4, seconds=SECONDS, answer_seconds=ANSWER_SECONDS):
    """Return an attack on some connections at once, during which KEDA asks over TLS."""

    async def during(world):
        await until(lambda: world.decision_of() is not None and world.app.reconciling.push.port)
        world.keda = keda = PushAsker(world, tls)
        await keda.ask()
        async with peer(world, attack, connections=connections, seconds=seconds, more=["tls"]):
            await keda.ask_for(seconds)

    told = Says("KEDA's number in time", lambda world: world.keda.slowest < answer_seconds)
    return Attack(
        f"{attack}_on_{connections}",
        before=lambda world: (world.protect(), asks_for_push(world)),
        during=during,
        shows=told,
        environment=environment,
    )


HELD = {"connections": 64, "seconds": HELD_SECONDS, "answer_seconds": HELD_ANSWER_SECONDS}


FRAMES = ["pings", "empty_data", "resets", "half_open", "zero_window", "settings", "unread"]
"""What these are without TLS, test_push tells."""


@pytest.mark.parametrize("attack", by_day(FRAMES, ["unread"]))
async def test_frames_over_tls_are_limited_as_without(world, attack):
    """KEDA has its number in time over each new connection, and the controller does its work."""
    await survive(world, row(attack, trust()))


@pytest.mark.parametrize(
    ("attack", "more"),
    [
        ("no_hello", HELD),
        pytest.param("half_hello", HELD, marks=pytest.mark.nightly),
        pytest.param("whole_hello", HELD, marks=pytest.mark.nightly),
        pytest.param("slow_hello", HELD, marks=pytest.mark.nightly),
        ("garbage", {}),
        ("endless_hello", {}),
        pytest.param("plain_http2", {}, marks=pytest.mark.nightly),
        pytest.param("churn", {"connections": 64}, marks=pytest.mark.nightly),
    ],
)
async def test_handshakes_do_not_keep_keda_out(world, attack, more):
    """Connections that end, stop or never begin in their handshake are of no use, and give way."""
    await survive(world, row(attack, trust(), **more))


@pytest.mark.parametrize(
    ("attack", "more"),
    [
        ("whole_hello", HELD),
        pytest.param("garbage", {}, marks=pytest.mark.nightly),
        pytest.param("pings", {}, marks=pytest.mark.nightly),
        pytest.param("churn", {"connections": 64}, marks=pytest.mark.nightly),
    ],
)
async def test_a_peer_without_a_certificate_does_not_keep_keda_out(world, attack, more, authority, demanding):
    """With authorities in the settings the peer is refused in the handshake, as often as it comes."""
    await survive(world, row(attack, trust(authority), environment=demanding, **more))


@pytest.mark.parametrize("attack", by_day(["churn", "garbage", "whole_hello", "pings"], ["churn"]))
async def test_cycles_are_on_time_and_the_lease_is_kept_over_tls(world, attack):
    """Connections attack a leader for longer than its Lease holds: no cycle is late by more than a second."""
    world.protect()
    await decided_on_time(world, attack, connections=64 if attack == "churn" else 4, environment=SECURE, more=["tls"])
