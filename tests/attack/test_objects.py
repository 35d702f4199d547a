"""A tenant writes objects that no honest controller writes, and changes objects all the time."""

from __future__ import annotations

import asyncio
import itertools
import time

import pytest

from tests.app.stage import DEPLOYMENTS, VARIANTS
from tests.attack.harness import Attack, ExpectedCondition, ExpectedNumber, survive
from tests.attack.world import HPAS, TENANT
from tests.rows import by_day
from wva.api.meta import Key, format_time

REPLICA_SETS = "replicasets.apps"
PROGRESSING = {"type": "Progressing", "status": "True", "reason": "Settling", "message": ""}


def allocation(**fields):
    """Return a status with a number in the form that WVA writes."""
    written = {"accelerator": "H100", "numReplicas": 1, "lastRunTime": "2026-01-01T00:00:00Z"}
    return {"desiredOptimizedAlloc": written | fields}


def forged(**fields):
    """Return a step that writes a number into the status."""
    return lambda world: world.twist(VARIANTS, "bad", lambda value: value.update(status=allocation(**fields)))


def forged_again_and_again(**fields):
    """Return an attack that writes a number into the status after each of four cycles."""

    async def during(world):
        for _ in range(4):
            world.patch(VARIANTS, "bad", {"status": allocation(**fields)}, subresource="status")
            await world.cycles(1)

    return during


def forged_conditions(world):
    """Forge WVA's conditions, and add forty more, each with the longest possible message."""
    names = ("Progressing", "Ready", "Claimed", "Limited", *(f"T{number}" for number in range(40)))
    common = {"status": "True", "reason": "X", "message": "m" * 32768, "observedGeneration": 2**62}
    conditions = [{"type": name, "lastTransitionTime": "9999-12-31T23:59:59Z", **common} for name in names]
    world.twist(VARIANTS, "bad", lambda value: value.update(status={"conditions": conditions}))


def claimed(world):
    """Claim the variant for another controller."""
    claim = {"type": "Claimed", "status": "True", "reason": "ClaimedByController", "lastTransitionTime": "soon"}
    status = allocation(lastRunTime=format_time(time.time()))
    status["conditions"] = [claim | {"message": "decided by controller evil/evil (instance evil)"}]
    world.twist(VARIANTS, "bad", lambda value: value.update(status=status))


def at(text):
    """Return a step that writes a time into every field that takes one."""

    def before(world):
        pod = world.pods()[0]
        for resource, name in ((VARIANTS, "bad"), (DEPLOYMENTS, "bad"), (REPLICA_SETS, "bad-1"), ("pods", pod)):
            world.twist(resource, name, lambda value: value["metadata"].update(creationTimestamp=text))
        unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        conditions = [{"type": "Ready", "status": "True"}, unschedulable]
        timed = [condition | {"lastTransitionTime": text} for condition in conditions]
        world.twist("pods", pod, lambda value: value["status"].update(conditions=timed))
        status = allocation(lastRunTime=text) | {"conditions": [PROGRESSING | {"lastTransitionTime": text}]}
        world.twist(VARIANTS, "bad", lambda value: value.update(status=status))

    return before


def metadata(**fields):
    """Return a step that writes fields into the metadata of the tenant's objects."""

    def before(world):
        for resource, name in ((VARIANTS, "bad"), (DEPLOYMENTS, "bad"), ("pods", world.pods()[0])):
            world.twist(resource, name, lambda value: value["metadata"].update(fields))

    return before


def ten_thousand_conditions(world):
    """Put ten thousand conditions before those of a pod."""
    many = [{"type": f"T{number}", "status": "True"} for number in range(10_000)]
    pod = world.pods()[0]
    world.twist("pods", pod, lambda value: value["status"].update(conditions=many + value["status"]["conditions"]))


