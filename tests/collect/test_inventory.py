"""The GPUs of a cluster: nodes that count, GPUs that pods take, and quotas."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from wva.api.core import Node, Pod, ResourceQuota
from wva.collect.inventory import InventoryStores, read_inventory, without_idle_containers
from wva.kube.cache import Store
from wva.model.inventory import AcceleratorPool, GpuQuota

READY = [{"type": "Ready", "status": "True"}]
H100 = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}


class InventoryCluster:
    """Nodes, pods and quotas in synced caches."""

    def __init__(self, *, absent=None, staleness=None, blind=""):
        """Start with nothing."""
        source = SimpleNamespace(absent=absent, staleness=staleness)
        self.stores = InventoryStores(Store(), Store(), Store(), nodes_source=source, blind=blind)
        self.stores.add_indexes()
        for store in (self.stores.nodes, self.stores.pods, self.stores.quotas):
            store.synced.set()

    def node(self, name="n", *, labels=H100, gpus=8, resource="nvidia.com/gpu", conditions=READY, **rest):
        """Put a node."""
        metadata = {"name": name, "labels": labels, **rest.pop("metadata", {})}
        status = {"allocatable": {"cpu": "64", resource: str(gpus)}, "conditions": conditions}
        self.stores.nodes.upsert(msgspec.convert({"metadata": metadata, "status": status, "spec": rest}, Node))

    def pod(self, name="p", *, node="n", gpus=1, phase="Running", kind="requests", init=(), resource="nvidia.com/gpu"):
        """Put a pod; ``init`` are (GPUs, restart policy) of its init containers."""
        spec = {
            "nodeName": node,
            "containers": [{"resources": {kind: {"cpu": "1", resource: str(gpus)}}}],
            "initContainers": [
                {"resources": {"requests": {resource: str(taken)}}, "restartPolicy": policy} for taken, policy in init
            ],
        }
        body = {"metadata": {"name": name, "namespace": "ns"}, "spec": spec, "status": {"phase": phase}}
        self.stores.pods.upsert(msgspec.convert(body, Pod))

    def pools(self):
        """Return the pools; there must be an inventory."""
        inventory, why = read_inventory(self.stores)
        assert inventory is not None, why
        return inventory.pools


@pytest.fixture
def cluster():
    """Return an empty cluster."""
    return InventoryCluster()


def test_nodes_of_a_product_are_one_pool(cluster):
    """The pool has the short name of the product, and the sum of the GPUs that pods take."""
    cluster.node("a", gpus=8)
    cluster.node("b", gpus=4)
    cluster.pod("x", node="a", gpus=3)
    cluster.pod("y", node="b", gpus=2)
    assert cluster.pools() == (AcceleratorPool("H100", 12, 5),)


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "amd.com/gpu", "intel.com/gpu"])
def test_three_vendors_are_known(cluster, resource):
    """Each vendor has its own label and resource name."""
    cluster.node(labels={f"{resource}.product": "X-Y"}, resource=resource, gpus=2)
    cluster.pod(resource=resource, gpus=1)
    assert cluster.pools() == (AcceleratorPool("Y", 2, 1, resource=resource),)


@pytest.mark.parametrize(
    "state",
    [
        {"unschedulable": True},
        {"conditions": [{"type": "Ready", "status": "False"}]},
        {"conditions": [{"type": "Ready", "status": "Unknown"}]},
        {"conditions": []},
        {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}},
        {"labels": {}},
    ],
)
def test_a_node_that_takes_no_new_pods_is_left_out(cluster, state):
    """A node that is cordoned, not Ready, deleted or without a product does not count, nor do its pods."""
    cluster.node(**state)
    cluster.pod(gpus=3)
    assert cluster.pools() == ()


@pytest.mark.parametrize(
    ("pod", "taken"),
    [
        ({"gpus": 2}, 2),
        ({"gpus": 2, "kind": "limits"}, 2),
        ({"gpus": 2, "phase": "Pending"}, 2),
        ({"gpus": 2, "phase": "Succeeded"}, 0),
        ({"gpus": 2, "phase": "Failed"}, 0),
        ({"gpus": 2, "node": ""}, 0),
        ({"gpus": 2, "node": "elsewhere"}, 0),
        ({"gpus": 1, "init": [(4, "")]}, 4),
        ({"gpus": 3, "init": [(2, ""), (1, "")]}, 3),
        ({"gpus": 2, "init": [(1, "Always")]}, 3),
        ({"gpus": 1, "init": [(1, "Always"), (4, "")]}, 5),
        ({"gpus": 0}, 0),
        ({"gpus": "many"}, 0),
    ],
)
def test_what_a_pod_takes(cluster, pod, taken):
    """A pod takes the larger sum of its init phase and its running phase, while it is scheduled and not ended."""
    cluster.node()
    cluster.pod(**pod)
    assert cluster.pools() == (AcceleratorPool("H100", 8, taken),)


def test_a_node_without_the_gpus_of_its_label_has_none(cluster):
    """Only the allocatable amount counts, and not the label of the product."""
    cluster.node(gpus="nonsense")
    assert cluster.pools() == (AcceleratorPool("H100", 0, 0),)


def test_a_node_with_hundreds_of_labels_of_its_features_counts(cluster):
    """Node Feature Discovery writes a label per CPU feature; these names sort before the product's."""
    features = {f"feature.node.kubernetes.io/cpu-cpuid.{number:03}": "true" for number in range(300)}
    cluster.node(labels={**features, **H100})
    assert [pool.accelerator for pool in cluster.pools()] == ["H100"]


def test_quotas_on_gpus_are_read(cluster):
    """WVA reads the status of a quota, because Kubernetes enforces it; other resources do not count."""
    body = {
        "metadata": {"name": "q", "namespace": "ns"},
        "status": {"hard": {"requests.nvidia.com/gpu": "4", "cpu": "9"}, "used": {"requests.nvidia.com/gpu": 3}},
    }
    cluster.stores.quotas.upsert(msgspec.convert(body, ResourceQuota))
    inventory, _ = read_inventory(cluster.stores)
    assert inventory.quotas == (GpuQuota("ns", "nvidia.com/gpu", 4, 3, "q"),)


def test_no_inventory_without_nodes_to_read():
    """If nodes are forbidden, unread or not watched, the inventory is None with the reason."""
    assert read_inventory(InventoryCluster(absent="403 Forbidden").stores) == (
        None,
        "nodes cannot be read: 403 Forbidden",
    )
    assert (
        read_inventory(InventoryCluster(blind="only namespace ns is watched").stores)[1]
        == "only namespace ns is watched"
    )
    unread = InventoryCluster()
    unread.stores.nodes.synced.clear()
    assert read_inventory(unread.stores) == (None, "nodes and pods have not been read yet")


def test_pods_without_gpus_are_kept_slim(cluster):
    """The cache drops the containers of pods without GPUs and keeps their node."""
    cluster.pod(gpus=0)
    (idle,) = cluster.stores.pods.list()
    assert without_idle_containers(idle).spec.containers == ()
    assert without_idle_containers(idle).spec.node_name == "n"
    cluster.pod(gpus=1)
    (busy,) = cluster.stores.pods.list()
    assert without_idle_containers(busy) is busy
    assert without_idle_containers(Pod()) == Pod()
