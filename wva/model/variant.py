"""Variants and models.

A *model* is a served model id in a namespace; a *variant* is one VariantAutoscaling and its target.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from wva.model.objectives import AskedObjectives
from wva.model.vllm_parameters import VllmParameters
from wva.numbers import MAX_REPLICAS, REPLICAS

UNKNOWN_ACCELERATOR: Final = "unknown"
"""Published as ``accelerator_type`` when the variant does not name one."""

DEFAULT_COST: Final = 10.0
"""Cost per replica when none is given; unitless."""

UNSCHEDULABLE_SECONDS: Final = 60.0
"""For so long the scheduler may look for a node; then the pod counts as unschedulable. A node that an autoscaler adds
takes longer, but until then the replica serves no requests either."""

DEFAULT_TOLERANCE: Final = 0.1
"""Share of the present replicas below which an HPA leaves a difference alone, if it is not told otherwise."""

COUNTED_BY: Final = "Kubernetes, which counts no more replicas"
"""The origin of the largest number where no scaler sets one."""

_ROUNDING: Final = 1e-9


class ModelKey(Struct, frozen=True, gc=False, order=True, cache_hash=True, omit_defaults=True):
    """A served model id in a namespace, or those of its variants that have one ``role``, which are measured apart."""

    namespace: str
    model_id: str
    role: str = ""

    @property
    def whole(self) -> ModelKey:
        """The model with all its roles."""
        return ModelKey(self.namespace, self.model_id) if self.role else self

    def with_role(self, words: str) -> str:
        """Return words about these variants, with their role before them if they have one."""
        return f"{self.role}: {words}" if self.role else words

    def __str__(self) -> str:
        """Return ``model_id in namespace``; model ids contain slashes themselves."""
        return f"{f'{self.role} of ' if self.role else ''}{self.model_id} in {self.namespace}"


class VariantKey(Struct, frozen=True, gc=False, order=True, cache_hash=True):
    """Identity of a VariantAutoscaling."""

    namespace: str
    name: str

    def __str__(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Bounds:
    """The numbers that the scaler of the target can reach; None is unbounded on that side.

    The origins say what set the bound (``HPA llm/a``, ``annotation wva.llmd.ai/max-replicas``). The scaler ignores a
    change of at most ``tolerance``, a share of the present replicas.
    """

    minimum: int | None = None
    maximum: int | None = None
    minimum_origin: str = "the scaler"
    maximum_origin: str = "the scaler"
    tolerance: float = DEFAULT_TOLERANCE

    def clamp(self, replicas: int) -> int:
        """Return the nearest reachable number of replicas; a minimum above the maximum yields the maximum."""
        if self.minimum is not None:
            replicas = max(replicas, self.minimum)
        if self.maximum is not None:
            replicas = min(replicas, self.maximum)
        return replicas if 0 <= replicas <= MAX_REPLICAS else REPLICAS.clamp(replicas)

    @property
    def ceiling_origin(self) -> str:
        """What sets the largest number that can be reached, in words."""
        return COUNTED_BY if self.maximum is None or self.maximum > MAX_REPLICAS else self.maximum_origin

    def smallest_step(self, current: int) -> int:
        """Return the smallest change of ``current`` replicas that the scaler acts on, with room for rounding."""
        return math.floor(current * self.tolerance + _ROUNDING) + 1


@dataclass(frozen=True, slots=True)
class Variant:
    """One variant at one instant, from the caches; times are in seconds since the epoch.

    ``current_replicas`` are the replicas that exist (spec while the target's status is still empty; pods that the
    status does not count yet are among them), ``ready_replicas`` those that its status counts as ready.
    ``status_desired`` is the number in the VA status. ``settling_since`` is the transition time of the Progressing
    condition while it is True, and ``oldest_unready_since`` the creation time of the oldest pod that is not Ready:
    because of them a process that just took over resets no clock. ``activated_at`` is when the target was last started
    from zero. ``unplaced_pods`` have no node yet, or were not seen yet, and ``unschedulable_pods`` are expected to get
    none. ``parameters`` of vLLM are those in the pod template, None when they were not read. At ``taken_at`` another
    writer last took replicas away that the number asks for. Containers of ``failing_pods`` do not run; ``failure`` says
    which is the first, and why. ``asked`` are the objectives of the model that its annotations ask for; None is none.
    ``role`` is one of ``wva.model.roles``: what its pods compute of a request, empty if they have no role.
    """

    key: VariantKey
    model: ModelKey
    target: str
    accelerator: str = ""
    cost: float = DEFAULT_COST
    spec_replicas: int = 1
    current_replicas: int = 0
    ready_replicas: int = 0
    status_desired: int | None = None
    status_accelerator: str = ""
    settling_since: float | None = None
    oldest_unready_since: float | None = None
    bounds: Bounds = Bounds()
    gpus_per_replica: int = 1
    unschedulable_pods: int = 0
    activated_at: float | None = None
    unplaced_pods: int = 0
    parameters: VllmParameters | None = None
    taken_at: float | None = None
    failing_pods: int = 0
    failure: str = ""
    asked: AskedObjectives | None = None
    role: str = ""

    @property
    def pending_replicas(self) -> int:
        """Replicas that exist but do not serve yet."""
        return max(0, self.current_replicas - self.ready_replicas)

    @property
    def known_accelerator(self) -> str:
        """The accelerator that its label says, else the one of its status, else a word for none."""
        return self.accelerator or self.status_accelerator or UNKNOWN_ACCELERATOR

    @property
    def active(self) -> bool:
        """Whether any replica is asked for; only scale-from-zero brings back a variant at zero."""
        return self.spec_replicas > 0


def by_role(models: Mapping[ModelKey, list[Variant]]) -> dict[ModelKey, list[Variant]]:
    """Return the models with the variants of each role apart; the order stays.

    A request passes pods of several roles, and each of them counts it. Variants without a role are apart from those
    that have one, too.
    """
    parts: dict[ModelKey, list[Variant]] = {}
    for key, variants in models.items():
        for variant in variants:
            part = ModelKey(key.namespace, key.model_id, variant.role) if variant.role else key
            parts.setdefault(part, []).append(variant)
    return parts
