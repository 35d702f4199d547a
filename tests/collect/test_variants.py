"""How a VA and its Deployment become a variant, and which VAs do not."""

from __future__ import annotations

import pytest

from tests.collect.cluster import accepted_variants
from wva.api.core import Container, PodTemplate, ResourceRequirements, TemplateSpec
from wva.api.meta import parse_time
from wva.api.variantautoscaling import CONTROLLER_INSTANCE_LABEL, Claimant
from wva.collect.inventory import gpus_per_replica
from wva.collect.variants import Claims, cost_problems, parse_cost
from wva.model.variant import UNSCHEDULABLE_SECONDS, ModelKey, VariantKey

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"


def _only(cluster, **rest):
    (accepted,) = accepted_variants(cluster.stores, **rest)
    return accepted.variant


def test_identity_and_labels_are_taken_over(cluster):
    """Model, target, accelerator and cost come from the VA."""
    cluster.deployment("d")
    cluster.va("a", target="d", model_id="org/model", spec={"variantCost": "2.5"})
    variant = _only(cluster)
    assert (variant.key, variant.model) == (VariantKey("ns", "a"), ModelKey("ns", "org/model"))
    assert (variant.target, variant.accelerator, variant.cost) == ("d", "A100", 2.5)


def test_replicas_come_from_the_deployment(cluster):
    """Pending replicas are those that exist and are not ready."""
    cluster.deployment("d", replicas=3, ready=1)
    cluster.va()
    variant = _only(cluster)
    counts = (variant.spec_replicas, variant.current_replicas, variant.ready_replicas, variant.pending_replicas)
    assert counts == (3, 3, 1, 2)


def test_the_number_in_the_status_is_read_back_even_when_it_is_zero(cluster):
    """A missing number is None, and 0 is a number."""
    cluster.deployment("d")
    cluster.va()
    assert _only(cluster).status_desired is None
    cluster.va(status={"desiredOptimizedAlloc": {"accelerator": "L4", "numReplicas": 0}})
    variant = _only(cluster)
    assert (variant.status_desired, variant.status_accelerator) == (0, "L4")


@pytest.mark.parametrize(("status", "expected"), [("True", parse_time(EARLY)), ("False", None)])
def test_the_start_of_an_unfinished_change_is_its_condition_s(cluster, status, expected):
    """After a restart the change keeps its start, so no deadline is reset."""
    cluster.deployment("d")
    cluster.va(status={"conditions": [{"type": "Progressing", "status": status, "lastTransitionTime": EARLY}]})
    assert _only(cluster).settling_since == expected


def test_the_oldest_pod_that_is_not_ready_starts_the_load(cluster):
    """Ready, ended and terminating pods do not count."""
    cluster.deployment("d", replicas=5)
    cluster.va()
    cluster.pod("ready", creationTimestamp="2025-01-01T00:00:00Z")
    cluster.pod("ended", ready=False, phase="Failed", creationTimestamp="2025-01-01T00:00:00Z")
    cluster.pod("going", ready=False, creationTimestamp="2025-01-01T00:00:00Z", deletionTimestamp=LATE)
    cluster.pod("young", ready=False, creationTimestamp=LATE)
    assert _only(cluster).oldest_unready_since == parse_time(LATE)
    cluster.pod("old", ready=False, creationTimestamp=EARLY)
    assert _only(cluster).oldest_unready_since == parse_time(EARLY)


def _refused(since, *, reason="Unschedulable", status="False"):
    """Return the status of a pod for which the scheduler finds no node."""
    condition = {"type": "PodScheduled", "status": status, "reason": reason, "lastTransitionTime": since}
    return {"ready": False, "phase": "Pending", "node": "", "conditions": [condition]}


def test_pods_without_a_node_count_at_once_and_as_hopeless_after_a_minute(cluster):
    """Terminating pods do not count; pods that are gated are not unschedulable."""
    cluster.deployment("d", replicas=4)
    cluster.va()
    cluster.pod("placed", **_refused(EARLY) | {"node": "n"})
    cluster.pod("new", ready=False, phase="Pending", node="")
    cluster.pod("gated", **_refused(EARLY, reason="SchedulingGated"))
    cluster.pod("refused", **_refused(EARLY))
    cluster.pod("going", **_refused(EARLY), deletionTimestamp=LATE)
    early = parse_time(EARLY)
    for waited, hopeless in ((0.0, 0), (UNSCHEDULABLE_SECONDS - 1, 0), (UNSCHEDULABLE_SECONDS, 1)):
        variant = _only(cluster, now=early + waited)
        assert (variant.unplaced_pods, variant.unschedulable_pods) == (3, hopeless)


