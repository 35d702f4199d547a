"""The limits of an HTTP/2 connection: how much a client may send, and how it is read."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import pytest
from hyperframe.frame import DataFrame, Frame, GoAwayFrame, PingFrame, RstStreamFrame, SettingsFrame

from tests.attack.push_peer import PREFACE, SETTINGS, call, head
from tests.publish.decisions import decision
from tests.serve.doubles import PATIENCE_SECONDS, until
from tests.serve.keda import ref
from tests.serve.test_keda_push import PushScene
from wva.serve.http2 import Flood, FrameAllowance, FrameType, Http2Limits, ReadingTurns

PING = PingFrame(0, opaque_data=b"x" * 8).serialize()
CALM = 11
"""The error code ENHANCE_YOUR_CALM."""


@pytest.fixture
async def scene():
    """Return a scene with a decision for three replicas."""
    made = PushScene()
    made.ledger.record([decision(3)])
    return made


@asynccontextmanager
async def connected(scene):
    """Give a raw connection beside a client that must still get its number at the end."""
    async with scene.client() as client, asyncio.timeout(PATIENCE_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", client.server.port)
        writer.write(PREFACE + SETTINGS)
        yield reader, writer
        writer.transport.abort()
        assert await client.number(ref()) == 3


async def frames(reader):
    """Return the frames that come until the connection ends."""
    data = bytearray()
    try:
        while more := await reader.read(2**16):
            data += more
    except ConnectionError:
        pass
    found = []
    while data:
        frame, size = Frame.parse_frame_header(memoryview(data[:9]))
        frame.parse_body(memoryview(data[9 : 9 + size]))
        found.append(frame)
        del data[: 9 + size]
    return found


# --- how much a client may send --------------------------------------------------------------------------------------


def sent(allowance, kind, count, *, now=0.0, size=0):
    """Count frames; return how many were allowed."""
    for number in range(count):
        try:
            allowance.take(kind, size, now)
        except Flood:
            return number
    return count


@pytest.mark.parametrize("kind", [FrameType.PING, FrameType.DATA, FrameType.PRIORITY, FrameType.WINDOW_UPDATE, 0xBB])
def test_frames_without_requests_are_limited(kind):
    """A thousand may come at once, and a hundred a second in the long run, also of types that do not exist."""
    allowance = FrameAllowance(Http2Limits(), 0.0)
    assert sent(allowance, kind, 5000) == 1000
    assert sent(allowance, kind, 5000, now=2.0) == 199  # one was counted that was refused


def test_each_request_brings_the_right_to_a_few_frames():
    """KEDA opens a stream for each ScaledObject at once, takes all back, and asks for each of them every 15 s."""
    allowance = FrameAllowance(Http2Limits(), 0.0)
    for kind in (FrameType.HEADERS, FrameType.DATA, FrameType.PING):
        assert sent(allowance, kind, 4096) == 4096
    assert sent(allowance, FrameType.RST_STREAM, 2000) == 2000
    for second in range(1, 600):
        for kind in (FrameType.HEADERS, FrameType.DATA, FrameType.PING, FrameType.WINDOW_UPDATE):
            assert sent(allowance, kind, 273, now=float(second)) == 273


def test_requests_that_are_taken_back_bring_no_right():
    """Beginning requests and resetting them ends after a thousand."""
    allowance = FrameAllowance(Http2Limits(), 0.0)
    allowed = 0
    while sent(allowance, FrameType.HEADERS, 1) and sent(allowance, FrameType.RST_STREAM, 1):
        allowed += 1
    assert allowed == 1000


def test_requests_are_limited():
    """As many as streams may be open at once, and a thousand a second in the long run."""
    allowance = FrameAllowance(Http2Limits(), 0.0)
    assert sent(allowance, FrameType.HEADERS, 9999) == 5120
    assert sent(allowance, FrameType.HEADERS, 9999, now=1.0) == 999


@pytest.mark.parametrize(
    ("kind", "size"),
    [(FrameType.CONTINUATION, 1), (FrameType.SETTINGS, 102), (FrameType.DATA, 16_385), (FrameType.HEADERS, 2**24 - 1)],
)
def test_what_no_client_needs_is_a_flood_at_once(kind, size):
    """Headers of more than a frame, many settings, and frames that are longer than allowed."""
    assert sent(FrameAllowance(Http2Limits(), 0.0), kind, 1, size=size) == 0


def test_settings_are_limited_for_the_whole_life_of_a_connection():
    """h2 keeps each name of a setting for ever."""
    allowance = FrameAllowance(Http2Limits(), 0.0)
    assert sent(allowance, FrameType.SETTINGS, 64, size=96) == 64
    assert sent(allowance, FrameType.SETTINGS, 1, now=1e6, size=6) == 0


@pytest.mark.parametrize(
    "flood",
    [
        PING * 2000,
        head(1, "GetMetrics") + DataFrame(1).serialize() * 2000,
        b"".join(head(at, "GetMetrics") + RstStreamFrame(at).serialize() for at in range(1, 4001, 2)),
        SettingsFrame(0, settings={4: 1000}).serialize() * 100,
    ],
    ids=["pings", "empty data", "resets", "settings"],
)
async def test_a_flood_is_told_to_calm_down_and_counted(scene, flood):
    """The connection ends; that of another client goes on."""
    scene.limits = Http2Limits(frames=100, frames_per_second=0)
    async with connected(scene) as (reader, writer):
        writer.write(flood)
        got = await frames(reader)
        assert scene.closed("flood") == 1
    gone = [frame.error_code for frame in got if isinstance(frame, GoAwayFrame)]
    assert gone in ([CALM], [])  # the end of a connection may overtake what was sent before it


# --- how a connection is read ----------------------------------------------------------------------------------------


async def test_a_frame_may_come_in_pieces(scene):
    """Each byte for itself, from the preface on."""
    async with connected(scene) as (reader, writer):
        for byte in call(1, "StreamIsActive", "nobody") + PING:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)
        answer = PingFrame(0, opaque_data=b"x" * 8, flags=["ACK"]).serialize()
        await reader.readuntil(answer)


async def test_answers_that_nobody_reads_end_the_connection(scene):
    """They are not piled up: the server stops to read, and cuts the connection off."""
    scene.limits = Http2Limits(frames=1e9, unread_seconds=0.2)
    async with connected(scene) as (_, writer):
        writer.transport.pause_reading()
        while not scene.closed("slow"):
            writer.write(PING * 1000)
            await asyncio.wait({asyncio.ensure_future(writer.drain())}, timeout=0.1)


async def test_a_connection_without_requests_ends(scene):
    """It had one, and then none for long; with an open stream it stays."""
    scene.limits = Http2Limits(idle_seconds=0.3)
    async with connected(scene) as (reader, writer):
        writer.write(call(1, "StreamIsActive", "nobody"))
        await asyncio.sleep(0.8)
        assert scene.closed("idle") == 0
        writer.write(RstStreamFrame(1).serialize())
        await frames(reader)
        assert scene.closed("idle") == 1


async def test_a_reset_request_leaves_nothing(scene):
    """Not even one whose reset comes with its beginning."""
    async with connected(scene) as (_, writer):
        writer.write(b"".join(head(at, "GetMetrics") + RstStreamFrame(at).serialize() for at in range(1, 201, 2)))
        writer.write(call(201, "StreamIsActive", "nobody"))
        await until(lambda: len(scene.scaler._followers) == 1)
        (held,) = [each for each in scene.server._connections if each._requested]
        assert list(held.processor.streams) == [201]


async def test_requests_that_wait_for_their_client_are_limited(scene, monkeypatch):
    """A client that begins requests without a message is refused beyond the limit; the connection goes on."""
    monkeypatch.setattr("wva.serve.keda_push.WAITING", 10)
    async with connected(scene) as (_, writer):
        writer.write(b"".join(head(at, "GetMetrics") for at in range(1, 101, 2)) + PING)
        await until(lambda: any(each.waiting == 10 for each in scene.server._connections))
        (held,) = [each for each in scene.server._connections if each.waiting]
        await until(lambda: len(held.processor.streams) == 10)


async def test_turns_leave_most_of_the_loop_to_others():
    """Whoever asks first is first, and after each turn there is a pause."""
    turns, order, loop = ReadingTurns(0.25), [], asyncio.get_running_loop()

    async def work(name):
        for _ in range(3):
            async with turns.turn():
                order.append(name)
                until = time.thread_time() + 0.01
                while time.thread_time() < until:
                    pass

    began = loop.time()
    await asyncio.gather(work("a"), work("b"))
    assert order == ["a", "b"] * 3
    assert loop.time() - began >= 0.2  # six turns and five pauses, each three times as long
