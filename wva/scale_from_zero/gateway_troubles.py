"""Why requests that wait at a gateway cannot start a variant: unreadable pools, and pools for no variant.

A picker that answers nonsense and one for which nothing waits look the same from the outside: the model stays at zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from wva.collect.pools import Pool, PoolStores
from wva.model.trouble import UNTROUBLED, Trouble, TroubleReason

_TOLD: Final = 3


class GatewayTroubles:
    """Keeps why each pool cannot be read; ``changed`` is called with a namespace whenever that is another story."""

    def __init__(self, pools: PoolStores, *, changed: Callable[[str], None]) -> None:
        """Follow the pools."""
        self._pools = pools
        self._changed = changed
        self._failures: dict[Pool, str] = {}
        pools.subscribe(changed)

    def report(self, pool: Pool, failure: str) -> None:
        """Take why a pool cannot be read; empty when it can, or when no variant needs it."""
        if self._failures.get(pool, "") == failure:
            return
        if failure:
            self._failures[pool] = failure
        else:
            del self._failures[pool]
        self._changed(pool.namespace)

    def of(self, namespace: str, labels: Mapping[str, str]) -> Trouble:
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
