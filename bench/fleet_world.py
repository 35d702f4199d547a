"""A fleet, its API server and its Prometheus, and one controller process in front of them.

The controller is a process of its own, started as ``wva run``, and what counts is the CPU time that the kernel has
counted for it. The API server is the embedded one, or a real one with its objects. Prometheus is a table: its answers
are as large as those of the real one. Both have other processes than the controller, so their work does not count.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import aiohttp
import msgspec
from aiohttp import web

from bench.real_plane import opened
from wva.api.crd import definition
from wva.api.meta import Key
from wva.api.variantautoscaling import ACCELERATOR_LABEL, GROUP, VERSION
from wva.sim.apiserver import EmbeddedApiServer, ServerOptions, StoreOptions, kind_from_definition
from wva.sim.world.clock import VirtualClock
from wva.sim.world.workloads import DEPLOYMENTS, Workloads

REPLICAS, ACCELERATORS = 3, ("A100", "H100")
NAMESPACES = [f"team-{number:02}" for number in range(50)]
VARIANTS = "variantautoscalings.llmd.ai"
INTERVAL_SECONDS = int(os.environ.get("WVA_BENCH_INTERVAL", "30"))
_TICKS = os.sysconf("SC_CLK_TCK")


class FleetWorld:
    """An API server, a Prometheus, and one controller."""

    def __init__(
        self,
        folder: Path,
        python: str,
        *,
        models: int = 300,
        settings: Mapping[str, str] = {},
        analyzer: str = "",
        real: bool = False,
    ) -> None:
        """Build everything that the controller will find. No server listens yet.

        All models use ``analyzer``. ``real``: a real kube-apiserver has the objects, not the embedded one.
        """
        store = StoreOptions(namespaces=(*NAMESPACES, "wva"))
        self.api = EmbeddedApiServer([kind_from_definition(definition())], options=ServerOptions(store=store))
        self.queries = 0
        self.usage: float | None = 0.55
        """The KV cache usage of every pod; None: no pod has samples."""
        self.variants = models * len(ACCELERATORS)
        self.written: list[float] = []
        """When a status was written, in monotonic seconds, since ``reset``."""
        self._folder, self._python, self._settings = folder, python, settings
        self._process: asyncio.subprocess.Process | None = None
        self._port = 0
        self._real = real
        self._events = 0
        self._deployments: list[tuple[str, str, str]] = []
        for number in range(models):
            for accelerator in ACCELERATORS:
                self._create(NAMESPACES[number % len(NAMESPACES)], f"org/model-{number}", f"m{number}", accelerator)
        metadata = {"name": "wva-saturation-scaling-config", "namespace": "wva"}
        entry = f'analyzerName: "{analyzer}"'
        self.api.store.create("configmaps", {"metadata": metadata, "data": {"default": entry}})
        workloads = Workloads(self.api.store, clock=VirtualClock(), start_ups={}, random=Random(1))  # noqa: S311 - no secret
        workloads.sync(serving=True)
        self._pods = [
            {"namespace": namespace, "pod": pod, "model_name": model}
            for namespace, name, model in self._deployments
            for pod in workloads.ready_pods(Key(namespace, name))
        ]
        assert len(self._pods) == self.variants * REPLICAS
        self.api.store.subscribe(VARIANTS, lambda _: self.written.append(time.monotonic()))

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
    async def open(self) -> AsyncIterator[FleetWorld]:
        """Listen, and run the controller around the body."""
        app = web.Application()
        app.router.add_post("/api/v1/query", self._answer)
        app.router.add_post("/api/v1/query_range", _no_history)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with self._api_server() as kubeconfig:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self._port = free.getsockname()[1]
            environment = {
                **os.environ,
                "KUBECONFIG": str(kubeconfig),
                "PROMETHEUS_BASE_URL": f"http://127.0.0.1:{runner.addresses[0][1]}",
                "PROMETHEUS_ALLOW_HTTP": "true",
                "METRICS_BIND_ADDRESS": f"127.0.0.1:{self._port}",
                "METRICS_SECURE": "false",
                "HEALTH_PROBE_BIND_ADDRESS": "0",
                "POD_NAMESPACE": "wva",
                "GLOBAL_OPT_INTERVAL": f"{INTERVAL_SECONDS}s",
                **self._settings,
            }
            if self._python != sys.executable:
                environment.pop("PYTHONPATH", None)  # another installation has its own modules
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

    @asynccontextmanager
    async def _api_server(self) -> AsyncIterator[Path]:
        """Run the API server around the body, and yield a kubeconfig for it."""
        if not self._real:
            async with self.api:
                yield self.api.kubeconfig(self._folder / "kubeconfig")
            return
        async with opened(self._folder / "plane", self.api.store, (*NAMESPACES, "wva")) as plane:
            variants = f"/apis/{GROUP}/{VERSION}/variantautoscalings"
            watches = [
                asyncio.create_task(plane.watch(variants, lambda: self.written.append(time.monotonic()))),
                asyncio.create_task(plane.watch("/api/v1/events", self._count_event)),
            ]
            try:
                yield plane.kubeconfig
            finally:
                for watch in watches:
                    watch.cancel()
                await asyncio.gather(*watches, return_exceptions=True)

    def _count_event(self) -> None:
        self._events += 1

    async def _answer(self, request: web.Request) -> web.Response:
        self.queries += 1
        form = await request.post()
        query, at = str(form["query"]), float(str(form["time"]))
        asked = set("|".join(re.findall(r'{namespace=~"([^"]*)"', query)).split("|"))
        pods = [labels for labels in self._pods if labels["namespace"] in asked]
        signals = re.findall(r'"signal", "(\w+)"', query)
        if "timestamp" in signals and "value" in signals:
            return self._essential(at, pods, 0.0 if "num_requests_waiting" in query else self.usage)
        if signals:
            return self._signals(at, signals, pods)
        return _success("vector", [])

    def _signals(self, at: float, signals: list[str], pods: list[dict[str, str]]) -> web.Response:
        """Answer with a row for each pod and signal. Endpoint pickers report no signals."""
        values = dict.fromkeys(signals, "1234567.5") | {"kv_usage": "0.55", "waiting": "0", "running": "12"}
        values |= dict.fromkeys(("time",), f"{time.time():.3f}") | dict.fromkeys(("prefix_hit_rate",), "0.5")
        size = {"engine": "0", "num_gpu_blocks": "8192", "block_size": "16", "signal": "cache_config"}
        rows = [
            {
                "metric": {**labels, **(size if signal == "cache_config" else {"signal": signal})},
                "value": [at, values[signal]],
            }
            for signal in signals
            if "kv_usage" in signals
            for labels in pods
        ]
        return _success("vector", rows)

    def _essential(self, at: float, pods: list[dict[str, str]], value: float | None) -> web.Response:
        """Answer with the value of each of the pods and its time; without a usage no pod reports."""
        told = {} if value is None or self.usage is None else {"value": value, "timestamp": time.time()}
        rows = [
            {"metric": {**labels, "signal": signal}, "value": [at, f"{number:.3f}"]}
            for signal, number in told.items()
            for labels in pods
        ]
        return _success("vector", rows)

    def reset(self) -> None:
        """Count patches from now on."""
        self.api.requests.reset()
        self.written.clear()
        self._events = 0

    @property
    def cpu_seconds(self) -> float:
        """Return the user and system time of the controller so far."""
        assert self._process is not None
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    async def scrape(self) -> str:
        """Read the controller's page, as Prometheus does."""
        async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{self._port}/metrics") as answer:
            return await answer.text()

    @property
    def patches(self) -> int:
        """Return the status patches since the log of requests was reset."""
        return self.api.requests.count("patch", resource=VARIANTS, subresource="status")

    @property
    def writes(self) -> int:
        """Return the status patches and events since the log of requests was reset."""
        if self._real:
            return len(self.written) + self._events
        return self.patches + self.api.requests.count("create", resource="events")

    @property
    def memory_bytes(self) -> int:
        """Return the memory that the controller has in RAM now."""
        return self._proc("VmRSS")

    @property
    def most_memory_bytes(self) -> int:
        """Return the most memory that the controller has had in RAM so far."""
        return self._proc("VmHWM")

    def _proc(self, name: str) -> int:
        assert self._process is not None
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024


async def _no_history(_: web.Request) -> web.Response:
    """Answer a range query as a Prometheus does that has no earlier samples."""
    return _success("matrix", [])


def _success(kind: str, rows: list[dict[str, object]]) -> web.Response:
    answer = {"status": "success", "data": {"resultType": kind, "result": rows}}
    return web.Response(body=msgspec.json.encode(answer), content_type="application/json")
