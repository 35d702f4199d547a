"""A fake endpoint picker on 127.0.0.1, and a pool that refers to it."""

from __future__ import annotations

from contextlib import asynccontextmanager

from aiohttp import web

from tests.app.stage import MODEL
from wva.api.meta import Key

GROUP = "inference.networking.k8s.io"
CRDS = "customresourcedefinitions.apiextensions.k8s.io"
POOLS = f"inferencepools.{GROUP}"
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


def pool(stage, port, *, labels=None, namespace="ns", name="pool", picker="epp"):
    """Create a pool, the Service of its picker, and a Ready pod of the picker on 127.0.0.1."""
    store = stage.api.store
    store.create(
        POOLS,
        {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "selector": {"matchLabels": {"app": "d"} if labels is None else labels},
                "endpointPickerRef": {"name": picker},
            },
        },
    )
    ports = [{"name": "http-metrics", "port": port, "targetPort": port}]
    store.create(
        "services",
        {"metadata": {"name": picker, "namespace": namespace}, "spec": {"selector": {"app": picker}, "ports": ports}},
    )
    store.create(
        "pods",
        {
            "metadata": {"name": f"{picker}-0", "namespace": namespace, "labels": {"app": picker}},
            "spec": {"containers": [{"name": "epp", "image": "epp"}]},
        },
    )
    status = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [{"type": "Ready", "status": "True"}]}
    store.patch_status("pods", Key(namespace, f"{picker}-0"), status)


class FakePicker:
    """An endpoint picker that serves the number of waiting requests as a metric, or calls ``answer`` if that is set."""

    def __init__(self):
        """Start without waiting requests."""
        self.waiting = 0
        self.port = 0
        self.answer = None

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

    async def _metrics(self, request):
        if self.answer is not None:
            return await self.answer(request)
        return web.Response(text=f'{QUEUE}{{target_model_name="{MODEL}"}} {self.waiting}\n')
