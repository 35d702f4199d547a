"""Which InferencePools select a workload."""

from __future__ import annotations

import msgspec
import pytest

from wva.api.core import InferencePool, InferencePoolAlpha
from wva.api.meta import Key
from wva.collect.pools import Pool, PoolStores
from wva.kube.cache import Store


@pytest.fixture
def stores():
    """Return empty caches of both groups."""
    return PoolStores(Store(), Store())


def current(stores, name="pool", *, labels, picker="epp", namespace="ns", **metadata):
    """Put a pool of the current API group."""
    spec = {"selector": {"matchLabels": labels}, **({"endpointPickerRef": {"name": picker}} if picker else {})}
    body = {"metadata": {"name": name, "namespace": namespace, **metadata}, "spec": spec}
    stores.pools.upsert(msgspec.convert(body, InferencePool))


def alpha(stores, name="pool", *, labels, picker="epp", namespace="ns"):
    """Put a pool of the former API group."""
    spec = {"selector": labels, **({"extensionRef": {"name": picker}} if picker else {})}
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": spec}
    stores.pools_alpha.upsert(msgspec.convert(body, InferencePoolAlpha))


@pytest.mark.parametrize("put", [current, alpha])
def test_both_groups_say_the_same(stores, put):
    """WVA reads selector and picker from the shapes of both API groups."""
    put(stores, labels={"app": "vllm"})
    assert stores.pools_of("ns", {"app": "vllm", "x": "y"}) == [Pool("ns", "pool", "epp")]
    assert stores.pools_of("ns", {"app": "other"}) == []
    assert stores.pools_of("ns", {}) == []


def test_a_pool_in_both_groups_is_one(stores):
    """A cluster may have a pool in both groups while it moves to the new one."""
    current(stores, labels={"app": "vllm"})
    alpha(stores, labels={"app": "vllm"})
    assert stores.pools_of("ns", {"app": "vllm"}) == [Pool("ns", "pool", "epp")]


def test_pools_of_one_name_in_two_namespaces_are_two(stores):
    """A pool selects workloads in its own namespace only."""
    current(stores, labels={"app": "vllm"}, picker="a")
    current(stores, labels={"app": "vllm"}, picker="b", namespace="other")
    assert stores.pools_of("ns", {"app": "vllm"}) == [Pool("ns", "pool", "a")]
    assert stores.pools_of("other", {"app": "vllm"}) == [Pool("other", "pool", "b")]


@pytest.mark.parametrize("put", [current, alpha])
def test_an_empty_selector_claims_nothing(stores, put):
    """Otherwise it would select every workload of the namespace."""
    put(stores, labels={})
    assert stores.pools_of("ns", {"app": "vllm"}) == []


def test_a_pool_that_is_going_is_none(stores):
    """A pool that is being deleted does not count."""
    current(stores, labels={"app": "vllm"}, deletionTimestamp="2026-01-01T00:00:00Z")
    assert stores.pools_of("ns", {"app": "vllm"}) == []


@pytest.mark.parametrize("put", [current, alpha])
def test_a_pool_without_a_picker_is_found_as_one(stores, put):
    """WVA keeps such a pool, so that it can say that the pool names no picker."""
    put(stores, labels={"app": "vllm"}, picker="")
    assert stores.pools_of("ns", {"app": "vllm"}) == [Pool("ns", "pool", "")]


def test_what_is_asked_often_is_as_new_as_the_caches(stores):
    """Pools that come, change and go are seen at once, also where nothing selected before."""
    assert stores.pools_of("ns", {"app": "vllm"}) == []
    current(stores, labels={"app": "vllm"})
    assert stores.pools_of("ns", {"app": "vllm"}) == [Pool("ns", "pool", "epp")]
    current(stores, labels={"app": "other"}, picker="b")
    assert stores.pools_of("ns", {"app": "vllm"}) == []
    assert stores.pools_of("ns", {"app": "other"}) == [Pool("ns", "pool", "b")]
    stores.pools.delete(Key("ns", "pool"))
    assert stores.pools_of("ns", {"app": "other"}) == []


def test_whoever_hears_of_a_change_finds_it(stores):
    """A subscriber that asks inside its handler gets the pools after the change."""
    found = []
    assert stores.pools_of("ns", {"app": "vllm"}) == []
    stores.pools.subscribe(lambda _old, _new: found.append(stores.pools_of("ns", {"app": "vllm"})))
    current(stores, labels={"app": "vllm"})
    current(stores, labels={"app": "vllm"}, picker="b")
    assert found == [[Pool("ns", "pool", "epp")], [Pool("ns", "pool", "b")]]
