"""What is around the variants and stands in their way, as their conditions tell it: gateways, GPUs, failed starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from wva.api.core import Pod
from wva.app.informers import Informers
from wva.collect.inventory_troubles import InventoryTroubles
from wva.model.inventory import UnknownInventory
from wva.model.trouble import UNTROUBLED, Trouble
from wva.model.variant import VariantKey
from wva.scale_from_zero.gateway_troubles import GatewayTroubles


class Troubles:
    """Follows pools and nodes, and has the variants looked at whose conditions may be others now."""

    def __init__(
        self,
        informers: Informers,
        *,
        unknown: Callable[[], UnknownInventory | None],
        revisit: Callable[[str | None], None],
    ) -> None:
        """Follow the caches.

        ``unknown`` returns what happens while the inventory is unknown, None while GPUs are not limited. ``revisit``
        has the variants of a namespace looked at, or all of them.
        """
        self._revisit = revisit
        self._starts: dict[VariantKey, Trouble] = {}
        self.gateways = GatewayTroubles(informers.pools, changed=revisit)
        self._inventory = InventoryTroubles(informers.inventory, unknown=unknown, changed=lambda: revisit(None))

    def gateway(self, namespace: str, labels: Mapping[str, str]) -> Trouble:
        """Return what is wrong with the gateways in front of pods with these labels."""
        return self.gateways.of(namespace, labels)

    def inventory(self, accelerator: str, pods: Iterable[Pod]) -> Trouble:
        """Return what is wrong with the GPUs of a variant with this accelerator and these pods."""
        return self._inventory.of(accelerator, pods)

    def hinder(self, key: VariantKey, trouble: Trouble) -> None:
        """Take what keeps a variant from being started from zero, UNTROUBLED when nothing does."""
        if self.start(key) == trouble:
            return
        if trouble:
            self._starts[key] = trouble
        else:
            del self._starts[key]
        self._revisit(key.namespace)

    def start(self, key: VariantKey) -> Trouble:
        """Return what keeps a variant from being started from zero."""
        return self._starts.get(key, UNTROUBLED)
