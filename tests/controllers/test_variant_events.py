"""Which changes in the caches enqueue which VariantAutoscalings."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import structs
from prometheus_client import CollectorRegistry

from tests.collect.cluster import CachedCluster
from tests.publish.decisions import decision
from wva.api.meta import Key
from wva.api.scalers import HorizontalPodAutoscaler
from wva.api.variantautoscaling import Claimant
from wva.collect.variants import Claims
from wva.controllers import VariantAutoscalingController
from wva.instruments import Instruments
from wva.kube.controller import After, Done
from wva.kube.errors import Conflict, NotFound, Unavailable, WriteRefused
from wva.model.decision import Reason, Source
from wva.model.policy import Policy
from wva.model.trouble import UNTROUBLED, Trouble, TroubleReason
from wva.model.variant import VariantKey
from wva.publish.ledger import Ledger
from wva.sim.world.clock import VirtualClock


class FakeClient:
    """Records the patches, or raises ``error`` if it is set."""

    def __init__(self, stores):
        """Accept every patch, and answer with the object of the cache."""
        self.stores = stores
        self.patches = []
        self.error = None

    async def patch(self, _, key, body, *, subresource=""):
        """Record a patch."""
        assert subresource == "status"
        self.patches.append((key, body))
        if self.error is not None:
            raise self.error
        return self.stores.variant_autoscalings.get(key)


class NoProblems:
    """A configuration without problems."""

    def problem_for(self, _):
        """Return no problem."""
        return ""


class NoTroubles:
    """Troubles of a cluster that has none, apart from replicas that are late."""

    of_replicas = UNTROUBLED

    def gateway(self, _namespace, _labels):
        """Return no trouble of the gateways."""
        return UNTROUBLED

    def inventory(self, _accelerator, _pods):
        """Return no trouble of the GPUs."""
        return UNTROUBLED

    def late(self, _key):
        """Return why replicas are not there in time."""
        return self.of_replicas

    def start(self, _key):
        """Return no trouble of a start."""
        return UNTROUBLED


class VariantEventScene:
    """Caches, ledger and controller."""

    def __init__(self, *, instance=""):
        """Subscribe the controller to empty caches."""
        self.cluster = CachedCluster()
        self.client = FakeClient(self.cluster.stores)
        self.ledger = Ledger()
        self.instruments = Instruments(CollectorRegistry())
        self.clock = VirtualClock()
        self.events, self.troubles = [], NoTroubles()
        self.controller = VariantAutoscalingController(
            client=self.client,
            stores=self.cluster.stores,
            ledger=self.ledger,
            configuration=NoProblems(),
            claims=Claims(Claimant(f"s/{instance}", instance)),
            troubles=self.troubles,
            announce=lambda *event: self.events.append(event),
            clock=self.clock,
            instruments=self.instruments,
        )
        self.controller.watch()

    async def woken(self):
        """Return the names waiting in the queue, and empty it."""
        names = set()
        queue = self.controller.queue
        while not queue.idle and len(queue):
            key = await queue.get()
            names.add(key.name)
            queue.done(key)
        return names

    def delete(self, store, obj):
        """Remove an object from a cache."""
        getattr(self.cluster.stores, store).delete(obj)


@pytest.fixture
def scene():
    """Return a scene whose controller has no instance."""
    return VariantEventScene()


async def test_a_new_or_changed_variant_is_looked_at(scene):
    """A variant is enqueued when it is created or changed."""
    scene.cluster.va("a", target="x")
    assert await scene.woken() == {"a"}
    scene.cluster.va("a", target="x", model_id="other")
    assert await scene.woken() == {"a"}


async def test_a_newcomer_wakes_those_that_claim_the_same_target(scene):
    """A new variant enqueues the variants with the same target, because they are in conflict now."""
    scene.cluster.va("a", target="x")
    scene.cluster.va("b", target="y")
    await scene.woken()
    scene.cluster.va("c", target="x")
    assert await scene.woken() == {"a", "c"}


async def test_a_deleted_variant_wakes_its_rivals(scene):
    """A deleted variant enqueues the variants with the same target, because the conflict may be over."""
    scene.cluster.va("a", target="x")
    gone = scene.cluster.va("b", target="x")
    await scene.woken()
    scene.delete("variant_autoscalings", gone)
    assert await scene.woken() == {"a", "b"}


async def test_a_change_of_target_wakes_the_old_and_the_new_rivals(scene):
    """The change may end one conflict and begin another."""
    scene.cluster.va("a", target="x")
    scene.cluster.va("b", target="y")
    scene.cluster.va("c", target="x")
    await scene.woken()
    scene.cluster.va("c", target="y")
    assert await scene.woken() == {"a", "b", "c"}


async def test_a_status_change_of_a_rival_wakes_nobody_else(scene):
    """A status change enqueues only its own variant.

    Otherwise two variants in conflict would enqueue each other for ever.
    """
    scene.cluster.va("a", target="x")
    scene.cluster.va("b", target="x")
    await scene.woken()
    scene.cluster.va("b", target="x", status={"conditions": []}, metadata={"resourceVersion": "9"})
    assert await scene.woken() == {"b"}


async def test_a_deployment_wakes_its_variants_when_it_comes_goes_or_leaves_zero(scene):
    """A Deployment enqueues its variants when it is created, replaced or deleted.

    It also does so when it goes to zero or leaves zero.
    """
    scene.cluster.va("a", target="x")
    scene.cluster.va("b", target="y")
    await scene.woken()
    scene.cluster.deployment("x", replicas=1, uid="1")
    assert await scene.woken() == {"a"}
    scene.cluster.deployment("x", replicas=0, uid="1")
    assert await scene.woken() == {"a"}
    scene.cluster.deployment("x", replicas=1, uid="1")
    assert await scene.woken() == {"a"}
    last = scene.cluster.deployment("x", replicas=1, uid="2")
    assert await scene.woken() == {"a"}, "another Deployment of the same name"
    scene.cluster.deployments.delete(last)
    assert await scene.woken() == {"a"}


async def test_a_deployment_that_only_scales_wakes_nobody(scene):
    """The series read the replicas from the cache, and the next cycle decides the number."""
    scene.cluster.va("a", target="x")
    scene.cluster.deployment("x", replicas=1, uid="1")
    await scene.woken()
    scene.cluster.deployment("x", replicas=5, ready=2, uid="1")
    assert await scene.woken() == set()


async def test_a_deployment_asked_to_go_counts_as_gone(scene):
    """A deletionTimestamp enqueues the variants, although the Deployment still exists."""
    scene.cluster.va("a", target="x")
    scene.cluster.deployment("x", uid="1")
    await scene.woken()
    scene.cluster.deployment("x", uid="1", deletionTimestamp="2026-01-01T00:00:00Z")
    assert await scene.woken() == {"a"}


async def test_a_deployment_of_another_namespace_wakes_nobody(scene):
    """A variant's target is in the namespace of the variant."""
    scene.cluster.va("a", target="x")
    await scene.woken()
    scene.cluster.deployment("x", namespace="elsewhere")
    assert await scene.woken() == set()


