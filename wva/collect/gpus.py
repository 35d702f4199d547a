"""How many GPUs a pod takes.

A limit counts as a request of the same size: Kubernetes fills in requests from limits when it creates the pod, so a
template with limits only still takes those GPUs. Init containers run one after the other and before the rest, except
sidecars, which stay: a pod takes the larger of the two phases.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from wva.api.core import PodContainer, PodSpec
from wva.api.pod_template import PodTemplate, ResourceRequirements
from wva.numbers import Real

GPU_RESOURCES: Final = ("nvidia.com/gpu", "amd.com/gpu", "intel.com/gpu")

_AMOUNT: Final = Real(minimum=0)
_THOUSANDTHS: Final = {"m": 1, "k": 1_000_000, "M": 1_000_000_000}
_MAX_GPUS: Final = 1_000_000


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
    return sum(_gpus(each.resources, name) * count for each, count in containers for name in GPU_RESOURCES) or 1


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
    given = (resources.requests, resources.limits)
    return max([gpu_count(quantities[name]) for quantities in given if name in quantities], default=0)


def _amount(quantity: str | float) -> float | None:
    if not isinstance(quantity, str) or (suffix := quantity[-1:]) not in _THOUSANDTHS:
        return _AMOUNT.find(quantity)
    number = _AMOUNT.find(quantity[:-1])
    # Divided, since a thousandth is no float: 7000m are 7 exactly.
    return None if number is None else number * _THOUSANDTHS[suffix] / 1000
