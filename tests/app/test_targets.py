"""Variants and their Deployments come and go in any order. The status follows at once, not with the next cycle."""

from __future__ import annotations

import pytest

from tests.app.stage import DEPLOYMENTS, MODEL, VARIANTS, until
from wva.api.meta import Key


async def test_a_variant_may_come_before_its_deployment(stage):
    """The variant is not ready until its Deployment exists."""
    async with stage.controller():
        stage.va()
        await until(lambda: stage.told("Ready") == ("False", "DeploymentNotFound"))
        assert stage.series() == {}
        stage.deployment(replicas=2)
        await until(lambda: stage.told("Ready") == ("True", "VariantAccepted"))
        assert stage.told("TargetResolved") == ("True", "TargetFound")
        await until(lambda: stage.number() == 2)
        assert stage.series() == {"va": 2}


async def test_a_deleted_deployment_is_told_at_once(stage):
    """The variant is not ready, and loses its allocation and series."""
    stage.deployment(replicas=2)
    stage.va()
    async with stage.controller():
        await until(lambda: stage.number() == 2)
        stage.delete_deployment()
        await until(lambda: stage.told("Ready") == ("False", "DeploymentNotFound"))
        assert stage.told("TargetResolved") == ("False", "TargetNotFound")
        assert "desiredOptimizedAlloc" not in stage.status()
        for metric in ("wva_desired_replicas", "wva_current_replicas", "wva_desired_ratio"):
            assert stage.series(metric) == {}


async def test_a_writer_that_puts_the_replicas_back_is_told(stage):
    """Once may be a person. The second time there is a condition, an event and a series."""
    stage.deployment(replicas=3)
    stage.va()
    async with stage.controller():
        await until(lambda: stage.series() == {"va": 3})
        for replicas in (1, 3, 1):
            stage.scale("d", replicas)
        await until(lambda: stage.told("Actuated") == ("False", "ReplicasRewritten"))
        assert "has put spec.replicas below the number 2 times within an hour" in stage.message("Actuated")
        await until(lambda: stage.events("ReplicasRewritten"))
        labels = {"variant_name": "va", "namespace": "ns", "reason": "ReplicasRewritten"}
        await until(lambda: stage.metric("wva_variant_obstacle", **labels) == 1)


async def test_the_role_of_the_pods_is_in_the_status_and_has_a_series(stage):
    """It follows the labels of the template at once; the setting says which label it is."""
    stage.deployment(replicas=2)
    stage.label_pods({"example.com/stage": "context"})
    stage.va()
    async with stage.controller(WVA_ROLE_LABELS="example.com/stage", WVA_ROLE_VALUES="context=prefill"):
        await until(lambda: stage.status().get("role") == "prefill")
        labels = {"variant_name": "va", "namespace": "ns", "model_name": MODEL}
        await until(lambda: stage.metric("wva_variant_role", role="prefill", **labels) == 1)
        stage.label_pods({"example.com/stage": "decode"})
        await until(lambda: stage.status()["role"] == "decode")
        await until(lambda: stage.metric("wva_variant_role", role="decode", **labels) == 1)
        stage.label_pods({"example.com/stage": None})
        await until(lambda: "role" not in stage.status())
        assert stage.series("wva_variant_role") == {}


