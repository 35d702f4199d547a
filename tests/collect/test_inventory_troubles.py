"""The troubles that WVA reports about node labels, and about accelerators that no node has."""

from __future__ import annotations

import msgspec
import pytest

from tests.collect.test_inventory import H100, InventoryCluster
from wva.api.core import Node
from wva.api.meta import Key
from wva.collect.inventory import read_inventory
from wva.collect.pools import PoolStores
from wva.collect.troubles import Troubles
from wva.kube.cache import Store
from wva.model.inventory import UnknownInventory

GPU = "nvidia.com/gpu"


class TroubledCluster:
    """Troubles of a cluster, in limited mode unless told otherwise."""

    def __init__(self, cluster):
        """Follow the nodes."""
        self.mode = UnknownInventory.NO_GROWTH
        self.changes = 0
        self.cluster = cluster
        pools = PoolStores(Store(), Store())
        self.troubles = Troubles(pools, cluster.stores, unknown=lambda: self.mode, revisit=self._changed)

    def _changed(self, namespace):
        assert namespace is None
        self.changes += 1

    def of(self, accelerator="H100", pods=()):
        """Return reason and message of the trouble."""
        found = self.troubles.inventory(accelerator, pods)
        return found.reason, found.message


@pytest.fixture
def watched():
    """Return the troubles of an empty cluster."""
    return TroubledCluster(InventoryCluster())


def test_a_node_that_says_what_it_has_is_no_trouble(watched):
    """The label of the count may be absent; a shared GPU counts once per share."""
    watched.cluster.node("plain")
    watched.cluster.node("counted", labels={**H100, f"{GPU}.count": "8"})
    watched.cluster.node("shared", labels={**H100, f"{GPU}.count": "2", f"{GPU}.replicas": "4"})
    watched.cluster.node("whole", labels={**H100, f"{GPU}.count": "8", f"{GPU}.replicas": "none"})
    watched.cluster.node("cpu", labels={}, gpus=0)
    assert watched.of() == ("", "")
    assert watched.of("h100") == ("", "")


@pytest.mark.parametrize("label", ["H1000", "", "x" * 1000])
def test_an_accelerator_that_no_node_has_is_named_with_those_there_are(watched, label):
    """The message names the accelerators of the nodes and says that the variant does not grow."""
    watched.cluster.node("a")
    watched.cluster.node("b", labels={f"{GPU}.product": "NVIDIA-A100-PCIE-80GB"})
    reason, message = watched.of(label)
    assert reason == "AcceleratorUnknown"
    got = label[:200] or "nothing"
    assert f"label inference.optimization/acceleratorName: got {got}" in message
    assert message.endswith("expected one of A100, H100; in force: no GPUs, so it does not grow")
    assert len(message) < 500


def test_without_any_gpu_nothing_can_be_named(watched):
    """If no node has an accelerator, the message says so."""
    assert "expected one that a node has, and no node has any" in watched.of()[1]


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (
            {"labels": {**H100, f"{GPU}.count": "8"}, "gpus": 4},
            f"label {GPU}.count=8, expected 4 as allocatable; in force: 4",
        ),
        (
            {"labels": {**H100, f"{GPU}.count": "many"}},
            f"label {GPU}.count=many, expected 8 as allocatable; in force: 8",
        ),
        ({"gpus": "lots"}, f"allocatable {GPU} is lots, expected a number; in force: 0"),
        ({"gpus": 0}, f"label {GPU}.product=NVIDIA-H100-80GB-HBM3, expected allocatable {GPU}; in force: 0"),
        (
            {"resource": "amd.com/gpu"},
            f"label {GPU}.product=NVIDIA-H100-80GB-HBM3, expected allocatable {GPU}; in force: 0",
        ),
    ],
)
def test_a_label_that_the_node_contradicts_is_named(watched, node, words):
    """The message has the value in force; variants of other accelerators have no trouble."""
    watched.cluster.node("liar", **node)
    watched.cluster.node("other", labels={f"{GPU}.product": "NVIDIA-A100-PCIE-80GB"})
    reason, message = watched.of()
    assert reason == "NodeLabelsDisagree"
    assert f"node liar: {words}" in message
    if "resource" not in node:
        assert watched.of("A100") == ("", "")


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ({}, f"no label {GPU}.product, expected one; in force: its 8 GPUs are not counted"),
        (
            {f"{GPU}.product": "NVIDIA-"},
            f"label {GPU}.product=NVIDIA-, expected a product such as NVIDIA-A100-PCIE-80GB",
        ),
    ],
)
def test_gpus_of_no_product_concern_everybody(watched, labels, words):
    """GPUs without a product may be of any accelerator, so all variants have the trouble."""
    watched.cluster.node("liar", labels=labels)
    watched.cluster.node("other")
    assert watched.of()[0] == "NodeLabelsDisagree"
    assert words in watched.of()[1]
    assert watched.of("A100")[0] == "AcceleratorUnknown"
    assert words in watched.of("A100")[1]


