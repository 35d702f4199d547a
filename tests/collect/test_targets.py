"""The kinds of targets: their replicas, their pods, and which kinds WVA scales."""

from __future__ import annotations

import pytest

from tests.collect.cluster import CachedCluster, accepted_variants
from wva.api.kinds import PODS
from wva.api.resource import Resource
from wva.api.scalers import ScaledTarget
from wva.api.variantautoscaling import TargetReason
from wva.collect.resolution import resolve
from wva.collect.surplus import MAX_CONTAINERS, bounded_target
from wva.targets import (
    DEFAULT,
    DEPLOYMENTS,
    KINDS,
    LEADER_WORKER_SETS,
    STATEFUL_SETS,
    PodSet,
    TargetKind,
    chosen_kinds,
    pods_of,
    scaled_key,
)

READY_AT = "2026-01-01T00:0{}:00Z"
API_VERSION = "leaderworkerset.x-k8s.io/v1"


@pytest.fixture
def cluster():
    """Return empty caches in which every kind is scaled."""
    return CachedCluster(kinds=KINDS)


def template(*, gpus=0, args=(), labels=None):
    """Return a pod template with one container."""
    container = {"name": "vllm", "args": list(args), "resources": {"limits": {"nvidia.com/gpu": gpus}}}
    return {"metadata": {"labels": labels or {}}, "spec": {"containers": [container]}}


def reference(kind, name="d", api_version="apps/v1"):
    """Return the spec of a VA with this target."""
    return {"scaleTargetRef": {"kind": kind, "name": name, "apiVersion": api_version}}


def pod(cluster, name, owner, *, ready=True, since=0, node="n", conditions=(), **metadata):
    """Put a pod that ``owner`` controls."""
    condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": READY_AT.format(since)}
    status = {"phase": "Running", "podIP": f"ip-{name}", "conditions": [condition, *conditions]}
    return cluster.put(PODS, name, owner=owner, spec={"nodeName": node}, status=status, metadata=metadata)


def leader_worker_set(cluster, name="d", *, groups=2, size=3, **group):
    """Put a LeaderWorkerSet with the StatefulSet of its leaders."""
    spec = {"replicas": groups, "leaderWorkerTemplate": {"size": size, "workerTemplate": template(), **group}}
    status = {"replicas": groups, "readyReplicas": groups}
    made = cluster.put(LEADER_WORKER_SETS, name, spec=spec, status=status)
    return made, cluster.put(STATEFUL_SETS, name, owner=made)


def group(cluster, leaders, name="d-0", *, workers=2, leader=None, worker=None):
    """Put the pods of a group; ``leader`` has arguments for the first pod, ``worker`` for the last one."""
    first = pod(cluster, name, leaders, **(leader or {}))
    owned = cluster.put(STATEFUL_SETS, name, owner=first)
    for number in range(1, workers + 1):
        pod(cluster, f"{name}-{number}", owned, **(worker or {} if number == workers else {}))


def the_only_pod(cluster, target):
    """Return the pod that stands for the only replica."""
    (found,) = pods_of(target, cluster.stores.targets)
    return found


def test_a_stateful_set_is_found_by_its_kind(cluster):
    """A Deployment of the same name is another target, with a variant of its own."""
    made = cluster.put(STATEFUL_SETS, spec={"replicas": 2}, status={"replicas": 2, "readyReplicas": 1})
    deployment = cluster.deployment("d")
    of_set, of_deployment = cluster.va("a", spec=reference("StatefulSet")), cluster.va("b", target="d")
    stores = cluster.stores
    found = [resolve(va, vas=stores.variant_autoscalings, targets=stores.targets) for va in (of_set, of_deployment)]
    assert [entry.target for entry in found] == [made, deployment]
    assert found[0].message == "Scale target StatefulSet d found"
    (accepted, _) = accepted_variants(stores)
    variant = accepted.variant
    assert (variant.spec_replicas, variant.current_replicas, variant.ready_replicas) == (2, 2, 1)


def test_the_pods_of_a_stateful_set_are_its_own(cluster):
    """A StatefulSet controls its pods itself; pods that have ended do not count."""
    made = cluster.put(STATEFUL_SETS)
    other = cluster.put(STATEFUL_SETS, "other")
    pod(cluster, "d-0", made)
    pod(cluster, "other-0", other)
    cluster.put(PODS, "d-1", owner=made, status={"phase": "Failed"})
    assert the_only_pod(cluster, made).metadata.name == "d-0"
    again = cluster.put(STATEFUL_SETS, metadata={"uid": "another"})
    assert pods_of(again, cluster.stores.targets) == ()


