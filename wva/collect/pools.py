"""Finds the inference pools, of both API groups, that stand in front of a workload.

A pool selects pods by labels in its own namespace. A workload at zero has no pods, so the labels of its pod template
are compared. A pool without a selector selects no workload here; otherwise it would select every one of its namespace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from wva.api.core import InferencePool, InferencePoolAlpha
from wva.api.meta import Key
from wva.kube.cache import Store


@dataclass(frozen=True, slots=True, order=True)
class Pool:
    """A pool by namespace and name, and the Service of its endpoint picker in the same namespace (empty: none)."""

    namespace: str
    name: str
    picker: str

    @property
    def service(self) -> Key:
        """The key of the endpoint picker's Service."""
        return Key(self.namespace, self.picker)

    def __str__(self) -> str:
        """Return ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PoolStores:
    """The caches of both groups; one that the cluster does not serve is empty."""

    pools: Store[InferencePool]
    pools_alpha: Store[InferencePoolAlpha]

    def pools_of(self, namespace: str, labels: Mapping[str, str]) -> list[Pool]:
        """Return the pools of a namespace that select a pod with these labels, sorted, without repetition."""
        found = (pool for pool in self._of(namespace) if selects(pool.match_labels, labels))
        return sorted({Pool(namespace, pool.metadata.name, pool.picker) for pool in found})

    def selectors(self, pool: Pool) -> list[Mapping[str, str]]:
        """Return the labels that a pool selects pods by, one or none for each API group."""
        key = Key(pool.namespace, pool.name)
        both: tuple[InferencePool | InferencePoolAlpha | None, ...] = (self.pools.get(key), self.pools_alpha.get(key))
        return [one.match_labels for one in both if one is not None and not one.metadata.deleting]

    def without_selector(self, namespace: str) -> list[str]:
        """Return ``namespace/name`` of the pools of a namespace that select nothing, sorted."""
        return sorted({str(pool.metadata.key) for pool in self._of(namespace) if not pool.match_labels})

    def _of(self, namespace: str) -> Iterator[InferencePool | InferencePoolAlpha]:
        both: list[InferencePool | InferencePoolAlpha] = [
            *self.pools.list(namespace),
            *self.pools_alpha.list(namespace),
        ]
        return (pool for pool in both if not pool.metadata.deleting)


def selects(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Tell whether a selector picks something with these labels; an empty one picks nothing."""
    return bool(wanted) and all(labels.get(name) == value for name, value in wanted.items())
