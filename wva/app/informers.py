"""The watch streams of the application and the caches they fill."""

from __future__ import annotations

from typing import Any

from wva.api.kinds import (
    CONFIG_MAPS,
    HPAS,
    INFERENCE_POOLS,
    INFERENCE_POOLS_ALPHA,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    SCALED_OBJECTS,
    VARIANT_AUTOSCALINGS,
)
from wva.api.meta import T
from wva.api.resource import Resource
from wva.api.variantautoscaling import Claimant
from wva.collect.inventory import InventoryStores, without_idle_containers
from wva.collect.local_scope import LocalScope
from wva.collect.pools import PoolStores
from wva.collect.resolution import CollectStores, ScalerStores
from wva.collect.surplus import bounded_target, bounded_variant
from wva.collect.variants import Claims
from wva.config import Settings
from wva.config.kinds import local_names
from wva.config.watch import ConfigMapStores
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.informer import Informer
from wva.model.roles import RoleLabels
from wva.targets import DEFAULT, ScaleTarget, TargetStores, chosen_kinds


class Informers:
    """All informers, and their stores in one group for each reader."""

    def __init__(self, client: KubeClient, *, settings: Settings, instruments: Instruments) -> None:
        """Build the informers: the workload kinds in the watched namespaces, ConfigMaps in our own.

        Scalers, nodes, quotas, pools, namespaces and all kinds of targets but the default are optional. Without them
        there are no bounds and no inventory, and the start does not wait for them. POOL_GROUP restricts the pools to
        one group; the cache of the other group stays empty.

        ConfigMaps of other namespaces have one stream for each name, and not one for all. A cluster has tens of
        thousands of other ConfigMaps, some of them a megabyte; with a field selector on the name, WVA neither reads nor
        keeps them. A ClusterRole can also name exactly these ConfigMaps, since ``resourceNames`` applies to lists and
        watches with such a selector. Our own namespace has its own stream and is left out of these. A process that is
        confined to one namespace asks for nothing beyond it.
        """
        watched, own_namespace = settings.watch_namespace, settings.pod_namespace

        def informer(resource: Resource[T], *, namespace: str = watched, **more: Any) -> Informer[T]:
            return Informer(client, resource, namespace=namespace, instruments=instruments, **more)

        variants = informer(VARIANT_AUTOSCALINGS, transform=bounded_variant)
        kinds = chosen_kinds(settings.target_kinds)
        targets = {
            resource.name: informer(
                resource,
                transform=bounded_target if issubclass(resource.type, ScaleTarget) else None,
                optional=resource not in DEFAULT.read,
            )
            for kind in kinds
            for resource in kind.read
        }
        pods = informer(PODS, transform=without_idle_containers)
        config_maps = informer(CONFIG_MAPS, namespace=own_namespace)
        hpas, scaled_objects = informer(HPAS, optional=True), informer(SCALED_OBJECTS, optional=True)
        quotas = informer(RESOURCE_QUOTAS, optional=True)
        nodes = informer(NODES, namespace="", label_selector=settings.node_selector, optional=True)
        namespaces = informer(NAMESPACES, namespace="", optional=True)
        pools, pools_alpha = informer(INFERENCE_POOLS, optional=True), informer(INFERENCE_POOLS_ALPHA, optional=True)
        local = {
            name: informer(
                CONFIG_MAPS, field_selector=f"metadata.name={name},metadata.namespace!={own_namespace}", optional=True
            )
            for name in (() if watched == own_namespace else local_names(settings))
        }
        self.all: list[Informer[Any]] = [variants, *targets.values(), pods, config_maps, hpas, scaled_objects, quotas]
        # Nodes and namespaces belong to no namespace. A process that is confined to one does not ask for them.
        self.all += [*local.values()] if watched else [nodes, *local.values(), namespaces]
        self.all += [
            pool_informer
            for pool_informer in (pools, pools_alpha)
            if settings.pool_group in {"", pool_informer.resource.group}
        ]

        self.config_maps = ConfigMapStores(
            own_namespace, config_maps.store, {name: informer.store for name, informer in local.items()}
        )
        scalers = ScalerStores(hpas.store, scaled_objects.store)
        self.stores = CollectStores(
            variants.store,
            TargetStores(kinds, targets, pods.store),
            scalers,
            RoleLabels.of(settings.role_labels, settings.role_values),
        )
        self.stores.add_indexes()
        blind = f"only namespace {watched} is watched, pods of others are not seen" if watched else ""
        self.inventory = InventoryStores(nodes.store, pods.store, quotas.store, nodes_source=nodes, blind=blind)
        self.inventory.add_indexes()
        wanted = Claims(Claimant("", settings.controller_instance)).wanted
        self.scope = LocalScope(watched, wanted, namespaces.store, variants.store)
        self.pools = PoolStores(pools.store, pools_alpha.store)

    def statuses(self) -> list[str]:
        """Return why caches are not usable, one line per cache; empty when all are."""
        return [status for informer in self.all if (status := informer.status()) is not None]

    def versions(self) -> dict[str, str]:
        """Return the resourceVersion that each cache has reached, by resource name; kinds that are absent have none.

        For ConfigMaps, only the cache of our own namespace counts, since a watch for one name sees no others.
        """
        local = {id(store) for store in self.config_maps.local.values()}
        present = (informer for informer in self.all if informer.absent is None and id(informer.store) not in local)
        return {informer.resource.name: informer.store.resource_version for informer in present}