def test_a_replica_of_a_leader_worker_set_is_a_group(cluster):
    """A replica is a group with the GPUs of all its pods; the engine's arguments are the leader's."""
    leader, worker = template(gpus=4, args=["--max-num-seqs=7"]), template(gpus=8, args=["--max-num-seqs=9"])
    _, leaders = leader_worker_set(cluster, leaderTemplate=leader, workerTemplate=worker)
    group(cluster, leaders, "d-0")
    group(cluster, leaders, "d-1")
    cluster.va(spec=reference("LeaderWorkerSet", api_version=API_VERSION))
    (accepted,) = accepted_variants(cluster.stores)
    variant = accepted.variant
    assert (variant.spec_replicas, variant.current_replicas, variant.ready_replicas) == (2, 2, 2)
    assert variant.gpus_per_replica == 4 + 2 * 8
    assert variant.parameters.max_num_seqs == 7


@pytest.mark.parametrize(
    ("leader", "worker", "size", "role"),
    [
        ("decode", "decode", 2, "decode"),
        ("prefill", "", 2, "prefill"),
        ("", "prefill", 2, "prefill"),
        ("decode", "prefill", 2, "decode"),
        ("", "prefill", 1, ""),
        (None, "prefill", 1, "prefill"),
    ],
)
def test_the_role_of_a_group_stands_in_the_template_of_the_leader_or_of_the_workers(
    cluster, leader, worker, size, role
):
    """The leader serves, so what its template says counts; without workers nothing is said of them."""

    def labelled(said):
        return template(labels={"app": "chat", **({"llm-d.ai/role": said} if said else {})})

    templates = {"workerTemplate": labelled(worker)} | ({} if leader is None else {"leaderTemplate": labelled(leader)})
    leader_worker_set(cluster, size=size, **templates)
    cluster.va(spec=reference("LeaderWorkerSet", api_version=API_VERSION))
    (accepted,) = accepted_variants(cluster.stores)
    assert accepted.variant.role == role


@pytest.mark.parametrize(("size", "gpus"), [(1, 8), (2, 16), (None, 8), (0, 8), (-3, 8), (10**12, 8)])
def test_without_a_template_of_its_own_the_leader_is_a_worker(cluster, size, gpus):
    """An invalid size counts as one pod."""
    made, _ = leader_worker_set(cluster, size=size, workerTemplate=template(gpus=8))
    cluster.va(spec=reference("LeaderWorkerSet", api_version=API_VERSION))
    (accepted,) = accepted_variants(cluster.stores)
    assert accepted.variant.gpus_per_replica == gpus
    assert made.pods_per_replica == gpus // 8


def test_the_leader_stands_for_its_group(cluster):
    """The group has the leader's name and address, and is Ready since its last pod is."""
    made, leaders = leader_worker_set(cluster)
    group(cluster, leaders, leader={"since": 1}, worker={"since": 5})
    found = the_only_pod(cluster, made)
    assert (found.metadata.name, found.status.pod_ip, found.ready, found.spec.node_name) == (
        "d-0", "ip-d-0", True, "n",
    )  # fmt: skip
    assert found.ready_since == 1767225900.0


@pytest.mark.parametrize(
    "spoil",
    [
        {"leader": {"ready": False}},
        {"worker": {"ready": False}},
        {"worker": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"workers": 1},
        {"workers": 0},
    ],
)
def test_a_group_is_ready_when_all_of_its_pods_are(cluster, spoil):
    """The engine cannot serve without all of its pods."""
    made, leaders = leader_worker_set(cluster)
    group(cluster, leaders, **spoil)
    assert not the_only_pod(cluster, made).ready


def test_ready_groups_are_those_whose_pods_are_ready(cluster):
    """The status of a real LeaderWorkerSet counts a group as soon as its workers exist, so it does not count here."""
    _, leaders = leader_worker_set(cluster, groups=3)
    group(cluster, leaders, "d-0")
    group(cluster, leaders, "d-1", worker={"ready": False})
    group(cluster, leaders, "d-2", leader={"ready": False})
    cluster.va(spec=reference("LeaderWorkerSet", api_version=API_VERSION))
    (accepted,) = accepted_variants(cluster.stores)
    assert (accepted.variant.current_replicas, accepted.variant.ready_replicas) == (3, 1)


def test_a_group_waits_for_a_node_as_long_as_one_of_its_pods_does(cluster):
    """If one pod of a group is unschedulable, the group counts as one unschedulable pod."""
    _, leaders = leader_worker_set(cluster, groups=1)
    refused = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    refused["lastTransitionTime"] = READY_AT.format(0)
    group(cluster, leaders, worker={"node": "", "ready": False, "conditions": [refused]})
    cluster.va(spec=reference("LeaderWorkerSet", api_version=API_VERSION))
    (accepted,) = accepted_variants(cluster.stores, now=1767225600.0 + 600)
    variant = accepted.variant
    assert (variant.unplaced_pods, variant.unschedulable_pods) == (1, 1)


def test_a_leader_alone_is_a_whole_group_of_one(cluster):
    """A group of size 1 is Ready without workers."""
    made, leaders = leader_worker_set(cluster, size=1)
    group(cluster, leaders, workers=0)
    assert the_only_pod(cluster, made).ready


