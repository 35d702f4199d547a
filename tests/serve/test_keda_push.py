"""KEDA's external scaler: what a gRPC client gets, and what it cannot do."""

from __future__ import annotations

import asyncio
import ssl
import time
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
import trustme
from grpclib.client import Channel, UnaryStreamMethod
from grpclib.const import Status
from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import GRPCError, StreamTerminatedError
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from tests.collect.cluster import CachedCluster
from tests.kube.clocks import ManualClock
from tests.publish.decisions import decision, held
from tests.serve.certificates import IssuedPair, blind
from tests.serve.doubles import PATIENCE_SECONDS, until
from tests.serve.keda import SERVICE, Client, ref
from wva.actuation import actuation_problems
from wva.api.meta import Key
from wva.app.servers import push_tls, server_problems
from wva.config import Settings
from wva.instruments import Instruments
from wva.model.variant import VariantKey
from wva.publish.ledger import Ledger
from wva.serve import followers
from wva.serve.addresses import Address
from wva.serve.certs import ClientAuthorities, ReloadingCertificate, SelfSignedCertificate
from wva.serve.http2 import Http2Limits, caller
from wva.serve.keda_push import (
    METRIC,
    GetMetricSpecResponse,
    GetMetricsRequest,
    GetMetricsResponse,
    IsActiveResponse,
    PushScaler,
    PushServer,
    ScaledObjectRef,
)

PUSH = {"wva.llmd.ai/actuation": "keda-push"}


class PushScene:
    """A cache with the variant ns/va, a ledger, and the server that answers from them."""

    def __init__(self):
        """Ask for KEDA push."""
        self.revisited, self.shadows, self.leads = [], set(), True
        self.cluster, self.clock = CachedCluster(), ManualClock()
        self.ledger = Ledger(asked_for_shadow=self.shadows.__contains__)
        self.instruments, self.limits = Instruments(CollectorRegistry()), Http2Limits()
        self.declare(PUSH)
        self.scaler = PushScaler(
            ledger=self.ledger,
            variants=self.cluster.stores.variant_autoscalings,
            leading=lambda: self.leads,
            revisit=self.revisited.append,
            clock=self.clock,
        )

    def closed(self, cause):
        """Return how many connections the server ended for a cause."""
        labels = {"server": "keda-push", "cause": cause}
        return self.instruments.registry.get_sample_value("wva_endpoint_connections_closed_total", labels) or 0

    def declare(self, annotations):
        """Give the variant these annotations."""
        return self.cluster.va("va", metadata={"annotations": annotations})

    @asynccontextmanager
    async def client(self, *, tls=None, trust=None):
        """Serve, and give a client."""
        address = Address("127.0.0.1", 0)
        server = PushServer(self.scaler, address, tls=tls, instruments=self.instruments, limits=self.limits)
        self.server = server
        async with server:
            channel = Channel("localhost", server.port, ssl=trust, codec=ProtoCodec())
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    yield Client(channel, server)
            finally:
                channel.close()


@pytest.fixture
async def scene():
    """Return a scene with a decision for three replicas."""
    made = PushScene()
    made.ledger.record([decision(3)])
    return made


async def refused(call):
    """Return the status and the message of a call that must fail."""
    with pytest.raises(GRPCError) as caught:
        await call
    return caught.value.status, caught.value.message


def test_the_messages_are_those_of_keda_on_the_wire():
    """Field numbers and types are the protocol; these bytes are written by hand from KEDA's file."""
    wire = b"\x0a\x02so\x12\x02ns\x1a\x10\x0a\x0bvariantName\x12\x01v"
    assert ScaledObjectRef.FromString(wire) == ref("so", "ns", variantName="v")
    assert GetMetricsRequest.FromString(b"\x0a\x04\x0a\x02so\x12\x01m").metricName == "m"
    answer = GetMetricsResponse(metricValues=[{"metricName": "m", "metricValue": 3, "metricValueFloat": 3.0}])
    assert answer.SerializeToString() == b"\x0a\x0e\x0a\x01m\x10\x03\x19\x00\x00\x00\x00\x00\x00\x08\x40"
    spec = GetMetricSpecResponse(metricSpecs=[{"metricName": "m", "targetSize": 1, "targetSizeFloat": 1.0}])
    assert spec.SerializeToString() == b"\x0a\x0e\x0a\x01m\x10\x01\x19\x00\x00\x00\x00\x00\x00\xf0\x3f"
    assert IsActiveResponse(result=True).SerializeToString() == b"\x08\x01"


