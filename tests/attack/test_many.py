"""A tenant creates very many objects; each of them costs the controller little."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web

from tests.app.gateways import QUEUE
from tests.app.stage import DEPLOYMENTS, VARIANTS
from tests.attack.harness import Attack, ExpectedCondition, ExpectedNumber, Says, survive
from tests.attack.world import HPAS, SCALED_OBJECTS, TENANT
from tests.rows import by_day
from wva.api.meta import Key
from wva.sim.apiserver import matching
from wva.targets import DEFAULT


async def come_and_go(world):
    """Create variants for one Deployment and delete them again, as quickly as possible."""
    world.many(VARIANTS, "bad", 800)
    await asyncio.sleep(0.2)
    for number in range(800):
        world.api.store.delete(VARIANTS, Key(TENANT, f"x-{number:05d}"))


async def sleepers(world):
    """Put 150 variants at zero behind a hundred pools whose picker always reports a waiting request."""

    async def answer(_):
        return web.Response(text=f'{QUEUE}{{target_model_name="org/unknown"}} 1\n')

    await world.picker(answer, pools=100)
    world.many(DEPLOYMENTS, "zero", 150, prefix="z")

    def change(value, number):
        value["spec"].update(scaleTargetRef={"kind": "Deployment", "name": f"z-{number:05d}"}, modelID=f"org/z{number}")

    world.many(VARIANTS, "zero", 150, change, prefix="z")


def annotated(resource, name):
    """Create 25 objects, each with about as many annotations as Kubernetes allows."""

    def change(value, number):
        text = chr(97 + number % 26) * 250_000
        value["metadata"].update(annotations={"note": text, "wva.llmd.ai/note": text}, ownerReferences=[])

    return lambda world: world.many(resource, name, 25, change)


def little_is_kept(world):
    """Tell whether the caches keep less than 100,000 characters of annotations."""
    stores = world.app.informers.stores
    objects = [
        *stores.targets.pods.list(),
        *(value for resource in DEFAULT.read for value in stores.targets.store(resource).list()),
    ]
    return sum(len(text) for value in objects for text in value.metadata.annotations.values()) < 100_000


def slow_events(world):
    """Let fifty variants cause an event each; the API server takes a second for each event of the tenant."""
    world.many_variants(50)
    for number in range(50):
        annotations = {"wva.llmd.ai/max-replicas": "few"}
        world.patch(VARIANTS, f"x-{number:05d}", {"metadata": {"annotations": annotations}})
    slow = matching(verb="create", path=f"/api/v1/namespaces/{TENANT}/events")
    world.api.faults.delay(1.0, times=None, match=slow)


def told_of(world, name):
    """Tell whether the controller has recorded an event about a variant."""
    return any(event["involvedObject"]["name"] == name for event in world.api.store.list("events"))


def hpas(world):
    """Let a thousand HPAs scale one Deployment."""
    world.hpa()
    world.many(HPAS, "hpa", 1000)


def scaled_objects(world):
    """Let a hundred ScaledObjects with a thousand triggers each scale one Deployment."""
    world.scaled_object(triggers=[{"type": "prometheus", "metadata": {"query": "x" * 100}}] * 1000)
    world.many(SCALED_OBJECTS, "so", 100)


ATTACKS = [
    Attack(
        "variants_for_one_deployment_by_the_hundred",
        before=lambda world: world.many(VARIANTS, "bad", 400),
        interval="300ms",
        shows=ExpectedCondition("TargetResolved", "False", "TargetConflict", "and 395 more"),
    ),
    Attack("variants_for_one_deployment_come_and_go", during=come_and_go, shows=ExpectedNumber(1)),
    Attack(
        "variants_with_deployments_of_their_own_by_the_hundred",
        before=lambda world: world.many_variants(150),
        interval="300ms",
        shows=(ExpectedNumber(1), ExpectedNumber(1, name="x-00149")),
    ),
    Attack(
        "variants_at_zero_behind_pools_by_the_hundred",
        before=sleepers,
        interval="300ms",
        gateway=True,
        shows=ExpectedNumber(0, name="z-00149"),
    ),
    Attack("a_thousand_hpas_for_one_deployment", before=hpas, shows=ExpectedNumber(1)),
    Attack("a_hundred_scaled_objects_with_a_thousand_triggers", before=scaled_objects, shows=ExpectedNumber(1)),
    Attack(
        "a_replica_set_with_a_thousand_pods",
        before=lambda world: world.many("pods", world.pods()[0], 1000),
        shows=Says("the number stays small", lambda world: world.decision_of("bad").desired <= 2),
    ),
    *(
        Attack(
            f"{resource.partition('.')[0]}_with_long_annotations",
            before=annotated(resource, name),
            shows=Says("little is kept", little_is_kept),
        )
        for resource, name in (("pods", "bad-1-001"), (DEPLOYMENTS, "bad"), ("replicasets.apps", "bad-1"))
    ),
    Attack(
        "events_that_are_slow_to_post",
        before=slow_events,
        shows=Says("the victim's event is posted", lambda world: told_of(world, "va")),
    ),
    Attack(
        "config_maps_by_the_thousand",
        before=lambda world: (world.tenant_map("x", {"a": "b"}), world.many("configmaps", "x", 2000)),
        shows=ExpectedNumber(1),
    ),
]


BY_DAY = (
    "variants_for_one_deployment_come_and_go",
    "a_hundred_scaled_objects_with_a_thousand_triggers",
    "config_maps_by_the_thousand",
    "variants_at_zero_behind_pools_by_the_hundred",
    "events_that_are_slow_to_post",
)
"""Each takes a way of its own through the code. The others, one more value on such a way, are played each night."""


@pytest.mark.parametrize("attack", by_day(ATTACKS, BY_DAY), ids=str)
async def test_the_victim_does_not_notice(world, attack):
    """The tenant's many objects change nothing for the victim."""
    await survive(world, attack)
