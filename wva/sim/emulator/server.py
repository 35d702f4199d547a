"""vLLM's routes: the OpenAI API, ``/health`` and ``/metrics``.

While it starts (``startup_seconds``, the time a model takes to load) everything but ``/ping`` answers 503, so that the
readiness probe of a vLLM Deployment works as it does with a real one.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Final

import msgspec
from aiohttp import web

from wva.clock import Clock
from wva.sim.emulator import openai
from wva.sim.emulator.openai import ChatCompletion, Completion, ResponseBodies, UnservedRequestError
from wva.sim.emulator.process_metrics import ProcessMetrics
from wva.sim.emulator.replica import EmulatedReplica, TokenStream
from wva.sim.fleet.metrics import CONTENT_TYPE

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
_VERSION: Final = "0.32.0"
"""The version of vLLM whose metric names and API the emulator has."""
_EVENT_STREAM: Final = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}


class EmulatorServer:
    """The HTTP face of one replica."""

    def __init__(self, replica: EmulatedReplica, *, clock: Clock, startup_seconds: float = 0.0) -> None:
        """Begin to load the model now."""
        self._replica = replica
        self._clock = clock
        self._loaded_at = clock.monotonic() + startup_seconds
        self._created = int(clock.now())
        self._process = ProcessMetrics()

    def application(self) -> web.Application:
        """Return the routes."""
        application = web.Application(middlewares=[self._count, self._explain], client_max_size=MAX_BODY_BYTES)
        application.add_routes(
            [
                web.get("/ping", self._ping),
                web.get("/health", self._ping),
                web.get("/version", self._version),
                web.get("/metrics", self._metrics),
                web.get("/v1/models", self._models),
                web.post("/v1/completions", self._complete),
                web.post("/v1/chat/completions", self._complete),
            ]
        )
        return application

    @asynccontextmanager
    async def serving(self, *, host: str, port: int) -> AsyncIterator[int]:
        """Serve inside the context, and run the engine; yields the port (0 asks for a free one). Raises OSError."""
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        running = asyncio.create_task(self._replica.run(), name="engine")
        try:
            site = web.TCPSite(runner, host, port)
            await site.start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    async def _ping(self, _: web.Request) -> web.Response:
        return web.Response()

    async def _version(self, _: web.Request) -> web.Response:
        return _json({"version": _VERSION})

    async def _metrics(self, _: web.Request) -> web.Response:
        return web.Response(body=self._process.page(self._replica.page()), headers={"Content-Type": CONTENT_TYPE})

    async def _models(self, _: web.Request) -> web.Response:
        replica = self._replica
        model = {
            "id": replica.model,
            "object": "model",
            "created": self._created,
            "owned_by": "vllm",
            "root": replica.model,
            "max_model_len": replica.parameters.max_model_len,
        }
        return _json({"object": "list", "data": [model]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = openai.read(await request.read(), chat=request.path.startswith("/v1/chat/"))
        prompt_tokens = self._prompt_tokens(body)
        count, cut = self._replica.length(openai.wanted_tokens(body), prompt_tokens, ignore_eos=body.ignore_eos)
        created = int(self._clock.now())
        answer = ResponseBodies(body, identity=uuid.uuid4().hex, created=created, prompt_tokens=prompt_tokens)
        reason = "length" if cut else "stop"
        async with aclosing(self._replica.answer(prompt_tokens, count, limited=cut)) as progress:
            if body.stream:
                return await _stream(request, progress, answer, reason)
            async for stream in progress:
                if stream.finished:
                    return web.Response(
                        body=answer.whole(stream.tokens, reason=reason), content_type="application/json"
                    )
        raise web.HTTPServiceUnavailable(text="the engine stopped\n")

    def _prompt_tokens(self, body: Completion | ChatCompletion) -> int:
        """Return the length of the prompt. Raises RefusedError when it cannot be served."""
        replica = self._replica
        if body.model != replica.model:
            raise UnservedRequestError(404, f"The model `{body.model}` does not exist.", code="NotFoundError")
        prompt_tokens = body.prompt_tokens
        if prompt_tokens >= replica.parameters.max_model_len:
            most = replica.parameters.max_model_len
            message = f"the prompt has {prompt_tokens} tokens: expected fewer than max_model_len={most}"
            raise UnservedRequestError(400, message, code="BadRequestError")
        return prompt_tokens

    @web.middleware
    async def _count(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        resource = request.match_info.route.resource
        started, status, sent = self._clock.monotonic(), 500, 0
        try:
            response = await handler(request)
        except web.HTTPException as error:
            status = error.status
            raise
        else:
            status, sent = response.status, response.content_length or 0
            return response
        finally:
            self._process.count(
                "none" if resource is None else resource.canonical,
                request.method,
                status=status,
                received_bytes=request.content_length or 0,
                sent_bytes=sent,
                seconds=self._clock.monotonic() - started,
            )

    @web.middleware
    async def _explain(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        if request.path != "/ping" and self._clock.monotonic() < self._loaded_at:
            raise web.HTTPServiceUnavailable(text="the model is being loaded\n")
        try:
            return await handler(request)
        except UnservedRequestError as refused:
            return web.Response(status=refused.status, body=refused.body(), content_type="application/json")


async def _stream(
    request: web.Request, progress: AsyncIterator[TokenStream], answer: ResponseBodies, reason: str
) -> web.StreamResponse:
    response = web.StreamResponse(headers=_EVENT_STREAM)
    await response.prepare(request)
    told = 0
    async for stream in progress:
        end = reason if stream.finished else None
        await response.write(answer.piece(stream.tokens - told, reason=end, first=not told))
        told = stream.tokens
    await response.write(answer.end(told))
    await response.write_eof()
    return response


def _json(body: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")
