"""Invalid objects: their number stays, other variants are not affected, WVA goes on deciding."""

from __future__ import annotations

import pytest

from tests.app.stage import DEPLOYMENTS, VARIANTS, until
from wva.api.meta import Key

PODS = "pods"
REPLICA_SETS = "replicasets.apps"
NAMES = [
    "a" * 1_000_000,
    'quo"te',
    "back\\slash",
    "new\nline",
    "ünï\U0001f600",
    "a.*|b(+)[^$]{2}",
    '"} or vector(1) #',
    "\x00\x1b[31m",
    " ",
]


async def settled(stage):
    """Wait for the number of the variant of the stage."""
    await until(lambda: stage.number() == 2 and stage.series() == {"va": 2})


@pytest.mark.parametrize("model", NAMES, ids=lambda name: repr(name[:12]))
async def test_any_model_id_is_carried_and_never_interpreted(stage, model):
    """The number stays and the cycles succeed, whatever the model ID."""
    stage.patch_va({"spec": {"modelID": model}})
    async with stage.controller(interval="100ms", RECORD_DIR=str(stage.folder / "recordings")):
        await settled(stage)
        await stage.cycles(2)
        assert stage.series() == {"va": 2}
        assert all(len(request.query) < 5000 for request in stage.prometheus.requests.entries if request.query)
    assert stage.metric("wva_cycles_total", result="error") == 0


def spec_of(**fields):
    """Return a function that changes the spec."""
    return lambda value: value["spec"].update(fields)


def status_of(**fields):
    """Return a function that changes the status."""
    return lambda value: value.setdefault("status", {}).update(fields)


ABSURD = [-1, -(2**40), 2**31, 10**18, 10**30, 10**400, "3", 2.5, True, None, [], {}]


@pytest.mark.parametrize("place", ["spec", "replicas", "readyReplicas"])
async def test_absurd_replicas_of_a_deployment_move_nothing(stage, place):
    """They change no number, neither of this variant nor of others."""
    async with stage.controller(interval="10ms", RECORD_DIR=str(stage.folder / "recordings")):
        await settled(stage)
        for number in ABSURD:
            stage.force(DEPLOYMENTS, "d", spec_of(replicas=2) if place == "spec" else status_of(**{place: 2}))
            await stage.seen(DEPLOYMENTS)
            stage.force(DEPLOYMENTS, "d", spec_of(replicas=number) if place == "spec" else status_of(**{place: number}))
            await stage.seen(DEPLOYMENTS)
            assert stage.series()["va"] == 2, number
            assert 0 <= stage.series("wva_current_replicas")["va"] <= 2, number
        await stage.works()
        assert stage.series()["va"] == 2
    assert stage.metric("wva_cycles_total", result="error") == 0


@pytest.mark.parametrize("number", [-3, 0, 10**30, 10**400], ids=["negative", "zero", "huge", "endless"])
async def test_an_absurd_number_in_the_status_is_not_resumed(stage, number):
    """After a restart WVA publishes the current replicas instead."""
    stage.force(VARIANTS, "va", status_of(desiredOptimizedAlloc={"accelerator": "H100", "numReplicas": number}))
    async with stage.controller(interval="10ms"):
        await until(lambda: stage.series() == {"va": 2})
        await stage.works()


NULLS = [
    (VARIANTS, "va", lambda value: value["metadata"].update(labels=None)),
    (VARIANTS, "va", lambda value: value.update(status=None)),
    (VARIANTS, "va", spec_of(variantCost=7)),
    (VARIANTS, "va", spec_of(variantCost="NaN")),
    (VARIANTS, "va", spec_of(variantCost="-1e400")),
    (VARIANTS, "va", spec_of(variantCost="9" * 100_000)),
    (VARIANTS, "va", spec_of(scaleTargetRef="d")),
    (VARIANTS, "va", status_of(conditions=[None, {"type": 1}, {}])),
    (VARIANTS, "va", status_of(conditions=[{"type": "Progressing", "status": "True", "lastTransitionTime": "soon"}])),
    (VARIANTS, "va", lambda value: value["metadata"].update(creationTimestamp="x", generation="y")),
    (DEPLOYMENTS, "d", lambda value: value["metadata"].update(labels=None, annotations=None)),
    (DEPLOYMENTS, "d", lambda value: value.update(spec=None)),
    (DEPLOYMENTS, "d", lambda value: value.update(status=None)),
    (DEPLOYMENTS, "d", lambda value: value["spec"]["template"].update(spec={"containers": None})),
    (
        DEPLOYMENTS,
        "d",
        lambda value: value["spec"]["template"]["spec"]["containers"][0].update(
            resources={"limits": {"nvidia.com/gpu": "9" * 5000}, "requests": {"nvidia.com/gpu": 1e300}}
        ),
    ),
]


