"""Nodes, pods and quotas in, the GPUs of the cluster out.

The inventory has the nodes that accept new pods and name their GPU product, and the GPUs that scheduled pods take on
them, in every namespace. v0.5.1 counted only the pods that it had just decided about, and cordoned nodes as well.

GPUs that cannot be counted are not guessed. If the nodes cannot be read, there is no inventory, only a reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

import msgspec

from wva import log
from wva.api.core import Node, Pod, PodSpec, ResourceQuota
from wva.api.meta import KubeObject
from wva.collect.gpus import GPU_RESOURCES, gpu_count, pod_gpus, takes_gpus
from wva.kube.cache import Store
from wva.model.failures import cause_of
from wva.model.inventory import AcceleratorPool, GpuQuota, Inventory, normalize_accelerator

T = TypeVar("T")
ObjectT = TypeVar("ObjectT", bound=KubeObject)

NODE_INDEX: Final = "node"
_QUOTA_PREFIX: Final = "requests."

_log = log.get("collect")
_throttle = log.Throttle()


class Source(Protocol):
    """What tells whether a cache can be believed: an informer."""

    @property
    def absent(self) -> str | None:
        """Why the kind cannot be read; None when it can."""
        ...

    @property
    def kept(self) -> str | None:
        """Why the kind cannot be read at the moment, and how old the content of its cache is; None when it can."""
        ...


@dataclass(frozen=True, slots=True)
class InventoryStores:
    """The caches that GPUs are counted in, and whether nodes can be read at all.

    ``pods`` must hold those of every namespace. ``blind`` says why the inventory cannot be known with any content of
    the caches, for example because only one namespace is watched; empty when it can be known.
    """

    nodes: Store[Node]
    pods: Store[Pod]
    quotas: Store[ResourceQuota]
    nodes_source: Source
    blind: str = ""

    def add_indexes(self) -> None:
        """Index the pods that take GPUs by their node; once, before the first object."""
        self.pods.add_index(NODE_INDEX, node_index)


def node_index(pod: Pod) -> Iterable[str]:
    """Index a pod that takes GPUs by the node it is scheduled to; one that has ended takes nothing."""
    if not pod.spec.node_name or pod.finished or not _asks_for_gpus(pod.spec):
        return ()
    return (pod.spec.node_name,)


def without_idle_containers(pod: Pod) -> Pod:
    """Return a pod that takes no GPU without its containers: most pods of a cluster need not be kept whole."""
    if not (pod.spec.containers or pod.spec.init_containers) or _asks_for_gpus(pod.spec):
        return pod
    return msgspec.structs.replace(pod, spec=PodSpec(node_name=pod.spec.node_name))


def read_inventory(stores: InventoryStores) -> tuple[Inventory | None, str]:
    """Return the inventory, or None and why there is none."""
    if stores.blind:
        return None, stores.blind
    if stores.nodes_source.absent is not None:
        return None, f"nodes cannot be read: {stores.nodes_source.absent}"
    if not stores.nodes.synced.is_set() or not stores.pods.synced.is_set():
        return None, "nodes and pods have not been read yet"
    pools = [pool for node in stores.nodes.list() for pool in _read(node, lambda node: _pools(node, stores.pods))]
    quotas = [quota for written in stores.quotas.list() for quota in _read(written, _quotas)]
    return Inventory.of(pools, quotas), ""


def _read(obj: ObjectT, read: Callable[[ObjectT], Iterable[T]]) -> list[T]:
    """Return what an object says; nothing if that raises: GPUs that cannot be counted are not given away."""
    try:
        return list(read(obj))
    except Exception as error:  # noqa: BLE001 - the other objects are counted all the same
        key, cause = str(obj.metadata.key), cause_of(error)
        if _throttle.permits(key, cause, time.monotonic()):
            _log.exception("inventory_object_failed", object=key, cause=cause)
        return []


def _pools(node: Node, pods: Store[Pod]) -> Iterable[AcceleratorPool]:
    return node_pools(node, pods) if node.usable else ()


def node_pools(node: Node, pods: Store[Pod]) -> Iterator[AcceleratorPool]:
    """Yield what a node has of each vendor whose product it names; ``pods`` must have ``NODE_INDEX``."""
    for resource in GPU_RESOURCES:
        product = node.metadata.labels.get(f"{resource}.product")
        if product:
            taken = sum(pod_gpus(pod.spec, resource) for pod in pods.by_index(NODE_INDEX, node.metadata.name))
            capacity = gpu_count(node.status.allocatable.get(resource, 0))
            yield AcceleratorPool(normalize_accelerator(product), capacity, taken, resource=resource)


def _quotas(quota: ResourceQuota) -> Iterator[GpuQuota]:
    metadata, status = quota.metadata, quota.status
    for resource in GPU_RESOURCES:
        name = f"{_QUOTA_PREFIX}{resource}"
        if name in status.hard:
            hard, used = gpu_count(status.hard[name]), gpu_count(status.used.get(name, 0))
            yield GpuQuota(metadata.namespace, resource, hard, used, metadata.name)


def _asks_for_gpus(spec: PodSpec) -> bool:
    return any(takes_gpus(container) for container in (*spec.containers, *spec.init_containers))
