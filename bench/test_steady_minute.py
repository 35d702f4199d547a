"""A minute in which nothing changes: 300 models with 2 variants of 3 replicas each, and what the controller does then.

The controller is a process of its own, started as ``wva run``, and what counts is the CPU time that the kernel has
counted for it. The API server is the embedded one. Prometheus is a table: its answers are as large as those of the real
one. Both are in the process of the benchmark, so their work does not count.

``WVA_BENCH_BESIDE`` may name the Python of another installation of wva. Both run in the same minutes, each in a world
of its own, so the state of the machine is the same for both.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random

import aiohttp
import msgspec
from aiohttp import web

from wva.api.crd import definition
from wva.api.meta import Key
from wva.api.variantautoscaling import ACCELERATOR_LABEL
from wva.sim.apiserver import ApiServer, ServerOptions, StoreOptions, kind_from_definition
from wva.sim.world.clock import VirtualClock
from wva.sim.world.workloads import DEPLOYMENTS, Workloads

MODELS, REPLICAS, ACCELERATORS = 300, 3, ("A100", "H100")
NAMESPACES = [f"team-{number:02}" for number in range(50)]
VARIANTS = "variantautoscalings.llmd.ai"
INTERVAL_SECONDS = 30
SETTLING_SECONDS = 75
MEASURED_SECONDS = 120
SCRAPE_SECONDS = 15
MOST_CPU_SECONDS = 1.0
MOST_QUERIES = 8
_TICKS = os.sysconf("SC_CLK_TCK")


class World:
    """An API server, a Prometheus, and one controller."""

    def __init__(self, folder: Path, python: str) -> None:
        """Build everything that the controller will find; nothing listens yet."""
        store = StoreOptions(namespaces=(*NAMESPACES, "wva"))
        self.api = ApiServer([kind_from_definition(definition())], options=ServerOptions(store=store))
        self.queries = 0
        self._folder, self._python = folder, python
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0
        self._deployments: list[tuple[str, str, str]] = []
        for number in range(MODELS):
            for accelerator in ACCELERATORS:
                self._create(NAMESPACES[number % len(NAMESPACES)], f"org/model-{number}", f"m{number}", accelerator)
        workloads = Workloads(self.api.store, clock=VirtualClock(), loading={}, random=Random(1))  # noqa: S311 - no secret
        workloads.sync()
        workloads.finish_loading()
        workloads.sync()
        self._pods = [
            {"namespace": namespace, "pod": pod, "model_name": model}
            for namespace, name, model in self._deployments
            for pod in workloads.ready_pods(Key(namespace, name))
        ]
        assert len(self._pods) == MODELS * len(ACCELERATORS) * REPLICAS

    def _create(self, namespace: str, model: str, short: str, accelerator: str) -> None:
        name = f"{short}-{accelerator.lower()}"
        self._deployments.append((namespace, name, model))
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "vllm", "image": "vllm"}]}}
        spec = {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}
        self.api.store.create(DEPLOYMENTS, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})
        metadata = {"name": name, "namespace": namespace, "labels": {ACCELERATOR_LABEL: accelerator}}
        target = {"kind": "Deployment", "name": name}
        body = {"metadata": metadata, "spec": {"scaleTargetRef": target, "modelID": model}}
        self.api.store.create(VARIANTS, body)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[World]:
        """Listen, and run the controller around the body."""
        app = web.Application()
        app.router.add_post("/api/v1/query", self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with self.api:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self._port = free.getsockname()[1]
            environment = {
                **os.environ,
                "KUBECONFIG": str(self.api.kubeconfig(self._folder / "kubeconfig")),
                "PROMETHEUS_BASE_URL": f"http://127.0.0.1:{runner.addresses[0][1]}",
                "PROMETHEUS_ALLOW_HTTP": "true",
                "METRICS_BIND_ADDRESS": f"127.0.0.1:{self._port}",
                "METRICS_SECURE": "false",
                "HEALTH_PROBE_BIND_ADDRESS": "0",
                "POD_NAMESPACE": "wva",
                "GLOBAL_OPT_INTERVAL": f"{INTERVAL_SECONDS}s",
            }
            with (self._folder / "log").open("wb") as log:
                self._process = await asyncio.create_subprocess_exec(
                    self._python, "-m", "wva", "run", env=environment, cwd=self._folder, stdout=log, stderr=log
                )
                try:
                    yield self
                finally:
                    self._process.terminate()
                    await self._process.wait()
        await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        self.queries += 1
        form = await request.post()
        query, at = str(form["query"]), float(str(form["time"]))
        value = "0.55" if "kv_cache_usage_perc" in query else "0"
        value = f"{time.time():.3f}" if "timestamp(" in query else value
        known = "kv_cache_usage_perc" in query or "num_requests_waiting" in query
        result = [{"metric": labels, "value": [at, value]} for labels in (self._pods if known else [])]
        answer = {"status": "success", "data": {"resultType": "vector", "result": result}}
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    @property
    def cpu_seconds(self) -> float:
        """User and system time of the controller so far."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    async def scrape(self) -> str:
        """Read the controller's page, as Prometheus does."""
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self._port}/metrics") as answer:
            return await answer.text()

    @property
    def patches(self) -> int:
        """Status patches since the log of requests was reset."""
        return self.api.requests.count("patch", resource=VARIANTS, subresource="status")


async def _measured(worlds: list[World]) -> list[tuple[float, float, int]]:
    """Return for each world, per minute: CPU seconds and queries; and the patches of all minutes."""
    await asyncio.sleep(SETTLING_SECONDS)
    for world in worlds:
        page = await world.scrape()
        assert page.count("\nwva_desired_replicas{") == MODELS * len(ACCELERATORS), page[:2000]
        world.api.requests.reset()
    before = [(world.cpu_seconds, world.queries) for world in worlds]
    for _ in range(MEASURED_SECONDS // SCRAPE_SECONDS):
        await asyncio.sleep(SCRAPE_SECONDS)
        for world in worlds:
            await world.scrape()
    minutes = MEASURED_SECONDS / 60
    return [
        ((world.cpu_seconds - cpu) / minutes, (world.queries - queries) / minutes, world.patches)
        for world, (cpu, queries) in zip(worlds, before, strict=True)
    ]


def test_a_minute_without_changes_costs_next_to_nothing(tmp_path: Path) -> None:
    """Less than a second of CPU time, eight queries, no patch."""
    beside = os.environ.get("WVA_BENCH_BESIDE", "")
    names = {"this": sys.executable} | ({"beside": beside} if beside else {})

    async def play() -> list[tuple[float, float, int]]:
        async with AsyncExitStack() as stack:
            worlds = []
            for name, python in names.items():
                (tmp_path / name).mkdir()
                worlds.append(await stack.enter_async_context(World(tmp_path / name, python).open()))
            return await _measured(worlds)

    found = dict(zip(names, asyncio.run(play()), strict=True))
    for name, (cpu, queries, patches) in found.items():
        print(f"\n{name}: {cpu:.2f} CPU seconds and {queries:g} queries per minute, {patches} status patches")
    cpu, queries, patches = found["this"]
    assert patches == 0
    assert queries <= MOST_QUERIES
    assert cpu < MOST_CPU_SECONDS
