"""The GPUs of the cluster, counted from nodes, pods and quotas.

The inventory has the nodes that accept new pods and name their GPU product, and the GPUs that scheduled pods take on
them, in every namespace. v0.5.1 counted only the pods that it had just decided about, and cordoned nodes as well. WVA
does not guess the number of GPUs. If it cannot read the nodes, there is no inventory, only a reason.

When WVA counts the GPUs of a pod, a limit counts as a request of the same size, since Kubernetes fills in requests from
limits when it creates the pod. Init containers run one after the other and before the rest, except sidecars, which
stay: a pod takes the larger of the two phases.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

import msgspec

from wva import log
from wva.api.core import Node, Pod, PodContainer, PodSpec, PodTemplate, ResourceQuota, ResourceRequirements
from wva.api.meta import KubeObject
from wva.kube.cache import Store
from wva.kube.informer import Informer
from wva.model.inventory import AcceleratorPool, GpuQuota, Inventory, normalize_accelerator
from wva.model.trouble import cause_of
from wva.numbers import Real

T = TypeVar("T")
ObjectT = TypeVar("ObjectT", bound=KubeObject)

NODE_INDEX: Final = "node"
GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu", "intel.com/gpu")
_AMOUNT: Final = Real(minimum=0)
_THOUSANDTHS: Final = {"m": 1, "k": 1_000_000, "M": 1_000_000_000}
_MAX_GPUS: Final = 1_000_000

_log = log.get("collect")
_throttle = log.Throttle()


@dataclass(frozen=True, slots=True)
class InventoryStores:
    """The caches from which GPUs are counted, and whether WVA can read nodes at all.

    ``pods`` must hold the pods of every namespace. ``blind`` says why the inventory is unknown even if the caches are
    full, for example because WVA watches only one namespace; empty otherwise.
    """

    nodes: Store[Node]
    pods: Store[Pod]
    quotas: Store[ResourceQuota]
    nodes_source: Informer[Node]
    blind: str = ""

    @property
    def unknown(self) -> str:
        """Why WVA cannot read nodes; empty when it can."""
        absent = self.nodes_source.absent
        return self.blind or ("" if absent is None else f"nodes cannot be read: {absent}")

    def add_indexes(self) -> None:
        """Index the pods that take GPUs by their node; once, before the first object."""
        self.pods.add_index(NODE_INDEX, node_index)


def node_index(pod: Pod) -> Iterable[str]:
    """Index a pod that takes GPUs by the node it is scheduled to; one that has ended takes nothing."""
    return (pod.spec.node_name,) if pod.spec.node_name and not pod.finished and _asks_for_gpus(pod.spec) else ()


def without_idle_containers(pod: Pod) -> Pod:
    """Return the pod, without its containers if it takes no GPU: this saves memory for most pods of a cluster."""
    if not (pod.spec.containers or pod.spec.init_containers) or _asks_for_gpus(pod.spec):
        return pod
    return msgspec.structs.replace(pod, spec=PodSpec(node_name=pod.spec.node_name))


def read_inventory(stores: InventoryStores) -> tuple[Inventory | None, str]:
    """Return the inventory, or None and why there is none."""
    if stores.unknown:
        return None, stores.unknown
    if not stores.nodes.synced.is_set() or not stores.pods.synced.is_set():
        return None, "nodes and pods have not been read yet"

    def pools_of(node: Node) -> Iterable[AcceleratorPool]:
        return node_pools(node, stores.pods) if node.usable else ()

    pools = [pool for node in stores.nodes.list() for pool in _read(node, pools_of)]
    quotas = [quota for resource_quota in stores.quotas.list() for quota in _read(resource_quota, _quotas)]
    return Inventory.of(pools, quotas), ""


def _read(obj: ObjectT, read: Callable[[ObjectT], Iterable[T]]) -> list[T]:
    """Return what ``read`` finds in an object, nothing if it raises: GPUs whose number is unknown stay unused."""
    try:
        return list(read(obj))
    except Exception as error:  # noqa: BLE001 - the other objects still count
        key, cause = str(obj.metadata.key), cause_of(error)
        if _throttle.permits(key, cause, time.monotonic()):
            _log.exception("inventory_object_failed", object=key, cause=cause)
        return []


def node_pools(node: Node, pods: Store[Pod]) -> Iterator[AcceleratorPool]:
    """Yield the GPUs of a node for each vendor whose product it names; ``pods`` must have ``NODE_INDEX``."""
    for resource in GPU_RESOURCES:
        product = node.metadata.labels.get(f"{resource}.product")
        if product:
            taken = sum(pod_gpus(pod.spec, resource) for pod in pods.by_index(NODE_INDEX, node.metadata.name))
            capacity = gpu_count(node.status.allocatable.get(resource, 0))
            yield AcceleratorPool(normalize_accelerator(product), capacity, taken, resource=resource)


def _quotas(quota: ResourceQuota) -> Iterator[GpuQuota]:
    hard, used = quota.status.hard, quota.status.used
    for resource in GPU_RESOURCES:
        name = f"requests.{resource}"
        if name in hard:
            counts = gpu_count(hard[name]), gpu_count(used.get(name, 0))
            yield GpuQuota(quota.metadata.namespace, resource, *counts, quota.metadata.name)


def _asks_for_gpus(spec: PodSpec) -> bool:
    return any(takes_gpus(container) for container in (*spec.containers, *spec.init_containers))


def gpu_count(quantity: str | float) -> int:
    """Return a quantity of Kubernetes as a whole number of GPUs, rounded up; 0 when it is no number of GPUs."""
    amount = _amount(quantity)
    return 0 if amount is None else math.ceil(min(amount, _MAX_GPUS))


def is_gpu_count(quantity: str | float) -> bool:
    """Tell whether a quantity of Kubernetes is a number of GPUs."""
    return _amount(quantity) is not None


def gpus_per_replica(templates: Iterable[tuple[PodTemplate, int]]) -> int:
    """Return the GPUs that so many pods of each template take: the sum over containers and vendors, at least 1."""
    containers = ((container, count) for template, count in templates for container in template.spec.containers)
    return (
        sum(_gpus(container.resources, name) * count for container, count in containers for name in GPU_RESOURCES) or 1
    )


def pod_gpus(spec: PodSpec, resource: str) -> int:
    """Return the GPUs of one resource name that a pod takes of its node."""
    sidecars = highest = 0
    for container in spec.init_containers:
        taken = _gpus(container.resources, resource)
        highest = max(highest, sidecars + taken)
        sidecars += taken if container.sidecar else 0
    return max(highest, sidecars + sum(_gpus(container.resources, resource) for container in spec.containers))


def takes_gpus(container: PodContainer) -> bool:
    """Tell whether a container asks for any GPU."""
    return any(_gpus(container.resources, name) for name in GPU_RESOURCES)


def _gpus(resources: ResourceRequirements, name: str) -> int:
    requests_and_limits = (resources.requests, resources.limits)
    return max([gpu_count(quantities[name]) for quantities in requests_and_limits if name in quantities], default=0)


def _amount(quantity: str | float) -> float | None:
    if not isinstance(quantity, str) or (suffix := quantity[-1:]) not in _THOUSANDTHS:
        return _AMOUNT.find(quantity)
    number = _AMOUNT.find(quantity[:-1])
    # Divide by 1000, since floats have no exact thousandth: 7000m are exactly 7.
    return None if number is None else number * _THOUSANDTHS[suffix] / 1000
