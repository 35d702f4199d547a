"""A stage whose API server stores invalid objects, and a Prometheus whose answers a test sets."""

from __future__ import annotations

import json
import time
from copy import deepcopy

from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.app.stage import MODEL, VARIANTS, ControllerStage, until
from wva.api.meta import Key
from wva.sim.apiserver.objects import clone

SECRET = "eyJhbGciOiJub25lIn0.do-not-tell-anybody.c2lnbmF0dXJl"


class HostileStage(ControllerStage):
    """Stores objects without validation, and checks that the controller still works."""

    def force(self, resource, name, change, *, namespace="ns"):
        """Apply ``change`` to an object and store it, without schema and validation."""
        store = self.api.store
        spec, key = store.journal.kinds.get(resource), Key(namespace, name)
        old = store.find(resource, key)
        value = {} if old is None else clone(old)
        metadata = value.setdefault("metadata", {})
        metadata.update({"name": name, "namespace": namespace})
        metadata.setdefault("uid", f"uid-of-{namespace}-{name}")
        change(value)
        store.journal.put(spec, key, value)

    async def seen(self, resource):
        """Wait until the controller has the last change of a resource, and has decided with it."""
        newest = max(int(found["metadata"]["resourceVersion"]) for found in self.api.store.list(resource))
        await until(lambda: int(self.app.cache_versions()[resource]) >= newest)
        await self.cycles(2)

    @property
    def folder(self):
        """A directory of this test."""
        return self._folder

    async def works(self, *, model=MODEL):
        """Assert that the controller works: cycles succeed, and a new variant gets its number."""
        await self.cycles(2)
        self.va("proof", target="proof")
        self.patch_va({"spec": {"modelID": model}}, "proof")
        await until(lambda: self.number("proof") == 3, seconds=5)
        await until(lambda: self.series().get("proof") == 3, seconds=5)

    def everything_told(self):
        """Return all output of the process except its log: events, statuses, series, recordings."""
        told = [json.dumps([*self.api.store.list("events"), *self.api.store.list(VARIANTS)], default=str), self.page()]
        told += [path.read_text(encoding="utf-8") for path in self._folder.rglob("cycle-*.json")]
        return "".join(told)


def series(value="0.5", *, pod, at=None, **labels):
    """Return one series of an answer, with the labels of a vLLM pod. ``value`` is text."""
    metric = {"namespace": "ns", "model_name": MODEL, "pod": pod, **labels}
    return {"metric": metric, "value": [time.time() if at is None else at, value]}


def vector(*entries):
    """Return the body of a successful answer."""
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": list(entries)}}).encode()


def is_essential(query):
    """Tell whether a query asks for the values of a signal and for their times."""
    return '"signal", "value"' in query


def values_and_times(values, times):
    """Return the series of an answer to an essential query."""
    found = [(entry, "value") for entry in values] + [(entry, "timestamp") for entry in times]
    return [{**entry, "metric": {**entry["metric"], "signal": signal}} for entry, signal in found]


class ScriptedPrometheus:
    """Answers every query with ``answer``, which is bytes or a function from request to response."""

    def __init__(self):
        """Answer an empty vector at first."""
        self.answer = vector()
        self.requests = []
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._server = TestServer(app, host="127.0.0.1")

    async def __aenter__(self):
        """Listen on a free port."""
        await self._server.start_server()
        return self

    async def __aexit__(self, *_):
        """Stop listening."""
        await self._server.close()

    @property
    def url(self):
        """The base URL."""
        return f"http://127.0.0.1:{self._server.port}"

    def report(self, *, values, times=None):
        """Answer the essential queries with series for values and for times, all other queries with values."""
        now = time.time()
        if times is None:
            times = [{**deepcopy(entry), "value": [now, f"{now:.3f}"]} for entry in values]

        async def answer(request):
            query = (await request.post())["query"]
            return web.Response(
                body=vector(*values_and_times(values, times)) if is_essential(query) else vector(*values)
            )

        self.answer = answer

    async def _handle(self, request):
        self.requests.append((request.path, dict(request.headers)))
        if callable(self.answer):
            return await self.answer(request)
        return web.Response(body=self.answer, content_type="application/json")
