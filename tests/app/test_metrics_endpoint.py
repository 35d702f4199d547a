"""The metrics endpoint of a whole process: TLS and reviews by the API server, on a leader and on a standby."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tests.app.stage import SYSTEM, until
from wva.serve.tokens import own_audience
from wva.sim.apiserver import User, matching

LEASES = "leases.coordination.k8s.io"
SECURE = {"METRICS_SECURE": "true"}


@pytest.fixture
def scraper(stage):
    """Let one user read ``/metrics`` and ``/debug/config``, and return the user's token."""

    def authorize(user, attributes):
        return user.name == "scraper" if attributes.path in {"/metrics", "/debug/config"} else True

    stage.api.access.authorize = authorize
    token, _ = stage.api.access.issue(User("scraper"), audiences=(), lifetime_seconds=3600)
    return token


async def scrape(stage, session, token="", *, path="/metrics", scheme="https"):
    """Return status and text of a page."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with session.get(f"{scheme}://127.0.0.1:{stage.app.metrics_port}{path}", headers=headers) as response:
        return response.status, await response.text()


async def test_who_may_read_reads(stage, session, scraper):
    """Only the user that the API server allows gets the pages."""
    stage.deployment()
    stage.va()
    async with stage.controller(**SECURE):
        await until(stage.series)
        status, page = await scrape(stage, session, scraper)
        assert status == 200
        assert 'wva_desired_replicas{accelerator_type="H100",namespace="ns",variant_name="va"} 1.0' in page
        assert "wva_endpoint_secure 1.0" in page
        assert (await scrape(stage, session, "somebody"))[0] == 403
        assert (await scrape(stage, session))[0] == 401
        assert (await scrape(stage, session, scraper, path="/debug/config"))[0] == 200
        assert (await scrape(stage, session, "somebody", path="/debug/config"))[0] == 403


@pytest.mark.usefixtures("scraper")
async def test_a_token_for_this_controller_reads_here_alone(stage, session):
    """A token for the audience of the controller's namespace is enough; that of another namespace is not."""
    async with stage.controller(**SECURE):
        await until(lambda: stage.app.metrics_port)
        answers = []
        for namespace in (SYSTEM, "elsewhere"):
            audiences = (own_audience(namespace),)
            token, _ = stage.api.access.issue(User("scraper"), audiences=audiences, lifetime_seconds=600)
            answers.append((await scrape(stage, session, token))[0])
        assert answers == [200, 401]


async def test_a_standby_asks_for_reviews_though_it_may_not_write(stage, session, scraper):
    """A standby serves its own metrics, without series of variants."""
    stage.deployment()
    stage.va()
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    stage.api.store.create(LEASES, {"metadata": {"name": "72dd1cf1.llm-d.ai", "namespace": SYSTEM}, "spec": spec})
    async with stage.controller(**SECURE, LEADER_ELECT="true"):
        await until(lambda: stage.app.metrics_port and stage.app.not_ready() == [])
        status, page = await scrape(stage, session, scraper)
        assert status == 200
        assert "wva_leader 0.0" in page
        assert "variant_name" not in page
        assert stage.patches() == 0


async def test_an_api_server_that_cannot_answer_keeps_everybody_new_out(stage, session, scraper):
    """The answer is 500 while reviews fail, and 200 afterwards."""
    async with stage.controller(**SECURE):
        await until(lambda: stage.app.metrics_port)
        stage.api.faults.answer(403, times=None, match=matching(resource="tokenreviews.authentication.k8s.io"))
        assert (await scrape(stage, session, scraper))[0] == 500
        stage.api.faults.clear()
        assert (await scrape(stage, session, scraper))[0] == 200


async def test_without_protection_the_start_says_so(stage, session):
    """A warning and a metric say so. All clients can read the metrics, but the configuration page does not exist."""
    with capture_logs() as lines:
        async with stage.controller():
            await until(lambda: stage.app.metrics_port)
            status, page = await scrape(stage, session, scheme="http")
            assert status == 200
            assert "wva_endpoint_secure 0.0" in page
            assert (await scrape(stage, session, scheme="http", path="/debug/config"))[0] == 404
    (line,) = [line for line in lines if line["event"] == "metrics_unprotected"]
    assert (line["log_level"], line["setting"]) == ("warning", "--metrics-secure=false")
    assert stage.api.requests.count("create", resource="tokenreviews.authentication.k8s.io") == 0
