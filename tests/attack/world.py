"""The world of the attacks: a victim in namespace ``ns``, a tenant in namespace ``tenant``, one controller for both.

The victim is the variant ``va`` of the Deployment ``d``: two Ready pods with fresh metrics, and an HPA that allows one
to four. It needs two replicas until ``busy`` is called, and three from then on. The tenant's variant is ``bad`` of the
Deployment ``bad``, with one Ready pod, unless a row builds something else.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.app.gateways import CRDS, POOLS, install_pools, pool
from tests.app.stage import DEPLOYMENTS, MODEL, VARIANTS
from tests.bad_input.hostile import HostileStage
from wva.api.meta import Key
from wva.api.variantautoscaling import ACCELERATOR_LABEL
from wva.model.variant import VariantKey
from wva.sim.apiserver import Patch, User
from wva.sim.apiserver.objects import clone
from wva.sim.prometheus import InProcess, ScrapeTarget
from wva.slices import switch_often

VICTIM, TENANT = "ns", "tenant"
HPAS = "horizontalpodautoscalers.autoscaling"
SCALED_OBJECTS = "scaledobjects.keda.sh"
SLEEPER = "sleeper"
SLEEPING_MODEL = "org/sleeping"


def page(model=MODEL, *, usage=0.5, waiting=0, running=1, finished=1):
    """Return the page of one vLLM server."""
    labels = f'{{model_name="{model}"}}'
    return (
        f"vllm:kv_cache_usage_perc{labels} {usage}\n"
        f"vllm:num_requests_waiting{labels} {waiting}\n"
        f"vllm:num_requests_running{labels} {running}\n"
        f'vllm:request_success_total{{model_name="{model}",finished_reason="stop"}} {finished}\n'
    )


class AttackWorld(HostileStage):
    """Both tenants, and methods for the hostile one. Objects are in the tenant's namespace by default."""

    def __init__(self, folder):
        """Create the servers; they do not listen yet."""
        super().__init__(folder, pytest.MonkeyPatch())
        self.api.store.create("namespaces", {"metadata": {"name": TENANT}})
        self.pages = {}
        self.more_pods = {}
        """Pods of no Deployment, by namespace and name: functions that return their page."""
        self._usage = 0.5
        self._meddler = self._session = self._stack = None
        self.url = ""
        self.token = ""

    def set(self, name, value):
        """Patch a limit of the controller, by its full name, until this world closes."""
        self._monkeypatch.setattr(name, value)

    def protect(self):
        """Let only users not named ``evil`` read the metrics, and give the victim's scraper a token."""
        access = self.api.access
        access.tokens["controller"] = User("controller")
        path = self.api.kubeconfig(self._folder / "kubeconfig", token="controller")
        self._monkeypatch.setenv("KUBECONFIG", str(path))
        access.authorize = lambda user, attributes: not attributes.path or not user.name.startswith("evil")
        self.token, _ = access.issue(User("scraper"), audiences=(), lifetime_seconds=3600)

    # --- the victim ----------------------------------------------------------------------------------------------

    def victim(self):
        """Create the victim."""
        self.workload("d", namespace=VICTIM, replicas=2)
        self.pages[VICTIM, "d"] = lambda _: page(usage=self._usage)
        self.variant("va", namespace=VICTIM, target="d")
        self.hpa("hpa", namespace=VICTIM, target="d", minimum=1, maximum=4)

    async def busy(self):
        """Let the victim need three replicas."""
        self._usage = 0.75
        await self.scrape()

    def sleeper(self, port):
        """Put a model at zero beside the victim, behind a pool whose picker listens on ``port``."""
        if self.api.store.find(CRDS, Key("", POOLS)) is None:
            install_pools(self)
        self.workload(SLEEPER, namespace=VICTIM, replicas=0)
        self.variant(SLEEPER, namespace=VICTIM, model=SLEEPING_MODEL)
        pool(self, port, labels={"app": SLEEPER}, namespace=VICTIM)

    # --- the tenant ----------------------------------------------------------------------------------------------

    def bad(self, **variant):
        """Create the tenant's variant with its Deployment; both are healthy at first."""
        self.workload("bad")
        self.variant("bad", **variant)

    def workload(self, name, *, namespace=TENANT, replicas=1, template=None, labels=None):
        """Create a Deployment whose pods are Ready at once; ``template`` is merged into the spec of its pods."""
        labels = {"app": name} if labels is None else labels
        spec = {"containers": [{"name": "vllm", "image": "vllm"}]} | (template or {})
        body = {
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }
        self.api.store.create(DEPLOYMENTS, body)
        self._sync()

    def variant(self, name="bad", *, namespace=TENANT, target=None, model=MODEL, annotations=None, **spec):
        """Create a VariantAutoscaling; its target is the Deployment of the same name by default."""
        metadata = {"name": name, "namespace": namespace, "labels": {ACCELERATOR_LABEL: "H100"}}
        body = {
            "metadata": metadata | ({"annotations": annotations} if annotations else {}),
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": target or name}, "modelID": model, **spec},
        }
        self.api.store.create(VARIANTS, body)

    def hpa(self, name="hpa", *, namespace=TENANT, target="bad", minimum=1, maximum=4):
        """Create an HPA."""
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
        spec = {"scaleTargetRef": reference, "minReplicas": minimum, "maxReplicas": maximum}
        self.api.store.create(HPAS, {"metadata": {"name": name, "namespace": namespace}, "spec": spec})

    def scaled_object(self, name="so", *, namespace=TENANT, target="bad", annotations=None, **spec):
        """Create a ScaledObject, and before the first one the definition of its kind."""
        if self.api.store.find(CRDS, Key("", SCALED_OBJECTS)) is None:
            self._serve_scaled_objects()
        metadata = {"name": name, "namespace": namespace} | ({"annotations": annotations} if annotations else {})
        body = {"metadata": metadata, "spec": {"scaleTargetRef": {"name": target}, **spec}}
        self.api.store.create(SCALED_OBJECTS, body)

    def _serve_scaled_objects(self):
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        names = {"plural": "scaledobjects", "kind": "ScaledObject", "listKind": "ScaledObjectList"}
        version = {"name": "v1alpha1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        spec = {"group": "keda.sh", "scope": "Namespaced", "names": names, "versions": [version]}
        self.api.store.create(CRDS, {"metadata": {"name": SCALED_OBJECTS}, "spec": spec})

    def tenant_map(self, name, data, *, namespace=TENANT):
        """Create a ConfigMap of the tenant, or replace its data."""
        old = self.api.store.find("configmaps", Key(namespace, name))
        if old is None:
            self.api.store.create("configmaps", {"metadata": {"name": name, "namespace": namespace}, "data": data})
        else:
            self.api.store.update("configmaps", {**old, "data": data})

    async def picker(self, answer, *, pools=1, ip="127.0.0.1", name="zero", model="org/zero"):
        """Create a variant at zero behind pools whose picker answers each request by ``await answer(request)``.

        The first call creates the definition of pools, unless the victim's gateway has created it.
        """
        app = web.Application()
        app.router.add_get("/{path:.*}", answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.05)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port, store = runner.addresses[0][1], self.api.store
        if store.find(CRDS, Key("", POOLS)) is None:
            install_pools(self)
        self.workload(name, replicas=0)
        self.variant(name, model=model)
        pool(self, port, labels={"app": name}, namespace=TENANT)
        self.many(POOLS, "pool", pools - 1)
        self.patch("pods", "epp-0", {"status": {"podIP": ip}}, subresource="status")

    def patch(self, resource, name, body, *, namespace=TENANT, subresource=""):
        """Merge a body into an object, as a client does."""
        self.api.store.patch(resource, Key(namespace, name), Patch(body=body, subresource=subresource))

    def twist(self, resource, name, change, *, namespace=TENANT):
        """Change an object of the tenant with ``change`` and store it without schema and validation."""
        self.force(resource, name, change, namespace=namespace)

    def many(self, resource, like, count, change=None, *, prefix="x", namespace=TENANT):
        """Store ``count`` numbered copies of an object, after ``change(value, number)`` has changed each of them."""
        store = self.api.store
        spec = store.journal.kinds.get(resource)
        model = store.get(resource, Key(namespace, like))
        for number in range(count):
            value, name = clone(model), f"{prefix}-{number:05d}"
            value["metadata"].update(name=name, uid=f"uid-of-{namespace}-{resource}-{name}")
            if change is not None:
                change(value, number)
            store.journal.put(spec, Key(namespace, name), value)

    def many_variants(self, count, *, replicas=1):
        """Create ``count`` variants, each with its own Deployment and without pods."""
        self.many(DEPLOYMENTS, "bad", count, lambda value, _: value["spec"].update(replicas=replicas))
        self.many(
            VARIANTS, "bad", count, lambda value, number: value["spec"]["scaleTargetRef"].update(name=f"x-{number:05d}")
        )

    def pods(self, deployment="bad", *, namespace=TENANT):
        """Return the names of the Ready pods of a Deployment."""
        return self.workloads.ready_pods(Key(namespace, deployment))

    # --- results -------------------------------------------------------------------------------------------------

    def status_of(self, name, namespace):
        """Return the status of a variant, empty when there is none."""
        return (self.api.store.find(VARIANTS, Key(namespace, name)) or {}).get("status", {})

    def condition(self, type_, name="bad", namespace=TENANT):
        """Return a condition, None when it is not set."""
        found = self.status_of(name, namespace).get("conditions", [])
        return next((entry for entry in found if entry["type"] == type_), None)

    def decision_of(self, name="bad", namespace=TENANT):
        """Return the last decision on a variant."""
        return self.app.ledger.get(VariantKey(namespace, name))

    def cycle_count(self, result="success"):
        """Return how many cycles have ended with this result, without reading the long page of metrics."""
        (family,) = self.instruments.cycles.collect()
        found = (
            sample.value
            for sample in family.samples
            if sample.name == "wva_cycles_total" and sample.labels["result"] == result
        )
        return next(found, 0)

    # --- Prometheus ----------------------------------------------------------------------------------------------

    def meddle(self, meddler):
        """Let ``meddler(query, answer)`` replace the answers of Prometheus.

        ``answer`` is the decoded JSON of the right answer. The meddler returns bytes, a response, or an object for
        JSON; it may be a coroutine function.
        """
        self._meddler = meddler

    @asynccontextmanager
    async def open(self):
        """Open the servers, and a proxy in front of Prometheus."""
        async with super().open(), aiohttp.ClientSession() as session, AsyncExitStack() as self._stack:
            self._stack.callback(self._monkeypatch.undo)
            self._stack.callback(sys.setswitchinterval, sys.getswitchinterval())
            switch_often()
            app = web.Application(client_max_size=64 * 1024**2)
            self._session = session
            app.router.add_route("*", "/{path:.*}", self._forward)
            async with TestServer(app, host="127.0.0.1") as proxy:
                self.url = f"http://127.0.0.1:{proxy.port}"
                yield self

    def anew(self):
        """Return a new world in its first state. Patches of this world no longer apply."""
        self._monkeypatch.undo()
        folder = self._folder / "anew"
        folder.mkdir()
        return AttackWorld(folder)

    async def _forward(self, request):
        form = await request.post()
        async with self._session.post(self.prometheus.url + request.path, data=dict(form)) as right:
            body, date = await right.read(), {"Date": right.headers["Date"]}
        if self._meddler is None:
            return web.Response(body=body, status=right.status, headers=date, content_type="application/json")
        answer = self._meddler(form["query"], json.loads(body))
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, web.StreamResponse):
            return answer
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        return web.Response(body=data, content_type="application/json")

    def _targets(self):
        targets = []
        for deployment in self.api.store.list(DEPLOYMENTS):
            namespace, name = deployment["metadata"]["namespace"], deployment["metadata"]["name"]
            show = self.pages.get((namespace, name), lambda _: page())
            for pod in self.workloads.ready_pods(Key(namespace, name)):
                labels = {"job": "vllm", "namespace": namespace, "pod": pod}
                targets.append(ScrapeTarget(InProcess(lambda show=show, pod=pod: show(pod)), labels))
        for (namespace, pod), show in self.more_pods.items():
            labels = {"job": "vllm", "namespace": namespace, "pod": pod}
            targets.append(ScrapeTarget(InProcess(show), labels))
        return targets


def lie(value, *, pod, namespace=TENANT, model=MODEL, at=None, **labels):
    """Return one false series about the tenant's pod, for a meddler to put into an answer."""
    metric = {"namespace": namespace, "model_name": model, "pod": pod, **labels}
    return {"metric": metric, "value": [time.time() if at is None else at, value]}
