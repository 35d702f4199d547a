"""What the controller sees beside the engines: an embedded API server with a Deployment, and a real Prometheus."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random
from typing import Final

from bench.vllm.engine import MODEL
from e2e.controlplane.layout import Layout
from e2e.controlplane.prometheus import PrometheusProcess, ScrapeJob
from wva.api.crd import definition
from wva.api.meta import Key
from wva.api.variantautoscaling import ACCELERATOR_LABEL, GROUP, KIND, VERSION
from wva.sim.apiserver import EmbeddedApiServer, ServerOptions, StoreOptions, kind_from_definition
from wva.sim.stage.scenario import StartUp
from wva.sim.world.workloads import DEPLOYMENTS, Workloads

NAMESPACE: Final = "chat"
NAME: Final = "tiny"
SYSTEM: Final = "workload-variant-autoscaler-system"
_VARIANTS: Final = "variantautoscalings.llmd.ai"
_SYNC_SECONDS: Final = 0.5


class WallClock:
    """The machine's time, as the embedded workloads ask for it."""

    def __init__(self) -> None:
        """Begin to count now."""
        self._begun = time.monotonic()

    def now(self) -> float:
        """Return the seconds since the epoch."""
        return time.time()

    @property
    def elapsed_seconds(self) -> float:
        """The seconds since the start."""
        return time.monotonic() - self._begun


class EngineCluster:
    """One Deployment whose pods are the servers: the first pod is the first server, and so on."""

    def __init__(self, api: EmbeddedApiServer, prometheus: PrometheusProcess, servers: list[str], seconds: int) -> None:
        """Take an API server that listens. ``servers`` are addresses; each is scraped every so many ``seconds``."""
        self.api, self.prometheus, self._servers, self._seconds = api, prometheus, servers, seconds
        key = Key(NAMESPACE, NAME)
        start_ups = {key: StartUp(0.0)}
        self._workloads = Workloads(api.store, clock=WallClock(), start_ups=start_ups, random=Random(1))  # noqa: S311 - no secret
        self._key, self._scraped = key, 0
        labels = {"app": NAME}
        container = {
            "name": "vllm",
            "image": "vllm",
            "args": ["--model", MODEL, "--max-num-seqs", "16"],
            "resources": {"limits": {"nvidia.com/gpu": "1"}},
        }
        api.store.create(
            DEPLOYMENTS,
            {
                "metadata": {"name": NAME, "namespace": NAMESPACE},
                "spec": {
                    "replicas": 1,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
                },
            },
        )
        api.store.create(
            _VARIANTS,
            {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": KIND,
                "metadata": {"name": NAME, "namespace": NAMESPACE, "labels": {ACCELERATOR_LABEL: "CPU"}},
                "spec": {"scaleTargetRef": {"kind": "Deployment", "name": NAME}, "modelID": MODEL, "variantCost": "1"},
            },
        )

    def scale(self, replicas: int) -> None:
        """Set the replicas of the Deployment, as a scaler does."""
        self.api.store.patch_scale(DEPLOYMENTS, self._key, replicas)
        self.sync()

    def sync(self) -> None:
        """Let pods follow the Deployment, and Prometheus the pods."""
        self._workloads.sync()
        self._workloads.sync()  # a pod is Ready at the second look
        pods = self._workloads.ready_pods(self._key)
        if len(pods) == self._scraped:
            return
        self._scraped = len(pods)
        for at, address in enumerate(self._servers):
            job = f"vllm-{at}"
            if at < len(pods):
                labels = {"namespace": NAMESPACE, "pod": pods[at]}
                self.prometheus.add_job(
                    ScrapeJob(name=job, targets=[address], labels=labels, interval_seconds=self._seconds)
                )
            else:
                self.prometheus.remove_job(job)


@contextlib.asynccontextmanager
async def opened(
    layout: Layout, prometheus: PrometheusProcess, servers: list[str], *, scrape_seconds: int
) -> AsyncIterator[tuple[EngineCluster, Path]]:
    """Open an API server with the Deployment; yield the cluster and a kubeconfig."""
    options = ServerOptions(store=StoreOptions(namespaces=("default", NAMESPACE, SYSTEM)))
    async with EmbeddedApiServer([kind_from_definition(definition())], options=options) as api:
        cluster = EngineCluster(api, prometheus, servers, scrape_seconds)
        cluster.sync()
        try:
            yield cluster, api.kubeconfig(layout.directory / "kubeconfig")
        finally:
            cluster.scale(0)


async def until(found: Callable[[], bool], *, seconds: float) -> bool:
    """Wait for up to so many ``seconds`` until something is found; return whether it was."""
    end = time.monotonic() + seconds
    while not found():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(_SYNC_SECONDS)
    return True
