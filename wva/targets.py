"""What can be scaled. A further kind is added here; ``tests/test_target_kinds.py`` names the other places that have it.

Each kind says how its objects look (a class below ``ScaleTarget``) and where they are found (an entry of ``KINDS``).
Everything else in the program follows from these two: which caches are filled, what a ``scaleTargetRef`` may name,
whose scale subresource is written, which rights the controller needs, and which pods belong to a target.

**Replicas.** A replica is what the scale subresource counts: a pod of a Deployment or a StatefulSet, or a group of pods
of a LeaderWorkerSet. One pod of each replica serves and is scraped. ``pods_of`` returns this pod, which stands for the
replica everywhere else.

**Pods.** Pods are found from owner to owned, so the cost does not depend on the other pods of the cluster. There may be
one more kind between a target and its pods: the ReplicaSets of a Deployment, or the StatefulSet of a LeaderWorkerSet,
whose pods are the leaders. Each leader controls one more StatefulSet, with its workers. Owners are matched by uid, so a
target that was deleted and created again does not inherit the pods of its predecessor.

A uid counts only within a namespace. The API server does not check the namespace of an owner, so a tenant can write the
uid of another tenant's ReplicaSet into a pod. In the ReplicaSet's own namespace such a pod counts: the controllers of
Kubernetes take it for a replica if it matches the selector, and remove the reference if not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
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

_CONTROLLER_INDEX: Final = "controller"
_GROUPS: Final = "leaderworkerset.sigs.k8s.io"
"""Prefix of the labels on the pods of a LeaderWorkerSet."""

# --- How the objects look ---------------------------------------------------------------------------------------------


class _Status(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    replicas: int = 0
    ready_replicas: int = 0


class ScaleTargetSpec(msgspec.Struct, frozen=True, rename="camel"):
    """``spec``: the replicas that are wanted. Without a number it is 1, the API server's default."""

    replicas: int | None = None


class ScaleTarget(msgspec.Struct, frozen=True, rename="camel"):
    """An object that is scaled, of any kind."""

    metadata: ObjectMeta = ObjectMeta()
    status: _Status = _Status()
    spec: ScaleTargetSpec = ScaleTargetSpec()

    @property
    def templates(self) -> tuple[tuple[PodTemplate, int], ...]:
        """The templates of a replica's pods, each with its number of pods. The first one serves."""
        raise NotImplementedError

    @property
    def pod_labels(self) -> dict[str, str]:
        """The labels of the pod that serves, as far as they are known before it exists."""
        return self.template.metadata.labels

    @property
    def replica_labels(self) -> dict[str, str]:
        """The labels in the templates of a replica's pods; where two templates differ, that of the serving pod counts.

        A label that says what a replica is may be in only one of the templates.
        """
        labels: dict[str, str] = {}
        for template, count in reversed(self.templates):
            labels |= template.metadata.labels if count else {}
        return labels

    def with_templates(self, change: Callable[[PodTemplate], PodTemplate]) -> ScaleTarget:
        """Return a target with its templates changed by ``change``."""
        raise NotImplementedError

    @property
    def template(self) -> PodTemplate:
        """The template of the pod that serves."""
        return self.templates[0][0]

    @property
    def pods_per_replica(self) -> int:
        """How many pods a complete replica has."""
        return sum(count for _, count in self.templates)

    @property
    def spec_replicas(self) -> int:
        """The replicas that are wanted. A value that cannot be a number of replicas counts as absent."""
        if self.spec.replicas is None:
            return 1
        replicas = REPLICAS.find(self.spec.replicas)
        return self.existing_replicas or 1 if replicas is None else replicas

    @property
    def existing_replicas(self) -> int:
        """The replicas of the status; 0 while it is empty."""
        return REPLICAS.find(self.status.replicas) or 0

    def ready_replicas(self, pods: Collection[Pod]) -> int:
        """Return the Ready replicas; ``pods`` are those of ``pods_of``. The status of most kinds counts them right."""
        del pods
        return REPLICAS.find(self.status.ready_replicas) or 0

    @property
    def current_replicas(self) -> int:
        """The replicas that exist, or those of the spec while the status is empty."""
        return self.existing_replicas or self.spec_replicas


class PodSetSpec(ScaleTargetSpec, frozen=True, rename="camel"):
    """``spec`` of a set of equal pods."""

    template: PodTemplate = PodTemplate()


class PodSet(ScaleTarget, frozen=True, rename="camel"):
    """A set of equal pods that all serve."""

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
    """An apps/v1 ReplicaSet: the link from a pod to its Deployment."""

    metadata: ObjectMeta = ObjectMeta()


