"""What can be scaled: the one place that knows the kinds of targets. A further kind is added here.

Each kind says how its objects look on the wire (a class below ``ScaleTarget``) and where they are found (an entry of
``KINDS``). Everything else follows from these two: which caches are filled, what a ``scaleTargetRef`` may name, whose
scale subresource is written, which rights the controller needs, and which pods belong to a target.

**Replicas.** A replica is what the scale subresource counts: a pod of a Deployment or a StatefulSet, a group of pods of
a LeaderWorkerSet. One pod of each replica serves and is scraped. ``pods_of`` returns this pod, which stands for the
replica everywhere else.

**Pods.** Reading goes from owner to owned, so a cycle costs as much as there are replicas of ours, however many other
pods the cluster has. Between a target and its pods there may be one more kind: the ReplicaSets of a Deployment, the
StatefulSet of a LeaderWorkerSet, whose pods are the leaders. A leader controls a further StatefulSet, that of its
workers. Owners are matched by uid: a target that was deleted and created again under the same name does not inherit the
pods of its predecessor.

A uid counts only within a namespace. The API server does not check in which namespace the owner of an object lies, so a
tenant can write the uid of another tenant's ReplicaSet into a pod. In the ReplicaSet's own namespace such a pod counts:
the controllers of Kubernetes take it for a replica if it matches the selector, and remove the reference if not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from wva.api.core import Pod, PodTemplate
from wva.api.meta import Key, KubeObject, ObjectMeta
from wva.api.resource import Resource
from wva.api.scalers import ScaledTarget
from wva.api.variantautoscaling import VariantAutoscaling
from wva.kube.cache import Handler, Store
from wva.kube.informer import Informer
from wva.numbers import REPLICAS

CONTROLLER_INDEX: Final = "controller"

# --- How the objects look ---------------------------------------------------------------------------------------------


class ScaleTargetStatus(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``status``: the replicas that exist, and those of them that are Ready."""

    replicas: int = 0
    ready_replicas: int = 0


class ScaleTargetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec``: the replicas asked for; absent means 1, the API server's default."""

    replicas: int | None = None


class ScaleTarget(msgspec.Struct, frozen=True, rename="camel"):
    """An object that is scaled, of any kind."""

    metadata: ObjectMeta = ObjectMeta()
    status: ScaleTargetStatus = ScaleTargetStatus()
    spec: ScaleTargetSpec = ScaleTargetSpec()

    @property
    def templates(self) -> tuple[tuple[PodTemplate, int], ...]:
        """The templates of a replica's pods, each with how many of them there are; first the one that serves."""
        raise NotImplementedError

    @property
    def pod_labels(self) -> dict[str, str]:
        """The labels of the pod that serves, as far as they are known before there is one."""
        return self.template.metadata.labels

    def with_templates(self, change: Callable[[PodTemplate], PodTemplate]) -> ScaleTarget:
        """Return a target whose templates have gone through ``change``."""
        raise NotImplementedError

    @property
    def template(self) -> PodTemplate:
        """The template of the pod that serves."""
        return self.templates[0][0]

    @property
    def pods_per_replica(self) -> int:
        """How many pods a replica has when it is complete."""
        return sum(count for _, count in self.templates)

    @property
    def spec_replicas(self) -> int:
        """The replicas asked for; what is no number of replicas counts as absent."""
        if self.spec.replicas is None:
            return 1
        replicas = REPLICAS.find(self.spec.replicas)
        return self.existing_replicas or 1 if replicas is None else replicas

    @property
    def existing_replicas(self) -> int:
        """The replicas of the status, 0 while it is empty."""
        return REPLICAS.find(self.status.replicas) or 0

    @property
    def ready_replicas(self) -> int:
        """The Ready replicas of the status."""
        return REPLICAS.find(self.status.ready_replicas) or 0

    @property
    def current_replicas(self) -> int:
        """The replicas that exist. While the status is still empty: the replicas of the spec."""
        return self.existing_replicas or self.spec_replicas


class PodSetSpec(ScaleTargetSpec, frozen=True, rename="camel"):
    """``spec`` of a set of equal pods."""

    template: PodTemplate = PodTemplate()


class PodSet(ScaleTarget, frozen=True, rename="camel"):
    """A set of equal pods, each of which serves."""

    spec: PodSetSpec = PodSetSpec()

    @property
    def templates(self) -> tuple[tuple[PodTemplate, int], ...]:
        """The one template."""
        return ((self.spec.template, 1),)

    def with_templates(self, change: Callable[[PodTemplate], PodTemplate]) -> ScaleTarget:
        """Return the set with its template changed."""
        changed = change(self.spec.template)
        return self if changed is self.spec.template else replace(self, spec=replace(self.spec, template=changed))


class Deployment(PodSet, frozen=True, rename="camel"):
    """An apps/v1 Deployment."""


class StatefulSet(PodSet, frozen=True, rename="camel"):
    """An apps/v1 StatefulSet."""


