"""What is said of the gateways in front of a workload."""

from __future__ import annotations

import msgspec
import pytest

from wva.api.core import InferencePool
from wva.collect.inventory import InventoryStores
from wva.collect.pools import Pool, PoolStores
from wva.collect.troubles import Troubles
from wva.kube.cache import Store

LABELS = {"app": "vllm"}
POOL = Pool("ns", "pool", "epp")


def pool(name="pool", *, labels=LABELS, namespace="ns"):
    """Return a pool."""
    spec = {"selector": {"matchLabels": labels}, "endpointPickerRef": {"name": "epp"}}
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace}, "spec": spec}, InferencePool)


@pytest.fixture
def changes():
    """Return the namespaces whose variants were to be looked at."""
    return []


@pytest.fixture
def stores():
    """Return caches with one pool."""
    found = PoolStores(Store(), Store())
    found.pools.upsert(pool())
    return found


@pytest.fixture
def troubles(stores, changes):
    """Return what is known of them."""
    inventory = InventoryStores(Store(), Store(), Store(), nodes_source=None)
    return Troubles(stores, inventory, unknown=lambda: None, revisit=changes.append)


def test_nothing_is_wrong_with_a_pool_that_is_read(troubles):
    """A pool that WVA has not read yet gives no trouble either."""
    assert not troubles.gateway("ns", LABELS)


def test_a_pool_that_cannot_be_read_is_named_with_its_reason(troubles, changes):
    """Until it can; the same reason is told once."""
    troubles.report(POOL, "it answered 401, expected 200")
    troubles.report(POOL, "it answered 401, expected 200")
    found = troubles.gateway("ns", LABELS)
    assert (found.reason, found.message.split("; in force: ")[0]) == (
        "GatewayUnreadable",
        "InferencePool ns/pool: it answered 401, expected 200",
    )
    troubles.report(POOL, "")
    troubles.report(POOL, "")
    assert not troubles.gateway("ns", LABELS)
    assert changes == ["ns", "ns"]


def test_others_are_not_concerned(troubles):
    """Not a workload that another pool stands in front of, nor one of the same labels in another namespace."""
    troubles.report(POOL, "broken")
    assert not troubles.gateway("ns", {"app": "web"})
    assert not troubles.gateway("other", LABELS)


def test_a_pool_without_a_selector_concerns_whom_no_other_pool_claims(stores, troubles, changes):
    """In its own namespace; it may have been meant for them."""
    stores.pools.upsert(pool("empty", labels={}))
    assert changes == ["ns"]
    assert not troubles.gateway("ns", LABELS)
    assert not troubles.gateway("other", {"app": "web"})
    found = troubles.gateway("ns", {"app": "web"})
    assert found.reason == "PoolSelectorEmpty"
    assert "InferencePool ns/empty: spec.selector is empty, expected labels" in found.message


def test_a_message_stays_short(stores, troubles):
    """Of many pools a few are named."""
    for number in range(20):
        stores.pools.upsert(pool(f"pool-{number}"))
        troubles.report(Pool("ns", f"pool-{number}", "epp"), "broken")
    assert troubles.gateway("ns", LABELS).message.count("broken") == 3
