"""The watch streams of the application and the caches they fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wva.api.claims import Claimant
from wva.api.core import ConfigMap
from wva.api.kinds import (
    CONFIG_MAPS,
    HPAS,
    INFERENCE_POOLS,
    INFERENCE_POOLS_ALPHA,
    NODES,
    PODS,
    RESOURCE_QUOTAS,
    SCALED_OBJECTS,
    VARIANT_AUTOSCALINGS,
)
from wva.api.namespaces import NAMESPACES
from wva.api.variantautoscaling import VariantAutoscaling
from wva.collect.bounds import ScalerStores
from wva.collect.claims import Claims
from wva.collect.inventory import InventoryStores, without_idle_containers
from wva.collect.local_scope import ConfigMapStores, LocalScope
from wva.collect.pools import PoolStores
from wva.collect.stores import CollectStores
from wva.collect.surplus import bounded_target, bounded_variant
from wva.config import Settings
from wva.config.kinds import local_names
from wva.instruments import Instruments
from wva.kube.cache import Store
from wva.kube.client import KubeClient
from wva.kube.informer import Informer
from wva.targets import DEFAULT, ScaleTarget, TargetStores, chosen_kinds


@dataclass(frozen=True, slots=True)
class Informers:
    """Every informer, and the stores in the form that collecting wants."""

    all: tuple[Informer[Any], ...]
    stores: CollectStores
    config_maps: Informer[ConfigMap]
    all_config_maps: ConfigMapStores
    scope: LocalScope
    inventory: InventoryStores
    pools: PoolStores

    def statuses(self) -> list[str]:
        """Return why caches are not usable, one line per cache; empty when all are."""
        return [status for informer in self.all if (status := informer.status()) is not None]

    def versions(self) -> dict[str, str]:
        """Return the resourceVersion that each cache has reached, by resource name; kinds that are absent have none.

        ConfigMaps are those of our own namespace: a watch for one name hears nothing of the others.
        """
        local = {id(store) for store in self.all_config_maps.local.values()}
        present = (informer for informer in self.all if informer.absent is None and id(informer.store) not in local)
        return {informer.resource.name: informer.store.resource_version for informer in present}


def build_informers(client: KubeClient, *, settings: Settings, instruments: Instruments) -> Informers:
    """Build the informers: the workload kinds in the watched namespaces, ConfigMaps in our own.

    Scalers, nodes and quotas are optional, and kinds of targets beside the default: without them there are no bounds
    and no inventory, and the start does not wait for them.
    """
    namespace = settings.watch_namespace
    variants = Informer(
        client, VARIANT_AUTOSCALINGS, namespace=namespace, instruments=instruments, transform=bounded_variant
    )
    kinds = chosen_kinds(settings.target_kinds)
    targets = {
        resource.name: Informer(
            client,
            resource,
            namespace=namespace,
            instruments=instruments,
            transform=bounded_target if issubclass(resource.type, ScaleTarget) else None,
            optional=resource not in DEFAULT.read,
        )
        for kind in kinds
        for resource in kind.read
    }
    pods = Informer(client, PODS, namespace=namespace, instruments=instruments, transform=without_idle_containers)
    config_maps = Informer(client, CONFIG_MAPS, namespace=settings.pod_namespace, instruments=instruments)
    hpas = Informer(client, HPAS, namespace=namespace, instruments=instruments, optional=True)
    scaled_objects = Informer(client, SCALED_OBJECTS, namespace=namespace, instruments=instruments, optional=True)
    nodes = Informer(client, NODES, instruments=instruments, label_selector=settings.node_selector, optional=True)
    quotas = Informer(client, RESOURCE_QUOTAS, namespace=namespace, instruments=instruments, optional=True)
    scalers = ScalerStores(hpas.store, scaled_objects.store)
    stores = CollectStores(variants.store, TargetStores(kinds, targets, pods.store), pods.store, scalers)
    stores.add_indexes()
    blind = f"only namespace {namespace} is watched, pods of others are not seen" if namespace else ""
    inventory = InventoryStores(nodes.store, pods.store, quotas.store, nodes_source=nodes, blind=blind)
    inventory.add_indexes()
    # Nodes belong to no namespace: a process that is confined to one does not ask for them.
    cluster = () if namespace else (nodes,)
    everything = (variants, *targets.values(), pods, config_maps, hpas, scaled_objects, quotas, *cluster)
    local, maps, scope = _local(client, variants.store, config_maps.store, settings=settings, instruments=instruments)
    pool_informers, pools = _pools(client, settings=settings, instruments=instruments)
    return Informers((*everything, *local, *pool_informers), stores, config_maps, maps, scope, inventory, pools)


def _local(
    client: KubeClient,
    variants: Store[VariantAutoscaling],
    own: Store[ConfigMap],
    *,
    settings: Settings,
    instruments: Instruments,
) -> tuple[tuple[Informer[Any], ...], ConfigMapStores, LocalScope]:
    """Build the informers of what namespaces say for themselves.

    One stream for each name instead of one for all ConfigMaps: a cluster has tens of thousands of others, some of them
    a megabyte, and with a field selector on the name neither our memory nor the wire sees them. The number of streams
    is fixed for any number of namespaces, and a ClusterRole can name the very ConfigMaps: ``resourceNames`` holds
    for lists and watches with such a selector. Our own namespace has its own stream and is left out here. A process
    that is confined to one namespace asks for nothing beyond it.
    """
    watched, own_namespace = settings.watch_namespace, settings.pod_namespace
    namespaces = Informer(client, NAMESPACES, instruments=instruments, optional=True)
    scope = LocalScope(watched, Claims(Claimant("", settings.controller_instance)).wanted, namespaces.store, variants)
    if watched == own_namespace:
        return (), ConfigMapStores(own_namespace, own, {}), scope
    local = {
        name: Informer(
            client,
            CONFIG_MAPS,
            namespace=watched,
            field_selector=f"metadata.name={name},metadata.namespace!={own_namespace}",
            instruments=instruments,
            optional=True,
        )
        for name in local_names(settings)
    }
    maps = ConfigMapStores(own_namespace, own, {name: informer.store for name, informer in local.items()})
    return (*local.values(), *(() if watched else (namespaces,))), maps, scope


def _pools(
    client: KubeClient, *, settings: Settings, instruments: Instruments
) -> tuple[tuple[Informer[Any], ...], PoolStores]:
    """Build the informers of both groups of inference pools; POOL_GROUP restricts to one, the other stays empty."""
    namespace = settings.watch_namespace
    current = Informer(client, INFERENCE_POOLS, namespace=namespace, instruments=instruments, optional=True)
    alpha = Informer(client, INFERENCE_POOLS_ALPHA, namespace=namespace, instruments=instruments, optional=True)
    wanted = [informer for informer in (current, alpha) if settings.pool_group in {"", informer.resource.group}]
    return tuple(wanted), PoolStores(current.store, alpha.store)
