"""Requests as a gateway hands them to an endpoint picker: over ext-proc, Envoy's protocol of external processing.

In: a model, and how many requests for it. Out: the answer to each of them, when the picker gives it. One gRPC stream is
one request. The picker names the pod that serves it, refuses it, or holds it: then nothing comes until there is a pod,
or until the client hangs up. The messages have the fields that are needed, out of Envoy's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from grpclib.client import Channel, StreamStreamMethod
from grpclib.encoding.proto import ProtoCodec

from wva.serve.messages import DATA, FLAG, TEXT, WHOLE, message_types

_METHOD = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
_ENDPOINT = "x-gateway-destination-endpoint"
_CLOSE_SECONDS = 10.0

_message = message_types(
    "envoy.service.ext_proc.v3",
    {
        "HeaderValue": {1: ("key", TEXT), 2: ("value", TEXT), 3: ("raw_value", DATA)},
        "HeaderMap": {1: ("headers", "[HeaderValue")},
        "HttpHeaders": {1: ("headers", "HeaderMap"), 3: ("end_of_stream", FLAG)},
        "HttpBody": {1: ("body", DATA), 2: ("end_of_stream", FLAG)},
        "ProcessingRequest": {2: ("request_headers", "HttpHeaders"), 4: ("request_body", "HttpBody")},
        "HeaderValueOption": {1: ("header", "HeaderValue")},
        "HeaderMutation": {1: ("set_headers", "[HeaderValueOption")},
        "CommonResponse": {2: ("header_mutation", "HeaderMutation")},
        "HeadersResponse": {1: ("response", "CommonResponse")},
        "HttpStatus": {1: ("code", WHOLE)},
        "ImmediateResponse": {1: ("status", "HttpStatus"), 3: ("body", DATA)},
        "ProcessingResponse": {
            1: ("request_headers", "HeadersResponse"),
            7: ("immediate_response", "ImmediateResponse"),
        },
    },
)
_Request, _Response = _message("ProcessingRequest"), _message("ProcessingResponse")


@dataclass(frozen=True, slots=True)
class PickerAnswer:
    """What a picker says of a request: the pod's ``host:port``; else the HTTP status and the words of a refusal."""

    status: int
    endpoint: str = ""
    words: str = ""


class ExtProcClient:
    """Sends requests to one picker, from a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, channel: Channel) -> None:
        """``loop`` runs in another thread, and ``channel`` belongs to it."""
        self._loop = loop
        self._channel = channel
        self._sent: list[Future[PickerAnswer]] = []

    def send(self, requests: int, *, model: str, **headers: str) -> list[Future[PickerAnswer]]:
        """Send this many requests at the same time, with headers (``_`` for ``-``); wait for no answer."""
        own = {name.replace("_", "-"): value for name, value in headers.items()}
        made = [asyncio.run_coroutine_threadsafe(self._ask(model, own), self._loop) for _ in range(requests)]
        self._sent += made
        return made

    def hang_up(self) -> None:
        """Give up what was not answered yet, as clients do who wait no longer."""
        for request in self._sent:
            request.cancel()
        self._sent.clear()

    async def _ask(self, model: str, own: Mapping[str, str]) -> PickerAnswer:
        method = StreamStreamMethod[Any, Any](self._channel, _METHOD, _Request, _Response)
        body = json.dumps({"model": model, "prompt": "Say hello."}).encode()
        headers = {":method": "POST", ":path": "/v1/completions", "content-type": "application/json", **own}
        entries = [{"key": key, "raw_value": value.encode()} for key, value in headers.items()]
        async with method.open() as stream:
            await stream.send_message(_Request(request_headers={"headers": {"headers": entries}}))
            await stream.send_message(_Request(request_body={"body": body, "end_of_stream": True}), end=True)
            answers = [message async for message in stream]
        return _answer(answers[0])


def _answer(message: Any) -> PickerAnswer:
    if message.HasField("immediate_response"):
        refusal = message.immediate_response
        return PickerAnswer(refusal.status.code, words=refusal.body.decode())
    headers = (option.header for option in message.request_headers.response.header_mutation.set_headers)
    values = {header.key: header.raw_value.decode() or header.value for header in headers}
    return PickerAnswer(HTTPStatus.OK, endpoint=values[_ENDPOINT])


@contextlib.contextmanager
def ext_proc(host: str, port: int) -> Iterator[ExtProcClient]:
    """Give a client of the picker at this address; at the end of the block it hangs up."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name=f"requests to {host}:{port}")
    thread.start()
    try:
        channel = _done(_channel(host, port), loop)
        client = ExtProcClient(loop, channel)
        try:
            yield client
        finally:
            client.hang_up()
            _done(_close(channel), loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _done(coroutine: Any, loop: asyncio.AbstractEventLoop) -> Any:
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(_CLOSE_SECONDS)


async def _channel(host: str, port: int) -> Channel:
    return Channel(host, port, codec=ProtoCodec())  # it takes the loop that runs here


async def _close(channel: Channel) -> None:
    """Wait for the requests that were given up, then close the connection."""
    requests = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*requests, return_exceptions=True)
    channel.close()