async def test_keda_gets_the_number_and_one_replica_for_each(scene):
    """The metric is the number itself, with a target of 1."""
    async with scene.client() as client:
        assert await client.number(ref()) == 3
        assert await client.active(ref())
        (spec,) = await client.specs(ref())
        assert (spec.metricName, spec.targetSize, spec.targetSizeFloat) == (METRIC, 1, 1)
        scene.ledger.record([decision(0)])
        assert await client.number(ref()) == 0
        assert not await client.active(ref())


async def test_keda_learns_that_no_specification_is_streamed(scene):
    """KEDA asks for it once, and stops when the answer is UNIMPLEMENTED; grpclib's own answer means UNKNOWN."""
    name = f"{SERVICE}StreamMetricSpec"
    async with scene.client() as client:
        method = UnaryStreamMethod(client.channel, name, ScaledObjectRef, GetMetricSpecResponse)
        status, _ = await refused(method(ref(), timeout=PATIENCE_SECONDS))
        assert status is Status.UNIMPLEMENTED


async def test_metadata_names_the_variant(scene):
    """The ScaledObject may be called otherwise."""
    async with scene.client() as client:
        assert await client.number(ref("other", variantName="va")) == 3
        assert (await refused(client.number(ref("other"))))[0] is Status.NOT_FOUND


async def test_only_the_own_namespace_is_told(scene):
    """A ScaledObject of another namespace cannot name the variant."""
    async with scene.client() as client:
        status, message = await refused(client.number(ref(namespace="theirs", variantName="va")))
        assert status is Status.NOT_FOUND
        assert "theirs/va" in message
        assert (await refused(client.number(ref(namespace="theirs", variantName="ns/va"))))[0] is Status.NOT_FOUND


async def test_no_number_is_not_zero(scene):
    """A standby and a variant without a decision are unavailable, so that KEDA keeps what runs."""
    async with scene.client() as client:
        scene.leads = False
        assert (await refused(client.number(ref())))[0] is Status.UNAVAILABLE
        assert (await refused(client.active(ref())))[0] is Status.UNAVAILABLE
        scene.leads = True
        scene.ledger.drop(VariantKey("ns", "va"))
        assert (await refused(client.number(ref())))[0] is Status.UNAVAILABLE
        assert (await client.specs(ref()))[0].metricName == METRIC  # KEDA makes its HPA without a decision


async def test_a_held_number_is_a_number(scene):
    """Prometheus is away: KEDA is told the number in force."""
    scene.ledger.record([held(3)])
    async with scene.client() as client:
        assert await client.number(ref()) == 3


async def test_only_variants_that_ask_for_it_are_told(scene):
    """Without the annotation, and in shadow mode, the number is not for KEDA."""
    async with scene.client() as client:
        scene.declare({})
        status, message = await refused(client.number(ref()))
        assert status is Status.FAILED_PRECONDITION
        assert "wva.llmd.ai/actuation=keda-push" in message
        scene.declare(PUSH)
        scene.shadows.add(VariantKey("ns", "va"))
        status, message = await refused(client.number(ref()))
        assert status is Status.FAILED_PRECONDITION
        assert "shadow" in message


async def test_a_stream_tells_when_a_variant_wakes_and_rests(scene):
    """The first message comes at once, others only when zero replicas become some, or some none."""
    async with scene.client() as client, client.stream() as stream:
        await stream.send_message(ref(), end=True)
        assert (await stream.recv_message()).result is True
        for number in (5, 2, 0):
            scene.ledger.record([decision(number)])
        assert (await stream.recv_message()).result is False
        scene.ledger.record([decision(1)])
        assert (await stream.recv_message()).result is True
        await stream.cancel()


