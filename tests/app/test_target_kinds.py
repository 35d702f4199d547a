"""StatefulSets and LeaderWorkerSets as targets in a whole process: switched on, found by discovery, scaled."""

from __future__ import annotations

import pytest

from tests.app.gateways import CRDS, FakePicker, install_pools, pool
from tests.app.stage import MODEL, until
from tests.publish.decisions import decision
from wva.api.meta import Key
from wva.model.records import replace
from wva.model.variant import VariantKey
from wva.targets import KINDS, LEADER_WORKER_SETS, STATEFUL_SETS

BOTH = "StatefulSet,LeaderWorkerSet"
LABELS = {"app": "d"}
TEMPLATE = {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "vllm", "image": "vllm"}]}}


def serve_leader_worker_sets(stage):
    """Serve the kind from now on."""
    resource = LEADER_WORKER_SETS
    names = {"plural": resource.plural, "kind": resource.kind, "listKind": f"{resource.kind}List"}
    paths = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    version = {
        "name": resource.version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}, "scale": {**paths, "labelSelectorPath": ".status.hpaPodSelector"}},
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    spec = {"group": resource.group, "scope": "Namespaced", "names": names, "versions": [version]}
    stage.api.store.create(CRDS, {"metadata": {"name": resource.name}, "spec": spec})


def create(stage, resource, replicas=0):
    """Create a target ``d`` whose status says that its replicas exist and are Ready."""
    if resource is STATEFUL_SETS:
        spec = {"replicas": replicas, "selector": {"matchLabels": LABELS}, "template": TEMPLATE}
    else:
        spec = {"replicas": replicas, "leaderWorkerTemplate": {"size": 1, "workerTemplate": TEMPLATE}}
    stage.api.store.create(resource, {"metadata": {"name": "d", "namespace": "ns"}, "spec": spec})
    status = {"replicas": replicas, "readyReplicas": replicas}
    stage.api.store.patch_status(resource, Key("ns", "d"), status)


def va(stage, resource):
    """Create a variant on the target."""
    stage.va()
    reference = {"apiVersion": resource.api_version, "kind": resource.kind, "name": "d"}
    stage.patch_va({"spec": {"scaleTargetRef": reference, "modelID": MODEL}})


@pytest.fixture
async def gateway():
    """Return a picker that listens."""
    async with FakePicker().serving() as serving:
        yield serving


@pytest.mark.parametrize("resource", [STATEFUL_SETS, LEADER_WORKER_SETS], ids=lambda each: each.kind)
async def test_a_target_is_followed_and_started_from_zero(stage, gateway, resource):
    """WVA treats it like a Deployment, and scales it by its own scale subresource."""
    serve_leader_worker_sets(stage)
    install_pools(stage)
    create(stage, resource)
    va(stage, resource)
    pool(stage, gateway.port)
    async with stage.controller(WVA_TARGET_KINDS=BOTH):
        await until(lambda: stage.series() == {"va": 0})
        await until(lambda: stage.told("TargetResolved") == ("True", "TargetFound"))
        assert stage.message("TargetResolved") == f"Scale target {resource.kind} d found"
        gateway.waiting = 1
        await until(lambda: stage.api.store.get(resource, Key("ns", "d"))["spec"]["replicas"] == 1)
        assert stage.api.requests.count("patch", resource=resource.name, subresource="scale") == 1
        await until(lambda: stage.series() == {"va": 1})
        gateway.waiting = 0
        stage.api.store.delete(resource, Key("ns", "d"))
        await until(lambda: stage.told("Ready") == ("False", "TargetNotFound"))
        await until(lambda: stage.series() == {})
        create(stage, resource, replicas=3)
        await until(lambda: stage.series() == {"va": 3})
        await until(lambda: stage.told("Ready") == ("True", "VariantAccepted"))


@pytest.mark.parametrize("resource", [STATEFUL_SETS, LEADER_WORKER_SETS], ids=lambda each: each.kind)
async def test_direct_actuation_writes_the_number(stage, resource):
    """The API server serves the scale of custom resources in its own way, so each kind is written."""
    serve_leader_worker_sets(stage)
    create(stage, resource, replicas=1)
    va(stage, resource)
    stage.patch_va({"metadata": {"annotations": {"wva.llmd.ai/actuation": "direct"}}})
    async with stage.controller(WVA_TARGET_KINDS=BOTH, WVA_DIRECT_ACTUATION="true"):
        await until(lambda: stage.series() == {"va": 1})
        stage.app.ledger.record([replace(decision(3, current=1), key=VariantKey("ns", "va"))])
        await until(lambda: stage.api.store.get(resource, Key("ns", "d"))["spec"]["replicas"] == 3)
    assert stage.told("Actuated") is None


async def test_a_kind_that_is_served_later_is_found_without_a_restart(stage):
    """The target is not found until the cluster serves its kind."""
    va(stage, LEADER_WORKER_SETS)
    async with stage.controller(WVA_TARGET_KINDS="LeaderWorkerSet"):
        await until(lambda: stage.told("TargetResolved") == ("False", "TargetNotFound"))
        assert stage.message("TargetResolved").startswith("Scale target LeaderWorkerSet d not found: ")
        serve_leader_worker_sets(stage)
        create(stage, LEADER_WORKER_SETS, replicas=2)
        await until(lambda: stage.series() == {"va": 2})


async def test_what_is_not_switched_on_is_not_asked_for(stage):
    """WVA does not list kinds that are switched off, so it needs no right for them."""
    serve_leader_worker_sets(stage)
    stage.deployment()
    stage.va()
    async with stage.controller():
        await until(lambda: stage.series() == {"va": 1})
        for kind in KINDS[1:]:
            assert stage.api.requests.count("list", resource=kind.resource.name) == 0