@pytest.mark.parametrize(
    ("counted", "pods", "current", "unplaced"),
    [
        (2, 3, 3, 0),  # the pod of a growth is seen before the status that counts it
        (3, 2, 3, 1),  # the status is seen before the pod: its GPUs are not free
        (3, 3, 3, 0),
        (3, 9, 3, 0),  # pods that nobody asked for are no replicas
    ],
)
def test_pods_and_status_may_be_seen_one_after_the_other(cluster, counted, pods, current, unplaced):
    """They come by two watches. No GPU is counted as free that a replica has or will take."""
    cluster.deployment("d", replicas=3, counted=counted)
    cluster.va()
    for number in range(pods):
        cluster.pod(f"p-{number}", node="n")
    cluster.pod("going", node="n", deletionTimestamp=LATE)
    variant = _only(cluster)
    assert (variant.current_replicas, variant.unplaced_pods) == (current, unplaced)


def _container(name="vllm", *, waiting="", restarts=0, ended=None):
    """Return the status of a container that is not ready."""
    state = {"waiting": {"reason": waiting}} if waiting else {"running": {"startedAt": LATE}}
    last = {"terminated": {"finishedAt": ended}} if ended else {}
    return {"name": name, "ready": False, "restartCount": restarts, "state": state, "lastState": last}


@pytest.mark.parametrize(
    ("container", "words"),
    [
        (_container(waiting="ContainerCreating"), ""),
        (_container(), ""),
        (_container(waiting="CrashLoopBackOff", restarts=1), "CrashLoopBackOff"),
        (_container(waiting="ImagePullBackOff"), "ImagePullBackOff"),
        (_container(restarts=1, ended=EARLY), ""),
        (_container(restarts=2, ended=EARLY), "restarted 2 times"),
    ],
)
@pytest.mark.parametrize("which", ["containerStatuses", "initContainerStatuses"])
def test_a_pod_whose_container_does_not_run_fails(cluster, container, words, which):
    """Between two crashes it runs for a while. A Ready pod does not fail, and an end of long ago does not count."""
    cluster.deployment("d", replicas=3)
    cluster.va()
    cluster.pod("bad", ready=False, containers={which: [container]})
    cluster.pod("good", containers={which: [container]})
    cluster.pod("going", ready=False, containers={which: [container]}, deletionTimestamp=LATE)
    variant = _only(cluster, now=parse_time(LATE))
    assert variant.failing_pods == bool(words)
    assert variant.failure == (f"container vllm of pod bad: {words}" if words else "")
    later = _only(cluster, now=parse_time(LATE) + 600.0)
    assert later.failing_pods == bool(words and "restarted" not in words)


def test_pods_belong_by_owner_not_by_name(cluster):
    """Bare pods, pods of other ReplicaSets and pods of a deleted Deployment do not count."""
    cluster.deployment("d")
    cluster.pod("leftover", deployment="d")
    cluster.deployment("d")  # again, with another uid
    cluster.va()
    cluster.deployment("foreign")
    cluster.pod("mine", deployment="d")
    cluster.pod("d-looks-like-mine", deployment=None)
    cluster.pod("of-another", deployment="foreign")
    (accepted,) = accepted_variants(cluster.stores)
    assert [pod.metadata.name for pod in accepted.ready] == ["mine"]


def test_a_copied_owner_counts_in_its_own_namespace_only(cluster):
    """The API server checks no owner reference: a tenant may write the uid of any Deployment or ReplicaSet."""
    victim = cluster.deployment("d", namespace="victim")
    cluster.va(namespace="victim")
    cluster.pod("mine", namespace="victim")
    (replica_set,) = cluster.replica_sets.list("victim")
    forged = cluster.replica_set("d-rs", namespace="tenant", owner=victim)
    stolen = [{"controller": True, "kind": "ReplicaSet", "uid": replica_set.metadata.uid}]
    cluster.pod("of-the-pod", namespace="tenant", deployment=None, ownerReferences=stolen)
    cluster.pod("of-the-replica-set", namespace="tenant", deployment="d")
    cluster.pod(
        "of-both", namespace="victim", deployment=None, ownerReferences=[stolen[0] | {"uid": forged.metadata.uid}]
    )
    (accepted,) = accepted_variants(cluster.stores)
    assert [pod.metadata.name for pod in accepted.ready] == ["mine"]


