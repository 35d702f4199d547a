"""The tenant's StatefulSets and LeaderWorkerSets have impossible numbers, odd owners, or come and go."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from tests.app.gateways import CRDS
from tests.app.stage import VARIANTS, until
from tests.app.test_target_kinds import serve_leader_worker_sets
from tests.attack.direct import DIRECT, ENVIRONMENT, busy_page, refer, replicas_of, resource_of, target
from tests.attack.harness import Attack, ExpectedCondition, ExpectedNumber, Says, survive
from tests.attack.world import TENANT, page
from tests.rows import by_day
from wva.api.meta import Key
from wva.numbers import MAX_REPLICAS
from wva.targets import LEADER_WORKER_SETS, STATEFUL_SETS

SETS = STATEFUL_SETS.name
GROUPS = LEADER_WORKER_SETS.name
KINDS = ("StatefulSet", "LeaderWorkerSet")
ONE = ExpectedNumber(1)
FOUND = ExpectedCondition("TargetResolved", "True", "TargetFound")


def within_range(world):
    """Tell whether the tenant's number is a possible number of replicas."""
    decision = world.decision_of()
    return decision is not None and 0 <= decision.desired <= MAX_REPLICAS


COUNTABLE = Says("the tenant's number is one of replicas", within_range)
UNREADABLE = Says(
    "the object is counted",
    lambda world: any(world.metric("wva_undecodable_objects_total", resource=name) > 0 for name in (SETS, GROUPS)),
)


def attack(name, kind, *, change=None, during=None, shows=ONE, **fields):
    """Return an attack with a target of a kind, which ``change(value)`` twists before the start and in the middle."""

    def before(world):
        target(world, kind, **fields)
        refer(world, kind)
        if change is not None:
            world.twist(resource_of(kind).name, "bad", change)

    async def middle(world):
        if change is not None:
            # Once right, once wrong again: the wrong state comes as an event, too.
            removed(world, kind)
            await world.cycles(2)
            target(world, kind, **fields)
            await world.cycles(2)
            world.twist(resource_of(kind).name, "bad", change)
        if during is not None:
            await during(world)

    return Attack(f"{name}_of_a_{kind}", before=before, during=middle, shows=shows, environment=ENVIRONMENT)


def removed(world, kind):
    """Delete the target with all that it owns."""
    for resource in dict.fromkeys((resource_of(kind).name, SETS, "pods")):
        for found in world.api.store.list(resource):
            metadata = found["metadata"]
            if metadata["namespace"] == TENANT and metadata["name"] in {"bad", "bad-0"}:
                world.api.store.delete(resource, Key(TENANT, metadata["name"]))


def wants(replicas):
    """Return a change of the wanted replicas."""
    return lambda value: value["spec"].update(replicas=replicas)


def status(**counts):
    """Return a change of the status."""
    return lambda value: value.update(status=counts)


def selects(labels):
    """Return a change of the selector, and of the one that autoscalers read."""

    def change(value):
        value["spec"]["selector"] = {"matchLabels": labels}
        value.setdefault("status", {})["hpaPodSelector"] = ",".join(f"{key}={text}" for key, text in labels.items())

    return change


def size(number):
    """Return a change of the size of groups."""
    return lambda value: value["spec"]["leaderWorkerTemplate"].update(size=number)


async def thousands_of_pods(world):
    """Let the target own two thousand pods more."""
    world.many("pods", "bad-0", 2000)


async def owners_in_a_circle(world):
    """Let a set, its pod and the groups own each other, and each itself."""
    store = world.api.store
    chain = [(SETS, "bad"), ("pods", "bad-0"), (GROUPS, "bad"), (SETS, "bad")]
    for (resource, name), (owner, owner_name) in itertools.pairwise(chain):
        uid = store.get(owner, Key(TENANT, owner_name))["metadata"]["uid"]
        mine = store.get(resource, Key(TENANT, name))["metadata"]["uid"]
        references = [
            {"apiVersion": "v1", "kind": "X", "name": owner_name, "uid": each, "controller": True}
            for each in (uid, mine)
        ]
        world.twist(resource, name, lambda value, some=references: value["metadata"].update(ownerReferences=some))


async def a_leader_that_is_its_own_worker(world):
    """Let the set of a leader control the leader itself, and the leader the set of all leaders."""
    store = world.api.store
    pod = store.get("pods", Key(TENANT, "bad-0"))["metadata"]["uid"]
    reference = {"apiVersion": "v1", "kind": "Pod", "name": "bad-0", "uid": pod, "controller": True}
    world.many(SETS, "bad", 300, lambda value, _: value["metadata"].update(ownerReferences=[reference]))
    world.many("pods", "bad-0", 300, lambda value, _: value["metadata"].update(ownerReferences=[reference]))


def come_and_go(kind):
    """Return an attack that deletes the target and creates it again, thirty times."""

    async def during(world):
        for _ in range(30):
            removed(world, kind)
            await asyncio.sleep(0.01)
            target(world, kind)
            await asyncio.sleep(0.01)

    return during


async def the_definition_goes(world):
    """Delete the definition of LeaderWorkerSets with all of them, and create it again."""
    world.api.store.delete(CRDS, Key("", GROUPS))
    await until(lambda: ExpectedCondition("TargetResolved", "False")(world), seconds=10)
    serve_leader_worker_sets(world)
    removed(world, "LeaderWorkerSet")
    target(world, "LeaderWorkerSet")


