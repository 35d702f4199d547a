"""The server parses paths and verbs, and its log counts requests."""

import pytest

from tests.sim.apiserver.widgets import config_map, widget
from wva.sim.apiserver.requests import ApiRequestLog, RequestInfo, parse

WIDGETS = "/apis/test.example.com/v1/namespaces/default/widgets"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("GET /api/v1/pods", ("list", "", "v1", "pods", "", "", "")),
        ("GET /api/v1/pods?watch=true", ("watch", "", "v1", "pods", "", "", "")),
        ("GET /api/v1/pods?watch=0", ("list", "", "v1", "pods", "", "", "")),
        ("GET /api/v1/namespaces", ("list", "", "v1", "namespaces", "", "", "")),
        ("GET /api/v1/namespaces/n", ("get", "", "v1", "namespaces", "", "n", "")),
        ("PUT /api/v1/namespaces/n/status", ("update", "", "v1", "namespaces", "", "n", "status")),
        ("PUT /api/v1/namespaces/n/finalize", ("update", "", "v1", "namespaces", "", "n", "finalize")),
        ("GET /api/v1/namespaces/n/pods/p", ("get", "", "v1", "pods", "n", "p", "")),
        ("DELETE /api/v1/namespaces/n/pods", ("deletecollection", "", "v1", "pods", "n", "", "")),
        ("DELETE /api/v1/nodes/a%2Fb", ("delete", "", "v1", "nodes", "", "a/b", "")),
        ("POST /apis/apps/v1/namespaces/n/deployments", ("create", "apps", "v1", "deployments", "n", "", "")),
        ("PATCH /apis/g.io/v2/namespaces/n/ws/w/scale", ("patch", "g.io", "v2", "ws", "n", "w", "scale")),
        ("GET /api/v1/nodes/n/proxy/x/y", ("get", "", "v1", "nodes", "", "n", "proxy/x/y")),
        ("GET /apis/apps/v1", ("get", "", "", "", "", "", "")),
        ("GET /version", ("get", "", "", "", "", "", "")),
        ("OPTIONS /", ("options", "", "", "", "", "", "")),
    ],
)
def test_a_request_line_is_read(line, expected):
    """Method, path and query give verb, group, version, resource, namespace, name and subresource."""
    method, _, target = line.partition(" ")
    path, _, query = target.partition("?")
    info = parse(method, path, dict([query.split("=")]) if query else {})
    found = (info.verb, info.group, info.version, info.resource, info.namespace, info.name, info.subresource)
    assert found == expected


def test_the_log_counts_by_verb_resource_and_subresource():
    """A missing criterion fits everything. An empty subresource means the object itself."""
    log = ApiRequestLog(limit=2)
    for subresource in ("", "status", "status"):
        log.add(RequestInfo("patch", "PATCH", "/", "g", "v1", "widgets", "n", "w", subresource))
    log.add(RequestInfo("get", "GET", "/version"))
    assert log.count() == 4
    assert log.count("patch") == 3
    assert log.count("patch", resource="widgets.g", subresource="status") == 2
    assert log.count("patch", resource="widgets.g", subresource="") == 1
    assert log.count(resource="pods") == 0
    assert len(log.entries) == 2
    log.reset()
    assert (log.count(), len(log.entries)) == (0, 0)


async def test_every_request_is_logged_whatever_becomes_of_it(api, session):
    """The log counts answered and faulty requests."""
    api.faults.answer(500)
    for _ in range(2):
        async with session.get(f"{WIDGETS}/a"):
            pass
    assert api.requests.count("get", resource="widgets.test.example.com") == 2


async def test_kinds_come_in_yaml_too(session):
    """The server reads a body in YAML, and keeps its time stamps as text."""
    text = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {at: '2026-01-01T00:00:00Z'}\n"
        "x: 2026-01-01T00:00:00Z\n"
    )
    headers = {"Content-Type": "application/yaml; charset=utf-8"}
    async with session.post("/api/v1/namespaces/default/configmaps", data=text, headers=headers) as response:
        assert response.status == 201
        assert (await response.json())["x"] == "2026-01-01T00:00:00Z"
    async with session.post("/api/v1/namespaces/default/configmaps", data="a: [", headers=headers) as response:
        assert response.status == 400


async def test_an_old_continue_token_is_gone(api, session):
    """The server keeps the latest unfinished lists only. An older token gets 410."""
    for name in "ab":
        api.store.create("configmaps", config_map(name))

    async def page(**query):
        async with session.get("/api/v1/configmaps", params={"limit": "1", **query}) as response:
            return response.status, await response.json()

    first = (await page())[1]
    assert first["metadata"]["remainingItemCount"] == 1
    assert (await page(**{"continue": first["metadata"]["continue"]}))[0] == 200
    for _ in range(64):
        await page()
    assert (await page(**{"continue": first["metadata"]["continue"]}))[0] == 410


async def test_a_dependent_taken_along_does_not_break_a_collection(api, session):
    """A collection can be deleted although the deletion of an owner also deletes a dependent in the collection."""
    owner = api.store.create("configmaps", config_map("a"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": owner["metadata"]["uid"]}
    api.store.create("configmaps", config_map("b", ownerReferences=[reference]))
    async with session.delete("/api/v1/namespaces/default/configmaps") as response:
        assert response.status == 200
        assert len((await response.json())["items"]) == 2
    assert api.store.list("configmaps") == []


async def test_a_written_object_is_answered_as_stored(api, session):
    """The answer to a write has the same bytes as the answer to a read."""
    api.store.create("widgets.test.example.com", widget("a"))
    headers = {"Content-Type": "application/merge-patch+json"}
    async with session.patch(f"{WIDGETS}/a", data='{"spec":{"replicas":2}}', headers=headers) as response:
        written = await response.read()
    async with session.get(f"{WIDGETS}/a") as response:
        assert await response.read() == written
