"""From zero and nothing else: a request waits at the gateway, and the cheapest variant is started."""

from __future__ import annotations

from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tests.app.stage import DEPLOYMENTS, MODEL, VARIANTS, until
from wva.api.meta import Key
from wva.sim.apiserver import Patch

GROUP = "inference.networking.k8s.io"
CRDS = "customresourcedefinitions.apiextensions.k8s.io"
QUEUE = "inference_extension_flow_control_queue_size"


def install_pools(stage):
    """Serve InferencePools from now on."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    stage.api.store.create(
        CRDS,
        {
            "metadata": {"name": f"inferencepools.{GROUP}"},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {"plural": "inferencepools", "kind": "InferencePool", "listKind": "InferencePoolList"},
                "versions": [
                    {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}},
                ],
            },
        },
    )


def pool(stage, port, *, app="d"):
    """Put a pool in front of a Deployment, its picker's Service and a Ready pod of the picker on 127.0.0.1."""
    stage.api.store.create(
        f"inferencepools.{GROUP}",
        {
            "metadata": {"name": "pool", "namespace": "ns"},
            "spec": {"selector": {"matchLabels": {"app": app}}, "endpointPickerRef": {"name": "epp"}},
        },
    )
    ports = [{"name": "http-metrics", "port": port, "targetPort": port}]
    stage.api.store.create(
        "services",
        {"metadata": {"name": "epp", "namespace": "ns"}, "spec": {"selector": {"app": "epp"}, "ports": ports}},
    )
    stage.api.store.create(
        "pods",
        {
            "metadata": {"name": "epp-0", "namespace": "ns", "labels": {"app": "epp"}},
            "spec": {"containers": [{"name": "epp", "image": "epp"}]},
        },
    )
    status = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    stage.api.store.patch_status("pods", Key("ns", "epp-0"), status)


class Gateway:
    """An endpoint picker's metrics."""

    def __init__(self):
        """Nothing waits."""
        self.waiting = 0
        self.port = 0

    @asynccontextmanager
    async def serving(self):
        """Listen on 127.0.0.1."""
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.port = runner.addresses[0][1]
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _metrics(self, _):
        return web.Response(text=f'{QUEUE}{{target_model_name="{MODEL}"}} {self.waiting}\n')


@pytest.fixture
async def gateway():
    """Return a picker that listens."""
    async with Gateway().serving() as serving:
        yield serving


def replicas(stage, name="d"):
    """Return what the Deployment asks for."""
    return stage.api.store.get(DEPLOYMENTS, Key("ns", name))["spec"]["replicas"]


async def test_a_waiting_request_starts_the_model(stage, gateway):
    """Deployment, series and status change; the pool's definition came while the controller was running."""
    stage.deployment(replicas=0)
    stage.va()
    gateway.waiting = 3
    async with stage.controller():
        await until(lambda: stage.series() == {"va": 0})
        install_pools(stage)
        pool(stage, gateway.port)
        await until(lambda: replicas(stage) == 1, seconds=60.0)
        await until(lambda: stage.number() == 1)
        assert stage.series() == {"va": 1}
        assert stage.metric("wva_activations_total", result="success") == 1


async def test_nothing_is_started_without_a_request(stage, gateway):
    """The gateway is asked again and again, and says zero."""
    install_pools(stage)
    stage.deployment(replicas=0)
    stage.va()
    pool(stage, gateway.port)
    async with stage.controller():
        await until(lambda: (stage.metric("wva_gateway_reads_total", result="success") or 0) > 2)
        assert replicas(stage) == 0
        gateway.waiting = 1
        await until(lambda: replicas(stage) == 1)


async def test_only_the_cheapest_is_started(stage, gateway):
    """Its siblings stay at zero."""
    install_pools(stage)
    for name in ("dear", "cheap"):
        stage.deployment(name, replicas=0)
        body = {"spec": {"template": {"metadata": {"labels": {"model": "m"}}}}}
        stage.api.store.patch(DEPLOYMENTS, Key("ns", name), Patch(body=body))
        stage.va(name, target=name)
        cost = {"dear": "40.0", "cheap": "20.0"}[name]
        stage.api.store.patch(VARIANTS, Key("ns", name), Patch(body={"spec": {"variantCost": cost}}))
    pool(stage, gateway.port)
    stage.api.store.patch(
        f"inferencepools.{GROUP}",
        Key("ns", "pool"),
        Patch(body={"spec": {"selector": {"matchLabels": {"app": None, "model": "m"}}}}),
    )
    gateway.waiting = 1
    async with stage.controller():
        await until(lambda: replicas(stage, "cheap") == 1)
        await until(lambda: stage.series() == {"cheap": 1, "dear": 0})
    assert replicas(stage, "dear") == 0


async def test_a_cycle_does_not_take_the_start_back(stage, gateway):
    """However often it decides while the caches catch up."""
    install_pools(stage)
    stage.deployment(replicas=0)
    stage.va()
    pool(stage, gateway.port)
    async with stage.controller(interval="10ms"):
        await until(lambda: stage.series() == {"va": 0})
        gateway.waiting = 1
        await until(lambda: stage.series() == {"va": 1})
        await until(lambda: replicas(stage) == 1)
        for _ in range(20):
            await stage.cycles(1)
            assert stage.series() == {"va": 1}