async def test_a_stream_waits_for_a_number(scene):
    """Nothing is sent before there is one; the stream stays open."""
    scene.ledger.drop(VariantKey("ns", "va"))
    async with scene.client() as client, client.stream() as stream:
        await stream.send_message(ref(), end=True)
        await until(lambda: len(scene.scaler._followers) == 1)
        scene.ledger.record([decision(2)])
        assert (await stream.recv_message()).result is True
        await stream.cancel()
    await until(lambda: len(scene.scaler._followers) == 0)


async def test_a_variant_is_found_that_is_created_after_its_stream(scene):
    """The stream stays open without a variant, and tells its first number at once."""
    async with scene.client() as client, client.stream() as stream:
        await stream.send_message(ref("late"), end=True)
        await until(lambda: len(scene.scaler._followers) == 1)
        scene.cluster.va("late", metadata={"annotations": PUSH})
        scene.ledger.record([decision(2, key=VariantKey("ns", "late"))])
        assert (await stream.recv_message()).result is True
        await stream.cancel()


async def test_names_without_a_variant_do_not_exhaust_the_streams(scene, monkeypatch):
    """The oldest of them ends; KEDA asks again within a minute. A variant has its place."""
    monkeypatch.setattr(followers, "STRANGERS", 2)
    async with scene.client() as client, AsyncExitStack() as stack:
        streams = [await stack.enter_async_context(client.stream()) for _ in range(4)]
        for number, stream in enumerate(streams[:3]):
            await stream.send_message(ref(f"nobody-{number}"), end=True)
        await streams[3].send_message(ref(), end=True)
        assert (await streams[3].recv_message()).result is True
        assert (await refused(streams[0].recv_message()))[0] is Status.RESOURCE_EXHAUSTED
        assert len(scene.scaler._followers) == 3
        for stream in streams[1:]:
            await stream.cancel()


async def test_streams_are_limited(scene, monkeypatch):
    """One too many is refused; the others go on."""
    monkeypatch.setattr(followers, "FOLLOWERS", 1)
    scene.cluster.va("other", metadata={"annotations": PUSH})
    async with scene.client() as client, client.stream() as first:
        await first.send_message(ref(), end=True)
        assert (await first.recv_message()).result is True
        async with client.stream() as second:
            await second.send_message(ref("other"), end=True)
            assert (await refused(second.recv_message()))[0] is Status.RESOURCE_EXHAUSTED
        scene.ledger.record([decision(0)])
        assert (await first.recv_message()).result is False
        await first.cancel()


async def test_a_newcomer_has_the_place_of_who_holds_a_connection_for_nothing(scene):
    """KEDA stays while others come and go, and gets in when all places are taken."""
    scene.limits = Http2Limits(connections=3)
    async with scene.client() as client:
        assert await client.number(ref()) == 3
        strangers = [await asyncio.open_connection("127.0.0.1", client.server.port) for _ in range(6)]
        await until(lambda: scene.closed("evicted") == 4)
        assert await client.number(ref()) == 3
        assert client.server.open_connections == 3
        late = Channel("localhost", client.server.port, codec=ProtoCodec())
        assert await Client(late, client.server).number(ref()) == 3
        late.close()
        for _, writer in strangers:
            writer.close()


async def test_a_newcomer_is_not_replaced_before_it_can_ask(scene):
    """Places change hands no faster than a client needs for its first request, so coming back at once is no use."""
    scene.limits = Http2Limits(connections=2)
    async with scene.client() as client:
        began = time.monotonic()
        strangers = [await asyncio.open_connection("127.0.0.1", client.server.port) for _ in range(12)]
        await until(lambda: scene.closed("evicted") == 10)
        assert time.monotonic() - began >= 9 * scene.limits.eviction_seconds > 0.1
        for _, writer in strangers:
            writer.close()


async def test_a_connection_without_a_request_ends(scene):
    """A client cannot hold connections without using them."""
    scene.limits = Http2Limits(first_seconds=0.1)
    async with scene.client() as client:
        reader, writer = await asyncio.open_connection("127.0.0.1", client.server.port)
        await reader.read()
        writer.close()
        await until(lambda: client.server.open_connections == 0)


@pytest.mark.parametrize("name", ["", "v" * 254])
async def test_names_are_checked(scene, name):
    """A name is one that Kubernetes could have; the message says what was expected."""
    async with scene.client() as client:
        status, message = await refused(client.number(ref(name)))
        assert status is Status.INVALID_ARGUMENT
        assert "expected 1 to 253" in message