class LeaderWorkerTemplate(msgspec.Struct, frozen=True, rename="camel"):
    """``spec.leaderWorkerTemplate``: a group of ``size`` pods. The leader may have a template of its own."""

    leader_template: PodTemplate | None = None
    worker_template: PodTemplate = PodTemplate()
    size: int | None = None


class _LeaderWorkerSetSpec(ScaleTargetSpec, frozen=True, rename="camel"):
    leader_worker_template: LeaderWorkerTemplate = LeaderWorkerTemplate()


class LeaderWorkerSet(ScaleTarget, frozen=True, rename="camel"):
    """A leaderworkerset.x-k8s.io/v1 LeaderWorkerSet: engines on several nodes, whose leaders serve.

    ``replicas`` counts groups.
    """

    spec: _LeaderWorkerSetSpec = _LeaderWorkerSetSpec()

    @property
    def templates(self) -> tuple[tuple[PodTemplate, int], ...]:
        """The templates of the leader and of the workers."""
        group = self.spec.leader_worker_template
        leader = group.worker_template if group.leader_template is None else group.leader_template
        workers = max(1, REPLICAS.find(group.size) or 1) - 1
        return ((leader, 1), (group.worker_template, workers))

    @property
    def pod_labels(self) -> dict[str, str]:
        """The labels of the leader's template, and those that Kubernetes adds to a leader."""
        leader_labels = {f"{_GROUPS}/name": self.metadata.name, f"{_GROUPS}/worker-index": "0"}
        return self.template.metadata.labels | leader_labels

    def ready_replicas(self, pods: Collection[Pod]) -> int:
        """Return the groups whose pods are all Ready. The status counts a group as soon as its workers exist."""
        return sum(pod.ready for pod in pods)

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
    """A kind of target, and the kind between its objects and their pods, if there is one.

    The controller lists and watches both, and writes the scale subresource of the first.
    """

    resource: Resource[Any]
    between: Resource[Any] | None = None
    name_label: str = ""
    """The label with a target's name on the pods that serve; empty for a kind whose ``spec.selector`` picks them."""

    def __str__(self) -> str:
        """Return for example ``apps/v1 Deployment``."""
        return f"{self.resource.api_version} {self.resource.kind}"

    @property
    def read(self) -> tuple[Resource[Any], ...]:
        """The kinds that have to be listed and watched."""
        return tuple(resource for resource in (self.resource, self.between) if resource is not None)

    def key(self, namespace: str, name: str) -> str:
        """Return ``namespace/apiVersion/kind/name``, the key of a target for its variants and scalers."""
        return f"{namespace}/{self.resource.api_version}/{self.resource.kind}/{name}"


DEPLOYMENTS: Final = Resource("apps", "v1", "deployments", "Deployment", Deployment)
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets", "ReplicaSet", ReplicaSet)
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets", "StatefulSet", StatefulSet)
LEADER_WORKER_SETS: Final = Resource(
    "leaderworkerset.x-k8s.io", "v1", "leaderworkersets", "LeaderWorkerSet", LeaderWorkerSet
)

DEFAULT: Final = TargetKind(DEPLOYMENTS, between=REPLICA_SETS)
"""The kind that is always scaled. A reference without a kind or group means it."""

KINDS: Final = (
    DEFAULT,
    TargetKind(STATEFUL_SETS),
    TargetKind(LEADER_WORKER_SETS, between=STATEFUL_SETS, name_label=f"{_GROUPS}/name"),
)
"""All kinds. Those after the first are scaled if the setting ``WVA_TARGET_KINDS`` names them."""


def chosen_kinds(names: str) -> tuple[TargetKind, ...]:
    """Return the default kind, and those that a comma-separated list names."""
    return tuple(kind for kind in KINDS if kind is DEFAULT or kind.resource.kind in names.split(","))


def target_key(va: VariantAutoscaling) -> str:
    """Return the key of the scale target of a variant, also of a kind that WVA does not scale."""
    reference = va.spec.scale_target_ref
    api_version = reference.api_version or DEFAULT.resource.api_version
    return f"{va.metadata.namespace}/{api_version}/{reference.kind}/{reference.name}"


