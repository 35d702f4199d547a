"""Builds the objects of a small cluster straight into the caches."""

from __future__ import annotations

import asyncio
from itertools import count

import msgspec
from prometheus_client import CollectorRegistry

from wva import log
from wva.api.core import Pod
from wva.api.kinds import PODS
from wva.api.meta import format_time
from wva.api.variantautoscaling import ACCELERATOR_LABEL, VariantAutoscaling
from wva.collect.faults import Faults
from wva.collect.queries import SCHEDULER_QUEUE
from wva.collect.replicas import ReplicaJoin
from wva.collect.resolution import CollectStores
from wva.collect.variants import AcceptedVariant, Claims, accepted_in_slices
from wva.instruments import Instruments
from wva.kube.cache import Store
from wva.model.metrics import Freshness
from wva.model.variant import Variant, VariantKey
from wva.targets import DEFAULT, DEPLOYMENTS, KINDS, REPLICA_SETS, Deployment, ReplicaSet, TargetStores


def accepted_variants(stores, **rest):
    """Return the variants that the collector accepts, for tests without an event loop."""
    usual = {"claims": Claims(), "now": 0.0, "as_started": lambda variant, _: variant, "faults": no_faults()}
    return asyncio.run(accepted_in_slices(stores, **{**usual, **rest}))


def no_faults():
    """Return the models that cannot be read: none so far."""
    return Faults(0.0, log.Throttle())


def joined_queue(model, vector, *, now):
    """Return the queue of a model according to an answer of Prometheus."""
    accepted = AcceptedVariant(Variant(VariantKey(model.namespace, "va"), model, "d"))
    wanted = {model: frozenset({SCHEDULER_QUEUE})}
    join = ReplicaJoin([accepted], instruments=Instruments(CollectorRegistry()), wanted=wanted, faults=no_faults())
    join.add(SCHEDULER_QUEUE, vector)
    (queue,) = join.queues(now=now, freshness=Freshness())
    return queue


class Cache:
    """The cache of one kind that can be read."""

    def __init__(self):
        """Start with nothing."""
        self.store = Store()
        self.absent = None


class CachedCluster:
    """The four caches, with their indexes, and verbs to fill them."""

    def __init__(self, *, kinds=(DEFAULT,)):
        """Start with nothing; only targets of ``kinds`` are scaled."""
        self.watched = {resource.name: Cache() for kind in (*KINDS, *kinds) for resource in kind.read}
        self.stores = CollectStores(Store(), TargetStores(kinds, self.watched, Store()))
        self.stores.add_indexes()
        self.deployments = self.watched[DEPLOYMENTS.name].store
        self.replica_sets = self.watched[REPLICA_SETS.name].store
        self._uids = count(1)

    def va(self, name="va", *, namespace="ns", target="d", model_id="m", labels=None, spec=None, **rest):
        """Put a VariantAutoscaling; ``spec`` and ``rest`` are wire fields laid over the usual ones."""
        metadata = self._metadata(name, namespace, labels=labels or {ACCELERATOR_LABEL: "A100"})
        metadata |= rest.pop("metadata", {})
        reference = {"apiVersion": "apps/v1", "kind": "Deployment", "name": target}
        wire_spec = {"scaleTargetRef": reference, "modelID": model_id, **(spec or {})}
        return self._put(
            self.stores.variant_autoscalings, VariantAutoscaling, {"metadata": metadata, "spec": wire_spec, **rest}
        )

    def deployment(
        self, name="d", *, namespace="ns", replicas=1, ready=None, counted=None, resources=None, labels=None, **metadata
    ):
        """Put a Deployment with its one ReplicaSet ``<name>-rs``; ``counted``: the replicas of its status."""
        status = {
            "replicas": replicas if counted is None else counted,
            "readyReplicas": replicas if ready is None else ready,
        }
        template = {
            "metadata": {"labels": labels or {}},
            "spec": {"containers": [{"name": "vllm", "resources": resources or {}}]},
        }
        made = self._put(
            self.deployments,
            Deployment,
            {
                "metadata": self._metadata(name, namespace) | metadata,
                "spec": {"replicas": replicas, "template": template},
                "status": status,
            },
        )
        self.replica_set(f"{name}-rs", namespace=namespace, owner=made)
        return made

    def replica_set(self, name, *, namespace="ns", owner=None):
        """Put a ReplicaSet, owned by a Deployment or bare."""
        owners = _owners("Deployment", owner)
        metadata = self._metadata(name, namespace) | {"ownerReferences": owners}
        return self._put(self.replica_sets, ReplicaSet, {"metadata": metadata})

    def pod(
        self,
        name,
        *,
        namespace="ns",
        deployment="d",
        ready=True,
        ready_since=None,
        phase="Running",
        node="n",
        conditions=(),
        containers=None,
        **metadata,
    ):
        """Put a pod of the ReplicaSet of a Deployment; None makes a bare pod. ``ready_since`` is in epoch seconds.

        ``conditions`` are beside Ready, ``containers`` are further fields of the status.
        """
        owner = None
        if deployment is not None:
            owner = next(
                replica_set
                for replica_set in self.replica_sets.list(namespace)
                if replica_set.metadata.name == f"{deployment}-rs"
            )
        owned = {"ownerReferences": _owners("ReplicaSet", owner)}
        ready_condition = {"type": "Ready", "status": "True" if ready else "False"}
        if ready_since is not None:
            ready_condition["lastTransitionTime"] = format_time(ready_since)
        return self._put(
            self.stores.targets.pods,
            Pod,
            {
                "metadata": self._metadata(name, namespace) | owned | metadata,
                "spec": {"nodeName": node},
                "status": {"phase": phase, "conditions": [ready_condition, *conditions], **(containers or {})},
            },
        )

    def put(self, resource, name="d", *, namespace="ns", owner=None, **wire):
        """Put an object of any watched kind, or a pod; ``owner`` controls it, ``wire`` are its fields."""
        store = self.stores.targets.pods if resource is PODS else self.watched[resource.name].store
        metadata = self._metadata(name, namespace, ownerReferences=_owners("Owner", owner)) | wire.pop("metadata", {})
        return self._put(store, resource.type, {"metadata": metadata, **wire})

    def variant(self, name="va", *, namespace="ns", pods=1, model_id="m", labels=None):
        """Put a VA, its Deployment ``d-<name>`` and Ready pods ``<name>-0``, ...; ``labels`` are of the template."""
        target = f"d-{name}"
        self.deployment(target, namespace=namespace, replicas=pods, labels=labels)
        for index in range(pods):
            self.pod(f"{name}-{index}", namespace=namespace, deployment=target)
        return self.va(name, namespace=namespace, target=target, model_id=model_id)

    def _metadata(self, name, namespace, **rest):
        return {"name": name, "namespace": namespace, "uid": f"uid-{next(self._uids)}", **rest}

    @staticmethod
    def _put(store, type_, wire):
        made = msgspec.convert(wire, type_)
        store.upsert(made)
        return made


def _owners(kind, owner):
    if owner is None:
        return []
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner.metadata.name, "uid": owner.metadata.uid}
    return [reference | {"controller": True}]
