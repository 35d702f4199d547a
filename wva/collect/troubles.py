"""Troubles of a variant with gateways, GPUs and starts from zero, for its conditions.

If the picker of a model sends nonsense, the model stays at zero, just as if no request waited. So the conditions report
pools that WVA cannot read, and pools that select no workload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from wva.api.core import Pod
from wva.collect.inventory import InventoryStores
from wva.collect.inventory_troubles import InventoryTroubles
from wva.collect.pools import Pool, PoolStores
from wva.model.inventory import UnknownInventory
from wva.model.trouble import UNTROUBLED, Trouble, TroubleReason
from wva.model.variant import VariantKey

_TOLD: Final = 3


class Troubles:
    """Follows pools and nodes, and has the reconciler revisit variants whose conditions may have changed."""

    def __init__(
        self,
        pools: PoolStores,
        inventory: InventoryStores,
        *,
        unknown: Callable[[], UnknownInventory | None],
        revisit: Callable[[str | None], None],
    ) -> None:
        """Follow the caches.

        ``unknown`` returns what happens while the inventory is unknown, None while GPUs are not limited. ``revisit``
        has the reconciler look at the variants of a namespace, or at all (None).
        """
        self._pools = pools
        self._revisit = revisit
        self._failures: dict[Pool, str] = {}
        self._starts: dict[VariantKey, Trouble] = {}
        pools.subscribe(revisit)
        self._inventory = InventoryTroubles(inventory, unknown=unknown, changed=lambda: revisit(None))

    def report(self, pool: Pool, failure: str) -> None:
        """Note why a pool cannot be read; empty when WVA can read it, or when no variant needs it."""
        if self._failures.get(pool, "") == failure:
            return
        if failure:
            self._failures[pool] = failure
        else:
            del self._failures[pool]
        self._revisit(pool.namespace)

    def hinder(self, key: VariantKey, trouble: Trouble) -> None:
        """Note why WVA cannot start a variant from zero; UNTROUBLED when it can."""
        if self.start(key) == trouble:
            return
        if trouble:
            self._starts[key] = trouble
        else:
            del self._starts[key]
        self._revisit(key.namespace)

    def gateway(self, namespace: str, labels: Mapping[str, str]) -> Trouble:
        """Return what is wrong with the pools in front of a workload whose pods have these labels."""
        pools = self._pools.pools_of(namespace, labels)
        failures = [f"InferencePool {pool}: {self._failures[pool]}" for pool in pools if pool in self._failures]
        if failures:
            told = "; ".join(failures[:_TOLD])
            meanwhile = "in force: requests that wait there start nothing until it is read"
            return Trouble(TroubleReason.GATEWAY_UNREADABLE, f"{told}; {meanwhile}")
        empty = [] if pools else self._pools.without_selector(namespace)
        if empty:
            named = ", ".join(empty[:_TOLD])
            return Trouble(
                TroubleReason.SELECTOR_EMPTY,
                f"InferencePool {named}: spec.selector is empty, expected labels of the pods behind it; "
                "in force: it stands in front of nothing, and no other pool stands in front of this variant",
            )
        return UNTROUBLED

    def inventory(self, accelerator: str, pods: Iterable[Pod]) -> Trouble:
        """Return what is wrong with the GPUs of a variant with this accelerator and these pods."""
        return self._inventory.of(accelerator, pods)

    def start(self, key: VariantKey) -> Trouble:
        """Return why WVA cannot start a variant from zero."""
        return self._starts.get(key, UNTROUBLED)
