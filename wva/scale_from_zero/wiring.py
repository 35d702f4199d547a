"""Scale from zero on a cluster: its caches, gateways and GPUs, Prometheus, the write of the scale subresource."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from wva import log
from wva.api.core import Service
from wva.api.kinds import SERVICES
from wva.api.meta import Key
from wva.clock import Clock
from wva.collect.answers import Querier
from wva.collect.claims import Claims
from wva.collect.faults import Faults
from wva.collect.inventory import InventoryStores, read_inventory
from wva.collect.pools import Pool, PoolStores
from wva.collect.stores import CollectStores
from wva.collect.variants import accepted_in_slices
from wva.config import Settings
from wva.decide.start import Budget
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.errors import NotFound
from wva.model.decision import Decision
from wva.model.trouble import Trouble
from wva.model.variant import ModelKey, Variant, VariantKey
from wva.scale_from_zero.activations import Activations
from wva.scale_from_zero.at_rest import AtRest
from wva.scale_from_zero.gateway_queue import GatewayQueues
from wva.scale_from_zero.loop import ScaleFromZero
from wva.scale_from_zero.visibility import TargetLabels, wait_visible
from wva.targets import ScaleTarget


class ScaleFromZeroRunner:
    """Builds the loop on the caches of the process, and runs it."""

    def __init__(
        self,
        *,
        settings: Settings,
        clock: Clock,
        instruments: Instruments,
        client: KubeClient,
        prometheus: Querier,
        stores: CollectStores,
        pools: PoolStores,
        inventory: InventoryStores,
        activations: Activations,
        claims: Claims,
        limited: Callable[[], bool],
        publish: Callable[[Decision], None],
        announce: Callable[[VariantKey, str, str, str], None],
        report: Callable[[Pool, str], None],
        hinder: Callable[[VariantKey, Trouble], None],
    ) -> None:
        """Follow the caches; nothing runs before ``run``.

        ``client`` writes only while this process leads, ``prometheus`` is where autoscalers
        read. ``limited`` tells whether GPUs are limited now. ScaleFromZero describes the last four.
        """
        self._settings = settings
        self._clock = clock
        self._client = client
        self._prometheus = prometheus
        self._stores = stores
        self._pools = pools
        self._inventory = inventory
        self._activations = activations
        self._claims = claims
        self._limited = limited
        self._throttle = log.Throttle()
        self._queues = GatewayQueues(
            stores.pods,
            service=self._service,
            token=settings.epp_bearer_token.get_secret_value,
            parallel=settings.scale_from_zero_max_concurrency,
        )
        changed = asyncio.Event()
        self._at_rest = AtRest(stores, pools, wake=changed.set)
        # The same loop goes on after an error, so that it can take back its reports.
        self._loop = ScaleFromZero(
            at_zero=self._at_rest.all,
            marked=self._at_rest.take_marked,
            variants=self._variants,
            pools_of=self._pools_of,
            waiting=self._queues.waiting,
            budget=lambda _model: self._budget(),
            scale=self._scale,
            seen=self._seen,
            publish=publish,
            announce=announce,
            report=report,
            hinder=hinder,
            changed=changed,
            activations=activations,
            clock=clock,
            instruments=instruments,
        )

    async def run(self) -> None:
        """Run the loop until cancelled."""
        async with self._queues:
            await self._loop.run()

    async def _service(self, key: Key) -> Service:
        return await self._client.get(SERVICES, key)

    async def _variants(self, now: float, models: Iterable[ModelKey]) -> Iterable[Variant]:
        """Return the variants of some models; a model of which one cannot be read is left alone, as the cycle does."""
        faults = Faults(now, throttle=self._throttle)
        accepted = await accepted_in_slices(
            self._stores,
            only=self._at_rest.variants_of(models),
            claims=self._claims,
            now=now,
            as_started=self._activations.apply,
            faults=faults,
        )
        return [entry.variant for entry in accepted if entry.variant.model not in faults]

    def _pools_of(self, variant: Variant) -> list[Pool]:
        target = self._target(variant.key)
        return [] if target is None else self._pools.pools_of(variant.key.namespace, target.pod_labels)

    def _target(self, key: VariantKey) -> ScaleTarget | None:
        va = self._stores.variant_autoscalings.get(Key(key.namespace, key.name))
        return None if va is None else self._stores.targets.named(va)

    def _budget(self) -> Budget | None:
        return Budget(*read_inventory(self._inventory)) if self._limited() else None

    async def _seen(self, decision: Decision) -> None:
        await wait_visible(
            decision.key,
            decision.desired,
            target=TargetLabels(self._settings.pod_namespace, self._settings.metrics_job),
            prometheus=self._prometheus,
            clock=self._clock,
        )

    async def _scale(self, key: VariantKey, desired: int) -> None:
        """Write the scale subresource. Raises ApiError: NotFound, or Conflict when the target has moved on."""
        target = self._target(key)
        if target is None:
            raise NotFound(404, "NotFound", "the target is gone", attempted=f"scale the target of {key}")
        body = {
            "metadata": {"resourceVersion": target.metadata.resource_version},
            "spec": {"replicas": desired},
        }
        resource = self._stores.targets.kind_of(target).resource
        await self._client.patch(resource, target.metadata.key, body, subresource="scale")
