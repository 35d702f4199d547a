"""Inputs and results of the stages of the compatibility mode (docs/design/compatibility-v05.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReplicaLoad:
    """One reporting pod. ``kv_usage`` is a share, ``queue_length`` in requests; what is not known is 0 here."""

    pod: str
    variant: str
    accelerator: str
    cost: float
    kv_usage: float
    queue_length: float


@dataclass(frozen=True, slots=True)
class VariantState:
    """One variant. ``desired`` is the number in its status, 0 when unset."""

    variant: str
    current: int = 0
    desired: int = 0
    pending: int = 0
    gpus_per_replica: int = 1

    @property
    def unreached(self) -> bool:
        """Whether a number was published that the workload has not reached."""
        return self.desired not in {0, self.current}


@dataclass(frozen=True, slots=True)
class VariantLoad:
    """Analysis of one variant that has reporting pods; the means are over those that are not saturated."""

    variant: str
    accelerator: str
    cost: float
    replica_count: int
    non_saturated: int
    max_kv_usage: float
    max_queue_length: float
    mean_spare_kv: float
    mean_spare_queue: float
    saturated_pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """Analysis of one model; ``variants`` are sorted by name."""

    total_replicas: int = 0
    non_saturated: int = 0
    mean_spare_kv: float = 0.0
    mean_spare_queue: float = 0.0
    should_scale_up: bool = False
    scale_up_reason: str = ""
    scale_down_safe: bool = False
    variants: tuple[VariantLoad, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """The number for one variant, with what v0.5 reported of it."""

    variant: str
    action: str
    current: int
    target: int
    desired: int
    accelerator: str
    cost: float
    spare_capacity: float
    gpus_per_replica: int
    reason: str
