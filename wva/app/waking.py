"""The scale-from-zero loop with its surroundings: pools, gateways, budget, the write of the scale subresource."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from wva import log
from wva.api.core import Service
from wva.api.kinds import DEPLOYMENTS, SERVICES
from wva.api.meta import Key
from wva.app.environment import Environment
from wva.app.informers import Informers
from wva.collect.activations import Activations
from wva.collect.answers import Querier
from wva.collect.at_rest import AtRest
from wva.collect.claims import Claims
from wva.collect.faults import Faults
from wva.collect.gateway_queue import GatewayError, GatewayQueues, GatewaySettings
from wva.collect.inventory import read_inventory
from wva.collect.pools import Pool
from wva.collect.variants import accepted_in_slices
from wva.collect.visibility import TargetLabels, wait_visible
from wva.decide.start import Budget
from wva.kube.client import KubeClient
from wva.kube.errors import NotFound
from wva.loops.scale_from_zero import Ports, ScaleFromZero
from wva.model.decision import Decision
from wva.model.trouble import Trouble
from wva.model.variant import ModelKey, Variant, VariantKey


@dataclass(frozen=True, slots=True)
class WakingSurroundings:
    """What the loop shares with the rest of the process.

    ``client`` writes only while this process leads, ``prometheus`` is where autoscalers read. ``limited`` tells whether
    GPUs are limited now; ``publish`` takes a decision into the ledger, ``announce`` records an event on a
    VariantAutoscaling, ``report`` takes why a pool cannot be read, ``hinder`` what keeps a variant from being started.
    """

    client: KubeClient
    prometheus: Querier
    informers: Informers
    activations: Activations
    claims: Claims
    limited: Callable[[], bool]
    publish: Callable[[Decision], None]
    announce: Callable[[VariantKey, str, str, str], None]
    report: Callable[[Pool, str], None]
    hinder: Callable[[VariantKey, Trouble], None]


class Waking:
    """Builds the loop and runs it."""

    def __init__(self, environment: Environment, surroundings: WakingSurroundings) -> None:
        """Follow the caches; nothing runs before ``run``."""
        self._env = environment
        self._around = surroundings
        self._changed = asyncio.Event()
        self._throttle = log.Throttle()
        self._reader: GatewayQueues | None = None
        informers = surroundings.informers
        self._at_rest = AtRest(informers.stores, informers.pools, wake=self._changed.set)
        self._loop = self._build()

    async def run(self) -> None:
        """Run the loop until cancelled."""
        async with self._queues() as self._reader:
            await self._loop.run()

    def _build(self) -> ScaleFromZero:
        """Return the loop. The same one goes on after an error, so that it can take back its reports."""
        around = self._around
        ports = Ports(
            at_zero=self._at_rest.all,
            marked=self._at_rest.take_marked,
            variants=self._variants,
            pools=self._pools,
            waiting=self._waiting,
            budget=self._budget,
            scale=self._scale,
            seen=self._seen,
            publish=around.publish,
            announce=around.announce,
            report=around.report,
            hinder=around.hinder,
            changed=self._changed,
        )
        return ScaleFromZero(
            ports, activations=around.activations, clock=self._env.clock, instruments=self._env.instruments
        )

    async def _waiting(self, pool: Pool) -> Mapping[str, float]:
        if self._reader is None:
            raise GatewayError("not running")
        return await self._reader.waiting(pool)

    @asynccontextmanager
    async def _queues(self) -> AsyncIterator[GatewayQueues]:
        settings = self._env.settings
        gateway = GatewaySettings(
            token=settings.epp_bearer_token.get_secret_value, parallel=settings.scale_from_zero_max_concurrency
        )
        pods = self._around.informers.stores.pods
        async with GatewayQueues(pods, service=self._service, settings=gateway) as queues:
            yield queues

    async def _service(self, key: Key) -> Service:
        return await self._env.client.get(SERVICES, key)

    async def _variants(self, now: float, models: Iterable[ModelKey]) -> Iterable[Variant]:
        """Return the variants of some models; a model of which one cannot be read is left alone, as the cycle does."""
        around, faults = self._around, Faults(now, throttle=self._throttle)
        accepted = await accepted_in_slices(
            around.informers.stores,
            only=self._at_rest.variants_of(models),
            claims=around.claims,
            now=now,
            activations=around.activations,
            faults=faults,
        )
        return [entry.variant for entry in accepted if entry.variant.model not in faults]

    def _pools(self, variant: Variant) -> list[Pool]:
        deployment = self._around.informers.stores.deployments.get(Key(variant.key.namespace, variant.target))
        if deployment is None:
            return []
        labels = deployment.spec.template.metadata.labels
        return self._around.informers.pools.pools_of(variant.key.namespace, labels)

    def _budget(self, model: ModelKey) -> Budget | None:  # noqa: ARG002 - the budget is that of the cluster
        return Budget(*read_inventory(self._around.informers.inventory)) if self._around.limited() else None

    async def _seen(self, decision: Decision) -> None:
        settings = self._env.settings
        await wait_visible(
            decision.key,
            decision.desired,
            target=TargetLabels(settings.pod_namespace, settings.metrics_job),
            prometheus=self._around.prometheus,
            clock=self._env.clock,
        )

    async def _scale(self, key: VariantKey, desired: int) -> None:
        """Write the scale subresource. Raises ApiError: NotFound, or Conflict when the Deployment has moved on."""
        stores = self._around.informers.stores
        va = stores.variant_autoscalings.get(Key(key.namespace, key.name))
        target = None if va is None else stores.deployments.get(Key(key.namespace, va.spec.scale_target_ref.name))
        if target is None:
            raise NotFound(404, "NotFound", "the target is gone", attempted=f"scale the target of {key}")
        body = {
            "metadata": {"resourceVersion": target.metadata.resource_version},
            "spec": {"replicas": desired},
        }
        await self._around.client.patch(DEPLOYMENTS, target.metadata.key, body, subresource="scale")