async def test_a_changed_decision_wakes_its_variant(scene):
    """A decision enqueues its variant if it differs from the last one."""
    scene.ledger.record([decision()])
    assert await scene.woken() == {"va"}
    scene.ledger.record([decision()])
    assert await scene.woken() == set()


async def test_enqueue_all_looks_at_every_variant(scene):
    """``enqueue_all`` enqueues every variant of the cache."""
    scene.cluster.va("a", target="x")
    scene.cluster.va("b", target="y")
    await scene.woken()
    scene.controller.enqueue_all()
    assert await scene.woken() == {"a", "b"}


async def test_a_reconciled_variant_is_looked_at_again_for_its_heartbeat(scene):
    """A variant is reconciled again after ten minutes. A deleted variant is not."""
    scene.cluster.variant()
    assert await scene.controller.reconcile(Key("ns", "va")) == After(600.0)
    assert await scene.controller.reconcile(Key("ns", "gone")) == Done()


async def test_a_conflict_is_counted_and_raised(scene):
    """The controller raises a failed patch so that the worker tries again. It does not raise a 404."""
    scene.cluster.variant()
    key = Key("ns", "va")
    for error, result in ((Conflict(409, "Conflict", ""), "conflict"), (Unavailable(503, "", ""), "error")):
        scene.client.error = error
        with pytest.raises(type(error)):
            await scene.controller.reconcile(key)
        labels = {"result": result}
        assert scene.instruments.registry.get_sample_value("wva_status_patches_total", labels) == 1
    scene.client.error = WriteRefused(0, "WriteRefused", "")
    with pytest.raises(WriteRefused):
        await scene.controller.reconcile(Key("ns", "va"))
    for result in ("conflict", "error"):
        assert scene.instruments.registry.get_sample_value("wva_status_patches_total", {"result": result}) == 1
    scene.client.error = NotFound(404, "NotFound", "")
    assert await scene.controller.reconcile(key) == After(600.0)


