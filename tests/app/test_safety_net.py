"""The safety net of the configuration guide in a whole process: its series, status, events and log."""

from __future__ import annotations

import asyncio
import time

from structlog.testing import capture_logs

from tests.app.stage import VARIANTS, until
from wva.api.meta import Key, format_time
from wva.collect import snapshot

ACTIVATED = "Safety net activated: emitted fallback metrics"


def source(stage):
    """Return the source of the variant's number, from its series."""
    found = [
        sample.labels["source"]
        for family in stage.instruments.registry.collect()
        for sample in family.samples
        if sample.name == "wva_desired_source"
    ]
    return found[0] if found else ""


async def test_without_history_the_replicas_that_exist_stand(stage):
    """If Prometheus fails and there is no earlier number, WVA publishes the current replicas."""
    stage.deployment(replicas=3)
    stage.va()
    stage.prometheus.faults.status = 503
    with capture_logs() as lines:
        async with stage.controller(interval="20ms"):
            await until(lambda: stage.told("OptimizationReady") == ("False", "PrometheusError"))
            assert (stage.series(), stage.number(), source(stage)) == ({"va": 3}, 3, "current-replicas")
            (event,) = await until(lambda: stage.events("DesiredReplicasHeld"))
            assert event["type"] == "Warning"
    line = next(line for line in lines if line["event"] == ACTIVATED)
    expected = {"variant": "va", "currentReplicas": 3, "desiredReplicas": 3, "fallbackSource": "current-replicas"}
    assert expected.items() <= line.items()
    assert line["log_level"] == "warning"


async def test_with_history_the_last_number_stands_until_measurements_are_back(stage):
    """WVA keeps the number of the status through restart and outage. One event tells the begin, and one the end."""
    stage.deployment(replicas=2)
    stage.va()
    later = format_time(time.time() + 60)  # WVA ignores a number that is not newer than the Deployment
    decided = {"desiredOptimizedAlloc": {"accelerator": "H100", "numReplicas": 5, "lastRunTime": later}}
    stage.api.store.patch_status(VARIANTS, Key("ns", "va"), decided)
    await asyncio.sleep(1.0)  # the first write of the status is younger than the Deployment, in whole seconds
    stage.prometheus.faults.status = 503
    with capture_logs() as lines:
        async with stage.controller(interval="20ms"):
            await until(lambda: stage.told("OptimizationReady") == ("False", "PrometheusError"))
            assert (stage.series(), stage.number(), source(stage)) == ({"va": 5}, 5, "previous-desired")
            stage.prometheus.faults.clear()  # it answers without samples: another reason, but no new event
            await until(lambda: stage.told("OptimizationReady") == ("False", "MetricsMissing"))
            assert stage.series() == {"va": 5}
            await stage.scrape()
            await until(lambda: source(stage) == "measured")
            (event,) = await until(lambda: stage.events("DesiredReplicasMeasured"))
            assert event["type"] == "Normal"
            (event,) = stage.events("DesiredReplicasHeld")
            assert event["count"] == 1
    line = next(line for line in lines if line["event"] == ACTIVATED)
    assert {"currentReplicas": 2, "desiredReplicas": 5, "fallbackSource": "previous-desired"}.items() <= line.items()


async def test_a_workload_started_while_nothing_is_measured_is_not_stopped(stage):
    """When a workload at zero is started during an outage, WVA publishes its current replicas, not 0."""
    stage.deployment(replicas=0)
    stage.va()
    stage.prometheus.faults.status = 503
    async with stage.controller():
        await until(lambda: stage.told("OptimizationReady") == ("True", "Inactive"))
        assert stage.series() == {"va": 0}
        stage.scale("d", 2)
        await until(lambda: stage.series() == {"va": 2})
        await until(lambda: stage.number() == 2)
        assert stage.told("OptimizationReady") == ("False", "NotDecidedYet")


async def test_cycles_that_fail_as_a_whole_show_in_the_probe_and_the_condition(stage, monkeypatch):
    """After several failed cycles readiness and condition name the cause, until a cycle succeeds. Liveness goes on."""
    stage.deployment(replicas=2)
    stage.va()
    await stage.scrape()
    async with stage.controller(interval="20ms"):
        await until(lambda: source(stage) == "measured")

        async def broken(*_, **__):
            raise LookupError("text of a tenant")

        with monkeypatch.context() as patched:
            patched.setattr(snapshot, "accepted_in_slices", broken)
            (reason,) = await until(stage.app.not_ready)
            assert stage.app.supervisor.unhealthy() == []
            await until(lambda: stage.told("OptimizationReady") == ("False", "AnalysisFailed"))
            assert "tenant" not in stage.message("OptimizationReady")
        assert reason.startswith("optimizer: ")
        assert "cycles in a row failed: LookupError in wva.collect.snapshot, line " in reason
        await until(lambda: stage.app.not_ready() == [])
        await until(lambda: stage.told("OptimizationReady")[0] == "True")
