"""What is around the variants and stands in their way, as their conditions tell it: gateways and GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from wva.api.core import Pod
from wva.app.informers import Informers
from wva.collect.gateway_troubles import GatewayTroubles
from wva.collect.inventory_troubles import InventoryTroubles
from wva.model.inventory import UnknownInventory
from wva.model.trouble import Trouble


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
        self.gateways = GatewayTroubles(informers.pools, changed=revisit)
        self._inventory = InventoryTroubles(informers.inventory, unknown=unknown, changed=lambda: revisit(None))

    def gateway(self, namespace: str, labels: Mapping[str, str]) -> Trouble:
        """Return what is wrong with the gateways in front of pods with these labels."""
        return self.gateways.of(namespace, labels)

    def inventory(self, accelerator: str, pods: Iterable[Pod]) -> Trouble:
        """Return what is wrong with the GPUs of a variant with this accelerator and these pods."""
        return self._inventory.of(accelerator, pods)
