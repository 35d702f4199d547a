"""A collector with a cache whose settings a test can change."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from tests.collect.cluster import CachedCluster
from tests.collect.doubles import NOW, FakePrometheus
from wva.collect.snapshot import Collector
from wva.config import Settings
from wva.instruments import Instruments
from wva.model.metrics import Freshness


class CacheBench:
    """A collector whose cache settings and age limits a test can change."""

    def __init__(self, **cache):
        """Start with one variant of one pod, which reports."""
        self.cluster = CachedCluster()
        self.prometheus = FakePrometheus()
        self.instruments = Instruments(CollectorRegistry())
        usual = {"metrics_cache_ttl": 30.0, "metrics_cache_fetch_interval": 0.0, "global_opt_interval": 5.0}
        self.cache = Settings.model_construct(**{**usual, **cache})
        self.freshness = Freshness()
        self.engines = False
        self.collector = Collector(
            self.cluster.stores,
            prometheus=self.prometheus,
            instruments=self.instruments,
            freshness=lambda: self.freshness,
            cache=lambda: self.cache,
            engines_of=lambda _: self.engines,
        )
        self.cluster.variant()
        self.prometheus.put_replica()

    async def asks(self, at_seconds):
        """Collect; return whether Prometheus was asked, and the replicas by pod."""
        self.prometheus.queries.clear()
        snapshot = await self.collector.collect(NOW + at_seconds)
        self.failures = snapshot.failures
        return bool(self.prometheus.queries), {replica.pod: replica for replica in snapshot.replicas}

    async def asked(self, at_seconds):
        """Collect; return whether Prometheus was asked."""
        return (await self.asks(at_seconds))[0]

    def metric(self, name, **labels):
        """Return one of the controller's own metrics."""
        return self.instruments.registry.get_sample_value(name, labels)
