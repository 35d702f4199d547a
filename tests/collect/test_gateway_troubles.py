"""The troubles that WVA reports about the gateways in front of a workload."""

from __future__ import annotations

import msgspec
import pytest

from wva.api.core import InferencePool
from wva.collect.inventory import InventoryStores
from wva.collect.pools import Pool, PoolStores
from wva.collect.troubles import Troubles
from wva.kube.cache import Store
from wva.model.trouble import UNTROUBLED, Trouble
from wva.model.variant import VariantKey

LABELS = {"app": "vllm"}
POOL = Pool("ns", "pool", "epp")


def pool(name="pool", *, labels=LABELS, namespace="ns"):
    """Return a pool."""
    spec = {"selector": {"matchLabels": labels}, "endpointPickerRef": {"name": "epp"}}
    return msgspec.convert({"metadata": {"name": name, "namespace": namespace}, "spec": spec}, InferencePool)


@pytest.fixture
def changes():
    """Return the list of namespaces whose variants WVA must look at again."""
    return []


@pytest.fixture
def stores():
    """Return caches with one pool."""
    found = PoolStores(Store(), Store())
    found.pools.upsert(pool())
    return found


@pytest.fixture
def troubles(stores, changes):
    """Return the troubles of these pools."""
    inventory = InventoryStores(Store(), Store(), Store(), nodes_source=None)
    return Troubles(stores, inventory, unknown=lambda: None, revisit=changes.append)


def test_nothing_is_wrong_with_a_pool_that_is_read(troubles):
    """A pool that WVA has not read yet gives no trouble either."""
    assert not troubles.gateway("ns", LABELS)


def test_a_pool_that_cannot_be_read_is_named_with_its_reason(troubles, changes):
    """The trouble lasts until the pool is read; the same reason again is no change."""
    troubles.report(POOL, Trouble("GatewayUnreadable", "it answered 401, expected 200"))
    troubles.report(POOL, Trouble("GatewayUnreadable", "it answered 401, expected 200"))
    found = troubles.gateway("ns", LABELS)
    assert (found.reason, found.message.split("; in force: ")[0]) == (
        "GatewayUnreadable",
        "InferencePool ns/pool: it answered 401, expected 200",
    )
    troubles.report(POOL, UNTROUBLED)
    troubles.report(POOL, UNTROUBLED)
    assert not troubles.gateway("ns", LABELS)
    assert changes == ["ns", "ns"]


def test_others_are_not_concerned(troubles):
    """Workloads behind another pool or in another namespace have no trouble."""
    troubles.report(POOL, Trouble("GatewayUnreadable", "broken"))
    assert not troubles.gateway("ns", {"app": "web"})
    assert not troubles.gateway("other", LABELS)


def test_a_pool_without_a_selector_concerns_whom_no_other_pool_claims(stores, troubles, changes):
    """In its namespace it may have been meant for workloads that no other pool selects."""
    stores.pools.upsert(pool("empty", labels={}))
    assert changes == ["ns"]
    assert not troubles.gateway("ns", LABELS)
    assert not troubles.gateway("other", {"app": "web"})
    found = troubles.gateway("ns", {"app": "web"})
    assert found.reason == "PoolSelectorEmpty"
    assert "InferencePool ns/empty: spec.selector is empty, expected labels" in found.message


def test_a_message_stays_short(stores, troubles):
    """The message names three of many pools."""
    for number in range(20):
        stores.pools.upsert(pool(f"pool-{number}"))
        troubles.report(Pool("ns", f"pool-{number}", "epp"), Trouble("GatewayUnreadable", "broken"))
    assert troubles.gateway("ns", LABELS).message.count("broken") == 3


def test_the_worst_trouble_of_several_pools_is_told(stores, troubles):
    """A pool without flow control is told, with what to switch on, before one that may have it."""
    stores.pools.upsert(pool("new"))
    troubles.report(Pool("ns", "new", "epp"), Trouble("QueueNotYetKnown", "no queue yet", known=False))
    found = troubles.gateway("ns", LABELS)
    assert (found.reason, found.known) == ("QueueNotYetKnown", False)
    assert "not known before the first request" in found.message
    troubles.report(POOL, Trouble("QueueMissing", "no queue"))
    found = troubles.gateway("ns", LABELS)
    assert (found.reason, found.known) == ("QueueMissing", True)
    assert "InferencePool ns/pool: no queue; expected one of them: switch on flow control" in found.message


def test_late_replicas_are_told_until_a_cycle_finds_them_in_time(troubles, changes):
    """The same delay again is no change, and a model that a cycle could not decide on keeps what is known of it."""
    key, late = VariantKey("ns", "a"), Trouble("ReplicasLate", "1 of 2 replicas")
    troubles.delay({key: late}, unseen=set())
    troubles.delay({key: late}, unseen=set())
    troubles.delay({}, unseen={key})
    assert troubles.late(key) == late
    assert changes == ["ns"]
    troubles.delay({}, unseen=set())
    assert not troubles.late(key)
    assert changes == ["ns", "ns"]