async def test_a_workload_started_by_somebody_else_is_not_published_as_zero(scene):
    """When a user starts the workload, its current replicas are published until a cycle decides."""
    scene.cluster.variant(pods=0)
    uid = scene.cluster.deployments.get(Key("ns", "d-va")).metadata.uid
    await scene.controller.reconcile(Key("ns", "va"))
    scene.ledger.record([decision(0, current=0, reason=Reason.INACTIVE, source=Source.CURRENT_REPLICAS)])
    scene.cluster.deployment("d-va", replicas=3, uid=uid, resourceVersion="9")
    await scene.controller.reconcile(Key("ns", "va"))
    started = scene.ledger.get(VariantKey("ns", "va"))
    assert (started.desired, started.source, started.reason) == (3, Source.CURRENT_REPLICAS, Reason.NOT_DECIDED)


async def test_a_variant_being_deleted_is_dropped(scene):
    """The ledger drops a variant as soon as its deletion is requested, and nothing is written to it."""
    scene.cluster.variant()
    await scene.controller.reconcile(Key("ns", "va"))
    assert scene.ledger.get(VariantKey("ns", "va")) is not None
    scene.cluster.va("va", target="d-va", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})
    scene.client.patches.clear()
    await scene.controller.reconcile(Key("ns", "va"))
    assert scene.ledger.get(VariantKey("ns", "va")) is None
    assert scene.client.patches == []


async def test_known_means_that_there_is_a_target_to_scale(scene):
    """A variant is known if it has a target that it does not share, and belongs to this controller."""
    key = VariantKey("ns", "va")
    assert not scene.controller.known(key)
    scene.cluster.va("va", target="d-va")
    assert not scene.controller.known(key)
    scene.cluster.variant()
    assert scene.controller.known(key)
    scene.cluster.va("rival", target="d-va")
    assert not scene.controller.known(key)
    other = VariantEventScene(instance="blue")
    other.cluster.variant()
    assert not other.controller.known(key)


async def test_current_replicas_are_those_that_exist(scene):
    """They are ``status.replicas`` of the target, or ``spec.replicas`` while the status has none.

    Without a target they are None.
    """
    key = VariantKey("ns", "va")
    assert scene.controller.current_replicas(key) is None
    scene.cluster.va("va", target="x")
    assert scene.controller.current_replicas(key) is None
    made = scene.cluster.deployment("x", replicas=3)
    assert scene.controller.current_replicas(key) == 3
    for spec, status, expected in ((0, 2, 2), (0, 0, 0), (3, 0, 3), (5, 3, 3)):
        changed = structs.replace(
            made,
            spec=structs.replace(made.spec, replicas=spec),
            status=structs.replace(made.status, replicas=status),
        )
        scene.cluster.deployments.upsert(changed)
        assert scene.controller.current_replicas(key) == expected


async def test_a_contested_variant_keeps_its_series(scene):
    """A variant keeps its last number while a conflict lasts."""
    scene.cluster.variant(pods=2)
    await scene.controller.reconcile(Key("ns", "va"))
    scene.cluster.va("rival", target="d-va")
    await scene.controller.reconcile(Key("ns", "va"))
    assert scene.ledger.get(VariantKey("ns", "va")).desired == 2


async def test_a_contested_variant_does_not_boast_of_its_metrics(scene):
    """During a conflict the conditions tell of the conflict, and not of the last decision."""
    scene.cluster.variant()
    scene.ledger.record([decision()])
    scene.cluster.va("rival", target="d-va")
    await scene.controller.reconcile(Key("ns", "va"))
    (_, body) = scene.client.patches[-1]
    told = {entry["type"]: (entry["status"], entry["reason"]) for entry in body["status"]["conditions"]}
    assert told["MetricsAvailable"] == ("False", "MetricsUnavailable")
    assert told["OptimizationReady"] == ("False", "TargetConflict")
    assert "desiredOptimizedAlloc" not in body["status"]