def test_only_accepted_vas_become_variants(cluster):
    """VAs that are deleted, in conflict, without target or model, or of another controller do not."""
    cluster.deployment("shared")
    cluster.va("one", target="shared")
    cluster.va("two", target="shared")
    cluster.va("nowhere", target="missing")
    cluster.deployment("d1")
    cluster.va("deleted", target="d1", metadata={"deletionTimestamp": LATE})
    cluster.deployment("d4")
    cluster.va("nameless", target="d4", model_id="")
    cluster.deployment("d2")
    cluster.va("ours", target="d2", labels={CONTROLLER_INSTANCE_LABEL: "x"})
    cluster.deployment("d3")
    cluster.va("theirs", target="d3", labels={CONTROLLER_INSTANCE_LABEL: "y"})
    names = [
        accepted.variant.key.name for accepted in accepted_variants(cluster.stores, claims=Claims(Claimant("s/x", "x")))
    ]
    assert names == ["ours"]
    names = [accepted.variant.key.name for accepted in accepted_variants(cluster.stores)]
    assert names == ["ours", "theirs"]


@pytest.mark.parametrize(("text", "cost"), [("3", 3.0), ("0", 0.0), ("2.5", 2.5), ("1e2", 100.0), (".5", 0.5)])
def test_a_cost_is_a_decimal_number(text, cost):
    """A cost may be 0."""
    assert parse_cost(text) == cost


@pytest.mark.parametrize("text", ["", "cheap", "-1", "nan", "inf", "1e999", "1e10", "1_0", " 1", "\u0663"])
def test_a_cost_that_is_no_number_is_the_default(text):
    """A cost must be finite, not negative and not so large that sums lose precision."""
    assert parse_cost(text) == 10.0


@pytest.mark.parametrize(
    ("text", "got", "in_force"),
    [
        ("", "''", "10"),
        ("cheap", "'cheap'", "10"),
        ("-1", "'-1'", "10"),
        ("9" * 1000, f"'{'9' * 40}...'", "10"),
        ("0", "'0'", "0: it counts as free"),
        ("0.00", "'0.00'", "0: it counts as free"),
    ],
)
def test_a_cost_that_is_not_meant_is_named(cluster, text, got, in_force):
    """A cost of 0 is used, but reported, because it makes the variant the cheapest."""
    cluster.va("v", target="d", spec={"variantCost": text})
    (va,) = cluster.stores.variant_autoscalings.list()
    expected = "expected a number above 0 and up to 1,000,000,000"
    assert cost_problems(va) == [f"spec.variantCost: got {got}, {expected}; in force: {in_force}"]


@pytest.mark.parametrize("text", ["10.0", "0.1", "1e9", "007"])
def test_a_usual_cost_is_no_problem(cluster, text):
    """Every usual notation of a cost is accepted."""
    cluster.va("v", target="d", spec={"variantCost": text})
    (va,) = cluster.stores.variant_autoscalings.list()
    assert cost_problems(va) == []


@pytest.mark.parametrize(
    ("containers", "gpus"),
    [
        ([({}, {})], 1),
        ([({"nvidia.com/gpu": "2"}, {})], 2),
        ([({}, {"nvidia.com/gpu": "4"})], 4),
        ([({"nvidia.com/gpu": 1}, {"nvidia.com/gpu": "2"})], 2),
        ([({"nvidia.com/gpu": "1"}, {}), ({"amd.com/gpu": "2", "intel.com/gpu": "3"}, {})], 6),
        ([({"nvidia.com/gpu": "1k"}, {})], 1000),
        ([({"nvidia.com/gpu": "1500m"}, {})], 2),
        ([({"nvidia.com/gpu": "many", "cpu": "8"}, {})], 1),
        ([({"nvidia.com/gpu": "9" * 60}, {})], 1_000_000),
        ([({"nvidia.com/gpu": "9" * 10_000}, {})], 1),
    ],
)
def test_gpus_are_summed_over_containers_and_vendors(containers, gpus):
    """A limit without a request counts, since Kubernetes sets the request to it."""
    made = [Container(resources=ResourceRequirements(requests, limits)) for requests, limits in containers]
    template = PodTemplate(spec=TemplateSpec(tuple(made)))
    assert gpus_per_replica([(template, 1)]) == gpus


@pytest.mark.parametrize(("created", "desired"), [(EARLY, 7), (LATE, None), (None, 7)])
def test_a_number_written_for_a_former_deployment_is_not_taken_over(cluster, created, desired):
    """A Deployment younger than the number in the status begins with its own replicas."""
    cluster.deployment("d", **({} if created is None else {"creationTimestamp": created}))
    written = {"accelerator": "H100", "numReplicas": 7, "lastRunTime": "2026-01-01T00:02:00Z"}
    cluster.va(status={"desiredOptimizedAlloc": written})
    assert _only(cluster).status_desired == desired


@pytest.mark.parametrize(
    ("labels", "role"), [({}, ""), ({"llm-d.ai/role": "decode"}, "decode"), ({"llm-d.ai/role": "x" * 63}, "")]
)
def test_the_role_is_that_of_the_pod_template(cluster, labels, role):
    """The picker goes by the labels of the pods."""
    cluster.deployment("d", labels=labels)
    cluster.va()
    assert _only(cluster).role == role