def owners_in_a_circle(world):
    """Let a pod, its ReplicaSet and its Deployment own each other."""
    store, pod = world.api.store, world.pods()[0]
    chain = [(DEPLOYMENTS, "bad"), (REPLICA_SETS, "bad-1"), ("pods", pod), (DEPLOYMENTS, "bad")]
    for (resource, name), (owner, owner_name) in itertools.pairwise(chain):
        uid = store.get(owner, Key(TENANT, owner_name))["metadata"]["uid"]
        reference = {"apiVersion": "v1", "kind": "X", "name": owner_name, "uid": uid, "controller": True}
        world.twist(resource, name, lambda value, one=reference: value["metadata"].update(ownerReferences=[one]))


async def flapping_pods(world):
    """Let a pod become Ready and unready three hundred times."""
    pod = world.pods()[0]
    for number in range(301):
        status = "False" if number % 2 else "True"
        condition = {"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        world.patch("pods", pod, {"status": {"conditions": [condition]}}, subresource="status")
        await asyncio.sleep(0)


async def recreated(world):
    """Delete the variant and create it again, thirty times."""
    for _ in range(30):
        world.api.store.delete(VARIANTS, Key(TENANT, "bad"))
        world.variant("bad")
        await asyncio.sleep(0.02)


async def recreated_with_another_model(world):
    """Create the variant thirty times, each time with another model."""
    for number in range(30):
        world.api.store.delete(VARIANTS, Key(TENANT, "bad"))
        world.variant("bad", model=f"org/{number}")
        await asyncio.sleep(0.02)
    world.patch(VARIANTS, "bad", {"spec": {"modelID": "org/model"}})


async def recreated_namespace(world):
    """Delete the namespace with everything in it and build it again, three times."""
    for _ in range(3):
        world.api.store.delete("namespaces", Key("", TENANT))
        await asyncio.sleep(0.05)
        world.api.store.create("namespaces", {"metadata": {"name": TENANT}})
        world.bad()
        await world.scrape()
        await asyncio.sleep(0.05)


async def excluded_and_not(world):
    """Set and remove the exclude annotation of the namespace, 51 times in all."""
    for number in range(51):
        annotation = {"wva.llmd.ai/exclude": "true" if number % 2 else None}
        world.patch("namespaces", TENANT, {"metadata": {"annotations": annotation}}, namespace="")
        await asyncio.sleep(0.01)


async def never_gone(world):
    """Delete objects whose finalizers never go away."""
    for resource, name in ((VARIANTS, "bad"), (DEPLOYMENTS, "bad"), ("pods", world.pods()[0])):
        world.patch(resource, name, {"metadata": {"finalizers": ["evil.example/never"]}})
        world.api.store.delete(resource, Key(TENANT, name))
        await world.cycles(1)


async def zero_and_one(world):
    """Scale the Deployment to zero and back, 41 times in all."""
    for number in range(41):
        world.api.store.patch_scale(DEPLOYMENTS, Key(TENANT, "bad"), (number + 1) % 2)
        await asyncio.sleep(0.01)


def at_each_other(world):
    """Create HPAs whose targets are an HPA and the variant."""
    world.hpa("one")
    for name, kind, target in (("one", "HorizontalPodAutoscaler", "two"), ("two", "VariantAutoscaling", "bad")):
        body = {
            "scaleTargetRef": {"apiVersion": "x/v1", "kind": kind, "name": target},
            "minReplicas": 7,
            "maxReplicas": 9,
        }
        metadata_of = {"name": f"hpa-{name}", "namespace": TENANT}
        world.api.store.create(HPAS, {"metadata": metadata_of, "spec": body})


def upside_down(world):
    """Set a minimum above the maximum."""
    world.hpa()
    world.twist(HPAS, "hpa", lambda value: value["spec"].update(minReplicas=9, maxReplicas=2))


TIMES = {
    "of_the_year_1": "0001-01-01T00:00:00Z",
    "before_the_year_1": "0001-01-01T00:00:00+23:59",
    "after_the_year_9999": "9999-12-31T23:59:59-23:59",
    "with_nine_digits_of_a_second": "2026-01-01T00:00:00.123456789Z",
    "with_a_leap_second": "2026-06-30T23:59:60Z",
    "that_are_empty": "",
    "that_are_long": "2" * 100_000,
    "with_foreign_digits": "\u0662026-01-01T00:00:00Z",
}

ATTACKS = [
    Attack(
        "status_with_two_billion_replicas",
        during=forged_again_and_again(numReplicas=2**31 - 1),
        shows=ExpectedNumber(1),
    ),
    Attack("status_with_minus_one_replica_at_the_start", before=forged(numReplicas=-1), shows=ExpectedNumber(1)),
    Attack("status_with_400_digits_at_the_start", before=forged(numReplicas=10**400), shows=ExpectedNumber(1)),
    Attack("status_with_an_accelerator_of_a_megabyte", before=forged(accelerator="x" * 10**6), shows=ExpectedNumber(1)),
    Attack("status_from_the_far_future", before=forged(lastRunTime="9999-12-31T23:59:59Z"), shows=ExpectedNumber(1)),
    Attack(
        "status_with_forged_conditions",
        before=forged_conditions,
        shows=(ExpectedCondition("Ready", "True", "VariantAccepted"), ExpectedNumber(1)),
    ),
    Attack("status_claimed_by_another", before=claimed),
    *(
        Attack(f"times_{name}", before=at(text), shows=ExpectedCondition("TargetResolved", "True"))
        for name, text in TIMES.items()
    ),
    Attack(
        "a_thousand_finalizers",
        before=metadata(finalizers=[f"f/{number}" for number in range(1000)]),
        shows=ExpectedNumber(1),
    ),
    Attack(
        "managed_fields_of_a_megabyte", before=metadata(managedFields=[{"x": "y" * 10**6}]), shows=ExpectedNumber(1)
    ),
    Attack(
        "a_thousand_long_annotations",
        before=metadata(annotations={f"a{number}": "x" * 250 for number in range(1000)}),
        shows=ExpectedNumber(1),
    ),
    Attack(
        "labels_by_the_thousand",
        before=metadata(labels={f"l{number}": "x" * 63 for number in range(5000)}),
        shows=ExpectedCondition("TargetResolved", "True"),
    ),
    Attack(
        "annotations_with_control_characters",
        before=metadata(annotations={"wva.llmd.ai/max-replicas": "\x1b[31m\u202e7\x00"}),
        shows=ExpectedCondition("ConfigurationValid", "False", "InvalidConfiguration"),
    ),
    Attack("ten_thousand_conditions_of_a_pod", before=ten_thousand_conditions, shows=ExpectedNumber(1)),
    Attack("owners_in_a_circle", before=owners_in_a_circle, shows=ExpectedCondition("TargetResolved", "True")),
    Attack("pods_that_flap", during=flapping_pods, shows=ExpectedNumber(1)),
    Attack("a_variant_created_again_and_again", during=recreated, shows=ExpectedNumber(1)),
    Attack("a_variant_with_ever_new_models", during=recreated_with_another_model, shows=ExpectedNumber(1)),
    Attack("a_namespace_created_again_and_again", during=recreated_namespace, shows=ExpectedNumber(1)),
    Attack("a_namespace_excluded_and_not", during=excluded_and_not, shows=ExpectedNumber(1)),
    Attack("objects_that_never_go", during=never_gone),
    Attack(
        "a_deployment_at_zero_and_one_in_turns", during=zero_and_one, shows=ExpectedCondition("TargetResolved", "True")
    ),
    Attack("hpas_that_scale_each_other", before=at_each_other, shows=ExpectedNumber(1)),
    Attack("a_minimum_above_the_maximum", before=upside_down, shows=ExpectedNumber(2)),
]


BY_DAY = (
    "a_deployment_at_zero_and_one_in_turns",
    "objects_that_never_go",
    "times_after_the_year_9999",
    "status_with_400_digits_at_the_start",
    "status_claimed_by_another",
    "status_with_forged_conditions",
    "owners_in_a_circle",
    "a_variant_created_again_and_again",
    "hpas_that_scale_each_other",
    "a_namespace_excluded_and_not",
    "annotations_with_control_characters",
)
"""Each takes a way of its own through the code. The others, one more value on such a way, are played each night."""


@pytest.mark.parametrize("attack", by_day(ATTACKS, BY_DAY), ids=str)
async def test_the_victim_does_not_notice(world, attack):
    """The tenant's objects change nothing for the victim."""
    await survive(world, attack)