class ReplicaSet(msgspec.Struct, frozen=True, rename="camel"):
    """An apps/v1 ReplicaSet: only the link from a pod to its Deployment."""

    metadata: ObjectMeta = ObjectMeta()


class LeaderWorkerTemplate(msgspec.Struct, frozen=True, rename="camel"):
    """``spec.leaderWorkerTemplate``: a group of ``size`` pods; without a template of its own the leader is a worker."""

    leader_template: PodTemplate | None = None
    worker_template: PodTemplate = PodTemplate()
    size: int | None = None


class LeaderWorkerSetSpec(ScaleTargetSpec, frozen=True, rename="camel"):
    """``spec`` of a LeaderWorkerSet; ``replicas`` counts groups."""

    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LeaderWorkerSet(ScaleTarget, frozen=True, rename="camel"):
    """A leaderworkerset.x-k8s.io/v1 LeaderWorkerSet: an engine on several nodes, whose leader serves."""

    spec: LeaderWorkerSetSpec = LeaderWorkerSetSpec()

    @property
    def templates(self) -> tuple[tuple[PodTemplate, int], ...]:
        """The template of the leader and that of the workers."""
        group = self.spec.leader_worker_template
        leader = group.worker_template if group.leader_template is None else group.leader_template
        workers = max(1, REPLICAS.find(group.size) or 1) - 1
        return ((leader, 1), (group.worker_template, workers))

    @property
    def pod_labels(self) -> dict[str, str]:
        """The labels of the leader's template, and those that the controller of the kind adds to a leader."""
        prefix = "leaderworkerset.sigs.k8s.io"
        return self.template.metadata.labels | {f"{prefix}/name": self.metadata.name, f"{prefix}/worker-index": "0"}

    def with_templates(self, change: Callable[[PodTemplate], PodTemplate]) -> ScaleTarget:
        """Return the set with both templates changed."""
        group = self.spec.leader_worker_template
        leader = None if group.leader_template is None else change(group.leader_template)
        worker = change(group.worker_template)
        if leader is group.leader_template and worker is group.worker_template:
            return self
        changed = replace(group, leader_template=leader, worker_template=worker)
        return replace(self, spec=replace(self.spec, leader_worker_template=changed))


# --- The kinds --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TargetKind:
    """A kind of target: where its objects are found, and the kind between them and their pods, if there is one.

    The controller lists and watches both, and writes the scale subresource of the first.
    """

    resource: Resource[Any]
    between: Resource[Any] | None = None

    def __str__(self) -> str:
        """Return for example ``apps/v1 Deployment``."""
        return f"{self.resource.api_version} {self.resource.kind}"

    @property
    def read(self) -> tuple[Resource[Any], ...]:
        """What has to be listed and watched."""
        return tuple(resource for resource in (self.resource, self.between) if resource is not None)

    def key(self, namespace: str, name: str) -> str:
        """Return ``namespace/apiVersion/kind/name``, by which the variants and scalers of a target are found."""
        return f"{namespace}/{self.resource.api_version}/{self.resource.kind}/{name}"


DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment", Deployment)
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet", ReplicaSet)
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet", StatefulSet)
LEADER_WORKER_SETS: Final = Resource(
    "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet", LeaderWorkerSet
)

DEFAULT: Final = TargetKind(DEPLOYMENTS, between=REPLICA_SETS)
"""The kind that is always scaled, and that a reference without kind or group means."""

KINDS: Final = (DEFAULT, TargetKind(STATEFUL_SETS), TargetKind(LEADER_WORKER_SETS, between=STATEFUL_SETS))
"""All kinds. Those after the first are scaled when the setting ``WVA_TARGET_KINDS`` names them."""


def chosen_kinds(names: str) -> tuple[TargetKind, ...]:
    """Return the default kind, and those of a list of kinds with commas between them."""
    return tuple(kind for kind in KINDS if kind is DEFAULT or kind.resource.kind in names.split(","))


def target_key(va: VariantAutoscaling) -> str:
    """Return ``namespace/apiVersion/kind/name`` of the scale target of a variant, be it of one of our kinds or not."""
    reference = va.spec.scale_target_ref
    api_version = reference.api_version or DEFAULT.resource.api_version
    return f"{va.metadata.namespace}/{api_version}/{reference.kind}/{reference.name}"


def scaled_key(namespace: str, reference: ScaledTarget) -> str | None:
    """Return the key of what an HPA or a ScaledObject scales; None when it is of no kind of ours.

    The version does not matter. KEDA lets kind and apiVersion be absent.
    """
    group = reference.api_version.partition("/")[0] or DEFAULT.resource.group
    named = (group, reference.kind or DEFAULT.resource.kind)
    kind = next((kind for kind in KINDS if (kind.resource.group, kind.resource.kind) == named), None)
    return None if kind is None or not reference.name else kind.key(namespace, reference.name)


