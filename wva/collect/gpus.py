"""How many GPUs a pod takes.

A limit counts as a request of the same size: Kubernetes fills in requests from limits when it creates the pod, so a
template with limits only still takes those GPUs. Init containers run one after the other and before the rest, except
sidecars, which stay: a pod takes the larger of the two phases.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from typing import Final

from wva.api.apps import Container, ResourceRequirements
from wva.api.core import PodContainer, PodSpec

GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu", "intel.com/gpu")

_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?)(m|k|M)?")
_QUANTITY_FACTORS: Final = {"": Decimal(1), "m": Decimal("0.001"), "k": Decimal(1000), "M": Decimal(1_000_000)}
_MAX_GPUS: Final = 1_000_000


def gpu_count(quantity: str | float) -> int:
    """Return a quantity of Kubernetes as a whole number of GPUs, rounded up; 0 when it is no number of GPUs."""
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        return 0
    try:
        amount = Decimal(match[1]) * _QUANTITY_FACTORS[match[2] or ""]
    except InvalidOperation:
        return 0
    return math.ceil(min(amount, Decimal(_MAX_GPUS)))


def is_gpu_count(quantity: str | float) -> bool:
    """Tell whether a quantity of Kubernetes is a number of GPUs."""
    return _QUANTITY.fullmatch(str(quantity)) is not None


def gpus_per_replica(containers: Iterable[Container]) -> int:
    """Return the GPUs that one pod of a template takes: the sum over containers and vendors, at least 1."""
    return sum(_gpus(container.resources, name) for container in containers for name in GPU_RESOURCES) or 1


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
    return max(gpu_count(resources.requests.get(name, 0)), gpu_count(resources.limits.get(name, 0)))
