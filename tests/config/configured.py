"""The caches and controllers through which WVA reads its configuration, without an API server."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import msgspec
from prometheus_client import CollectorRegistry

from wva.api.core import CONFIG_ENABLED_LABEL, EXCLUDE_ANNOTATION, ConfigMap, Namespace
from wva.api.meta import Key
from wva.api.variantautoscaling import CONTROLLER_INSTANCE_LABEL, VariantAutoscaling
from wva.collect.local_scope import LocalScope
from wva.config import Inputs, load
from wva.config.kinds import local_names
from wva.config.live import LiveConfiguration
from wva.config.watch import ConfigMapController, ConfigMapStores
from wva.controllers import NamespaceController
from wva.instruments import Instruments
from wva.kube.cache import Store
from wva.model.variant import ModelKey
from wva.sim.world.clock import VirtualClock

OWN = "wva"


class ConfiguredCluster:
    """The caches and the controllers on them; ``settle`` works off the queue as the worker does."""

    def __init__(self, *, watched="", instance=""):
        """Build all objects, and start with an empty cluster."""
        given = Inputs({}, {"PROMETHEUS_BASE_URL": "https://p", "POD_NAMESPACE": OWN}, {})
        configured = load(given).settings
        self.version = 0
        self.namespaces, self.variants, self.own = Store(), Store(), Store()
        self.local = {name: Store() for name in local_names(configured)}
        self.maps = ConfigMapStores(OWN, self.own, self.local)

        def wanted(va):
            return not instance or va.metadata.labels.get(CONTROLLER_INSTANCE_LABEL) == instance

        self.scope = LocalScope(watched, wanted, self.namespaces, self.variants)
        self.configuration = LiveConfiguration(configured, given, refusal=self.scope.refusal)
        self.events, self.revisited, self.announced = [], [], []
        self.controller = ConfigMapController(
            self.maps,
            configuration=self.configuration,
            record=lambda *event: self.events.append(event),
            clock=VirtualClock(),
            instruments=Instruments(CollectorRegistry()),
        )
        self.follower = NamespaceController(
            self.scope,
            config_maps=self.maps,
            config_map_queue=self.controller.queue,
            variant_queue=SimpleNamespace(add=self.revisited.append),
            announce=lambda *event: self.announced.append(event),
        )

    def start(self):
        """Do what the process does when it begins to lead."""
        asyncio.run(self.controller.load_all())
        self.controller.watch()
        self.follower.watch()

    def put(self, store, kind, namespace, name, **fields):
        """Put an object into a cache."""
        self.version += 1
        metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}/{name}", **fields.pop("metadata", {})}
        metadata["resourceVersion"] = str(self.version)
        store.upsert(msgspec.convert({"metadata": metadata, **fields}, kind))

    def config_map(self, namespace, name, data):
        """Put a ConfigMap into every cache that a watch would bring it to; None deletes it."""
        stores = [self.own] if namespace == OWN else []
        stores += [self.local[name]] if name in self.local else []
        for store in stores:
            if data is None:
                store.delete(Key(namespace, name))
            else:
                self.put(store, ConfigMap, namespace, name, data=data)

    def namespace(self, name, *, enabled="", excluded=""):
        """Create or relabel a namespace."""
        metadata = {
            "labels": {CONFIG_ENABLED_LABEL: enabled} if enabled else {},
            "annotations": {EXCLUDE_ANNOTATION: excluded} if excluded else {},
        }
        self.put(self.namespaces, Namespace, "", name, metadata=metadata)

    def va(self, namespace, name="va", *, model="m", instance=""):
        """Create or relabel a VariantAutoscaling."""
        metadata = {"labels": {CONTROLLER_INSTANCE_LABEL: instance} if instance else {}}
        spec = {"modelID": model, "scaleTargetRef": {"kind": "Deployment", "name": name}}
        self.put(self.variants, VariantAutoscaling, namespace, name, metadata=metadata, spec=spec)

    def settle(self):
        """Reconcile until nothing is queued."""
        asyncio.run(self._work())

    async def _work(self):
        while len(self.controller.queue):
            key = await self.controller.queue.get()
            await self.controller.reconcile(key)
            self.controller.queue.done(key)

    def kv(self, namespace, model="m"):
        """Return the KV threshold of a model."""
        return self.configuration.policy.saturation_for(ModelKey(namespace, model)).kv_cache_threshold