async def test_messages_are_limited(scene):
    """The announced size decides: nothing longer is read."""
    async with scene.client() as client:
        status, message = await refused(client.number(ref(note="x" * 70_000)))
        assert status is Status.RESOURCE_EXHAUSTED
        assert "expected at most 65536" in message
        assert await client.number(ref()) == 3


async def test_bytes_that_are_no_request_end_only_their_connection(scene):
    """The server goes on for the others."""
    async with scene.client() as client:
        for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 1000, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 500):
            reader, writer = await asyncio.open_connection("127.0.0.1", client.server.port)
            writer.write(sent)
            await reader.read()
            writer.close()
        assert await client.number(ref()) == 3


async def test_a_connection_that_ends_before_its_answer_is_no_error_of_ours(scene, monkeypatch):
    """A flood ends a connection while a call has its number and has not sent it: the log has no traceback."""
    number = scene.scaler.number

    def ends(key):
        monkeypatch.setattr(scene.scaler, "number", number)
        caller.get().connection._connection.close_connection()
        caller.get().abort("flood")
        return number(key)

    monkeypatch.setattr(scene.scaler, "number", ends)
    with capture_logs() as lines:
        async with scene.client() as client:
            with pytest.raises((GRPCError, StreamTerminatedError, ConnectionError)):
                await client.number(ref())
        async with scene.client() as client:
            assert await client.number(ref()) == 3
    assert [line["event"] for line in lines] == ["server_started"] * 2


async def test_tls_follows_the_certificate(scene, tmp_path):
    """A new pair is served to the next connection; a client that trusts another authority gets nothing."""
    pair = IssuedPair(tmp_path)
    certificate = ReloadingCertificate(pair.files, instruments=Instruments(CollectorRegistry()), now=scene.clock.now)
    trust = pair.trusting()
    trust.set_alpn_protocols(["h2"])
    async with scene.client(tls=lambda: certificate.http2, trust=trust) as client:
        assert await client.number(ref()) == 3
        before = certificate.http2
        pair.issue()
        certificate.poll()
        assert certificate.http2 is not before
        other = Channel("localhost", client.server.port, ssl=trust, codec=ProtoCodec())
        assert await Client(other, client.server).number(ref()) == 3
        other.close()
        strange = Channel("localhost", client.server.port, ssl=ssl.create_default_context(), codec=ProtoCodec())
        with pytest.raises(ssl.SSLError):
            await Client(strange, client.server).number(ref())
        strange.close()


async def test_the_status_says_when_keda_does_not_ask(scene):
    """After a patience the trouble begins; a question ends it, and the status is looked at each time."""
    key = Key("ns", "va")
    assert not scene.scaler.trouble(key)
    await scene.clock.advance(91)
    trouble = scene.scaler.trouble(key)
    assert trouble.reason == "NoPushClient"
    assert "external-push" in trouble.message
    scene.scaler.look()
    scene.scaler.look()
    assert scene.revisited == [key]
    async with scene.client() as client:
        await client.number(ref())
        assert not scene.scaler.trouble(key)
        scene.scaler.look()
        assert scene.revisited == [key, key]
        await scene.clock.advance(91)
        assert scene.scaler.trouble(key)
        async with client.stream() as stream:
            await stream.send_message(ref(), end=True)
            await stream.recv_message()
            await scene.clock.advance(1000)
            assert not scene.scaler.trouble(key)
            await stream.cancel()
    scene.declare({})
    assert not scene.scaler.trouble(key)


def test_the_server_must_be_switched_on():
    """The annotation alone is said not to be in force."""
    made = CachedCluster().va("va", metadata={"annotations": PUSH})
    (line,) = actuation_problems(made, enabled=False)
    assert "--keda-push-bind-address" in line
    assert actuation_problems(made, enabled=False, push=True) == []


