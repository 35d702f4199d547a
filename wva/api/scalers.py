"""The scalers that apply our number: HorizontalPodAutoscaler (autoscaling/v2) and KEDA's ScaledObject.

Only the fields for bounds are read. A cluster without KEDA has no ScaledObjects, and a target may have no scaler yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

import msgspec

from wva.api.meta import ObjectMeta
from wva.numbers import REPLICAS, NumberError

SCALED_OBJECT_KIND: Final = "ScaledObject"
PAUSED_REPLICAS_ANNOTATION: Final = "autoscaling.keda.sh/paused-replicas"

_DEFAULT_HPA_MINIMUM: Final = 1
_DEFAULT_KEDA_MINIMUM: Final = 0
_DEFAULT_KEDA_MAXIMUM: Final = 100


class ScaledTarget(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``spec.scaleTargetRef`` of both; with KEDA, kind and apiVersion may be absent."""

    api_version: str = ""
    kind: str = ""
    name: str = ""


class _HorizontalPodAutoscalerSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    scale_target_ref: ScaledTarget = ScaledTarget()
    min_replicas: int | None = None
    max_replicas: int = 0


class HorizontalPodAutoscaler(msgspec.Struct, frozen=True, rename="camel"):
    """An autoscaling/v2 HorizontalPodAutoscaler; ``minReplicas`` absent means 1."""

    metadata: ObjectMeta = ObjectMeta()
    spec: _HorizontalPodAutoscalerSpec = _HorizontalPodAutoscalerSpec()

    @property
    def minimum(self) -> int:
        """The fewest replicas that it sets."""
        replicas = REPLICAS.find(self.spec.min_replicas)
        return _DEFAULT_HPA_MINIMUM if replicas is None else replicas

    @property
    def maximum(self) -> int | None:
        """The most replicas that it sets; the API server admits none below 1."""
        return REPLICAS.find(self.spec.max_replicas) or None

    def problems(self) -> Iterator[NumberError]:
        """Yield each number of the spec that cannot be one of replicas."""
        maximum = "no maximum" if self.maximum is None else self.maximum
        yield from _problems({"spec.minReplicas": self.spec.min_replicas}, in_force=self.minimum)
        yield from _problems({"spec.maxReplicas": self.spec.max_replicas}, in_force=maximum)


class ScaledObjectSpec(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """``spec`` of a ScaledObject."""

    scale_target_ref: ScaledTarget = ScaledTarget()
    min_replica_count: int | None = None
    max_replica_count: int | None = None
    idle_replica_count: int | None = None


class ScaledObject(msgspec.Struct, frozen=True, rename="camel"):
    """A keda.sh/v1alpha1 ScaledObject."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ScaledObjectSpec = ScaledObjectSpec()

    @property
    def minimum(self) -> int:
        """The fewest replicas that it sets: the minimum, or those while idle if they are fewer."""
        replicas = REPLICAS.find(self.spec.min_replica_count)
        minimum = _DEFAULT_KEDA_MINIMUM if replicas is None else replicas
        idle = REPLICAS.find(self.spec.idle_replica_count)
        return minimum if idle is None else min(minimum, idle)

    @property
    def maximum(self) -> int:
        """The most replicas that it sets."""
        replicas = REPLICAS.find(self.spec.max_replica_count)
        return _DEFAULT_KEDA_MAXIMUM if replicas is None else replicas

    @property
    def paused_at(self) -> int | None:
        """The replicas at which it is paused; None while it is not paused, or is paused at its present replicas."""
        return REPLICAS.find(self.metadata.annotations.get(PAUSED_REPLICAS_ANNOTATION))

    def problems(self) -> Iterator[NumberError]:
        """Yield each number that cannot be one of replicas."""
        numbers = {
            f"annotation {PAUSED_REPLICAS_ANNOTATION}": self.metadata.annotations.get(PAUSED_REPLICAS_ANNOTATION),
            "spec.minReplicaCount": self.spec.min_replica_count,
            "spec.maxReplicaCount": self.spec.max_replica_count,
            "spec.idleReplicaCount": self.spec.idle_replica_count,
        }
        return _problems(numbers, in_force=f"its range, {self.minimum} to {self.maximum}")


def _problems(numbers: Mapping[str, str | int | None], *, in_force: object) -> Iterator[NumberError]:
    for key, value in numbers.items():
        if value is not None and REPLICAS.find(value) is None:
            yield NumberError(key, value, expected=REPLICAS.expected, in_force=in_force)


Scaler: TypeAlias = HorizontalPodAutoscaler | ScaledObject
