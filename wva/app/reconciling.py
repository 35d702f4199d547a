"""Builds the reconcilers and says what queues their objects; what they do is in ``controllers`` and ``actuation``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from random import Random
from typing import TYPE_CHECKING, Final

from wva.actuation import DirectActuator
from wva.api.meta import Key
from wva.app.asking import Asking
from wva.app.election import Leadership
from wva.app.informers import Informers
from wva.app.servers import push_address, push_tls
from wva.clock import Clock
from wva.collect.troubles import Troubles
from wva.collect.variants import Claims
from wva.config import Settings
from wva.config.live import LiveConfiguration
from wva.config.watch import ConfigMapController
from wva.controllers import NamespaceController, VariantAutoscalingController
from wva.instruments import Instruments
from wva.kube.controller import Controller
from wva.model.inventory import UnknownInventory
from wva.model.trouble import UNTROUBLED, Trouble
from wva.other_writers import OtherWriters
from wva.publish.announce import Announcer
from wva.publish.ledger import Ledger
from wva.serve.addresses import Address
from wva.serve.certs import ServingCertificate

if TYPE_CHECKING:
    from wva.serve.keda_push import PushServer

_WORKERS: Final = 8
"""How many statuses are written at once: while one worker waits for the API server, another prepares the next patch."""


class Reconciling:
    """The reconcilers of the process, and the obstacles of each variant that they know."""

    def __init__(
        self,
        settings: Settings,
        *,
        leadership: Leadership,
        informers: Informers,
        configuration: LiveConfiguration,
        ledger: Ledger,
        announce: Announcer,
        asking: Asking,
        certificate: ServingCertificate | None,
        clock: Clock,
        instruments: Instruments,
    ) -> None:
        """Build all; nothing is subscribed before ``watch``. Raises AddressError."""
        self._settings = settings
        self._informers = informers
        self._configuration = configuration
        self._clock = clock
        self._instruments = instruments
        push = push_address(settings)
        self.claims = Claims(leadership.claimant, informers.scope.excluded)
        self.config_maps = ConfigMapController(
            informers.config_maps,
            configuration=configuration,
            record=leadership.recorder.event,
            clock=clock,
            instruments=instruments,
        )
        self.troubles = Troubles(
            informers.pools,
            informers.inventory,
            unknown=self._unknown_inventory,
            revisit=lambda namespace: self.variants.enqueue_all(namespace),  # noqa: PLW0108 - built below
        )
        self.variants = VariantAutoscalingController(
            client=leadership.client,
            stores=informers.stores,
            ledger=ledger,
            configuration=configuration,
            claims=self.claims,
            troubles=self.troubles,
            actuation=self._actuation_trouble,
            queries=asking.failures.of,
            served=asking.served.trouble,
            direct=settings.direct_actuation,
            push=push is not None,
            announce=announce,
            clock=clock,
            instruments=instruments,
        )
        self.actuator = DirectActuator(
            client=leadership.client,
            stores=informers.stores,
            ledger=ledger,
            revisit=self.variants.queue.add,
            clock=clock,
            instruments=instruments,
        )
        self.other_writers = OtherWriters(
            client=leadership.client,
            stores=informers.stores,
            ledger=ledger,
            revisit=self.variants.queue.add,
            clock=clock,
            instruments=instruments,
        )
        self.push = None if push is None else self._push_server(push, leadership, ledger, certificate)
        self._namespaces = NamespaceController(
            informers.scope,
            config_maps=informers.config_maps,
            config_map_queue=self.config_maps.queue,
            variant_queue=self.variants.queue,
            announce=announce,
        )
        configuration.subscribe(self.variants.enqueue_all)
        # The statuses go first: in a change of the whole fleet their Events would be a third of all requests.
        leadership.recorder.gives_way = lambda: len(self.variants.queue) > 0

    @property
    def idle(self) -> bool:
        """Whether no variant and no ConfigMap waits for its reconciler or is being reconciled."""
        return self.variants.queue.idle and self.config_maps.queue.idle

    async def watch(self) -> None:
        """Read the ConfigMaps, follow the caches, and look at every variant."""
        self.config_maps.watch()
        await self.config_maps.load_all()
        self._namespaces.watch()
        self.variants.watch()
        self.other_writers.watch()
        if self._settings.direct_actuation:
            self.actuator.watch()
        self.variants.enqueue_all()

    def loops(self, random: Random) -> Iterator[tuple[str, Callable[[], Awaitable[object]]]]:
        """Yield the loops that process the queues, by name; ``random`` spreads the pauses before a retry."""
        for name, queue, reconcile, workers in (
            ("variantautoscaling", self.variants.queue, self.variants.reconcile, _WORKERS),
            ("configmap", self.config_maps.queue, self.config_maps.reconcile, 1),
            ("actuation", self.actuator.queue, self.actuator.reconcile, _WORKERS),
            ("other-writers", self.other_writers.queue, self.other_writers.reconcile, 1),
        ):
            controller = Controller(
                name,
                queue,
                reconcile,
                workers=workers,
                timeout_seconds=self._settings.rest_client_timeout,
                random=random,
                clock=self._clock,
                instruments=self._instruments,
            )
            yield f"{name} controller", controller.run

    def refuse(self, namespace: str, cause: str) -> None:
        """Put the ConfigMaps of a namespace out of force, and read them again, so that events report it."""
        self.config_maps.queue.add_all(self._configuration.give_up(namespace, cause))

    def _actuation_trouble(self, key: Key) -> Trouble:
        """Return why nothing applies the number of a VA, as far as WVA has to apply it; falsy if nothing is wrong."""
        pushed = UNTROUBLED if self.push is None else self.push.scaler.trouble(key)
        return pushed or self.actuator.trouble(key) or self.other_writers.trouble(key)

    def _unknown_inventory(self) -> UnknownInventory | None:
        policy = self._configuration.policy
        return policy.unknown_inventory if policy.limited else None

    def _push_server(
        self, address: Address, leadership: Leadership, ledger: Ledger, certificate: ServingCertificate | None
    ) -> PushServer:
        from wva.serve.keda_push import PushScaler, PushServer  # noqa: PLC0415 - needs an extra

        scaler = PushScaler(
            ledger=ledger,
            variants=self._informers.stores.variant_autoscalings,
            leading=leadership.publishes,
            revisit=self.variants.queue.add,
            clock=self._clock,
        )
        return PushServer(scaler, address, tls=push_tls(self._settings, certificate), instruments=self._instruments)