def test_each_group_has_its_own_workers(cluster):
    """Workers of another group do not make a group complete."""
    made, leaders = leader_worker_set(cluster)
    group(cluster, leaders, "d-0", workers=1)
    group(cluster, leaders, "d-1", workers=3)
    assert [entry.ready for entry in pods_of(made, cluster.stores.targets)] == [False, True]


def test_pools_see_the_labels_that_leaders_will_have(cluster):
    """Pools select leaders by the labels that the controller of the kind sets."""
    made, _ = leader_worker_set(cluster, leaderTemplate=template(labels={"app": "chat"}))
    assert made.pod_labels == {
        "app": "chat", "leaderworkerset.sigs.k8s.io/name": "d", "leaderworkerset.sigs.k8s.io/worker-index": "0",
    }  # fmt: skip


def test_why_a_kind_cannot_be_read_is_told(cluster):
    """The message says why, for example that the cluster does not serve the kind."""
    cluster.watched[LEADER_WORKER_SETS.name].absent = "the server does not serve it"
    va = cluster.va(spec=reference("LeaderWorkerSet", api_version=API_VERSION))
    found = resolve(va, vas=cluster.stores.variant_autoscalings, targets=cluster.stores.targets)
    assert found.reason is TargetReason.TARGET_NOT_FOUND
    assert found.message == "Scale target LeaderWorkerSet d not found: the server does not serve it"


def test_only_chosen_kinds_are_scaled():
    """The default kind is always scaled; the message names the scaled kinds."""
    assert chosen_kinds("") == (DEFAULT,)
    assert chosen_kinds("LeaderWorkerSet") == (DEFAULT, KINDS[2])
    cluster = CachedCluster(kinds=chosen_kinds("LeaderWorkerSet"))
    va = cluster.va(spec=reference("StatefulSet"))
    found = resolve(va, vas=cluster.stores.variant_autoscalings, targets=cluster.stores.targets)
    assert found.reason is TargetReason.TARGET_UNSUPPORTED
    assert found.message == (
        "Scale target apps/v1 StatefulSet d is not supported: "
        "only apps/v1 Deployment and leaderworkerset.x-k8s.io/v1 LeaderWorkerSet are"
    )


@pytest.mark.parametrize(
    ("named", "key"),
    [
        (ScaledTarget("apps/v1", "Deployment", "d"), "ns/apps/v1/Deployment/d"),
        (ScaledTarget("", "", "d"), "ns/apps/v1/Deployment/d"),
        (ScaledTarget("apps/v1beta1", "StatefulSet", "d"), "ns/apps/v1/StatefulSet/d"),
        (ScaledTarget("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", "d"), f"ns/{API_VERSION}/LeaderWorkerSet/d"),
        (ScaledTarget("apps/v1", "LeaderWorkerSet", "d"), None),
        (ScaledTarget("apps/v1", "Deployment", ""), None),
    ],
)
def test_a_scaler_is_found_by_what_it_scales(named, key):
    """KEDA may leave out kind and group; the version does not matter."""
    assert scaled_key("ns", named) == key


def test_both_templates_are_kept_small(cluster):
    """The caches keep only the first containers of each template."""
    many = {"spec": {"containers": [{"name": f"c{number}"} for number in range(MAX_CONTAINERS + 1)]}}
    made, _ = leader_worker_set(cluster, leaderTemplate=many, workerTemplate=many)
    kept = bounded_target(made)
    assert [len(each.spec.containers) for each, _ in kept.templates] == [MAX_CONTAINERS] * 2
    assert bounded_target(kept) is kept


def test_every_kind_is_read_and_found_by_its_resource(cluster):
    """Each kind of the list is indexed and found by its resource."""
    for kind in KINDS:
        target = cluster.put(kind.resource)
        assert cluster.stores.targets.kind_of(target) is kind
        assert cluster.stores.targets.key_of(target) == kind.key("ns", "d")
        assert pods_of(target, cluster.stores.targets) == ()
    assert KINDS[0].resource is DEPLOYMENTS


class CloneSet(PodSet, frozen=True, rename="camel"):
    """A kind that the controller does not know."""


def test_a_further_kind_is_a_class_and_an_entry():
    """A new kind needs no other code: it is resolved, and its replicas and pods are found."""
    resource = Resource("apps.kruise.io", "v1alpha1", "clonesets", "CloneSet", CloneSet)
    cluster = CachedCluster(kinds=(DEFAULT, TargetKind(resource)))
    made = cluster.put(resource, spec={"replicas": 2, "template": template(gpus=4)}, status={"replicas": 2})
    pod(cluster, "d-x", made)
    cluster.va(spec=reference("CloneSet", api_version="apps.kruise.io/v1alpha1"))
    (accepted,) = accepted_variants(cluster.stores)
    assert [one.metadata.name for one in accepted.ready] == ["d-x"]
    assert (accepted.variant.current_replicas, accepted.variant.gpus_per_replica) == (2, 4)
