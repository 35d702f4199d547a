"""Several controllers in one cluster: each has its own variants, and no variant has two owners."""

from __future__ import annotations

import asyncio
import copy
import time
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

from tests.app.stage import SYSTEM, until
from wva.api.meta import Key
from wva.instruments import Instruments
from wva.model.records import replace

LABEL = "wva.llmd.ai/controller-instance"
LEASES = "leases.coordination.k8s.io"


@asynccontextmanager
async def beside(stage, **environment):
    """Run another controller in the same cluster."""
    other = copy.copy(stage)
    other.instruments, other.stop, other.app = Instruments(CollectorRegistry()), asyncio.Event(), None
    async with other.controller(**environment):
        yield other


def labelled(stage, name, instance):
    """Label a variant for an instance."""
    stage.patch_va({"metadata": {"labels": {LABEL: instance}}}, name)


async def test_each_instance_has_its_own_variants_and_its_own_lease(stage):
    """Two controllers with an instance and one without all lead in one namespace."""
    for name in ("a", "b", "c"):
        stage.deployment(name)
        stage.va(name, target=name)
    labelled(stage, "a", "blue")
    labelled(stage, "b", "green")
    elected = {"LEADER_ELECT": "true"}
    async with (
        stage.controller(CONTROLLER_INSTANCE="blue", **elected),
        beside(stage, CONTROLLER_INSTANCE="green", **elected) as green,
    ):
        await until(lambda: stage.series() == {"a": 1} and green.series() == {"b": 1})
        await until(lambda: stage.number("a") == 1 and stage.number("b") == 1)
        async with beside(stage, **elected) as plain:
            await until(lambda: plain.series() == {"c": 1})
            assert stage.series() == {"a": 1}
            assert green.series() == {"b": 1}
            names = {lease["metadata"]["name"] for lease in stage.api.store.list(LEASES)}
            assert names == {f"{prefix}72dd1cf1.llm-d.ai" for prefix in ("", "blue.", "green.")}
            assert plain.metric("wva_variants_left") == 2
            await until(lambda: len(stage.events("VariantClaimedTwice")) == 2)
            assert {event["type"] for event in stage.events("VariantClaimedTwice")} == {"Normal"}


async def test_a_relabelled_variant_is_handed_over_with_its_number(stage):
    """The new owner begins with the number in the status, and it alone publishes."""
    stage.deployment("a", replicas=2)
    stage.va("a", target="a")
    created = int(time.time())
    labelled(stage, "a", "blue")
    async with (
        stage.controller(CONTROLLER_INSTANCE="blue"),
        beside(stage, CONTROLLER_INSTANCE="green") as green,
    ):
        await until(lambda: stage.number("a") == 2 and stage.app.idle)
        await until(lambda: time.time() > created + 1)  # WVA ignores a number that is not newer than the Deployment
        stage.app.ledger.record([replace(stage.decision("a"), desired=3)])
        await until(lambda: stage.number("a") == 3)
        seen = []
        green.app.ledger.subscribe(lambda _key, _old, new: seen.append(new and new.desired))
        labelled(stage, "a", "green")
        await until(lambda: green.series() == {"a": 3} and stage.series() == {})
        await until(lambda: stage.message("Claimed", "a").endswith("green.72dd1cf1.llm-d.ai, instance green"))
        assert seen == [3]
        assert stage.number("a") == 3
        labelled(stage, "a", "blue")
        await until(lambda: stage.series() == {"a": 3} and green.series() == {})


async def test_an_instance_takes_over_from_a_controller_without_one(stage):
    """When a variant is labelled, the old controller stops publishing it and the instance takes it."""
    stage.deployment("a")
    stage.va("a", target="a")
    async with stage.controller(), beside(stage, CONTROLLER_INSTANCE="blue") as blue:
        await until(lambda: stage.number("a") == 1)
        assert blue.series() == {}
        labelled(stage, "a", "blue")
        await until(lambda: blue.series() == {"a": 1} and stage.series() == {})
        (event,) = await until(lambda: stage.events("VariantClaimedTwice"))
        assert event["type"] == "Normal"


@pytest.mark.parametrize("instance", ["", "blue"])
async def test_two_of_equal_rank_do_not_fight(stage, instance):
    """The owner keeps the variant. The other controller publishes nothing, writes no status, and posts an event."""
    stage.deployment("a")
    stage.va("a", target="a")
    if instance:
        labelled(stage, "a", instance)
    async with stage.controller(CONTROLLER_INSTANCE=instance):
        await until(lambda: stage.told("Claimed", "a") and stage.app.idle)
        before = stage.patches()
        async with beside(
            stage, CONTROLLER_INSTANCE=instance, POD_NAMESPACE="ns", GLOBAL_OPT_INTERVAL="20ms", interval=None
        ) as other:
            (event,) = await until(lambda: stage.events("VariantClaimedTwice"))
            assert event["type"] == "Warning"
            assert f"left to controller {SYSTEM}/" in event["message"]
            await other.cycles(5)
            assert other.series() == {}
            assert other.metric("wva_variants_left") == 1
            assert stage.series() == {"a": 1}
            assert stage.patches() == before


async def test_a_claim_that_nobody_renews_runs_out(stage):
    """When a controller is uninstalled, the next one takes its variants."""
    stage.deployment("a")
    stage.va("a", target="a")
    async with stage.controller(POD_NAMESPACE="ns"):
        await until(lambda: stage.told("Claimed", "a") and stage.app.idle)
    old = {"desiredOptimizedAlloc": {"accelerator": "H100", "numReplicas": 2, "lastRunTime": "2020-01-01T00:00:00Z"}}
    stage.api.store.patch_status("variantautoscalings.llmd.ai", Key("ns", "a"), old)
    async with beside(stage) as other:
        await until(other.series)
        await until(lambda: f"controller {SYSTEM}/" in stage.message("Claimed", "a"))
