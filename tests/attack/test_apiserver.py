"""The API server lags, refuses, repeats old events, or holds a tenant's large objects."""

from __future__ import annotations

import asyncio

import pytest

from tests.app.stage import DEPLOYMENTS, VARIANTS, until
from tests.attack.harness import Attack, ExpectedNumber, Says, survive
from tests.attack.world import HPAS, TENANT, VICTIM
from tests.rows import by_day
from wva.api.core import EXCLUDE_ANNOTATION
from wva.api.meta import Key
from wva.sim.apiserver import Patch, matching
from wva.sim.apiserver.collection import ObjectWrite, Record
from wva.sim.apiserver.objects import clone

MIB = 1024**2
NAMESPACES = "namespaces"
NODES = "nodes"


def bound(world, maximum):
    """Change the maximum of the victim's HPA."""
    world.patch(HPAS, "hpa", {"spec": {"maxReplicas": maximum}}, namespace=VICTIM)


def seen(world, resource):
    """Return the version of a kind that the controller's cache has reached."""
    return int(world.app.cache_versions().get(resource) or 0)


async def told(world, resource):
    """Wait until the controller has seen the last change of a kind."""
    await until(lambda: seen(world, resource) >= world.api.store.last_version(resource))


async def listed_again(world, *resources, by=1):
    """End all watches with a 410 and wait until the controller has listed these kinds again."""
    count = {resource: world.api.requests.count("list", resource=resource) for resource in resources}
    world.api.faults.expire_watches()
    for resource, before in count.items():
        await until(
            lambda resource=resource, before=before: world.api.requests.count("list", resource=resource) >= before + by
        )


# --- lagging ---------------------------------------------------------------------------------------------------------


async def a_lagging_list(world):
    """Answer the lists after a 410 from a server that still has the smaller maximum, and refuse all watches."""
    bound(world, 2)
    await told(world, HPAS)
    world.api.faults.lag()
    bound(world, 4)
    await told(world, HPAS)
    world.api.faults.answer(503, times=None, match=matching(verb="watch"))
    await listed_again(world, HPAS)
    await asyncio.sleep(0.3)


async def a_server_that_never_catches_up(world):
    """Let the API server refuse every list that asks for a known version."""
    world.api.faults.lag()
    world.many(VARIANTS, "bad", 3)
    await told(world, VARIANTS)
    await listed_again(world, VARIANTS, by=3)


async def lists_without_the_victim(world):
    """Answer the lists after a 410 from a server that has just started with an empty cache."""
    cached = world.api.faults._cached
    cached.stop()
    cached._stopped = {}
    cached._version = 1
    await listed_again(world, VARIANTS, DEPLOYMENTS, HPAS)
    await asyncio.sleep(0.5)
    cached.go_on()


async def an_old_event(world):
    """Send earlier states of the victim's HPA, variant and Deployment once more."""
    for resource, name, change in (
        (HPAS, "hpa", lambda value: value["spec"].update(maxReplicas=1)),
        (VARIANTS, "va", lambda value: value["spec"].update(modelID="another")),
        (DEPLOYMENTS, "d", lambda value: value["spec"].update(replicas=0)),
    ):
        collection = world.api.store.collection(resource)
        old = clone(collection.get(Key(VICTIM, name)).object)
        change(old)
        old["metadata"]["resourceVersion"] = "2"
        record = Record(old, 2)
        event = ObjectWrite(collection.spec, Key(VICTIM, name), 2, record, record, None)
        for watch in list(collection.subscribers.values()):
            watch.on_change(event)


async def an_old_deletion(world):
    """Send deletions of objects that had the names of the victim's objects before."""
    for resource, name in ((HPAS, "hpa"), (VARIANTS, "va"), (DEPLOYMENTS, "d")):
        collection = world.api.store.collection(resource)
        old = clone(collection.get(Key(VICTIM, name)).object)
        old["metadata"].update(resourceVersion="2", uid="predecessor")
        record = Record(old, 2)
        event = ObjectWrite(collection.spec, Key(VICTIM, name), 2, record, None, record)
        for watch in list(collection.subscribers.values()):
            watch.on_change(event)