async def test_a_missing_target_is_a_condition_an_event_and_a_series(stage):
    """All three have the same reason. When the Deployment is back, the variant is ready and the series is gone."""
    stage.deployment(replicas=2)
    stage.va()
    async with stage.controller():
        await until(lambda: stage.told("Claimed") and stage.status().get("actuation") == {"applied": True})
        assert stage.status()["currentReplicas"] == 2
        assert stage.series("wva_variant_obstacle") == {}
        stage.delete_deployment()
        await until(lambda: stage.told("Ready") == ("False", "DeploymentNotFound"))
        assert stage.told("OptimizationReady") == ("False", "DeploymentNotFound")
        (event,) = await until(lambda: stage.events("DeploymentNotFound"))
        assert (event["type"], event["message"]) == ("Warning", "Target deployment 'd' no longer exists")
        labels = {"variant_name": "va", "namespace": "ns", "reason": "DeploymentNotFound"}
        assert stage.metric("wva_variant_obstacle", **labels) == 1
        assert stage.told("Claimed") is None
        assert {"actuation", "currentReplicas", "desiredOptimizedAlloc"}.isdisjoint(stage.status())
        stage.deployment(replicas=3)
        await until(lambda: stage.told("Ready") == ("True", "VariantAccepted"))
        await until(lambda: stage.series("wva_variant_obstacle") == {})
        assert stage.status()["currentReplicas"] == 3


async def test_a_recreated_deployment_resumes(stage):
    """The variant is ready again, and its number is that of the new Deployment."""
    stage.deployment(replicas=2)
    stage.va()
    async with stage.controller():
        await until(lambda: stage.number() == 2)
        stage.delete_deployment()
        await until(lambda: stage.number() is None and stage.told("Ready")[0] == "False")
        stage.deployment(replicas=3)
        await until(lambda: stage.number() == 3)
        assert stage.told("Ready") == ("True", "VariantAccepted")
        assert stage.series() == {"va": 3}


async def test_a_deployment_replaced_within_an_instant_begins_anew(stage):
    """The number of the old Deployment does not carry over to the new one."""
    stage.deployment(replicas=4)
    stage.va()
    async with stage.controller():
        await until(lambda: stage.number() == 4)
        stage.delete_deployment()
        stage.deployment(replicas=1)
        await until(lambda: stage.series() == {"va": 1})
        await until(lambda: stage.number() == 1)


async def test_a_restart_keeps_the_number_of_the_status(stage):
    """After a start WVA first publishes the number of the status."""
    stage.deployment(replicas=2)
    stage.va()
    status = {"desiredOptimizedAlloc": {"accelerator": "H100", "numReplicas": 6}}
    stage.api.store.patch_status(VARIANTS, Key("ns", "va"), status)
    async with stage.controller():
        await until(lambda: stage.series() == {"va": 6})


async def test_two_variants_on_one_deployment_are_both_refused(stage):
    """The condition of each names the other. When one is deleted, the other is accepted."""
    stage.deployment()
    stage.va("one")
    async with stage.controller():
        await until(lambda: stage.told("Ready", "one") == ("True", "VariantAccepted"))
        stage.va("two")
        for name, other in (("one", "two"), ("two", "one")):
            await until(lambda name=name: stage.told("TargetResolved", name) == ("False", "TargetConflict"))
            assert f"VariantAutoscaling {other}" in stage.message("TargetResolved", name)
            assert stage.told("Ready", name) == ("False", "TargetConflict")
        assert stage.number("one") == 1, "a conflict keeps the number"
        assert stage.told("Claimed", "one") is not None
        await until(lambda: len(stage.events("TargetConflict")) == 2)
        assert stage.series("wva_variant_obstacle") == {"one": 1, "two": 1}
        stage.delete_va("two")
        await until(lambda: stage.told("Ready", "one") == ("True", "VariantAccepted"))
        await until(lambda: stage.series() == {"one": 1})


async def test_an_empty_target_name_is_reported_and_never_looked_up(stage):
    """WVA sends no GET for an empty name, because that would list all Deployments."""
    stage.va(target="")
    async with stage.controller():
        await until(lambda: stage.told("Ready") == ("False", "DeploymentNotFound"))
        assert "scaleTargetRef.name is empty" in stage.message("TargetResolved")
        assert stage.api.requests.count("list", resource=DEPLOYMENTS) == 1, "the informer's own"
        assert stage.api.requests.count("get", resource=DEPLOYMENTS) == 0


