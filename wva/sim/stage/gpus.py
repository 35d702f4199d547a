"""The GPUs of the stage's cluster, which all its models share: a pod is placed when there are enough for it.

A pod waits while too few GPUs are free. When GPUs come free, waiting pods are tried in the order of their creation; a
pod that needs more than are free does not hold up the next.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class PendingPod:
    """A pod of a variant, by its number in the variant, that has not been placed yet. ``place`` gives it its node."""

    variant: str
    number: int
    created_seconds: float
    accelerator: str
    gpus: int
    place: Callable[[PendingPod, float], None]


class GpuPools:
    """Free GPUs by accelerator. Without any capacity there are no nodes, and every pod is placed at once."""

    def __init__(self, capacity: Mapping[str, int]) -> None:
        """Begin with all GPUs free."""
        self.capacity = dict(capacity)
        self.used = dict.fromkeys(capacity, 0)
        self._waiting: list[PendingPod] = []

    def add(self, pod: PendingPod) -> None:
        """Place a new pod at the time of its creation, or let it wait."""
        if not self._placed(pod, pod.created_seconds):
            self._waiting.append(pod)

    def remove(self, pod: PendingPod) -> None:
        """Take back a pod that waits."""
        self._waiting.remove(pod)

    def give(self, accelerator: str, gpus: int, at_seconds: float) -> None:
        """Take back the GPUs of a pod that has ended, and place pods that waited for them."""
        if self.capacity:
            self.used[accelerator] -= gpus
            self._waiting = [pod for pod in self._waiting if not self._placed(pod, at_seconds)]

    def _placed(self, pod: PendingPod, at_seconds: float) -> bool:
        if self.capacity:
            if self.used.get(pod.accelerator, 0) + pod.gpus > self.capacity.get(pod.accelerator, 0):
                return False
            self.used[pod.accelerator] += pod.gpus
        pod.place(pod, at_seconds)
        return True