def test_a_replica_on_a_node_of_another_product_is_named(watched):
    """The labels of node and variant differ, and the label of the node counts."""
    watched.cluster.node("a100", labels={f"{GPU}.product": "NVIDIA-A100-PCIE-80GB"})
    watched.cluster.node("h100")
    watched.cluster.pod("right", node="h100")
    watched.cluster.pod("lost", node="gone")
    watched.cluster.pod("waiting", node="")
    watched.cluster.pod("idle", node="a100", gpus=0)
    assert watched.of(pods=watched.cluster.stores.pods.list()) == ("", "")
    watched.cluster.pod("wrong", node="a100")
    reason, message = watched.of(pods=watched.cluster.stores.pods.list())
    assert reason == "NodeLabelsDisagree"
    assert message == (
        f"pod wrong runs on node a100 with label {GPU}.product=NVIDIA-A100-PCIE-80GB, expected H100 as in label "
        "inference.optimization/acceleratorName; in force: the label of the node"
    )


def test_of_many_liars_a_few_are_named(watched):
    """The message names three nodes and counts the others."""
    for number in range(10):
        watched.cluster.node(f"liar-{number}", gpus=0)
    assert watched.of()[1].count("node liar") == 3
    assert watched.of()[1].endswith("and 7 more")


def test_nobody_asks_while_gpus_are_not_limited(watched):
    """If GPUs are not limited, WVA ignores the labels of nodes."""
    watched.mode = None
    watched.cluster.node("liar", gpus=0)
    assert watched.of("H1000") == ("", "")
    assert watched.changes == 0


@pytest.mark.parametrize(
    ("mode", "words"),
    [(UnknownInventory.NO_GROWTH, "nothing grows"), (UnknownInventory.UNLIMITED, "growth is not limited")],
)
@pytest.mark.parametrize("given", [{"blind": "only namespace ns is watched"}, {"absent": "forbidden"}])
def test_an_inventory_that_cannot_be_known_is_told_with_what_is_in_force(given, mode, words):
    """If the inventory is unknown, WVA does not report the accelerator as unknown."""
    watched = TroubledCluster(InventoryCluster(**given))
    watched.mode = mode
    reason, message = watched.of()
    assert reason == "InventoryUnknown"
    assert message.endswith(f"{next(iter(given.values()))}; in force: {words}")


def test_nodes_that_are_kept_are_told_with_their_age():
    """The last known nodes count, and the message has their time."""
    watched = TroubledCluster(
        InventoryCluster(staleness="403 Forbidden; in force: nodes as known at 2026-01-01T00:00:00Z")
    )
    watched.cluster.node("n")
    words = "nodes cannot be read: 403 Forbidden; in force: nodes as known at 2026-01-01T00:00:00Z"
    assert watched.of() == ("InventoryUnknown", words)
    inventory, _ = read_inventory(watched.cluster.stores)
    assert inventory is not None
    assert inventory.pool_of("H100").capacity == 8


def test_only_changes_that_count_are_looked_at(watched):
    """Nodes report several times a minute, so WVA ignores reports without a change."""
    watched.cluster.node("n")
    watched.cluster.node("n")
    assert (watched.changes, watched.of()) == (1, ("", ""))
    watched.cluster.node("n", gpus=0)
    assert (watched.changes, watched.of()[0]) == (2, "NodeLabelsDisagree")
    watched.cluster.stores.nodes.delete(Key("", "n"))
    assert (watched.changes, watched.of()[0]) == (3, "AcceleratorUnknown")


def test_a_node_that_takes_no_pods_says_nothing(watched):
    """The GPUs of a cordoned node are not counted, so WVA does not check its labels."""
    body = {"metadata": {"name": "n", "labels": H100}, "spec": {"unschedulable": True}}
    watched.cluster.stores.nodes.upsert(msgspec.convert(body, Node))
    assert "node n" not in watched.of()[1]