async def test_the_answer_to_our_own_patch_wakes_nobody_and_what_others_write_does(scene):
    """The answer to WVA's own patch is put into the cache without enqueueing the variant."""
    scene.cluster.deployment("x", replicas=2)
    va = scene.cluster.va("a", target="x", metadata={"resourceVersion": "899"})
    await scene.controller.reconcile(Key("ns", "a"))
    await scene.woken()
    answer = structs.replace(va, metadata=structs.replace(va.metadata, resource_version="900"))

    async def patch(*_args, **_rest):
        return answer

    scene.client.patch = patch
    await scene.controller.reconcile(Key("ns", "a"))
    assert scene.cluster.stores.variant_autoscalings.get(Key("ns", "a")) is answer
    assert await scene.woken() == set()
    others = structs.replace(va, metadata=structs.replace(va.metadata, resource_version="901"))
    scene.cluster.stores.variant_autoscalings.upsert(others)
    assert await scene.woken() == {"a"}


@pytest.mark.parametrize(
    ("reason", "annotations", "told"),
    [
        (TroubleReason.SCALER_NOT_FOLLOWING, {}, "ScalerMissing"),
        (TroubleReason.SCALER_NOT_FOLLOWING, {"wva.llmd.ai/actuation": "direct"}, "ScalerNotFollowing"),
        (TroubleReason.REPLICAS_LATE, {}, "ReplicasLate"),
    ],
)
async def test_a_number_that_is_not_followed_has_no_scaler_if_none_names_the_target(scene, reason, annotations, told):
    """Where the controller itself writes the number, a scaler is not missing."""
    scene.troubles.of_replicas = Trouble(reason, "the number is 3")
    scene.cluster.deployment("d")
    scene.cluster.va("va", metadata={"annotations": annotations})
    await scene.controller.reconcile(Key("ns", "va"))
    ((_, patch),) = scene.client.patches
    (found,) = [each for each in patch["status"]["conditions"] if each["type"] == "ReplicasOnTime"]
    assert (found["status"], found["reason"]) == ("False", told)
    assert found["message"].startswith("the number is 3")


async def test_a_scaler_that_names_the_target_is_not_missing(scene):
    """It does not follow."""
    scene.troubles.of_replicas = Trouble(TroubleReason.SCALER_NOT_FOLLOWING, "the number is 3")
    scene.cluster.deployment("d")
    scene.cluster.va("va")
    metadata, spec = {"name": "h", "namespace": "ns"}, {"scaleTargetRef": {"kind": "Deployment", "name": "d"}}
    hpa = msgspec.convert({"metadata": metadata, "spec": spec}, HorizontalPodAutoscaler)
    scene.cluster.stores.scalers.hpas.upsert(hpa)
    await scene.controller.reconcile(Key("ns", "va"))
    ((_, patch),) = scene.client.patches
    assert "ScalerNotFollowing" in [each["reason"] for each in patch["status"]["conditions"]]


@pytest.mark.parametrize(
    ("of_other", "in_force"),
    [
        ({}, "300 ms"),
        ({"model_id": "another"}, "1 s"),
        ({"namespace": "elsewhere"}, "1 s"),
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "1 s"),
        ({"target": "d-va"}, "1 s"),
        ({"pods": 0}, "1 s"),
    ],
)
async def test_an_objective_in_vain_is_told_with_what_the_other_variants_of_the_model_ask_for(
    scene, of_other, in_force
):
    """Only those count that the decisions on the model read: ours, with a target, and not switched off."""
    cluster = scene.cluster
    fields = {name: value for name, value in of_other.items() if name not in {"pods", "metadata"}}
    scene.controller._configuration.policy = Policy()
    cluster.deployment("d-va", replicas=1)
    cluster.deployment("d-b", replicas=of_other.get("pods", 1), namespace=of_other.get("namespace", "ns"))
    cluster.va("va", target="d-va", metadata={"annotations": {"wva.llmd.ai/slo-ttft": "50"}})
    metadata = {"annotations": {"wva.llmd.ai/slo-ttft": "300"}, **of_other.get("metadata", {})}
    cluster.va("b", **{"target": "d-b", **fields}, metadata=metadata)
    await scene.controller.reconcile(Key("ns", "va"))
    told = [condition["message"] for condition in scene.client.patches[-1][1]["status"]["conditions"]]
    (line,) = [message for message in told if "expected at least 100 ms" in message]
    assert line.endswith(f"in force: {in_force}")
