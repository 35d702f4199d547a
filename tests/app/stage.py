"""A whole controller process with an embedded API server and an embedded Prometheus, over HTTP and in real time.

Tests do not sleep for a fixed time: ``until`` repeats a check, and fails after a time that a working controller never
needs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from wva.api.crd import definition
from wva.api.meta import Key
from wva.api.variantautoscaling import ACCELERATOR_LABEL
from wva.app import Application
from wva.config import Inputs, load
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.model.variant import VariantKey
from wva.sim.apiserver import EmbeddedApiServer, Patch, ServerOptions, StoreOptions, kind_from_definition
from wva.sim.prometheus import EmbeddedPrometheus, InProcess, ScrapeTarget
from wva.sim.world.clock import VirtualClock
from wva.sim.world.workloads import DEPLOYMENTS, Workloads

VARIANTS = "variantautoscalings.llmd.ai"
SYSTEM = "wva"
SATURATION = "wva-saturation-scaling-config"
MAIN = "wva-variantautoscaling-config"
MODEL = "org/model"
DEADLINE_SECONDS = 60.0


async def until(check: Callable[[], Any], *, seconds: float = DEADLINE_SECONDS) -> Any:
    """Return the first true value of ``check``. Fails after ``seconds``."""
    limit = time.monotonic() + seconds
    while not (value := check()):
        assert time.monotonic() < limit, f"not true within {seconds} s"
        await asyncio.sleep(0.005)
    return value


class ControllerStage:
    """The cluster around one controller. Its methods write directly into the embedded store."""

    def __init__(self, tmp_path, monkeypatch):
        """Prepare the servers; ``open`` starts them."""
        # Retries without long pauses. The tests of the client cover the pauses.
        monkeypatch.setattr("wva.prometheus.client._RETRY_PAUSES_SECONDS", (0.01, 0.02, 0.04))
        self.api = EmbeddedApiServer(
            [kind_from_definition(definition())],
            options=ServerOptions(store=StoreOptions(namespaces=("ns", SYSTEM))),
        )
        self.prometheus = EmbeddedPrometheus(now=time.time)
        self.workloads = Workloads(self.api.store, clock=VirtualClock(), start_ups={}, random=Random(1))
        self.load = {}
        self.instruments = Instruments(CollectorRegistry())
        self.app = None
        self.stop = asyncio.Event()
        self._folder = tmp_path
        self._monkeypatch = monkeypatch

    @asynccontextmanager
    async def open(self):
        """Start the servers."""
        async with self.api, self.prometheus:
            self.prometheus.scraper.discover(self._targets)
            path = self.api.kubeconfig(self._folder / "kubeconfig")
            self._monkeypatch.setenv("KUBECONFIG", str(path))
            yield self

    @asynccontextmanager
    async def controller(self, *, interval="1h", config_map=None, **environment):
        """Run the controller around the body.

        It must stop with status 0, or have lost its Lease. If ``interval`` is None, the main ConfigMap decides.
        ``config_map`` is its data at the start of the process.
        """
        given = {
            "PROMETHEUS_BASE_URL": self.prometheus.url,
            "PROMETHEUS_ALLOW_HTTP": "true",
            "METRICS_BIND_ADDRESS": "127.0.0.1:0",
            "METRICS_SECURE": "false",
            "HEALTH_PROBE_BIND_ADDRESS": "127.0.0.1:0",
            "POD_NAMESPACE": SYSTEM,
            **environment,
        }
        if interval is not None:
            given["GLOBAL_OPT_INTERVAL"] = interval
        sources = Inputs({}, given, config_map or {})
        settings = load(sources).settings
        async with KubeClient.connect(instruments=self.instruments, timeout_seconds=5.0) as client:
            self.app = Application(settings, sources, client=client, instruments=self.instruments)
            task = asyncio.create_task(self.app.run(self.stop))
            try:
                yield task
            finally:
                self.stop.set()
                async with asyncio.timeout(DEADLINE_SECONDS):
                    status = await task
        assert status == 0 or self.metric("wva_leader") == 0

    # --- changes -----------------------------------------------------------------------------------------------------

    def deployment(self, name="d", *, replicas=1):
        """Create a Deployment whose pods are Ready at once."""
        labels = {"app": name}
        container = {"name": "vllm", "image": "vllm"}
        self.api.store.create(
            DEPLOYMENTS,
            {
                "metadata": {"name": name, "namespace": "ns"},
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
                },
            },
        )
        self._sync()

    def scale(self, name, replicas):
        """Change the number of replicas; new pods are Ready at once."""
        self.api.store.patch_scale(DEPLOYMENTS, Key("ns", name), replicas)
        self._sync()

    def label_pods(self, labels, name="d"):
        """Change the labels of the pod template; None takes one away."""
        template = {"metadata": {"labels": labels}}
        self.api.store.patch(DEPLOYMENTS, Key("ns", name), Patch(body={"spec": {"template": template}}))

    def delete_deployment(self, name="d"):
        """Delete a Deployment with everything it owns."""
        self.api.store.delete(DEPLOYMENTS, Key("ns", name))
        self._sync()

    def va(self, name="va", *, target="d", kind="Deployment", accelerator="H100"):
        """Create a VariantAutoscaling."""
        body = {
            "metadata": {"name": name, "namespace": "ns", "labels": {ACCELERATOR_LABEL: accelerator}},
            "spec": {"scaleTargetRef": {"kind": kind, "name": target}, "modelID": MODEL},
        }
        self.api.store.create(VARIANTS, body)

    def patch_va(self, body, name="va"):
        """Merge into a VariantAutoscaling."""
        self.api.store.patch(VARIANTS, Key("ns", name), Patch(body=body))

    def delete_va(self, name="va"):
        """Delete a VariantAutoscaling."""
        self.api.store.delete(VARIANTS, Key("ns", name))

    def config_map(self, name, data):
        """Create a ConfigMap of the controller, or replace its data."""
        key = Key(SYSTEM, name)
        if self.api.store.find("configmaps", key) is None:
            self.api.store.create("configmaps", {"metadata": {"name": name, "namespace": SYSTEM}, "data": data})
        else:
            old = self.api.store.get("configmaps", key)
            self.api.store.update("configmaps", {**old, "data": data})

    def _sync(self):
        self.workloads.sync(serving=True)

    # --- observations ------------------------------------------------------------------------------------------------

    def status(self, name="va"):
        """Return the status of a VariantAutoscaling."""
        return self.api.store.get(VARIANTS, Key("ns", name)).get("status", {})

    def told(self, type_, name="va"):
        """Return status and reason of a condition, None when it is not set."""
        found = [entry for entry in self.status(name).get("conditions", []) if entry["type"] == type_]
        return (found[0]["status"], found[0]["reason"]) if found else None

    def message(self, type_, name="va"):
        """Return the message of a condition."""
        return next(entry["message"] for entry in self.status(name)["conditions"] if entry["type"] == type_)

    def number(self, name="va"):
        """Return the number in the status, None when there is none."""
        return self.status(name).get("desiredOptimizedAlloc", {}).get("numReplicas")

    def series(self, metric="wva_desired_replicas"):
        """Return the values by variant, as a scrape reads them."""
        found = {}
        for family in self.instruments.registry.collect():
            for sample in family.samples:
                if sample.name == metric:
                    found[sample.labels["variant_name"]] = sample.value
        return found

    def page(self):
        """Return the metrics page."""
        return generate_latest(self.instruments.registry).decode()

    def metric(self, name, **labels):
        """Return a metric of the controller, 0 if it was never set."""
        return self.instruments.registry.get_sample_value(name, labels) or 0

    def decision(self, name="va"):
        """Return the last decision."""
        return self.app.ledger.get(VariantKey("ns", name))

    def events(self, reason):
        """Return the Kubernetes events with a reason."""
        return [event for event in self.api.store.list("events") if event["reason"] == reason]

    def patches(self):
        """Return how many status patches the API server got."""
        return self.api.requests.count("patch", resource=VARIANTS, subresource="status")

    async def cycles(self, more):
        """Wait for some more cycles of the loop."""
        goal = self.metric("wva_cycles_total", result="success") + more
        await until(lambda: self.metric("wva_cycles_total", result="success") >= goal)

    # --- Prometheus --------------------------------------------------------------------------------------------------

    async def scrape(self):
        """Let Prometheus scrape every Ready pod."""
        await self.prometheus.scrape()

    def _targets(self):
        targets = []
        for deployment in self.api.store.list(DEPLOYMENTS):
            name = deployment["metadata"]["name"]
            for pod in self.workloads.ready_pods(Key("ns", name)):
                labels = {"job": "vllm", "namespace": "ns", "pod": pod}
                targets.append(ScrapeTarget(InProcess(lambda name=name: self._page_of_pod(name)), labels))
        return targets

    def _page_of_pod(self, deployment):
        usage, waiting = self.load.get(deployment, (0.5, 0))
        labels = f'{{model_name="{MODEL}"}}'
        return f"vllm:kv_cache_usage_perc{labels} {usage}\nvllm:num_requests_waiting{labels} {waiting}\n"
