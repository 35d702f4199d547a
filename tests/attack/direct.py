"""Targets of every kind, and variants whose numbers the controller writes itself."""

from __future__ import annotations

from tests.app.gateways import CRDS
from tests.app.stage import MODEL, VARIANTS
from tests.app.test_target_kinds import serve_leader_worker_sets
from tests.attack.harness import ExpectedCondition, ExpectedEvent, Says
from tests.attack.world import TENANT, VICTIM, page
from wva.actuation import ACTUATION_ANNOTATION
from wva.api.meta import Key
from wva.targets import KINDS, LEADER_WORKER_SETS

ENVIRONMENT = {"WVA_DIRECT_ACTUATION": "true", "WVA_TARGET_KINDS": "StatefulSet,LeaderWorkerSet"}
DIRECT = {"metadata": {"annotations": {ACTUATION_ANNOTATION: "direct"}}}
NEIGHBOUR = "neighbour"


def resource_of(kind):
    """Return the resource of a kind of targets."""
    return next(each.resource for each in KINDS if each.resource.kind == kind)


def owned(owner, api_version, kind):
    """Return the owner references of what an object controls."""
    metadata = owner["metadata"]
    return [
        {"apiVersion": api_version, "kind": kind, "name": metadata["name"], "uid": metadata["uid"], "controller": True}
    ]


def target(world, kind, name="bad", *, namespace=TENANT, replicas=1, show=page, size=1):
    """Create a target of a kind with Ready pods that report ``show()``, and the kinds of its pods' owners."""
    store, labels = world.api.store, {"app": name[:63]}
    if store.find(CRDS, Key("", LEADER_WORKER_SETS.name)) is None:
        serve_leader_worker_sets(world)
    resource = resource_of(kind)
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "vllm", "image": "vllm"}]}}
    metadata = {"name": name, "namespace": namespace}
    sets = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    groups = {"replicas": replicas, "leaderWorkerTemplate": {"size": size, "workerTemplate": template}}
    made = store.create(resource.name, {"metadata": metadata, "spec": groups if kind == "LeaderWorkerSet" else sets})
    store.patch_status(resource.name, Key(namespace, name), {"replicas": replicas, "readyReplicas": replicas})
    if kind == "LeaderWorkerSet":
        references = owned(made, LEADER_WORKER_SETS.api_version, kind)
        made = store.create("statefulsets.apps", {"metadata": metadata | {"ownerReferences": references}, "spec": sets})
    for number in range(replicas):
        pod = {"name": f"{name}-{number}", "namespace": namespace, "labels": labels}
        pod["ownerReferences"] = owned(made, "apps/v1", "StatefulSet")
        store.create("pods", {"metadata": pod, "spec": template["spec"]})
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        store.patch_status("pods", Key(namespace, pod["name"]), status)
        world.more_pods[namespace, pod["name"]] = show


def refer(world, kind, name="bad", *, namespace=TENANT):
    """Let a variant name a target of a kind."""
    reference = {"apiVersion": resource_of(kind).api_version, "kind": kind, "name": name}
    world.patch(VARIANTS, name, {"spec": {"scaleTargetRef": reference}}, namespace=namespace)


def busy_page(model=MODEL):
    """Return the page of a server for which one replica is too few."""
    return page(model, usage=0.9)


def written(world, kind="Deployment"):
    """Let the number of the tenant's busy variant be written by the controller, and that of a busy neighbour."""
    if kind == "Deployment":
        world.pages[TENANT, "bad"] = lambda _: busy_page()
    else:
        refer(world, kind)
        world.more_pods[TENANT, "bad-0"] = busy_page
    world.patch(VARIANTS, "bad", DIRECT)
    neighbour(world)


def neighbour(world):
    """Put a busy variant under direct actuation beside the victim."""
    world.workload(NEIGHBOUR, namespace=VICTIM)
    world.pages[VICTIM, NEIGHBOUR] = lambda _: busy_page("org/neighbour")
    world.variant(NEIGHBOUR, namespace=VICTIM, model="org/neighbour")
    world.patch(VARIANTS, NEIGHBOUR, DIRECT, namespace=VICTIM)


def replicas_of(world, name="bad", *, namespace=TENANT, kind="Deployment"):
    """Return the replicas that a target wants."""
    return world.api.store.get(resource_of(kind).name, Key(namespace, name))["spec"]["replicas"]


def told_by_all(world, reason):
    """Tell whether condition, event and metric all tell the tenant what keeps the number from being written."""
    labels = {"variant_name": "bad", "namespace": TENANT, "reason": reason}
    return (
        ExpectedCondition("Actuated", "False", reason)(world)
        and ExpectedEvent(reason)(world)
        and any(
            sample.name == "wva_variant_obstacle" and sample.value == 1 and labels.items() <= sample.labels.items()
            for family in world.instruments.registry.collect()
            for sample in family.samples
        )
    )


NEIGHBOUR_IS_WRITTEN = Says(
    "the neighbour's number is written", lambda world: replicas_of(world, NEIGHBOUR, namespace=VICTIM) == 2
)