def never_gone(kind):
    """Return an attack that deletes a target whose finalizers never go away."""

    async def during(world):
        resource = resource_of(kind).name
        world.patch(resource, "bad", {"metadata": {"finalizers": ["evil.example/never"]}})
        world.api.store.delete(resource, Key(TENANT, "bad"))
        await world.cycles(2)

    return during


def long_names(kind):
    """Return an attack on a target and a variant with the longest names that there can be."""
    name = "n" * 253

    def before(world):
        target(world, kind, name[:250])
        world.variant(name, target=name[:250], model="org/long")
        reference = {"apiVersion": resource_of(kind).api_version, "kind": kind, "name": name[:250]}
        world.patch(VARIANTS, name, {"spec": {"scaleTargetRef": reference}})
        world.more_pods[TENANT, f"{name[:250]}-0"] = lambda: page("org/long")

    shows = (ExpectedNumber(1, name=name), ExpectedCondition("TargetResolved", "True", name=name))
    return Attack(f"the_longest_names_of_a_{kind}", before=before, shows=shows, environment=ENVIRONMENT)


def directly(name, change, shows):
    """Return an attack on a busy variant under direct actuation, which needs two replicas."""

    def before(world):
        target(world, "StatefulSet")
        refer(world, "StatefulSet")
        world.patch(VARIANTS, "bad", DIRECT)

    async def during(world):
        world.twist(SETS, "bad", change)
        world.more_pods[TENANT, "bad-0"] = busy_page
        await world.scrape()

    return Attack(f"{name}_under_direct_actuation", before=before, during=during, shows=shows, environment=ENVIRONMENT)


WRITTEN = Says("its number is written", lambda world: replicas_of(world, kind="StatefulSet") == 2)
NUMBERS = {
    "fewer_than_no_replicas": wants(-(10**30)),
    "more_replicas_than_there_can_be": wants(10**30),
    "a_status_that_lies": status(replicas=2**31 - 1, readyReplicas=-5),
    "a_status_beyond_numbers": status(replicas=10**30, readyReplicas=10**30),
}
UNREADABLES = {
    "replicas_in_words": wants("three"),
    "no_spec": lambda value: value.update(spec=[]),
    "a_status_of_texts": status(replicas="many", readyReplicas={}),
}
SIZES = {"zero": 0, "less_than_zero": -5, "a_thousand_million": 10**9, "a_number_of_30_digits": 10**30}

ATTACKS = [
    *(attack(name, kind, change=change, shows=COUNTABLE) for kind in KINDS for name, change in NUMBERS.items()),
    *(attack(name, KINDS[0], change=change, shows=UNREADABLE) for name, change in UNREADABLES.items()),
    attack("replicas_in_words", KINDS[1], change=wants("three"), shows=UNREADABLE),
    attack("groups_without_a_template", KINDS[1], change=lambda value: value.update(spec={}), shows=COUNTABLE),
    attack("a_selector_of_everything", KINDS[0], change=selects({})),
    attack("a_selector_of_nothing", KINDS[0], change=selects({"no": "pod"})),
    *(attack(f"groups_of_{name}", KINDS[1], change=size(number), shows=COUNTABLE) for name, number in SIZES.items()),
    attack("groups_of_words", KINDS[1], change=size("many"), shows=UNREADABLE),
    *(attack("two_thousand_pods", kind, during=thousands_of_pods, shows=COUNTABLE) for kind in KINDS),
    attack("owners_in_a_circle", KINDS[1], during=owners_in_a_circle, shows=FOUND),
    attack(
        "a_leader_that_is_its_own_worker", KINDS[1], during=a_leader_that_is_its_own_worker, size=3, shows=COUNTABLE
    ),
    *(attack("coming_and_going", kind, during=come_and_go(kind)) for kind in KINDS),
    *(attack("finalizers_that_stay", kind, during=never_gone(kind), shows=()) for kind in KINDS),
    attack("a_definition_that_goes", KINDS[1], during=the_definition_goes),
    *map(long_names, KINDS),
    directly(
        "replicas_in_words", wants("three"), ExpectedCondition("Actuated", "False", "ActuationFailed", "Validation")
    ),
    directly("fewer_than_no_replicas", wants(-(10**30)), WRITTEN),
    directly("more_replicas_than_there_can_be", wants(10**30), WRITTEN),
]


BY_DAY = (
    "more_replicas_than_there_can_be_of_a_StatefulSet",
    "a_status_that_lies_of_a_LeaderWorkerSet",
    "groups_without_a_template_of_a_LeaderWorkerSet",
    "a_selector_of_everything_of_a_StatefulSet",
    "groups_of_a_number_of_30_digits_of_a_LeaderWorkerSet",
    "a_leader_that_is_its_own_worker_of_a_LeaderWorkerSet",
    "coming_and_going_of_a_LeaderWorkerSet",
    "finalizers_that_stay_of_a_StatefulSet",
    "a_definition_that_goes_of_a_LeaderWorkerSet",
    "the_longest_names_of_a_LeaderWorkerSet",
    "replicas_in_words_under_direct_actuation",
)
"""Each takes a way of its own through the code. The others, one more value on such a way, are played each night."""


@pytest.mark.parametrize("attack", by_day(ATTACKS, BY_DAY), ids=str)
async def test_the_victim_does_not_notice(world, attack):
    """The tenant's sets change nothing for the victim."""
    await survive(world, attack)
