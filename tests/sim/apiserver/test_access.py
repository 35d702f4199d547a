"""The server checks tokens and permissions, answers reviews, and writes a kubeconfig for an ordinary client."""

import aiohttp
import pytest
from kubernetes_asyncio import client as kubernetes
from kubernetes_asyncio import config

from tests.sim.apiserver.widgets import config_map
from wva.sim.apiserver import Attributes, User

PODS = "/api/v1/namespaces/default/pods"
REVIEWS = "/apis/authorization.k8s.io/v1"
TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"


async def ask(session, path, method="GET", token="", **more):
    """Return status and body of an answer."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with session.request(method, path, headers=headers, **more) as response:
        return response.status, await response.json()


async def test_configured_tokens_are_required(api, session):
    """Without a known token the server answers 401."""
    api.access.tokens["good"] = User("somebody")
    for token in ("", "bad"):
        status, body = await ask(session, PODS, token=token)
        assert (status, body["reason"], body["kind"]) == (401, "Unauthorized", "Status")
    assert (await ask(session, PODS, token="good"))[0] == 200


async def test_without_tokens_everybody_is_welcome(session):
    """By default the server asks for no token and allows every request."""
    assert (await ask(session, PODS))[0] == 200
    assert (await ask(session, PODS, token="any"))[0] == 200


async def test_a_denied_request_says_who_may_not_do_what(api, session):
    """A denied request gets 403 with RBAC's message. Allowed requests still work."""
    api.access.tokens["t"] = User("reader", ("g",))
    seen = []

    def authorize(user, attributes):
        seen.append((user, attributes))
        return attributes.verb in {"get", "list"}

    api.access.authorize = authorize
    assert (await ask(session, PODS, token="t"))[0] == 200
    path = "/apis/apps/v1/namespaces/default/deployments/d/scale"
    status, body = await ask(session, path, "PATCH", token="t", data="{}")
    assert (status, body["reason"]) == (403, "Forbidden")
    assert body["message"] == (
        'deployments.apps "d" is forbidden: User "reader" cannot patch resource "deployments/scale" '
        'in API group "apps" in the namespace "default"'
    )
    assert body["details"] == {"name": "d", "group": "apps", "kind": "deployments"}
    assert seen[-1] == (
        User("reader", ("g",)),
        Attributes("patch", "apps", "deployments", "scale", "default", "d"),
    )
    status, body = await ask(session, "/api/v1/nodes", "DELETE", token="t")
    assert body["message"].endswith("at the cluster scope")
    status, body = await ask(session, "/metrics", "POST", token="t")
    assert (status, body["message"]) == (403, 'forbidden: User "reader" cannot post path "/metrics"')


async def test_access_reviews_ask_the_same_question(api, session):
    """Self and subject reviews give the same answer as the request itself."""
    api.access.tokens["t"] = User("me")
    api.access.authorize = lambda user, attributes: (
        attributes.resource != "secrets" and (user.name in {"me", "boss"} or attributes.path == "/metrics")
    )

    async def review(kind, plural, **spec):
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        status, answer = await ask(session, f"{REVIEWS}/{plural}", "POST", token="t", json=body)
        assert (status, answer["kind"], answer["spec"]) == (201, kind, spec)
        return answer["status"]["allowed"]

    own = ("SelfSubjectAccessReview", "selfsubjectaccessreviews")
    subject = ("SubjectAccessReview", "subjectaccessreviews")
    assert await review(*own, resourceAttributes={"verb": "list", "resource": "pods"})
    assert not await review(*own, resourceAttributes={"verb": "list", "resource": "secrets"})
    assert await review(*subject, user="boss", resourceAttributes={"verb": "list", "resource": "pods"})
    assert not await review(*subject, user="other", resourceAttributes={"verb": "list", "resource": "pods"})
    assert await review(*subject, user="other", nonResourceAttributes={"verb": "get", "path": "/metrics"})


async def test_token_reviews_know_the_tokens(api, session):
    """A token review names the user of a known token, and rejects any other token."""
    api.access.tokens["good"] = User("somebody", ("a", "b"))

    async def review(token):
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        return (await ask(session, TOKENS, "POST", token="good", json=body))[1]["status"]

    good = await review("good")
    assert (good["authenticated"], good["user"]) == (True, {"username": "somebody", "groups": ["a", "b"]})
    assert "authenticated" not in await review("bad")


@pytest.mark.parametrize(("method", "body", "expected"), [("GET", None, 405), ("POST", {"kind": "Pod"}, 400)])
async def test_reviews_are_created_and_nothing_else(session, method, body, expected):
    """A review can only be created, and only with the right kind."""
    assert (await ask(session, f"{REVIEWS}/subjectaccessreviews", method, json=body))[0] == expected


async def test_an_ordinary_client_finds_its_way(api, tmp_path):
    """kubernetes-asyncio reads the kubeconfig, sends the token, lists, patches and understands refusals."""
    api.access.tokens["secret"] = User("me")
    api.store.create("configmaps", config_map("a"))
    settings = kubernetes.Configuration()
    path = api.kubeconfig(tmp_path / "kubeconfig", token="secret")
    await config.load_kube_config(str(path), client_configuration=settings)
    async with kubernetes.ApiClient(settings) as opened:
        core = kubernetes.CoreV1Api(opened)
        listed = await core.list_namespaced_config_map("default")
        assert [item.metadata.name for item in listed.items] == ["a"]
        patched = await core.patch_namespaced_config_map("a", "default", {"data": {"key": "new"}})
        assert patched.data == {"key": "new"}
        with pytest.raises(kubernetes.ApiException) as refused:
            await core.read_namespaced_config_map("zz", "default")
        assert (refused.value.status, refused.value.reason) == (404, "Not Found")


async def test_the_url_is_loopback(api):
    """The server listens on loopback only, so that no other machine can reach it."""
    assert api.url.startswith("http://127.0.0.1:")
    async with aiohttp.ClientSession() as session, session.get(f"{api.url}/readyz") as response:
        assert await response.text() == "ok"


async def test_an_issued_token_ends(session, api, monkeypatch):
    """After its time, reviews and requests reject the token."""
    now = [1000.0]
    monkeypatch.setattr(api.access, "_now", lambda: now[0])
    api.access.tokens["good"] = User("somebody")
    token, expires_at = api.access.issue(User("reader"), audiences=(), lifetime_seconds=600)
    assert expires_at == 1600
    assert (await ask(session, PODS, token=token))[0] == 200
    now[0] = 1600.0
    assert (await ask(session, PODS, token=token))[0] == 401
