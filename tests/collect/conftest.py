"""Fixtures of the collection tests: caches, metrics of the controller, and two kinds of fake Prometheus."""

from __future__ import annotations

import pytest
import structlog
import structlog.testing
from prometheus_client import CollectorRegistry

from tests.collect.cluster import CachedCluster
from tests.collect.doubles import FakePrometheus, RecordingClock
from tests.prometheus.prometheus_server import PrometheusServer
from wva.collect.snapshot import Collector
from wva.instruments import Instruments


@pytest.fixture
def cluster():
    """Return empty caches with their indexes."""
    return CachedCluster()


@pytest.fixture
def instruments():
    """Return the controller's own metrics in a registry of their own."""
    return Instruments(CollectorRegistry())


@pytest.fixture
def metric(instruments):
    """Return a function that reads one of the controller's own metrics, or None if there is no such series."""
    return lambda name, **labels: instruments.registry.get_sample_value(name, labels)


@pytest.fixture
def prometheus():
    """Return a Prometheus without HTTP."""
    return FakePrometheus()


@pytest.fixture
def collector(cluster, prometheus, instruments):
    """Return a collector over the cluster and the fake Prometheus."""
    return Collector(cluster.stores, prometheus=prometheus, instruments=instruments)


@pytest.fixture
def clock():
    """Return a clock that records pauses instead of making them."""
    return RecordingClock()


@pytest.fixture
async def server():
    """Return a Prometheus on 127.0.0.1 over plain HTTP."""
    async with PrometheusServer() as running:
        yield running


@pytest.fixture
def output():
    """Return a function that returns every event logged so far."""
    with structlog.testing.capture_logs() as lines:
        yield lambda: [{**line, "level": line["log_level"]} for line in lines]
