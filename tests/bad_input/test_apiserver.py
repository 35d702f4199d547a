"""An API server, or a proxy in front of it, with bad answers: WVA retries, leaks no token, and goes on deciding."""

from __future__ import annotations

import json

import pytest

from tests.app.stage import SYSTEM, VARIANTS, until
from wva.api.meta import Key
from wva.sim.apiserver.faults import matching

TOKEN = "do-not-tell-anybody"
STATUS_PATCHES = matching(verb="patch", resource=VARIANTS, subresource="status")
PAGE = f"<html>Authorization: Bearer {TOKEN}</html>"


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 500},
        {"status": 429, "retry_after_seconds": 10**12},
        {"status": 403},
        {"status": 422},
        {"status": 302},
        {"status": 200, "text": "<html>login</html>"},
        {"status": 502, "text": "x" * 5_000_000},
    ],
    ids=lambda fault: f"{fault['status']}{'-text' if 'text' in fault else ''}",
)
async def test_a_refused_status_is_written_when_it_can_be(stage, fault):
    """WVA publishes the number meanwhile, and writes the status later."""
    stage.api.faults.answer(**fault, times=3, match=STATUS_PATCHES)
    async with stage.controller(interval="100ms"):
        await until(lambda: stage.series() == {"va": 2})
        await until(lambda: stage.number() == 2, seconds=10)
        await stage.works()


async def test_refused_events_do_not_stop_anything(stage):
    """They are counted as failed, and decisions and statuses go on."""
    stage.api.faults.answer(403, times=None, match=matching(verb="create", resource="events"))
    async with stage.controller(interval="100ms"):
        await until(lambda: stage.metric("wva_events_recorded_total", result="failed"))
        await stage.works()


async def test_a_forbidden_lease_is_waited_for(stage):
    """Without the Lease WVA writes and publishes nothing, and tries again."""
    stage.api.faults.answer(403, times=2, match=matching(resource="leases.coordination.k8s.io"))
    times = {"LEADER_ELECTION_LEASE_DURATION": "1s", "LEADER_ELECTION_RENEW_DEADLINE": "500ms"}
    async with stage.controller(
        interval="100ms", LEADER_ELECT="true", LEADER_ELECTION_RETRY_PERIOD="50ms", **times
    ) as task:
        await until(lambda: stage.api.requests.count("get", resource="leases.coordination.k8s.io"))
        assert stage.series() == {}
        assert stage.patches() == 0
        await until(lambda: stage.number() == 2, seconds=10)
        assert not task.done()


@pytest.mark.parametrize("status", [500, 429, 403, 401, 200])
async def test_watches_and_lists_that_get_error_pages_come_back(stage, output, status):
    """WVA follows all kinds afterwards. An error page with the token in it does not put the token into the log."""
    stage.api.kubeconfig(stage.folder / "kubeconfig", token=TOKEN)
    stage.api.faults.answer(status, times=3, text=PAGE + "\xff", match=matching(verb="list"))
    stage.api.faults.answer(status, times=3, text=PAGE, match=matching(verb="watch"))
    async with stage.controller(interval="100ms"):
        not_ready = []
        await until(lambda: not_ready.extend(stage.app.not_ready()) or stage.series() == {"va": 2})
        await until(lambda: stage.number() == 2)
        stage.delete_va()
        await until(lambda: stage.series() == {}, seconds=10)
    assert not_ready
    assert TOKEN not in output() + "".join(not_ready) + stage.everything_told()


async def test_objects_of_broken_bytes_arrive_late_and_stop_nobody(stage):
    """WVA counts objects that it cannot decode, and goes on watching."""
    async with stage.controller(interval="100ms"):
        await until(lambda: stage.number() == 2)
        for resource in (VARIANTS, "deployments.apps", "pods", "replicasets.apps"):
            stage.force(
                resource, "bad", lambda value: value.update(metadata={**value["metadata"], "generation": {}, "uid": []})
            )
        stage.force("configmaps", "bad", lambda value: value.update(data=["x"]), namespace=SYSTEM)
        await until(lambda: stage.metric("wva_undecodable_objects_total", resource="configmaps"))
        await stage.works()
        assert stage.series()["va"] == 2
        assert stage.api.store.find("configmaps", Key(SYSTEM, "bad")) is not None


async def test_the_token_is_sent_and_never_told(stage, output):
    """The token is masked in error texts, and appears nowhere else."""
    stage.api.kubeconfig(stage.folder / "kubeconfig", token=TOKEN)
    stage.api.faults.answer(401, times=2, text=PAGE, match=STATUS_PATCHES)
    async with stage.controller(interval="100ms"):
        await until(lambda: stage.number() == 2)
        told = output() + stage.everything_told() + json.dumps(stage.app.not_ready())
    assert "401: <html>Authorization: Bearer ***</html>" in told
    assert TOKEN not in told
