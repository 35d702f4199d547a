"""The commands on a cluster that answers badly or not at all, or whose objects are not what a schema allows."""

from __future__ import annotations

import asyncio
import copy
import json
import time
from contextlib import asynccontextmanager, suppress

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from tests.cli.conftest import closed_port, kubeconfig
from wva.api.crd import definition
from wva.api.meta import Key
from wva.cli import doctor as doctor_command
from wva.doctor import examine
from wva.kube.client import KubeClient
from wva.kube.errors import Forbidden, NotFound

pytestmark = pytest.mark.usefixtures("log_as_before")

NOW = 1_800_000_000.0
CODES = "\x1b[2J\x1b]0;owned\x07\x9b31m\x7f\u202e\u2028\r\n\t\b"
"""Clears a terminal, sets its title, colours it, turns its text around, and begins a line of its own."""
NAMES = [f"{name}{CODES}" for name in ("chat", "Deployment", "why")]
WRONG = (None, "text", 1e999, [5], {"a": [5]})
LIMIT_SECONDS = 60.0


def condition(type_, status, message="words"):
    """Return a condition."""
    return {"type": type_, "status": status, "reason": "Reason", "message": message}


def variant(name):
    """Return a VariantAutoscaling whose configuration is wrong."""
    return {
        "metadata": {"name": name, "namespace": "models", "labels": {"a": "b"}},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": name}},
        "status": {
            "conditions": [condition("ConfigurationValid", "False", f"bad{CODES}"), condition("Shadow", "True")],
            "desiredOptimizedAlloc": {"numReplicas": 2, "lastRunTime": "2027-01-15T07:00:00Z"},
        },
    }


def pod(name):
    """Return a pod that does not run."""
    waiting = {"reason": "ImagePullBackOff", "message": "no"}
    status = {"conditions": [condition("Ready", "False")], "containerStatuses": [{"state": {"waiting": waiting}}]}
    return {"metadata": {"name": name, "namespace": "models"}, "spec": {"serviceAccountName": "m"}, "status": status}


def documents():
    """Return a cluster with two variants, one of which has every kind of object, by path without a query."""
    reference = {"kind": "Deployment", "name": "bad"}
    external = {"metric": {"name": "wva_desired_replicas", "selector": {"matchLabels": {"variant_name": "bad"}}}}
    hpa = {
        "metadata": {"name": "hpa", "namespace": "models"},
        "spec": {
            "scaleTargetRef": reference,
            "metrics": [{"type": "External", "external": external}],
            "behavior": {"scaleUp": {"selectPolicy": "Disabled"}},
        },
        "status": {"conditions": [condition("AbleToScale", "False")]},
    }
    scaled = {
        "metadata": {"name": "so", "namespace": "models", "annotations": {"autoscaling.keda.sh/paused": "true"}},
        "spec": {"scaleTargetRef": reference, "triggers": []},
        "status": {"conditions": [condition("Ready", "False")]},
    }
    deployment = {
        "metadata": {"name": "bad", "namespace": "models"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "x"}}},
        "status": {"conditions": [condition("ReplicaFailure", "True", "quota")]},
    }
    manager = {
        "metadata": {"name": "manager", "namespace": "system"},
        "spec": {"replicas": 0, "template": {"spec": {"serviceAccountName": "manager"}}},
    }
    lease = {"spec": {"holderIdentity": "a", "renewTime": "2027-01-15T07:00:00Z", "leaseDurationSeconds": 15}}
    quota = {"metadata": {"name": "q", "namespace": "models"}, "status": {"hard": {"cpu": "1"}, "used": {"cpu": "1"}}}
    (version,) = definition()["spec"]["versions"]
    crd = {
        "spec": {"versions": [{name: version[name] for name in ("name", "served", "schema")}]},
        "status": {"conditions": [condition("Established", "False")]},
    }
    return {
        "/apis": {"groups": [{"name": "apps"}]},
        "/apis/llmd.ai/v1alpha1/variantautoscalings": {"items": [variant("bad"), variant("good")]},
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/variantautoscalings.llmd.ai": crd,
        "/apis/apps/v1/namespaces/system/deployments": {"items": [manager]},
        "/api/v1/namespaces/system/pods": {"items": [pod("manager-0")]},
        "/apis/coordination.k8s.io/v1/namespaces/system/leases/lease": lease,
        "/apis/apps/v1/namespaces/models/deployments/bad": deployment,
        "/api/v1/namespaces/models/pods": {"items": [pod("bad-0")]},
        "/apis/autoscaling/v2/namespaces/models/horizontalpodautoscalers": {"items": [hpa]},
        "/apis/keda.sh/v1alpha1/namespaces/models/scaledobjects": {"items": [scaled]},
        "/api/v1/namespaces/models/resourcequotas": {"items": [quota]},
        "/api/v1/namespaces/models": {"metadata": {"annotations": {"wva.llmd.ai/exclude": "true"}}},
        "/apis/external.metrics.k8s.io/v1beta1": {},
        "/apis/external.metrics.k8s.io/v1beta1/namespaces/models/wva_desired_replicas": {"items": []},
        "/apis/authorization.k8s.io/v1/subjectaccessreviews": {"status": {"allowed": False}},
    }


