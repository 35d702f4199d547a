"""vLLM's routes: the APIs for text, ``/health`` and ``/metrics``.

While it starts (``startup_seconds``, the time a model takes to load) everything but ``/ping`` answers 503, so that the
readiness probe of a vLLM Deployment works as it does with a real one.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from wva.clock import Clock
from wva.sim.emulator.answers import (
    AnswerBodies,
    ChatBodies,
    CompletionBodies,
    MessageBodies,
    PlannedAnswer,
    ResponseBodies,
)
from wva.sim.emulator.openai import (
    AnthropicMessages,
    ChatCompletion,
    Completion,
    GenerationRequest,
    ResponsesInput,
    TokenizedText,
    UnservedRequestError,
    read,
)
from wva.sim.emulator.process_metrics import ProcessMetrics
from wva.sim.emulator.replica import EmulatedReplica
from wva.sim.fleet.metrics import CONTENT_TYPE

MAX_BODY_BYTES: Final = 4 * 1024 * 1024
_VERSION: Final = "0.32.0"
"""The version of vLLM whose metric names and API the emulator has."""
_EVENT_STREAM: Final = {"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
_FORMS: Final[Mapping[str, tuple[type[GenerationRequest], type[AnswerBodies]]]] = {
    "/v1/completions": (Completion, CompletionBodies),
    "/v1/chat/completions": (ChatCompletion, ChatBodies),
    "/v1/responses": (ResponsesInput, ResponseBodies),
    "/v1/messages": (AnthropicMessages, MessageBodies),
}
"""The bodies of requests and answers, by path."""


class EmulatorServer:
    """The HTTP face of one replica."""

    def __init__(self, replica: EmulatedReplica, *, clock: Clock, startup_seconds: float = 0.0) -> None:
        """Begin to load the model now."""
        self._replica = replica
        self._clock = clock
        self._loaded_at = clock.monotonic() + startup_seconds
        self._created = int(clock.now())
        self._process = ProcessMetrics()
        self._answering = 0

    def application(self) -> web.Application:
        """Return the routes."""
        application = web.Application(middlewares=[self._count, self._explain], client_max_size=MAX_BODY_BYTES)
        application.add_routes(
            [
                web.get("/ping", self._ping),
                web.post("/ping", self._ping),
                web.get("/health", self._ping),
                web.get("/version", self._version),
                web.get("/metrics", self._metrics),
                web.get("/v1/models", self._models),
                web.get("/load", self._load),
                web.post("/tokenize", self._tokenize),
                *(web.post(path, self._complete) for path in _FORMS),
            ]
        )
        return application

    @asynccontextmanager
    async def serving(self, *, host: str, port: int) -> AsyncIterator[int]:
        """Serve inside the context, and run the engine; yields the port (0 asks for a free one). Raises OSError."""
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        engine_task = asyncio.create_task(self._replica.run(), name="engine")
        try:
            site = web.TCPSite(runner, host, port)
            await site.start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()
            engine_task.cancel()
            await asyncio.gather(engine_task, return_exceptions=True)

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

    async def _tokenize(self, request: web.Request) -> web.Response:
        count = read(TokenizedText, await request.read()).count
        return _json(
            {
                "count": count,
                "max_model_len": self._replica.parameters.max_model_len,
                "tokens": list(range(count)),
                "token_strs": None,
            }
        )

    async def _load(self, _: web.Request) -> web.Response:
        return _json({"server_load": self._answering})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        form, bodies = _FORMS[request.path]
        generation_request = read(form, await request.read())
        self._check_model(generation_request.model)
        answers = [
            self._planned(prompt, generation_request)
            for prompt in generation_request.prompts
            for _ in range(generation_request.n)
        ]
        body = bodies(
            generation_request,
            answers,
            model=generation_request.model or self._replica.model,
            identity=uuid.uuid4().hex,
            created=int(self._clock.now()),
        )
        self._answering += 1
        try:
            return await self._answer(request, answers, body, stream=generation_request.stream)
        finally:
            self._answering -= 1

    async def _answer(
        self, request: web.Request, answers: Sequence[PlannedAnswer], body: AnswerBodies, *, stream: bool
    ) -> web.StreamResponse:
        """Compute the answers at the same time, and send them whole or token by token."""
        queue: asyncio.Queue[tuple[int, int]] = asyncio.Queue()
        tasks = [
            asyncio.create_task(self._tell(queue, index, answer, each=stream)) for index, answer in enumerate(answers)
        ]
        try:
            if not stream:
                await asyncio.gather(*tasks)
                return web.Response(body=body.whole(), content_type="application/json")
            response = web.StreamResponse(headers=_EVENT_STREAM)
            await response.prepare(request)
            opening = body.begin()
            for _ in range(sum(answer.output_tokens for answer in answers)):
                index, count = await queue.get()
                await response.write(opening + body.token(index, count))
                opening = b""
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await response.write(body.end())
        await response.write_eof()
        return response

    async def _tell(
        self, queue: asyncio.Queue[tuple[int, int]], index: int, answer: PlannedAnswer, *, each: bool
    ) -> None:
        """Put each token of an answer into the queue: the number of the answer and how many tokens it has by then."""
        count = 0
        progress = self._replica.answer(answer.prompt_tokens, answer.output_tokens, limited=answer.cut, each=each)
        async with aclosing(progress):
            async for stream in progress:
                while count < stream.tokens:
                    count += 1
                    queue.put_nowait((index, count))

    def _planned(self, prompt_tokens: int, generation_request: GenerationRequest) -> PlannedAnswer:
        """Return the planned answer to a prompt. Raises UnservedRequestError if it does not fit into the model."""
        most, limit = self._replica.parameters.max_model_len, generation_request.limit
        if prompt_tokens + (limit or 1) > most:
            field = "prompt" if prompt_tokens >= most else "max_tokens"
            raise UnservedRequestError(
                400,
                f"This model's maximum context length is {most} tokens. However, you requested {limit or 1} output "
                f"tokens and your prompt contains {prompt_tokens} input tokens.",
                field=field,
            )
        count, cut = self._replica.length(limit, prompt_tokens, ignore_eos=generation_request.ignore_eos)
        return PlannedAnswer(prompt_tokens, count, cut)

    def _check_model(self, model: str | None) -> None:
        """Accept no model, or the one that is served."""
        if model and model != self._replica.model:
            raise UnservedRequestError(404, f"The model `{model}` does not exist.", code="NotFoundError", field="model")

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
        try:
            if request.path != "/ping" and self._clock.monotonic() < self._loaded_at:
                raise UnservedRequestError(503, "the model is being loaded", code="ServiceUnavailableError")
            return await handler(request)
        except UnservedRequestError as refused:
            error = refused
        except web.HTTPException as answer:
            if answer.status < HTTPStatus.BAD_REQUEST:
                raise
            code = "NotFoundError" if answer.status == HTTPStatus.NOT_FOUND else answer.reason
            error = UnservedRequestError(answer.status, answer.reason, code=code)
        return web.Response(status=error.status, body=error.body(), content_type="application/json")


def _json(body: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")