# --- refused ---------------------------------------------------------------------------------------------------------


def excluded(world):
    """Exclude the tenant's namespace."""
    world.api.store.patch(
        NAMESPACES, Key("", TENANT), Patch(body={"metadata": {"annotations": {EXCLUDE_ANNOTATION: "true"}}})
    )


def refusals(resource, status, *, times=1):
    """Return an attack that ends the watches and lets the API server refuse the next lists of a kind."""

    async def during(world):
        world.api.faults.answer(status, times=times, match=matching(verb="list", resource=resource))
        await listed_again(world, resource, by=times)
        await asyncio.sleep(0.3)

    return during


LEFT_ALONE = Says(
    "an excluded namespace has no number",
    lambda world: world.decision_of("bad") is None and "desiredOptimizedAlloc" not in world.status_of("bad", TENANT),
)


def watched_number(number, attack):
    """Return an attack during which the tenant's number must stay."""

    async def during(world):
        await until(lambda: world.decision_of("bad") is not None and world.decision_of("bad").desired == number)
        world.others = set()

        async def look():
            while True:
                world.others.add(world.decision_of("bad").desired)
                await asyncio.sleep(0.01)

        looking = asyncio.create_task(look())
        await attack(world)
        await asyncio.sleep(0.2)
        looking.cancel()

    return during, Says("the tenant's number has not moved", lambda world: world.others == {number})


def bounded_tenant(status):
    """Return an attack that refuses to list HPAs, one of which keeps the tenant at three replicas."""
    during, shows = watched_number(3, refusals(HPAS, status))
    return {"before": lambda world: world.hpa(minimum=3), "during": during, "shows": shows}


async def refused_watches(world):
    """Refuse every watch for half a second."""
    world.api.faults.answer(403, times=20, match=matching(verb="watch"))
    world.api.faults.end_watches()
    await asyncio.sleep(0.5)
    world.api.faults.clear()


# --- broken ----------------------------------------------------------------------------------------------------------


def lists_answered(**answer):
    """Return an attack that ends the watches and gives this answer to some lists."""

    async def during(world):
        world.api.faults.answer(**answer, times=12, match=matching(verb="list"))
        world.api.faults.expire_watches()
        await asyncio.sleep(0.5)

    return during


async def cut_again_and_again(world):
    """Break the connections of watches all the time."""
    for _ in range(30):
        world.api.faults.cut_watches()
        await asyncio.sleep(0.02)


async def expired_again_and_again(world):
    """Forget all history all the time."""
    for _ in range(10):
        world.api.faults.compact()
        world.api.faults.expire_watches()
        await asyncio.sleep(0.05)


async def dropped_lists(world):
    """Give no answer to lists."""
    world.api.faults.drop(times=8, match=matching(verb="list"))
    world.api.faults.expire_watches()
    await asyncio.sleep(0.3)


# --- large -----------------------------------------------------------------------------------------------------------