def places(value, at=()):
    """Yield the way to each part of a document."""
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in parts:
        yield (*at, name)
        if "schema" not in at:
            yield from places(part, (*at, name))


class DocumentsOfCluster:
    """Answers as a client of the API server, from documents."""

    def __init__(self, bodies):
        """Answer with these bodies, by path."""
        self.bodies = bodies

    async def request_json(self, method, path, body=None):
        """Return a document, else raise NotFound."""
        del method, body
        found = self.bodies.get(path.partition("?")[0])
        if found is None:
            raise NotFound(404, "NotFound", "no")
        return found

    async def list(self, resource, namespace=""):
        """Refuse: objects with types have tests of their own."""
        raise Forbidden(403, "Forbidden", f"{resource.name} {namespace}")


@pytest.mark.parametrize("path", sorted(documents()))
async def test_no_field_of_a_wrong_type_ends_the_doctor(path):
    """The other variant and the other links are looked at, and the report says what could not be."""
    found = documents()
    of_system = any(
        word in path for word in ("system", "authorization", "apiextensions")
    )  # else nothing asks for rights
    bodies = {place: json.dumps(each).encode() for place, each in found.items() if of_system or "system" not in place}
    for way in [(), *places(found[path])]:
        for value in WRONG:
            document = copy.deepcopy(found[path])
            part = document
            for name in way[:-1]:
                part = part[name]
            if way:
                part[way[-1]] = value
            client = DocumentsOfCluster({**bodies, path: json.dumps(document if way else value).encode()})
            report = await examine(client, ask=None, namespace="system", lease="lease", only=None, now=NOW)
            names = {each.name for each in report.diagnoses if each.finding.key == Key("models", "good")}
            assert "configuration-invalid" in names or path.endswith("variantautoscalings"), (way, value)


def answer_of(kind):
    """Return a handler that answers every request in this way."""

    async def answer(request):
        if kind == "hangs":
            await asyncio.sleep(60)
        if kind == "drips":
            response = web.StreamResponse()
            await response.prepare(request)
            with suppress(ConnectionError):
                while True:
                    await response.write(b" ")
                    await asyncio.sleep(0.05)
            return response
        if kind in {"500", "403", "401", "429"}:
            status = {"kind": "Status", "reason": f"Why{CODES}", "message": CODES * 20_000, "code": int(kind)}
            return web.json_response(status, status=int(kind))
        bodies = {
            "login": b"<!DOCTYPE html><title>Sign in</title>",
            "garbage": b"\xff\xfe<html>" + CODES.encode(),
            "deep": b"[" * 200_000,
            "list": b"[]",
            "huge": b'{"items":[' + b'{"metadata":{"name":"x"}},' * 200_000 + b"{}]}",
            "codes": json.dumps({"items": [variant(name) for name in NAMES], "status": NAMES}).encode(),
        }
        return web.Response(body=bodies[kind], content_type="application/json")

    return answer


