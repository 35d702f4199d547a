"""The HTTP requests that the client sends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from wva.api.kinds import LEASES, PODS
from wva.api.meta import Key
from wva.kube.client import MERGE_PATCH, KubeClient
from wva.targets import DEPLOYMENTS

KEY = Key("demo", "a")
OBJECT = {"metadata": {"name": "a", "namespace": "demo", "resourceVersion": "3"}}


@pytest.fixture(autouse=True)
def answer(server: Any) -> None:
    """Answer every request with the object."""
    server.say(OBJECT)


async def test_get_decodes_the_object(server: Any, client: KubeClient) -> None:
    """The client sends one GET to the object's path, with its own User-Agent and without compression."""
    deployment = await client.get(DEPLOYMENTS, KEY)
    assert deployment.metadata.key == KEY
    assert (server.last.method, server.last.path) == ("GET", "/apis/apps/v1/namespaces/demo/deployments/a")
    assert server.last.headers["User-Agent"].startswith("wva/")
    assert server.last.headers["Accept-Encoding"] == "identity"


async def test_list_decodes_what_it_can(server: Any, client: KubeClient) -> None:
    """Items that cannot be decoded are left out and counted. Only the given selectors are in the query."""
    server.say({"metadata": {"resourceVersion": "9"}, "items": [OBJECT, {"metadata": 5}]})
    listed = await client.list(PODS, namespace="demo", resource_version="0", label_selector="a=b,c")
    assert [pod.metadata.name for pod in listed.items] == ["a"]
    assert (listed.resource_version, listed.undecodable) == ("9", 1)
    assert server.last.query == {"resourceVersion": "0", "limit": "500", "labelSelector": "a=b,c"}


@pytest.mark.parametrize(
    ("version", "query"),
    [
        (None, {}),
        ("0", {"resourceVersion": "0"}),
        ("7", {"resourceVersion": "7", "resourceVersionMatch": "NotOlderThan"}),
    ],
)
async def test_a_list_says_how_old_it_may_be(
    server: Any, client: KubeClient, version: str | None, query: dict[str, str]
) -> None:
    """The query asks for the newest state, any cached state, or one that is not older than a version."""
    server.say({"metadata": {"resourceVersion": "9"}, "items": []})
    await client.list(PODS, resource_version=version)
    assert server.last.query == {"limit": "500", **query}


async def test_merge_patch_is_the_default(server: Any, client: KubeClient) -> None:
    """The client sets the content type, because the library would send a JSON patch."""
    await client.patch(PODS, KEY, {"status": {"phase": "Running"}}, subresource="status")
    assert server.last.method == "PATCH"
    assert server.last.path == "/api/v1/namespaces/demo/pods/a/status"
    assert server.last.headers["Content-Type"] == MERGE_PATCH == "application/merge-patch+json"
    assert json.loads(server.last.body) == {"status": {"phase": "Running"}}
    assert server.last.query == {}


async def test_a_scale_is_written_for_the_version_that_was_read(server: Any, client: KubeClient) -> None:
    """A merge patch, because API servers fail on a server-side apply to the scale of a custom resource."""
    await client.scale(PODS, KEY, 3, version="7", manager="somebody")
    assert (server.last.method, server.last.path) == ("PATCH", "/api/v1/namespaces/demo/pods/a/scale")
    assert server.last.headers["Content-Type"] == MERGE_PATCH
    assert json.loads(server.last.body) == {"metadata": {"resourceVersion": "7"}, "spec": {"replicas": 3}}
    assert server.last.query == {"fieldManager": "somebody"}


async def test_create_posts_to_the_collection(server: Any, client: KubeClient) -> None:
    """The client returns the created object as the server stored it."""
    created = await client.create(LEASES, "demo", {"metadata": {"name": "a"}, "spec": {}})
    assert created.metadata.resource_version == "3"
    assert (server.last.method, server.last.path) == ("POST", "/apis/coordination.k8s.io/v1/namespaces/demo/leases")
    assert server.last.headers["Content-Type"] == "application/json"


async def test_update_puts_the_object(server: Any, client: KubeClient) -> None:
    """The body is sent unchanged, with its version, which the server checks."""
    await client.update(PODS, KEY, OBJECT)
    assert (server.last.method, server.last.path) == ("PUT", "/api/v1/namespaces/demo/pods/a")
    assert json.loads(server.last.body) == OBJECT


async def test_names_are_encoded(server: Any, client: KubeClient) -> None:
    """A name is one encoded segment of the path, so it cannot reach another path."""
    await client.get(PODS, Key("demo", "a/../b c"))
    assert server.last.path == "/api/v1/namespaces/demo/pods/a/../b c"
    assert server.last.headers["Host"] in server.url


async def test_empty_body_is_sent(server: Any, client: KubeClient) -> None:
    """An empty mapping is sent as a body."""
    await client.request_json("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {})
    assert server.last.body == b"{}"


async def test_raw_request_returns_the_body(server: Any, client: KubeClient) -> None:
    """The client returns the bytes. The path may have a query."""
    server.say(b'{"groups":[]}')
    assert await client.request_json("GET", "/apis?limit=1") == b'{"groups":[]}'
    assert server.last.query == {"limit": "1"}


async def test_a_dated_answer_has_the_clock_of_the_server(server: Any, client: KubeClient) -> None:
    """Times that the server wrote are compared with this one, whatever our clock says."""
    server.say(b"{}", headers={"Date": "Thu, 01 Jan 2026 00:00:30 GMT"})
    assert await client.request_dated_json("GET", "/version") == (b"{}", 1_767_225_630.0)
    for unusable in ("yesterday", "Thu, 99 Jan 2026 00:00:30 GMT", "9" * 1_000):
        server.say(b"{}", headers={"Date": unusable})
        assert await client.request_dated_json("GET", "/version") == (b"{}", None)


async def test_server_behind_a_path(server: Any, kubeconfig: Any, connect: Any) -> None:
    """The path of the server URL (for example of a management proxy) is kept."""
    kubeconfig(f"{server.url}/k8s/clusters/c-1/")
    async with connect() as client:
        await client.get(PODS, KEY)
    assert server.last.path == "/k8s/clusters/c-1/api/v1/namespaces/demo/pods/a"


async def test_environment_proxies_are_ignored(
    server: Any, client: KubeClient, clean_environment: pytest.MonkeyPatch
) -> None:
    """The client ignores HTTP_PROXY and HTTPS_PROXY."""
    clean_environment.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    clean_environment.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    assert (await client.get(PODS, KEY)).metadata.key == KEY
    assert len(server.received) == 1


async def test_proxy_of_the_kubeconfig_is_used(server: Any, kubeconfig: Any, connect: Any) -> None:
    """The client uses the proxy-url of the kubeconfig."""
    kubeconfig("http://api.example:8080", **{"proxy-url": server.url})
    async with connect() as client:
        await client.get(PODS, KEY)
    assert server.last.headers["Host"] == "api.example:8080"
