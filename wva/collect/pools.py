"""Finds the inference pools, of both API groups, that stand in front of a workload.

A pool selects pods by labels in its own namespace. A workload at zero has no pods, so the labels of its pod template
are compared. A pool without a selector selects no workload here; otherwise it would select all of its namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from wva.api.core import InferencePool, InferencePoolAlpha
from wva.api.meta import Key, KubeObject
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


class PoolStores:
    """The caches of both groups; one that the cluster does not serve is empty.

    Every status and every look at a model at zero asks for the pools in front of a workload, and a namespace may have
    hundreds. So the pools of a namespace are kept in order, with what they select, until one of them changes.
    """

    def __init__(self, pools: Store[InferencePool], pools_alpha: Store[InferencePoolAlpha]) -> None:
        """Follow the caches."""
        self.pools = pools
        self.pools_alpha = pools_alpha
        self._by_namespace: dict[str, list[tuple[Pool, Mapping[str, str]]]] = {}
        # A handler that is subscribed later finds the change when it asks.
        pools.subscribe(self._on_change)
        pools_alpha.subscribe(self._on_change)

    def pools_of(self, namespace: str, labels: Mapping[str, str]) -> list[Pool]:
        """Return the pools of a namespace that select a pod with these labels, sorted, without repetition."""
        return list(dict.fromkeys([pool for pool, wanted in self._of(namespace) if selects(wanted, labels)]))

    def selectors(self, pool: Pool) -> list[Mapping[str, str]]:
        """Return the labels that a pool selects pods by, one or none for each API group."""
        return [wanted for candidate, wanted in self._of(pool.namespace) if candidate.name == pool.name]

    def without_selector(self, namespace: str) -> list[str]:
        """Return ``namespace/name`` of the pools of a namespace that select nothing, sorted."""
        return list(dict.fromkeys([str(pool) for pool, wanted in self._of(namespace) if not wanted]))

    def _of(self, namespace: str) -> list[tuple[Pool, Mapping[str, str]]]:
        """Return the pools of a namespace, each with the labels that it selects by, sorted by the pool."""
        kept = self._by_namespace.get(namespace)
        if kept is not None:
            return kept
        both: list[InferencePool | InferencePoolAlpha] = [
            *self.pools.list(namespace),
            *self.pools_alpha.list(namespace),
        ]
        entries: list[tuple[Pool, Mapping[str, str]]] = [
            (Pool(namespace, pool.metadata.name, pool.picker), pool.match_labels)
            for pool in both
            if not pool.metadata.deleting
        ]
        entries.sort(key=lambda entry: entry[0])
        if entries:
            self._by_namespace[namespace] = entries
        return entries

    def _on_change(self, old: KubeObject | None, new: KubeObject | None) -> None:
        for pool in (old, new):
            if pool is not None:
                self._by_namespace.pop(pool.metadata.namespace, None)


def selects(wanted: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    """Tell whether a selector picks something with these labels; an empty one picks nothing."""
    return bool(wanted) and wanted.items() <= labels.items()