@asynccontextmanager
async def server(kind):
    """Serve answers of a kind; yield the port."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer_of(kind))
    async with TestServer(app, host="127.0.0.1") as served:
        yield served.port
        for connection in served.runner.server.connections:  # some still send what nobody reads any more
            if connection.transport is not None:
                connection.transport.abort()
        await asyncio.sleep(0)


def sound(outcome, began):
    """Check that a command ended in time and as it should, and sent no codes to the terminal."""
    assert time.monotonic() - began < LIMIT_SECONDS
    assert "Traceback" not in outcome.err
    for line in (outcome.out + outcome.err).split("\n"):
        assert line.isprintable(), ascii(line[:200])
        assert len(line) < 5000, line[:200]


KINDS = ("hangs", "drips", "500", "403", "401", "429", "garbage", "deep", "list", "huge", "codes")


@pytest.mark.parametrize(
    ("kind", "output"), [*((kind, "text") for kind in KINDS), *((kind, "json") for kind in ("hangs", "403", "codes"))]
)
async def test_the_doctor_ends_whatever_the_api_server_answers(wva, tmp_path, monkeypatch, kind, output):
    """In time, with findings, with what could not be read, or with one sentence."""
    monkeypatch.setattr(doctor_command, "_CALL_SECONDS", 0.5)
    monkeypatch.setattr("wva.cli.remote._CALL_SECONDS", 0.5)
    monkeypatch.setattr(doctor_command, "_IN_ALL_SECONDS", 5.0)
    async with server(kind) as port:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, port)))
        began = time.monotonic()
        outcome = await asyncio.to_thread(wva, "doctor", "--output", output)
    sound(outcome, began)
    assert outcome.status in {1, 3}
    if output == "json" and outcome.out:
        json.loads(outcome.out)


@pytest.mark.parametrize("output", ["text", "json"])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_report_ends_whatever_prometheus_answers(wva, monkeypatch, kind, output):
    """In time, and with one sentence."""
    monkeypatch.setattr("wva.hindsight.report.history.TIMEOUT_SECONDS", 0.5)
    monkeypatch.setenv("PROMETHEUS_ALLOW_HTTP", "true")
    async with server(kind) as port:
        began = time.monotonic()
        words = ("report", "--shadow", "--prometheus", f"http://127.0.0.1:{port}", "--output", output)
        outcome = await asyncio.to_thread(wva, *words)
    sound(outcome, began)
    assert outcome.status == 1
    assert len(outcome.err.splitlines()) == 1


UNREADABLE = {
    "401": (": 401", "log in again"),
    "403": (": 403", "kubectl auth can-i --list"),
    "login": ("a page for a browser in place of JSON, such as the login of a proxy", "a proxy before it"),
    "hangs": ("no answer within 0.5 s", "does the cluster run"),
    "closed": ("Cannot connect to host 127.0.0.1", "does the cluster run"),
    "missing": ("does not exist", "a kubeconfig that works with KUBECONFIG"),
    "broken": ("ParserError", "a kubeconfig that works with KUBECONFIG"),
    "empty": ("expected YAML with clusters, users, contexts", "a kubeconfig that works with KUBECONFIG"),
}
"""Why a cluster cannot be read: what is said, and what to do."""
STATUS = {"migrate": 1, "doctor": 1, "config": 3, "explain": 1}
"""The statuses that the helps of the commands promise."""


@asynccontextmanager
async def unreadable(kind, folder):
    """Yield the path of a kubeconfig that leads to no answer of use."""
    path = folder / "wrong"
    if kind == "closed":
        yield kubeconfig(folder, closed_port())
    elif kind == "missing":
        yield path
    elif kind in {"broken", "empty"}:
        path.write_text({"broken": "clusters: [}", "empty": ""}[kind])
        yield path
    else:
        async with server(kind) as port:
            yield kubeconfig(folder, port)


@pytest.mark.parametrize("command", STATUS)
@pytest.mark.parametrize("kind", UNREADABLE)
async def test_what_could_not_be_looked_at_is_said_with_advice(wva, tmp_path, monkeypatch, kind, command):
    """Within seconds, with the status that the help promises, and nothing is called well."""
    monkeypatch.delenv("PROMETHEUS_BASE_URL", raising=False)
    words = ("ns/a", "--service-account", "ns/b") if command == "explain" else ()
    if kind == "hangs":
        monkeypatch.setattr(KubeClient.greet, "__defaults__", (0.5,))
        monkeypatch.setattr("wva.cli.run._READ_SECONDS", 0.5)
    async with unreadable(kind, tmp_path) as path:
        monkeypatch.setenv("KUBECONFIG", str(path))
        began = time.monotonic()
        outcome = await asyncio.to_thread(wva, command, *words)
    sound(outcome, began)
    assert outcome.status == STATUS[command]
    told = outcome.out + outcome.err
    assert all(words in told for words in UNREADABLE[kind]), told[-3000:]
    assert "  ok" not in outcome.out


async def test_what_is_green_in_part_is_not_green(wva, tmp_path, monkeypatch):
    """A migration that may list one kind of six says which it could not, and its status is 3."""

    async def answer(request):
        if request.path.endswith("/leases"):
            metadata = {"name": "a", "namespace": "ns"}
            return web.json_response({"metadata": {}, "items": [{"metadata": metadata, "spec": {}}]})
        return web.json_response({"kind": "Status", "reason": "Forbidden", "message": "no", "code": 403}, status=403)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with TestServer(app, host="127.0.0.1") as served:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path, served.port)))
        outcome = await asyncio.to_thread(wva, "migrate")
    assert outcome.status == 3
    assert "may not be listed, so it was not looked at" in outcome.out
    assert outcome.out.splitlines()[-1].startswith("1 objects looked at: 0 must, ")
