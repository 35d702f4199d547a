"""The console of a whole process: behind the reviews of the API server, or on this machine alone."""

from __future__ import annotations

import asyncio

import pytest
from prometheus_client import CollectorRegistry

from tests.app.stage import until
from wva.app.servers import server_problems
from wva.config import Inputs, load
from wva.instruments import Instruments
from wva.sim.apiserver import User

CONSOLE = {"CONSOLE_BIND_ADDRESS": "127.0.0.1:0"}
SECURE = {**CONSOLE, "METRICS_SECURE": "true"}
REVIEWS = "tokenreviews.authentication.k8s.io"


@pytest.fixture
def viewer(stage):
    """Let one user list VariantAutoscalings of ``ns`` and get each, and return the user's token."""

    def authorize(user, attributes):
        if user.name == "viewer":
            return attributes.namespace == "ns" and attributes.verb in {"get", "list"} and not attributes.path
        return user.name != "stranger"

    stage.api.access.authorize = authorize
    token, _ = stage.api.access.issue(User("viewer"), audiences=(), lifetime_seconds=3600)
    return token


async def get(stage, session, path, token="", *, scheme="https"):
    """Return the status of a page, and its text."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with session.get(f"{scheme}://127.0.0.1:{stage.app.console_port}{path}", headers=headers) as response:
        return response.status, await response.text()


async def test_the_api_server_says_who_may_see_what(stage, session, viewer):
    """The page itself is for everybody; what it shows is for those who may list. An open stream delays no stop."""
    stage.deployment()
    stage.va()
    async with stage.controller(**SECURE):
        await until(lambda: stage.app.console_port and stage.app.views.recent.newest)
        assert (await get(stage, session, "/"))[0] == 200
        assert (await get(stage, session, "/v1/overview?namespace=ns"))[0] == 401
        stranger, _ = stage.api.access.issue(User("stranger"), audiences=(), lifetime_seconds=3600)
        assert (await get(stage, session, "/v1/overview?namespace=ns", stranger))[0] == 403
        assert (await get(stage, session, "/v1/overview", viewer))[0] == 403
        status, text = await get(stage, session, "/v1/overview?namespace=ns", viewer)
        assert status == 200
        assert '"name":"va"' in text
        assert '"type":"TargetResolved"' in text
        assert (await get(stage, session, "/v1/explain/ns/va?changes=false", viewer))[0] == 200
        assert (await get(stage, session, "/metrics", viewer))[0] == 403
        url = f"https://127.0.0.1:{stage.app.console_port}/v1/stream?namespace=ns"
        stream = await session.get(url, headers={"Authorization": f"Bearer {viewer}"})
        assert await stream.content.readuntil(b"\n\n") == b": wva\n\n"
        stopping = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - stopping < 10
    stream.close()


async def test_without_reviews_it_is_for_this_machine_alone(stage, session):
    """It has no TLS and asks nobody."""
    stage.deployment()
    stage.va()
    async with stage.controller(**CONSOLE):
        await until(lambda: stage.app.console_port and stage.app.views.recent.newest)
        assert (await get(stage, session, "/v1/overview", scheme="http"))[0] == 200
        headers = {"Host": "evil.example"}
        url = f"http://127.0.0.1:{stage.app.console_port}/v1/overview"
        async with session.get(url, headers=headers) as response:
            assert response.status == 403
    assert stage.api.requests.count("create", resource=REVIEWS) == 0


@pytest.mark.parametrize(
    ("secure", "address", "problem"),
    [
        ("true", ":8444", ""),
        ("false", "127.0.0.1:8444", ""),
        ("false", "localhost:8444", ""),
        ("false", "0", ""),
        ("true", "8444", "--console-bind-address='8444': expected host:port, :port, or 0 to switch it off"),
        ("false", ":8444", "--console-bind-address=':8444': expected 127.0.0.1:PORT or localhost:PORT, as "),
        (
            "false",
            "0.0.0.0:8444",
            "--console-bind-address='0.0.0.0:8444': expected 127.0.0.1:PORT or localhost:PORT, as ",
        ),
    ],
)
def test_an_address_that_would_open_it_to_everybody_is_refused(secure, address, problem):
    """The start ends with the setting, its value and what is expected."""
    environment = {
        "PROMETHEUS_BASE_URL": "https://prometheus",
        "METRICS_SECURE": secure,
        "CONSOLE_BIND_ADDRESS": address,
    }
    found = server_problems(load(Inputs({}, environment, {})).settings, instruments=Instruments(CollectorRegistry()))
    assert len(found) == bool(problem)
    assert all(line.startswith(problem) for line in found)