def scaled_name(reference: ScaledTarget) -> str:
    """Return kind and name of what an HPA or a ScaledObject scales, such as ``Deployment chat``."""
    return f"{reference.kind or DEFAULT.resource.kind} {reference.name}"


# --- The caches, and the pods of a target -----------------------------------------------------------------------------


class TargetStores:
    """The targets of the kinds that are scaled, and what lies between them and their pods."""

    def __init__(self, kinds: Iterable[TargetKind], watched: Mapping[str, Informer[Any]], pods: Store[Pod]) -> None:
        """``watched`` has the informer of each kind that is read, by the resource's name."""
        self.kinds = tuple(kinds)
        self.pods = pods
        self._watched = watched
        self._kind_of = {kind.resource.type: kind for kind in self.kinds}
        self._kind_named = {(kind.resource.api_version, kind.resource.kind): kind for kind in self.kinds}
        usual = DEFAULT.resource.api_version  # what an absent apiVersion means
        self._kind_named |= {("", name): kind for (version, name), kind in self._kind_named.items() if version == usual}

    def add_indexes(self) -> None:
        """Index what is owned by its controller; once, before the first object."""
        self.pods.add_index(CONTROLLER_INDEX, controller_index)
        for name in {kind.between.name for kind in self.kinds if kind.between is not None}:
            self._watched[name].store.add_index(CONTROLLER_INDEX, controller_index)

    def subscribe(self, handler: Handler[ScaleTarget]) -> None:
        """Call ``handler(old, new)`` on each change of a target of any kind."""
        for kind in self.kinds:
            self.store(kind.resource).subscribe(handler)

    def store(self, resource: Resource[Any]) -> Store[Any]:
        """Return the cache of a resource. KeyError: it is not read."""
        return self._watched[resource.name].store

    def kind_named(self, va: VariantAutoscaling) -> TargetKind | None:
        """Return the kind of the scale target of a variant; None when it is not scaled."""
        return self._kind_named.get((va.spec.scale_target_ref.api_version, va.spec.scale_target_ref.kind))

    def named(self, va: VariantAutoscaling) -> ScaleTarget | None:
        """Return the object that a variant names as its scale target, contested or not; None when there is none."""
        kind, key = self.kind_named(va), Key(va.metadata.namespace, va.spec.scale_target_ref.name)
        found: ScaleTarget | None = None if kind is None else self.store(kind.resource).get(key)
        return found

    def absent(self, kind: TargetKind) -> str | None:
        """Return why the objects of a kind cannot be read; None when they can."""
        return next((reason for each in kind.read if (reason := self._watched[each.name].absent) is not None), None)

    def kind_of(self, target: ScaleTarget) -> TargetKind:
        """Return the kind of an object."""
        return self._kind_of[type(target)]

    def key_of(self, target: ScaleTarget) -> str:
        """Return ``namespace/apiVersion/kind/name``."""
        return self.kind_of(target).key(*target.metadata.key)


def pods_of(target: ScaleTarget, stores: TargetStores) -> tuple[Pod, ...]:
    """Return the pod that serves of each replica, all in the target's namespace, but not those that have ended.

    A leader stands for its group: it is Ready since the last pod of the group is, not Ready while one of them is not,
    and without a node while one of them has none.
    """
    between = stores.kind_of(target).between
    sets = None if between is None else stores.store(between)
    owners: Iterable[KubeObject] = (target,) if sets is None else _controlled(sets, target)
    serving = [pod for owner in owners for pod in _controlled(stores.pods, owner) if not pod.finished]
    size = target.pods_per_replica
    if sets is None or size == 1:
        return tuple(serving)
    leaders = []
    for leader in serving:
        workers = [pod for each in _controlled(sets, leader) for pod in _controlled(stores.pods, each)]
        group = [leader, *(pod for pod in workers if not pod.finished)]
        if len(group) >= size and all(pod.ready for pod in group):
            node_name = leader.spec.node_name
            conditions = max(group, key=lambda pod: pod.ready_since or 0.0).status.conditions
        else:
            behind = next((pod for pod in group if not pod.spec.node_name), leader)
            node_name = behind.spec.node_name
            conditions = tuple(condition for condition in behind.status.conditions if condition.type != "Ready")
        spec, status = replace(leader.spec, node_name=node_name), replace(leader.status, conditions=conditions)
        leaders.append(replace(leader, spec=spec, status=status))
    return tuple(leaders)


def _controlled(store: Store[Any], owner: KubeObject) -> list[Any]:
    return store.by_index(CONTROLLER_INDEX, f"{owner.metadata.namespace}/{owner.metadata.uid}")


def controller_index(owned: KubeObject) -> Iterable[str]:
    """Index an object by its own namespace, where its controlling owner must lie, and the uid of this owner."""
    controller = owned.metadata.controller
    return (f"{owned.metadata.namespace}/{controller.uid}",) if controller and controller.uid else ()