async def test_a_kind_that_cannot_be_scaled_is_reported(stage):
    """By default only Deployments are supported, and the message says so."""
    stage.deployment()
    stage.va(kind="StatefulSet")
    async with stage.controller():
        await until(lambda: stage.told("TargetResolved") == ("False", "TargetUnsupported"))
        assert "only apps/v1 Deployment is" in stage.message("TargetResolved")
        assert stage.series() == {}


async def test_correcting_the_target_name_resolves_it(stage):
    """When the target name in the spec is corrected, the variant becomes ready."""
    stage.deployment("right")
    stage.va(target="wrong")
    async with stage.controller():
        await until(lambda: stage.told("Ready") == ("False", "DeploymentNotFound"))
        stage.patch_va({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "right"}}})
        await until(lambda: stage.told("Ready") == ("True", "VariantAccepted"))


async def test_leaving_a_contested_target_frees_the_other(stage):
    """When one of two variants gets another target, both are accepted."""
    stage.deployment("a")
    stage.deployment("b")
    stage.va("one", target="a")
    stage.va("two", target="a")
    async with stage.controller():
        for name in ("one", "two"):
            await until(lambda name=name: stage.told("Ready", name) == ("False", "TargetConflict"))
        stage.patch_va({"spec": {"scaleTargetRef": {"kind": "Deployment", "name": "b"}}}, "two")
        for name in ("one", "two"):
            await until(lambda name=name: stage.told("Ready", name) == ("True", "VariantAccepted"))


async def test_a_deleted_variant_leaves_no_series(stage):
    """The next scrape has no series of a deleted variant."""
    stage.deployment()
    stage.va()
    async with stage.controller():
        await until(stage.series)
        stage.delete_va()
        await until(lambda: stage.series() == {})
        assert 'variant_name="va"' not in "".join(
            line for line in stage.page().splitlines() if line.startswith(("wva_desired", "wva_current"))
        )


async def test_another_accelerator_label_leaves_one_series(stage):
    """When the label changes, only the series with the new accelerator is left."""
    stage.deployment()
    stage.va(accelerator="A100")
    await stage.scrape()
    async with stage.controller(interval="50ms"):
        await until(lambda: stage.status().get("desiredOptimizedAlloc", {}).get("accelerator") == "A100")
        stage.patch_va({"metadata": {"labels": {"inference.optimization/acceleratorName": "H100"}}})
        await until(lambda: stage.status()["desiredOptimizedAlloc"]["accelerator"] == "H100")
        lines = [line for line in stage.page().splitlines() if line.startswith("wva_desired_replicas{")]
        assert len(lines) == 1
        assert 'accelerator_type="H100"' in lines[0]


@pytest.mark.parametrize("broken", ["no samples", "Prometheus down"])
async def test_ready_does_not_wait_for_metrics(stage, broken):
    """A variant is ready as soon as it is accepted. Metrics have a condition of their own."""
    stage.deployment(replicas=2)
    stage.va()
    stage.prometheus.faults.status = 503 if broken == "Prometheus down" else None
    async with stage.controller(interval="50ms"):
        await until(lambda: (stage.told("MetricsAvailable") or ("",))[0] == "False")
        assert stage.told("Ready") == ("True", "VariantAccepted")
        assert stage.number() == 2


async def test_a_foreign_instance_is_left_alone(stage):
    """A controller with an instance takes only the variants with its label, and follows changes of the label."""
    stage.deployment("a")
    stage.deployment("b")
    stage.va("mine", target="a")
    stage.va("other", target="b")
    stage.patch_va({"metadata": {"labels": {"wva.llmd.ai/controller-instance": "blue"}}}, "mine")
    async with stage.controller(CONTROLLER_INSTANCE="blue"):
        await until(lambda: stage.series() == {"mine": 1})
        assert 'controller_instance="blue"' in stage.page()
        assert stage.status("other") == {}
        stage.patch_va({"metadata": {"labels": {"wva.llmd.ai/controller-instance": "green"}}}, "mine")
        await until(lambda: stage.series() == {})