@pytest.mark.parametrize(("resource", "name", "change"), NULLS)
async def test_nulls_and_wrong_types_leave_the_number(stage, resource, name, change):
    """WVA keeps the last good state of an object that it cannot decode.

    Other invalid fields do not change the number.
    """
    async with stage.controller(interval="10ms"):
        await settled(stage)
        stage.force(resource, name, change)
        await stage.works()
        assert stage.series()["va"] == 2
    assert stage.metric("wva_cycles_total", result="error") == 0


def pods_of(stage):
    """Return the names of the pods."""
    return [pod["metadata"]["name"] for pod in stage.api.store.list(PODS)]


@pytest.mark.parametrize(
    "owners",
    [
        None,
        [],
        [{"controller": True}],
        [{"controller": True, "uid": ""}],
        [{"controller": None, "uid": "x"}],
        [{"controller": True, "uid": "uid-of-ns-loop"}],
        [{"controller": True, "uid": 7}],
    ],
)
async def test_pods_with_broken_owners_are_nobodys(stage, owners):
    """A pod with invalid owners counts as no replica, and WVA goes on deciding."""
    async with stage.controller(interval="10ms"):
        await settled(stage)
        for resource in (PODS, REPLICA_SETS):
            stage.force(resource, "loop", lambda value: value["metadata"].update(ownerReferences=owners))
        stage.force(DEPLOYMENTS, "d", lambda value: value["metadata"].update(uid=""))
        await stage.works()
        assert stage.series()["va"] == 2


@pytest.mark.parametrize("namespace", ["Not A Label", 'a"} or {b=~".*', "a|b", "x" * 300, "..", "ns/../kube-system"])
async def test_a_namespace_that_is_none_is_held_and_not_asked_for(stage, namespace):
    """A variant in an invalid namespace keeps its number, and the namespace is in no query."""
    for resource, name in ((DEPLOYMENTS, "d"), (VARIANTS, "va")):
        origin = stage.api.store.get(resource, Key("ns", name))
        stage.force(
            resource,
            "odd",
            lambda value, origin=origin: value.update(spec=origin["spec"], status={"replicas": 2, "readyReplicas": 2}),
            namespace=namespace,
        )
    stage.force(VARIANTS, "odd", lambda value: value["spec"]["scaleTargetRef"].update(name="odd"), namespace=namespace)
    async with stage.controller(interval="10ms"):
        await until(lambda: stage.series().get("odd") == 2)
        await stage.works()
        assert stage.series()["odd"] == 2
        assert not any("odd" in (request.query or "") for request in stage.prometheus.requests.entries)
        assert not any(namespace in (request.query or "") for request in stage.prometheus.requests.entries)


async def test_the_name_of_another_variant_is_no_target(stage):
    """A variant cannot have another variant as its target."""
    stage.va("parasite", target="va", kind="VariantAutoscaling")
    stage.va("lost", target="parasite")
    async with stage.controller(interval="10ms"):
        await until(lambda: stage.told("Ready", "parasite") == ("False", "TargetUnsupported"))
        await until(lambda: stage.told("Ready", "lost") == ("False", "DeploymentNotFound"))
        await settled(stage)


async def test_a_variant_without_spec_says_that_it_names_no_target(stage):
    """Without a spec the variant is not ready. When the spec is back, the variant gets its number again."""
    async with stage.controller(interval="10ms"):
        await settled(stage)
        spec = stage.api.store.get(VARIANTS, Key("ns", "va"))["spec"]
        stage.force(VARIANTS, "va", lambda value: value.update(spec=None))
        await until(lambda: stage.told("Ready") == ("False", "DeploymentNotFound"))
        await stage.works()
        stage.force(VARIANTS, "va", lambda value: value.update(spec=spec))
        await until(lambda: stage.series().get("va") == 2)
