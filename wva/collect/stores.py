"""The caches that collecting reads, and the indexes it needs on them.

Reading goes from owner to owned (Deployment -> its ReplicaSets -> their Pods), so a cycle costs as much as there are
replicas of ours, however many other pods the cluster has. Owners are matched by uid: a Deployment that was deleted and
created again under the same name does not inherit the pods of its predecessor.

A uid counts only within a namespace. Every account that may create a pod may write any uid into its owner references:
the API server does not check that the owner lies in the same namespace. So a tenant can copy the uid of the ReplicaSet
of another tenant. In the namespace of the ReplicaSet itself such a pod counts, because the controllers of Kubernetes
look at the same reference. They take a pod that matches the ReplicaSet's selector for one of its replicas, and delete
surplus pods. They remove the reference from a pod that does not match.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from wva.api.apps import Deployment, ReplicaSet
from wva.api.core import Pod
from wva.api.meta import KubeObject
from wva.api.variantautoscaling import SUPPORTED_TARGET_API_VERSION, VariantAutoscaling
from wva.collect.bounds import ScalerStores
from wva.kube.cache import Store

TARGET_INDEX: Final = "target"
CONTROLLER_INDEX: Final = "controller"


@dataclass(frozen=True, slots=True)
class CollectStores:
    """The caches of the four kinds that make up a variant, and of the scalers that bound it when they are watched."""

    variant_autoscalings: Store[VariantAutoscaling]
    deployments: Store[Deployment]
    replica_sets: Store[ReplicaSet]
    pods: Store[Pod]
    scalers: ScalerStores | None = None

    def add_indexes(self) -> None:
        """Add the indexes that ``targets`` and ``replicas`` look things up by; once, before the first object."""
        self.variant_autoscalings.add_index(TARGET_INDEX, target_index)
        self.replica_sets.add_index(CONTROLLER_INDEX, controller_index)
        self.pods.add_index(CONTROLLER_INDEX, controller_index)
        if self.scalers is not None:
            self.scalers.add_indexes()


def target_key(va: VariantAutoscaling) -> str:
    """Return ``namespace/apiVersion/kind/name`` of the scale target; an absent apiVersion means apps/v1."""
    target = va.spec.scale_target_ref
    api_version = target.api_version or SUPPORTED_TARGET_API_VERSION
    return f"{va.metadata.namespace}/{api_version}/{target.kind}/{target.name}"


def target_index(va: VariantAutoscaling) -> Iterable[str]:
    """Index a VA by its target; one that is being deleted is on its way out and claims nothing."""
    return () if va.metadata.deleting else (target_key(va),)


def owner_key(owner: KubeObject) -> str:
    """Return what ``CONTROLLER_INDEX`` finds the objects by that an object controls: ``namespace/uid``."""
    return f"{owner.metadata.namespace}/{owner.metadata.uid}"


def controller_index(owned: KubeObject) -> Iterable[str]:
    """Index an object by its own namespace, where its controlling owner must lie, and the uid of this owner."""
    controller = owned.metadata.controller
    return (f"{owned.metadata.namespace}/{controller.uid}",) if controller and controller.uid else ()
