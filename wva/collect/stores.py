"""The caches that collecting reads, and the indexes it needs on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from wva.api.core import Pod
from wva.api.variantautoscaling import VariantAutoscaling
from wva.collect.bounds import ScalerStores
from wva.kube.cache import Store
from wva.targets import TargetStores, target_key

TARGET_INDEX: Final = "target"


@dataclass(frozen=True, slots=True)
class CollectStores:
    """The caches of what makes up a variant, and of the scalers that bound it when they are watched."""

    variant_autoscalings: Store[VariantAutoscaling]
    targets: TargetStores
    pods: Store[Pod]
    scalers: ScalerStores | None = None

    def add_indexes(self) -> None:
        """Add the indexes that targets, their pods and their rivals are looked up by; once, before the first object."""
        self.variant_autoscalings.add_index(TARGET_INDEX, target_index)
        self.targets.add_indexes()
        if self.scalers is not None:
            self.scalers.add_indexes()


def target_index(va: VariantAutoscaling) -> Iterable[str]:
    """Index a VA by its target; one that is being deleted is on its way out and claims nothing."""
    return () if va.metadata.deleting else (target_key(va),)
