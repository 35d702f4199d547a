"""The watch streams of the application and the caches they fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from wva.api.core import ConfigMap
from wva.api.kinds import CONFIG_MAPS, DEPLOYMENTS, PODS, REPLICA_SETS, VARIANT_AUTOSCALINGS
from wva.collect.stores import CollectStores
from wva.instruments import Instruments
from wva.kube.client import KubeClient
from wva.kube.informer import Informer
from wva.settings import Settings


@dataclass(frozen=True, slots=True)
class Informers:
    """Every informer, and the stores in the form that collecting wants."""

    all: tuple[Informer[Any], ...]
    stores: CollectStores
    config_maps: Informer[ConfigMap]

    def statuses(self) -> list[str]:
        """Return why caches are not usable, one line per cache; empty when all are."""
        return [status for informer in self.all if (status := informer.status()) is not None]

    def versions(self) -> dict[str, str]:
        """Return the resourceVersion that each cache has reached, by resource name."""
        return {informer.resource.name: informer.store.resource_version for informer in self.all}


def build_informers(client: KubeClient, *, settings: Settings, instruments: Instruments) -> Informers:
    """Build the informers: the workload kinds in the watched namespaces, ConfigMaps in our own."""
    namespace = settings.watch_namespace
    variants = Informer(client, VARIANT_AUTOSCALINGS, namespace=namespace, instruments=instruments)
    deployments = Informer(client, DEPLOYMENTS, namespace=namespace, instruments=instruments)
    replica_sets = Informer(client, REPLICA_SETS, namespace=namespace, instruments=instruments)
    pods = Informer(client, PODS, namespace=namespace, instruments=instruments)
    config_maps = Informer(client, CONFIG_MAPS, namespace=settings.pod_namespace, instruments=instruments)
    stores = CollectStores(variants.store, deployments.store, replica_sets.store, pods.store)
    stores.add_indexes()
    return Informers((variants, deployments, replica_sets, pods, config_maps), stores, config_maps)
