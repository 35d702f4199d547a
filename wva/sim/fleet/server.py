"""The fleet over HTTP in real time: in e2e a real Prometheus scrapes it instead of pods, which run nothing there.

The clock is injected. Virtual time is the clock's time since the start; the fleet is brought up to it before each
answer and by a tick in between, so that a pause of the scraper leaves no hour to be simulated at once.

Routes: ``GET /metrics`` (all Ready pods and gateways on one page, for ``honor_labels: true``),
``GET /pods/{namespace}/{pod}/metrics``, ``GET /epp/metrics`` and ``GET /epp/{namespace}/metrics`` (flow control),
``GET /summary?since=SECONDS``, and to steer: ``POST /load``, ``POST /variants``, ``POST /pods``, ``POST /faults``.
Bodies are JSON, described by the ``...Body`` structs; a bad one is answered with 400 and the reason, an unknown object
with 404.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import msgspec
from aiohttp import web

from wva.clock import Clock
from wva.sim.fleet.fleet import Fleet, PodFault, ReadyPod
from wva.sim.fleet.metrics import CONTENT_TYPE
from wva.sim.fleet.parameters import PRESETS, EngineParameters
from wva.sim.fleet.replica import PodKey, PoolKey, PoolVariant
from wva.sim.traffic.lengths import TokenLengths
from wva.sim.traffic.rates import RateProfile

TICK_SECONDS: Final = 1.0

BodyT = TypeVar("BodyT")


class LoadBody(msgspec.Struct, forbid_unknown_fields=True):
    """Another rate for a model: either a number, or points of (seconds from now, requests per second).

    ``prompt`` and ``output`` change how long its requests are; without them the lengths stay as they are.
    """

    namespace: str
    model: str
    rate: float | None = None
    points: list[tuple[float, float]] = []
    prompt: TokenLengths | None = None
    output: TokenLengths | None = None

    def profile(self) -> RateProfile:
        """Return the rate from now on; raises ValueError without rate and points, or for bad ones."""
        return RateProfile(tuple(self.points)) if self.rate is None else RateProfile.constant(self.rate)


class VariantBody(msgspec.Struct, forbid_unknown_fields=True):
    """A Deployment that serves a model; ``accelerator`` names a preset unless ``parameters`` are given."""

    namespace: str
    deployment: str
    model: str
    accelerator: str
    parameters: EngineParameters | None = None
    data_parallel_size: int = 1

    def spec(self) -> PoolVariant:
        """Return the variant; raises KeyError for an accelerator without preset."""
        return PoolVariant(
            namespace=self.namespace,
            deployment=self.deployment,
            model_id=self.model,
            accelerator=self.accelerator,
            parameters=self.parameters or PRESETS[self.accelerator],
            data_parallel_size=self.data_parallel_size,
        )


class PodsBody(msgspec.Struct, forbid_unknown_fields=True):
    """The names of all Ready pods of a Deployment."""

    namespace: str
    deployment: str
    pods: list[str]


class FaultBody(msgspec.Struct, forbid_unknown_fields=True):
    """A fault of a pod's page; without a mode the page is repaired."""

    namespace: str
    pod: str
    mode: PodFault | None = None


class FleetServer:
    """A fleet tied to a clock, and its HTTP application."""

    def __init__(self, fleet: Fleet, *, clock: Clock) -> None:
        """Tie the fleet's present time to the clock's."""
        self.fleet = fleet
        self._clock = clock
        self._origin_seconds = clock.monotonic() - fleet.now_seconds

    def catch_up(self) -> None:
        """Bring the fleet to the clock's time."""
        self.fleet.advance(max(self.fleet.now_seconds, self._clock.monotonic() - self._origin_seconds))

    async def tick(self) -> None:
        """Catch up once per second, for ever."""
        while True:
            await self._clock.sleep(TICK_SECONDS)
            self.catch_up()

    def application(self) -> web.Application:
        """Return the routes, without the tick."""
        application = web.Application(middlewares=[_explain_errors])
        application.add_routes(
            [
                web.get("/metrics", self._metrics),
                web.get("/pods/{namespace}/{pod}/metrics", self._pod_metrics),
                web.get("/epp/metrics", self._gateway_metrics),
                web.get("/epp/{namespace}/metrics", self._gateway_metrics),
                web.get("/summary", self._summary),
                web.post("/load", self._load),
                web.post("/variants", self._variants),
                web.post("/pods", self._pods),
                web.post("/faults", self._faults),
            ]
        )
        return application

    @asynccontextmanager
    async def serving(self, tasks: asyncio.TaskGroup, *, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[int]:
        """Serve, and tick in ``tasks``, inside the context; yields the port (0 asks for a free one)."""
        runner = web.AppRunner(self.application(), access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, host, port)
            await site.start()
            ticking = tasks.create_task(self.tick())
            try:
                yield runner.addresses[0][1]
            finally:
                ticking.cancel()
        finally:
            await runner.cleanup()

    async def _metrics(self, _: web.Request) -> web.Response:
        self.catch_up()
        return _page(self.fleet.exposition_all())

    async def _pod_metrics(self, request: web.Request) -> web.Response:
        self.catch_up()
        page = self.fleet.exposition(PodKey(request.match_info["namespace"], request.match_info["pod"]))
        if page is None:
            raise web.HTTPServiceUnavailable(text="no metrics\n")
        return _page(page)

    async def _gateway_metrics(self, request: web.Request) -> web.Response:
        self.catch_up()
        return _page(self.fleet.exposition_gateway(request.match_info.get("namespace")))

    async def _summary(self, request: web.Request) -> web.Response:
        self.catch_up()
        summary = self.fleet.summary(since_seconds=float(request.query.get("since", "0")))
        return web.Response(body=msgspec.json.encode(summary), content_type="application/json")

    async def _load(self, request: web.Request) -> web.Response:
        body = await _decode(request, LoadBody)
        self.catch_up()
        model = PoolKey(body.namespace, body.model)
        self.fleet.set_load(model, profile=body.profile(), prompt=body.prompt, output=body.output)
        return web.Response(status=204)

    async def _variants(self, request: web.Request) -> web.Response:
        body = await _decode(request, VariantBody)
        self.catch_up()
        self.fleet.add_variant(body.spec())
        return web.Response(status=204)

    async def _pods(self, request: web.Request) -> web.Response:
        body = await _decode(request, PodsBody)
        self.catch_up()
        pods = [ReadyPod(name) for name in body.pods]
        self.fleet.set_ready_pods(body.namespace, deployment=body.deployment, pods=pods)
        return web.Response(status=204)

    async def _faults(self, request: web.Request) -> web.Response:
        body = await _decode(request, FaultBody)
        self.catch_up()
        pod = PodKey(body.namespace, body.pod)
        if body.mode is None:
            self.fleet.repair_pod(pod)
        else:
            self.fleet.break_pod(pod, mode=body.mode)
        return web.Response(status=204)


async def _decode(request: web.Request, kind: type[BodyT]) -> BodyT:
    return msgspec.json.decode(await request.read(), type=kind)


def _page(text: str) -> web.Response:
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE})


@web.middleware
async def _explain_errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except KeyError as error:
        raise web.HTTPNotFound(text=f"unknown: {error}\n") from error
    except ValueError as error:  # msgspec's errors are ValueErrors
        raise web.HTTPBadRequest(text=f"{error}\n") from error