def scaled_key(namespace: str, reference: ScaledTarget) -> str | None:
    """Return the key of what an HPA or a ScaledObject scales; None for a kind that is not in ``KINDS``.

    The version does not matter. With KEDA, kind and apiVersion may be absent.
    """
    group = reference.api_version.partition("/")[0] or DEFAULT.resource.group
    group_and_kind = (group, reference.kind or DEFAULT.resource.kind)
    kind = next((kind for kind in KINDS if (kind.resource.group, kind.resource.kind) == group_and_kind), None)
    return None if kind is None or not reference.name else kind.key(namespace, reference.name)


# --- The caches, and the pods of a target -----------------------------------------------------------------------------


class TargetStores:
    """The caches of the targets, of their pods, and of the objects between them."""

    def __init__(self, kinds: Iterable[TargetKind], watched: Mapping[str, Informer[Any]], pods: Store[Pod]) -> None:
        """``watched`` has the informer of each resource, by its name."""
        self.kinds = tuple(kinds)
        self.pods = pods
        self._watched = watched
        self._kind_of = {kind.resource.type: kind for kind in self.kinds}
        self._kind_named = {(kind.resource.api_version, kind.resource.kind): kind for kind in self.kinds}

    def add_indexes(self) -> None:
        """Index owned objects by their controller. Call this once, before the first object."""
        self.pods.add_index(_CONTROLLER_INDEX, _controller_index)
        for name in {kind.between.name for kind in self.kinds if kind.between is not None}:
            self._watched[name].store.add_index(_CONTROLLER_INDEX, _controller_index)

    def subscribe(self, handler: Handler[ScaleTarget]) -> None:
        """Call ``handler(old, new)`` on each change of a target of any kind."""
        for kind in self.kinds:
            self.store(kind.resource).subscribe(handler)

    def store(self, resource: Resource[Any]) -> Store[Any]:
        """Return the cache of a resource. Raises KeyError when the resource is not read."""
        return self._watched[resource.name].store

    def kind_named(self, va: VariantAutoscaling) -> TargetKind | None:
        """Return the kind of a variant's scale target; None for a kind that is not scaled."""
        reference = va.spec.scale_target_ref
        return self._kind_named.get((reference.api_version or DEFAULT.resource.api_version, reference.kind))

    def named(self, va: VariantAutoscaling) -> ScaleTarget | None:
        """Return the object that a variant names as its scale target, if it exists."""
        kind, key = self.kind_named(va), Key(va.metadata.namespace, va.spec.scale_target_ref.name)
        target: ScaleTarget | None = None if kind is None else self.store(kind.resource).get(key)
        return target

    def absent(self, kind: TargetKind) -> str | None:
        """Return why the objects of a kind cannot be read; None when they can."""
        return next(
            (reason for resource in kind.read if (reason := self._watched[resource.name].absent) is not None), None
        )

    def kind_of(self, target: ScaleTarget) -> TargetKind:
        """Return the kind of an object."""
        return self._kind_of[type(target)]

    def key_of(self, target: ScaleTarget) -> str:
        """Return ``namespace/apiVersion/kind/name``."""
        return self.kind_of(target).key(*target.metadata.key)


def pods_of(target: ScaleTarget, stores: TargetStores) -> tuple[Pod, ...]:
    """Return the serving pod of each replica, but none that has ended. All are in the target's namespace.

    A leader stands for its group. It counts as Ready when all pods of the group are Ready, from the time of the last
    one on. It has no node while one of the pods has none.
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
        workers = [pod for worker_set in _controlled(sets, leader) for pod in _controlled(stores.pods, worker_set)]
        group = [leader, *(pod for pod in workers if not pod.finished)]
        if len(group) >= size and all(pod.ready for pod in group):
            node_name = leader.spec.node_name
            conditions = max(group, key=lambda pod: pod.ready_since or 0.0).status.conditions
        else:
            pending_pod = next((pod for pod in group if not pod.spec.node_name), leader)
            node_name = pending_pod.spec.node_name
            conditions = tuple(condition for condition in pending_pod.status.conditions if condition.type != "Ready")
        spec, status = replace(leader.spec, node_name=node_name), replace(leader.status, conditions=conditions)
        leaders.append(replace(leader, spec=spec, status=status))
    return tuple(leaders)


def _controlled(store: Store[Any], owner: KubeObject) -> list[Any]:
    return store.by_index(_CONTROLLER_INDEX, f"{owner.metadata.namespace}/{owner.metadata.uid}")


def _controller_index(owned: KubeObject) -> Iterable[str]:
    # An owner must be in the namespace of what it owns.
    controller = owned.metadata.controller
    return (f"{owned.metadata.namespace}/{controller.uid}",) if controller and controller.uid else ()
