"""The watch streams of the application and the caches they fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wva.api.core import ConfigMap
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
from wva.api.variantautoscaling import Claimant
from wva.collect.bounds import ScalerStores
from wva.collect.claims import Claims
from wva.collect.inventory import InventoryStores, without_idle_containers
from wva.collect.local_scope import ConfigMapStores, LocalScope
from wva.collect.pools import PoolStores
from wva.collect.resolution import CollectStores
from wva.collect.surplus import bounded_target, bounded_variant
from wva.config import Settings
from wva.config.kinds import local_names
from wva.instruments import Instruments
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

    Scalers, nodes, quotas, pools and namespaces are optional, and kinds of targets beside the default: without them
    there are no bounds and no inventory, and the start does not wait for them. POOL_GROUP restricts the pools to one
    group, the other stays empty.

    ConfigMaps of other namespaces have one stream for each name instead of one for all: a cluster has tens of thousands
    of others, some of them a megabyte, and with a field selector on the name neither our memory nor the wire sees them.
    The number of streams is fixed for any number of namespaces, and a ClusterRole can name the very ConfigMaps:
    ``resourceNames`` holds for lists and watches with such a selector. Our own namespace has its own stream and is left
    out here. A process that is confined to one namespace asks for nothing beyond it.
    """
    namespace, own_namespace = settings.watch_namespace, settings.pod_namespace
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
    config_maps = Informer(client, CONFIG_MAPS, namespace=own_namespace, instruments=instruments)
    hpas = Informer(client, HPAS, namespace=namespace, instruments=instruments, optional=True)
    scaled_objects = Informer(client, SCALED_OBJECTS, namespace=namespace, instruments=instruments, optional=True)
    nodes = Informer(client, NODES, instruments=instruments, label_selector=settings.node_selector, optional=True)
    quotas = Informer(client, RESOURCE_QUOTAS, namespace=namespace, instruments=instruments, optional=True)
    namespaces = Informer(client, NAMESPACES, instruments=instruments, optional=True)
    pools = Informer(client, INFERENCE_POOLS, namespace=namespace, instruments=instruments, optional=True)
    pools_alpha = Informer(client, INFERENCE_POOLS_ALPHA, namespace=namespace, instruments=instruments, optional=True)
    local = {
        name: Informer(
            client,
            CONFIG_MAPS,
            namespace=namespace,
            field_selector=f"metadata.name={name},metadata.namespace!={own_namespace}",
            instruments=instruments,
            optional=True,
        )
        for name in (() if namespace == own_namespace else local_names(settings))
    }
    everything: list[Informer[Any]] = [variants, *targets.values(), pods, config_maps, hpas, scaled_objects, quotas]
    # Nodes and namespaces belong to no namespace: a process that is confined to one does not ask for them.
    if not namespace:
        everything.append(nodes)
    everything += local.values()
    if not namespace:
        everything.append(namespaces)
    everything += [found for found in (pools, pools_alpha) if settings.pool_group in {"", found.resource.group}]

    scalers = ScalerStores(hpas.store, scaled_objects.store)
    stores = CollectStores(variants.store, TargetStores(kinds, targets, pods.store), pods.store, scalers)
    stores.add_indexes()
    blind = f"only namespace {namespace} is watched, pods of others are not seen" if namespace else ""
    inventory = InventoryStores(nodes.store, pods.store, quotas.store, nodes_source=nodes, blind=blind)
    inventory.add_indexes()
    wanted = Claims(Claimant("", settings.controller_instance)).wanted
    return Informers(
        tuple(everything),
        stores,
        config_maps,
        ConfigMapStores(own_namespace, config_maps.store, {name: informer.store for name, informer in local.items()}),
        LocalScope(namespace, wanted, namespaces.store, variants.store),
        inventory,
        PoolStores(pools.store, pools_alpha.store),
    )