async def test_clients_need_a_certificate_of_the_authorities_in_the_settings(scene, tmp_path):
    """Without one a client gets nothing. If the file of the authorities goes, nobody new does, and the rest goes on."""
    pair = IssuedPair(tmp_path)
    authorities = tmp_path / "ca.crt"
    authorities.write_bytes(pair.authority.cert_pem.bytes())
    instruments = Instruments(CollectorRegistry())
    trusted = ClientAuthorities(authorities, setting="--keda-push-client-ca-path")
    certificate = ReloadingCertificate(pair.files, instruments=instruments, now=scene.clock.now, authorities=trusted)
    settings = Settings(keda_push_bind_address="127.0.0.1:0", keda_push_client_ca_path=str(authorities))
    stranger, known = pair.trusting(), pair.trusting()
    pair.authority.issue_cert("keda").configure_cert(known)
    for trust in (stranger, known):
        trust.set_alpn_protocols(["h2"])
    async with scene.client(tls=push_tls(settings, certificate), trust=known) as client:
        assert await client.number(ref()) == 3
        other = Channel("localhost", client.server.port, ssl=stranger, codec=ProtoCodec())
        with pytest.raises((OSError, StreamTerminatedError)):
            await Client(other, client.server).number(ref())
        other.close()
        authorities.unlink()
        pair.issue()
        certificate.poll()
        late = Channel("localhost", client.server.port, ssl=known, codec=ProtoCodec())
        with pytest.raises((OSError, StreamTerminatedError)):
            await Client(late, client.server).number(ref())
        late.close()
        assert await client.number(ref()) == 3  # the connection that was there goes on


async def test_the_authorities_of_clients_follow_their_file(scene, tmp_path):
    """New ones get in and old ones no longer, with a self-signed certificate, too; open connections go on."""
    old, new, file = trustme.CA(), trustme.CA(), tmp_path / "ca.crt"
    file.write_bytes(old.cert_pem.bytes())
    certificate = SelfSignedCertificate(
        [],
        instruments=scene.instruments,
        now=time.time,
        authorities=ClientAuthorities(file, setting="--keda-push-client-ca-path"),
    )

    def keda(authority):
        trust = blind()
        trust.set_alpn_protocols(["h2"])
        authority.issue_cert("keda").configure_cert(trust)
        return trust

    async with scene.client(tls=push_tls(Settings(), certificate), trust=keda(old)) as client:

        async def gets_in(authority):
            channel = Channel("localhost", client.server.port, ssl=keda(authority), codec=ProtoCodec())
            try:
                return await Client(channel, client.server).number(ref()) == 3
            except (OSError, StreamTerminatedError):
                return False
            finally:
                channel.close()

        assert await client.number(ref()) == 3
        assert not await gets_in(new)
        file.write_bytes(new.cert_pem.bytes())
        certificate.poll()
        assert await gets_in(new)
        assert not await gets_in(old)
        assert await client.number(ref()) == 3
        file.write_text("no certificate")
        with capture_logs() as lines:
            certificate.poll()
            certificate.poll()
        assert [line["event"] for line in lines] == ["client_authorities_rejected"]
        assert not await gets_in(new)
        file.write_bytes(old.cert_pem.bytes() + new.cert_pem.bytes())
        certificate.poll()
        assert await gets_in(new)
        assert await gets_in(old)


def test_a_port_for_everybody_is_told(tmp_path):
    """Client certificates are what is expected; without them the start warns."""
    certificate = SelfSignedCertificate([], instruments=Instruments(CollectorRegistry()), now=time.time)
    with capture_logs() as lines:
        push_tls(Settings(), certificate)
        push_tls(Settings(keda_push_client_ca_path=str(tmp_path)), certificate)
    assert [line["event"] for line in lines] == ["keda_push_without_client_certificates"]


def test_wrong_settings_of_the_server_are_told_at_the_start(tmp_path):
    """An address that is none, and authorities that are none."""
    instruments = Instruments(CollectorRegistry())
    (line,) = server_problems(Settings(keda_push_bind_address="nowhere"), instruments=instruments)
    assert line.startswith("--keda-push-bind-address='nowhere'")
    (tmp_path / "ca.crt").write_text("no certificate")
    settings = Settings(keda_push_bind_address=":9443", keda_push_client_ca_path=str(tmp_path / "ca.crt"))
    (line,) = server_problems(settings, instruments=instruments)
    assert line.startswith("--keda-push-client-ca-path=")
