"""Two models under one name get each other's load: what shows that is told of every replica of the model."""

from __future__ import annotations

import pytest

from tests.builders import NOW
from wva.collect.pools import Pool
from wva.collect.snapshot import Collector

REST = "; so it may get the load of another model that is served under its name"


@pytest.fixture
def told(cluster, prometheus, instruments):
    """Return a function that collects and returns what is told of each pod, by its name."""

    async def collect(pools=None):
        found = pools or {}
        collector = Collector(
            cluster.stores,
            prometheus=prometheus,
            instruments=instruments,
            pools_of=lambda namespace, labels: [Pool(namespace, name, "epp") for name in found.get(labels["app"], ())],
        )
        replicas = (await collector.collect(NOW)).replicas
        return {replica.pod: replica.namesakes for replica in replicas}

    return collect


async def test_a_ready_pod_of_no_variant_with_the_name_is_told(cluster, prometheus, told):
    """Its requests wait in the same queue of the gateway, and count as finished requests of the model."""
    cluster.variant(pods=2)
    for pod in ("va-0", "va-1", "x-3", "x-1", "x-0", "x-2"):
        prometheus.put_replica(pod=pod)
    for index in range(4):
        cluster.pod(f"x-{index}", deployment=None)
    words = f"pods of none of its variants report its name: x-0, x-1, x-2 and 1 more{REST}"
    assert await told() == {"va-0": words, "va-1": words}


async def test_a_pod_of_another_model_with_the_name_is_told(cluster, prometheus, told):
    """Its Deployment has a VariantAutoscaling with another modelID than vLLM serves."""
    cluster.variant()
    cluster.variant("other", model_id="n")
    prometheus.put_replica()
    prometheus.put_replica(pod="other-0")
    words = f"pods of none of its variants report its name: other-0{REST}"
    assert await told() == {"va-0": words, "other-0": ""}


@pytest.mark.parametrize("ready", [None, False])
async def test_a_pod_that_is_gone_or_not_ready_is_none(cluster, prometheus, told, ready):
    """Prometheus has its series for some minutes more."""
    cluster.variant()
    prometheus.put_replica()
    prometheus.put_replica(pod="x-0")
    prometheus.put_replica(pod="x-1", model_name="quite another")
    cluster.pod("x-1", deployment=None)
    if ready is not None:
        cluster.pod("x-0", deployment=None, ready=ready)
    assert await told() == {"va-0": ""}


@pytest.mark.parametrize(
    ("pools", "apart"),
    [
        ({}, ""),
        ({"a": ["p"]}, ""),
        ({"b": ["p"]}, ""),
        ({"a": ["p"], "b": ["p"]}, ""),
        ({"a": ["p", "q"], "b": ["q", "r"]}, ""),
        ({"a": ["p"], "b": ["q"]}, "a behind p, b behind q"),
    ],
)
async def test_variants_behind_different_pools_may_be_two_models(cluster, told, pools, apart):
    """Two Deployments that both serve /mnt/models have one modelID; variants of one model share a pool."""
    for name in ("a", "b"):
        cluster.variant(name, pods=0)
        cluster.deployment(f"d-{name}", replicas=1)
        cluster.pod(f"{name}-0", deployment=f"d-{name}", labels={"app": name})
    words = f"its variants stand behind different InferencePools: {apart}{REST}" if apart else ""
    assert await told(pools) == {"a-0": words, "b-0": words}
