"""What the verbs put on the wire."""

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
    """One GET on the object's path, with our name and without compression."""
    deployment = await client.get(DEPLOYMENTS, KEY)
    assert deployment.metadata.key == KEY
    assert (server.last.method, server.last.path) == ("GET", "/apis/apps/v1/namespaces/demo/deployments/a")
    assert server.last.headers["User-Agent"].startswith("wva/")
    assert server.last.headers["Accept-Encoding"] == "identity"


async def test_list_decodes_what_it_can(server: Any, client: KubeClient) -> None:
    """Items that do not fit are left out and counted; selectors go into the query, absent ones do not."""
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
    """Any state in the cache, the newest, or one that is not older than another."""
    server.say({"metadata": {"resourceVersion": "9"}, "items": []})
    await client.list(PODS, resource_version=version)
    assert server.last.query == {"limit": "500", **query}


async def test_merge_patch_is_the_default(server: Any, client: KubeClient) -> None:
    """A patch says its type: without it the library would send a JSON patch."""
    await client.patch(PODS, KEY, {"status": {"phase": "Running"}}, subresource="status")
    assert server.last.method == "PATCH"
    assert server.last.path == "/api/v1/namespaces/demo/pods/a/status"
    assert server.last.headers["Content-Type"] == MERGE_PATCH == "application/merge-patch+json"
    assert json.loads(server.last.body) == {"status": {"phase": "Running"}}
    assert server.last.query == {}


async def test_create_posts_to_the_collection(server: Any, client: KubeClient) -> None:
    """The created object comes back as stored."""
    created = await client.create(LEASES, "demo", {"metadata": {"name": "a"}, "spec": {}})
    assert created.metadata.resource_version == "3"
    assert (server.last.method, server.last.path) == ("POST", "/apis/coordination.k8s.io/v1/namespaces/demo/leases")
    assert server.last.headers["Content-Type"] == "application/json"


async def test_update_puts_the_object(server: Any, client: KubeClient) -> None:
    """The version in the body travels as it is: the server checks it."""
    await client.update(PODS, KEY, OBJECT)
    assert (server.last.method, server.last.path) == ("PUT", "/api/v1/namespaces/demo/pods/a")
    assert json.loads(server.last.body) == OBJECT


async def test_names_are_encoded(server: Any, client: KubeClient) -> None:
    """A name cannot reach another path: the server sees it as one segment."""
    await client.get(PODS, Key("demo", "a/../b c"))
    assert server.last.path == "/api/v1/namespaces/demo/pods/a/../b c"
    assert server.last.headers["Host"] in server.url


async def test_empty_body_is_sent(server: Any, client: KubeClient) -> None:
    """An empty mapping is a body of its own, no absent one."""
    await client.request_json("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {})
    assert server.last.body == b"{}"


async def test_raw_request_returns_the_body(server: Any, client: KubeClient) -> None:
    """Discovery and the like return their bytes; the path may carry a query."""
    server.say(b'{"groups":[]}')
    assert await client.request_json("GET", "/apis?limit=1") == b'{"groups":[]}'
    assert server.last.query == {"limit": "1"}


async def test_server_behind_a_path(server: Any, kubeconfig: Any, connect: Any) -> None:
    """A server URL with a path of its own (a management proxy) keeps it."""
    kubeconfig(f"{server.url}/k8s/clusters/c-1/")
    async with connect() as client:
        await client.get(PODS, KEY)
    assert server.last.path == "/k8s/clusters/c-1/api/v1/namespaces/demo/pods/a"


async def test_environment_proxies_are_ignored(
    server: Any, client: KubeClient, clean_environment: pytest.MonkeyPatch
) -> None:
    """HTTP_PROXY is for the outside world: API traffic goes straight to the server."""
    clean_environment.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    clean_environment.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    assert (await client.get(PODS, KEY)).metadata.key == KEY
    assert len(server.received) == 1


async def test_proxy_of_the_kubeconfig_is_used(server: Any, kubeconfig: Any, connect: Any) -> None:
    """A proxy-url in the kubeconfig is meant: the request goes there."""
    kubeconfig("http://api.example:8080", **{"proxy-url": server.url})
    async with connect() as client:
        await client.get(PODS, KEY)
    assert server.last.headers["Host"] == "api.example:8080"
