"""Start, readiness, leadership and stop of the process."""

from __future__ import annotations

import asyncio
import math
import time

import aiohttp
import pytest
from structlog.testing import capture_logs

from tests.app import stage as stage_module
from tests.app.stage import DEPLOYMENTS, SYSTEM, VARIANTS, until
from wva.api.core import Lease
from wva.api.meta import Key
from wva.api.resource import Resource
from wva.kube.errors import WriteRefused
from wva.model.records import replace
from wva.model.variant import VariantKey
from wva.sim.apiserver import Patch, matching

LEASES = "leases.coordination.k8s.io"
LEASE = Key(SYSTEM, "72dd1cf1.llm-d.ai")
ELECTED = {
    "LEADER_ELECT": "true",
    "LEADER_ELECTION_LEASE_DURATION": "15s",
    "LEADER_ELECTION_RENEW_DEADLINE": "10s",
    "LEADER_ELECTION_RETRY_PERIOD": "100ms",
}


def holder(stage):
    """Return the holder of the Lease, empty if there is none."""
    lease = stage.api.store.find(LEASES, LEASE)
    return "" if lease is None else lease["spec"].get("holderIdentity") or ""


async def fetch(port, path):
    """Return status and text of a page of the process."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}{path}") as response:
        return response.status, await response.text()


async def test_the_endpoints_answer(stage):
    """The process serves both probes and the metrics."""
    stage.deployment()
    stage.va()
    async with stage.controller():
        await until(stage.series)
        assert await fetch(stage.app.probe_port, "/healthz") == (200, "ok\n")
        assert await fetch(stage.app.probe_port, "/readyz") == (200, "ok\n")
        status, page = await fetch(stage.app.metrics_port, "/metrics")
        assert status == 200
        assert 'wva_desired_replicas{accelerator_type="H100",namespace="ns",variant_name="va"} 1.0' in page


async def test_no_series_of_the_page_tells_when_it_was_created(stage):
    """The page has no ``_created`` series."""
    stage.deployment()
    stage.va()
    async with stage.controller():
        await until(stage.series)
        assert "_created" not in stage.page()


async def test_readiness_names_the_cache_that_is_missing(stage):
    """The probe names the cache that is not filled and why. Liveness is not affected."""
    stage.api.faults.answer(403, times=None, match=matching(verb="list", resource="pods"))
    async with stage.controller():
        await until(lambda: stage.app.probe_port)
        await until(lambda: any("403" in line for line in stage.app.not_ready()))
        status, text = await fetch(stage.app.probe_port, "/readyz")
        assert status == 503
        assert text.startswith("not ready: ")
        assert "pods" in text
        assert (await fetch(stage.app.probe_port, "/healthz"))[0] == 200
        assert stage.metric("wva_leader") == 0
        stage.api.faults.clear()
        await until(lambda: stage.app.not_ready() == [])


async def test_readiness_names_prometheus_while_it_does_not_answer(stage):
    """The leader is not ready while Prometheus fails, and ready again afterwards."""
    stage.deployment()
    stage.va()
    stage.prometheus.faults.status = 503
    async with stage.controller(interval="20ms"):
        (line,) = await until(lambda: [line for line in stage.app.not_ready() if "query" in line])
        assert line.startswith("prometheus: query ")
        stage.prometheus.faults.clear()
        await until(lambda: stage.app.not_ready() == [])


@pytest.mark.parametrize("elected", [{}, {"LEADER_ELECT": "true"}], ids=["leads", "standby"])
async def test_a_process_that_asks_nothing_is_not_ready_before_prometheus_has_answered_once(stage, elected):
    """Without a running variant, or as a standby, no cycle finds out that the URL is wrong. Later it stays ready."""
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    stage.api.store.create(LEASES, {"metadata": {"name": LEASE.name, "namespace": SYSTEM}, "spec": spec})
    stage.prometheus.faults.status = 503
    async with stage.controller(**elected):
        await until(lambda: stage.app.probe_port)
        await until(lambda: any("query kv_cache_usage" in line for line in stage.app.not_ready()), seconds=20)
        status, text = await fetch(stage.app.probe_port, "/readyz")
        assert (status, text.startswith("not ready: prometheus: ")) == (503, True)
        stage.prometheus.faults.clear()
        await until(lambda: stage.app.not_ready() == [], seconds=20)
        stage.prometheus.faults.status = 503
        await asyncio.sleep(0.1)
        assert stage.app.not_ready() == []


async def test_a_missing_definition_is_waited_for(stage):
    """Without the CRD the process is not ready, and waits for it."""
    stage.api.faults.answer(404, times=None, match=matching(resource="variantautoscalings.llmd.ai"))
    async with stage.controller() as task:
        await until(lambda: any("variantautoscalings.llmd.ai not synced" in line for line in stage.app.not_ready()))
        assert not task.done()
        stage.api.faults.clear()
        await until(lambda: stage.metric("wva_leader") == 1)


async def test_stop_releases_the_lease(stage):
    """The process releases its Lease when it stops, so the next one can lead at once."""
    stage.deployment()
    stage.va()
    async with stage.controller(**ELECTED) as task:
        await until(stage.series)
        assert holder(stage) != ""
        stage.stop.set()
        async with asyncio.timeout(10):
            assert await task == 0
        assert holder(stage) == ""
        assert stage.series() == {}


async def test_taking_the_lease_is_an_event_on_it(stage):
    """The process posts an event on the Lease when it becomes leader."""
    async with stage.controller(LEADER_ELECT="true"):
        (event,) = await until(lambda: stage.events("LeaderElection"))
        assert event["involvedObject"]["kind"] == "Lease"


async def test_stop_sends_the_events_that_wait(stage):
    """The process posts its waiting events before it ends."""
    stage.deployment(replicas=2)
    stage.va()
    stage.load["d"] = (0.95, 9)
    await stage.scrape()
    stage.api.faults.delay(0.3, times=None, match=matching(verb="create", resource="events"))
    async with stage.controller() as task:
        await until(lambda: (stage.number() or 0) > 2)
        assert stage.events("ScaleUpRecommended") == []
        stage.stop.set()
        assert await task == 0
        assert len(stage.events("ScaleUpRecommended")) == 1


async def test_nothing_is_written_past_the_deadline_of_the_lease(stage):
    """After the deadline another process may lead, so this one writes nothing more."""
    stage.deployment(replicas=2)
    stage.va()
    slow = {"LEADER_ELECTION_LEASE_DURATION": "60s", "LEADER_ELECTION_RENEW_DEADLINE": "50s"}
    async with stage.controller(**(ELECTED | slow | {"LEADER_ELECTION_RETRY_PERIOD": "20s"})):
        await until(lambda: stage.told("OptimizationReady") == ("False", "MetricsMissing") and stage.app.idle)
        before, events = stage.patches(), stage.api.requests.count("create", resource="events")
        stage.app.leadership.elector._deadline = -math.inf
        stage.app.ledger.record([replace(stage.decision(), desired=5)])
        stage.app.announce(VariantKey("ns", "va"), "Normal", "Test", "not to be sent")
        await until(lambda: stage.metric("wva_kubernetes_requests_total", verb="patch", resource=VARIANTS, code="0"))
        await until(lambda: stage.metric("wva_events_recorded_total", result="dropped"))
        assert stage.patches() == before
        assert stage.api.requests.count("create", resource="events") == events
        lease = stage.app.leadership.elector.client
        with pytest.raises(WriteRefused):
            await lease.update(Resource("coordination.k8s.io", "v1", "leases", "Lease", Lease), LEASE, {})
        assert stage.metric("wva_status_patches_total", result="error") == 0
        assert stage.series() == {}


async def test_stop_without_a_lease_is_quick(stage):
    """The process stops quickly even while its caches are not filled."""
    stage.api.faults.delay(60, times=None, match=matching(verb="list", resource="pods"))
    async with stage.controller() as task:
        await until(lambda: stage.app.probe_port)
        started = time.monotonic()
        stage.stop.set()
        assert await task == 0
        assert time.monotonic() - started < 10
        stage.api.faults.clear()


async def test_leaving_is_an_event_on_the_lease(stage):
    """The process posts the event before it releases the Lease."""
    async with stage.controller(**ELECTED) as task:
        await until(lambda: stage.metric("wva_leader"))
        stage.stop.set()
        assert await task == 0
    said = [event["message"].split(" ", 1)[1] for event in stage.events("LeaderElection")]
    assert sorted(said) == ["became leader", "stopped leading"]


async def test_a_released_lease_is_taken_at_once(stage):
    """A standby watches the Lease, and takes it at once when it is released."""
    stage.deployment()
    stage.va()
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    stage.api.store.create(LEASES, {"metadata": {"name": LEASE.name, "namespace": SYSTEM}, "spec": spec})
    async with stage.controller(LEADER_ELECT="true"):
        await until(lambda: stage.api.requests.count("watch", resource=LEASES))
        await until(lambda: stage.app.not_ready() == [])
        stage.api.store.patch(LEASES, LEASE, Patch(body={"spec": {"holderIdentity": ""}}))
        await until(lambda: stage.series() == {"va": 1}, seconds=5)


@pytest.mark.parametrize(("verb", "said"), [("list", "optional_kind_absent"), ("watch", "optional_kind_refused")])
async def test_a_watch_of_the_lease_that_is_denied_is_said_once_and_polled_instead(stage, verb, said):
    """Roles of an older installation may lack this right. The process logs it once, is ready, and polls the Lease."""
    stage.api.faults.answer(403, times=None, match=matching(verb=verb, resource=LEASES))
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    stage.api.store.create(LEASES, {"metadata": {"name": LEASE.name, "namespace": SYSTEM}, "spec": spec})
    with capture_logs() as lines:
        async with stage.controller(**ELECTED):
            await until(lambda: stage.api.requests.count(verb, resource=LEASES) > 2)
            await until(lambda: stage.app.not_ready() == [])
            stage.api.store.patch(LEASES, LEASE, Patch(body={"spec": {"holderIdentity": ""}}))
            await until(lambda: stage.metric("wva_leader"))
    told = [line for line in lines if line.get("resource") == LEASES and line["log_level"] != "debug"]
    assert [line["event"] for line in told] == [said]


async def test_a_standby_is_ready_and_silent(stage):
    """A standby publishes no series and writes nothing, but is ready to take over."""
    stage.deployment()
    stage.va()
    spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 3600, "renewTime": "2026-01-01T00:00:00.000000Z"}
    stage.api.store.create(LEASES, {"metadata": {"name": LEASE.name, "namespace": SYSTEM}, "spec": spec})
    async with stage.controller(**ELECTED):
        await until(lambda: stage.app.probe_port)
        await until(lambda: stage.app.not_ready() == [])
        await until(lambda: stage.api.requests.count("get", resource=LEASES) > 2)
        assert stage.series() == {}
        assert stage.patches() == 0
        stage.api.store.patch(LEASES, LEASE, Patch(body={"spec": {"holderIdentity": ""}}))
        await until(lambda: stage.series() == {"va": 1})


async def test_losing_the_lease_ends_the_process_with_status_1(stage):
    """The process ends, and the log names the new holder."""
    stage.deployment()
    stage.va()
    with capture_logs() as lines:
        async with stage.controller(**ELECTED) as task:
            await until(lambda: stage.told("OptimizationReady") == ("False", "MetricsMissing") and stage.app.idle)
            before = stage.patches()
            stage.api.store.patch(LEASES, LEASE, Patch(body={"spec": {"holderIdentity": "somebody"}}))
            async with asyncio.timeout(10):
                assert await task == 1
            assert holder(stage) == "somebody"
            assert stage.series() == {}
            assert stage.patches() == before
    (line,) = [line for line in lines if line["event"] == "leadership_lost" and line["component"] == "app"]
    assert "somebody" in line["reason"]


async def test_an_object_that_cannot_be_read_does_not_stop_the_rest(stage):
    """WVA counts and skips an object that it cannot decode, and goes on with the others."""
    for name in ("bad", "good"):
        stage.deployment(name)
        stage.va(name, target=name)
    async with stage.controller():
        await until(lambda: stage.series() == {"bad": 1, "good": 1})
        stage.api.store.patch_status(DEPLOYMENTS, Key("ns", "bad"), {"replicas": "many"})
        await until(lambda: stage.metric("wva_undecodable_objects_total", resource=DEPLOYMENTS))
        stage.scale("good", 3)
        await until(lambda: stage.series("wva_current_replicas")["good"] == 3)


async def test_a_variant_deleted_while_prometheus_is_asked_does_not_come_back(stage):
    """WVA drops the decision about a variant that was deleted during the cycle."""
    for name in ("a", "b"):
        stage.deployment(name)
        stage.va(name, target=name)
    await stage.scrape()
    stage.prometheus.faults.delay_seconds = 0.3
    async with stage.controller():
        await until(lambda: stage.series() == {"a": 1, "b": 1})
        await until(lambda: stage.prometheus.requests.query_count > 0)
        stage.delete_va("a")
        await until(lambda: stage.series() == {"b": 1})
        assert stage.metric("wva_cycles_total", result="success") == 0
        seen = []
        stage.app.ledger.subscribe(lambda key, *_: seen.append(key.name))
        await until(lambda: stage.metric("wva_cycles_total", result="success") == 1)
        assert set(seen) == {"b"}
        assert stage.series() == {"b": 1}


async def test_changes_of_the_number_are_events_on_the_variant(stage):
    """The event has the old number, the new number and the reason."""
    stage.deployment(replicas=2)
    stage.va()
    stage.load["d"] = (0.95, 9)
    await stage.scrape()
    async with stage.controller():
        (event,) = await until(lambda: stage.events("ScaleUpRecommended"))
        assert event["message"].startswith(f"desired replicas 2 -> {stage.decision().desired}: ")
        assert event["involvedObject"]["kind"] == "VariantAutoscaling"
        assert event["involvedObject"]["name"] == "va"
        assert event["source"]["component"] == "workload-variant-autoscaler"
        assert event["metadata"]["namespace"] == "ns"


async def test_a_hold_is_a_warning_event(stage):
    """A hold is a Warning event on the variant, with its reason."""
    stage.deployment()
    stage.va()
    stage.prometheus.faults.status = 503
    async with stage.controller(interval="20ms"):
        (event,) = await until(lambda: stage.events("DesiredReplicasHeld"))
        assert event["type"] == "Warning"
        assert event["message"].startswith("PrometheusError: ")


@pytest.mark.parametrize("setting", ["METRICS_BIND_ADDRESS", "HEALTH_PROBE_BIND_ADDRESS"])
async def test_a_server_can_be_switched_off(stage, setting):
    """With the address 0 a server does not listen."""
    async with stage.controller(**{setting: "0"}):
        await until(lambda: stage.metric("wva_leader"))
        ports = {"METRICS_BIND_ADDRESS": stage.app.metrics_port, "HEALTH_PROBE_BIND_ADDRESS": stage.app.probe_port}
        assert [name for name, port in ports.items() if port is None] == [setting]


async def test_cycles_are_recorded_for_replay(stage, tmp_path):
    """With RECORD_DIR each cycle writes a file."""
    stage.deployment()
    stage.va()
    folder = tmp_path / "recordings"
    async with stage.controller(RECORD_DIR=str(folder)):
        await stage.cycles(1)
    assert len(list(folder.glob("cycle-*.json"))) == 1


async def test_the_process_hears_when_every_cache_is_filled(stage, monkeypatch):
    """The callback is called once, when all caches are filled."""
    heard = []
    make = stage_module.Application
    monkeypatch.setattr(
        stage_module,
        "Application",
        lambda *given, **named: make(*given, **named, synced=lambda: heard.append(bool(stage.app.cache_versions()))),
    )
    stage.deployment()
    stage.va()
    async with stage.controller():
        await until(stage.series)
    assert heard == [True]