def large(world, *, count=25, resource=DEPLOYMENTS):
    """Store objects of 1.5 MB each; the embedded server takes several times that memory."""
    text = "x" * (3 * MIB // 2)
    world.many(resource, "bad", count, lambda value, _: value["metadata"].setdefault("annotations", {}).update(a=text))


async def large_lists(world):
    """Let the controller list the large objects again."""
    large(world)
    await listed_again(world, DEPLOYMENTS)


async def burst(world):
    """Change objects thousands of times at once."""
    for turn in range(10):
        for number in range(300):
            world.patch(DEPLOYMENTS, "bad", {"metadata": {"annotations": {"turn": f"{turn}-{number}"}}})
        await asyncio.sleep(0)


def second_look(value):
    """Twist an object so that the fast decoder refuses it, and make it very large."""
    value["metadata"]["labels"] = None
    value["spec"]["junk"] = [[]] * 600_000


ATTACKS = [
    Attack(
        "lists_of_a_server_that_is_behind_do_not_take_the_bounds_back", during=a_lagging_list, shows=ExpectedNumber(1)
    ),
    Attack("a_server_that_never_catches_up_is_passed_by", during=a_server_that_never_catches_up),
    Attack(
        "a_server_with_an_empty_cache_does_not_empty_the_stores",
        during=lists_without_the_victim,
        shows=ExpectedNumber(1),
    ),
    Attack("a_watch_tells_an_old_state_again", during=an_old_event, shows=ExpectedNumber(1)),
    Attack("a_watch_tells_the_deletion_of_a_predecessor", during=an_old_deletion, shows=ExpectedNumber(1)),
    Attack(
        "one_403_does_not_empty_the_list_of_excluded_namespaces",
        before=excluded,
        during=refusals(NAMESPACES, 403),
        shows=LEFT_ALONE,
    ),
    Attack(
        "five_404_do_not_empty_the_list_of_excluded_namespaces",
        before=excluded,
        during=refusals(NAMESPACES, 404, times=3),
        shows=LEFT_ALONE,
    ),
    Attack("one_403_of_hpas_does_not_free_their_targets", **bounded_tenant(403)),
    Attack("one_404_of_hpas_does_not_free_their_targets", **bounded_tenant(404)),
    Attack("watches_are_refused_for_a_moment", during=refused_watches, shows=ExpectedNumber(1)),
    Attack("lists_are_the_page_of_a_proxy", during=lists_answered(status=200, text="<html>"), shows=ExpectedNumber(1)),
    Attack("lists_are_refused_as_expired", during=lists_answered(status=410), shows=ExpectedNumber(1)),
    Attack("lists_are_unreadable_versions", during=lists_answered(status=400), shows=ExpectedNumber(1)),
    Attack("lists_are_null", during=lists_answered(status=200, text="null"), shows=ExpectedNumber(1)),
    Attack("watches_break_again_and_again", during=cut_again_and_again, shows=ExpectedNumber(1)),
    Attack("history_is_forgotten_again_and_again", during=expired_again_and_again, shows=ExpectedNumber(1)),
    Attack("lists_get_no_answer", during=dropped_lists, shows=ExpectedNumber(1)),
    Attack("objects_of_a_megabyte_and_a_half_in_a_list", during=large_lists, growth_mib=400, shows=ExpectedNumber(1)),
    Attack("objects_of_a_megabyte_and_a_half_at_the_start", before=large, growth_mib=400, shows=ExpectedNumber(1)),
    Attack("three_thousand_changes_in_a_moment", during=burst, shows=ExpectedNumber(1)),
    Attack(
        "a_large_object_that_needs_a_second_look",
        during=lambda world: world.twist(DEPLOYMENTS, "bad", second_look),
        shows=Says(
            "the object is counted",
            lambda world: world.metric("wva_undecodable_objects_total", resource=DEPLOYMENTS) > 0,
        ),
    ),
]

BY_DAY = (
    "lists_of_a_server_that_is_behind_do_not_take_the_bounds_back",
    "a_server_that_never_catches_up_is_passed_by",
    "a_server_with_an_empty_cache_does_not_empty_the_stores",
    "a_watch_tells_an_old_state_again",
    "a_watch_tells_the_deletion_of_a_predecessor",
    "one_403_does_not_empty_the_list_of_excluded_namespaces",
    "one_404_of_hpas_does_not_free_their_targets",
    "lists_are_the_page_of_a_proxy",
    "lists_are_refused_as_expired",
    "history_is_forgotten_again_and_again",
    "lists_get_no_answer",
    "objects_of_a_megabyte_and_a_half_in_a_list",
    "three_thousand_changes_in_a_moment",
    "a_large_object_that_needs_a_second_look",
)


@pytest.mark.parametrize("attack", by_day(ATTACKS, BY_DAY), ids=str)
async def test_the_victim_does_not_notice(world, attack):
    """The victim's number and bounds stay right, and its series stay fresh."""
    await survive(world, attack)
