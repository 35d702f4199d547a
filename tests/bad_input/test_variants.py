"""Wrong values in variants and nodes: the variant reports them, and WVA goes on deciding."""

from __future__ import annotations

import pytest

from tests.app.stage import DEPLOYMENTS, VARIANTS, until
from wva.api.meta import Key

GPU = "nvidia.com/gpu"
LIMITED = {"WVA_LIMITED_MODE": "true"}
COST = "expected a number above 0 and up to 1,000,000,000; in force: "


@pytest.mark.parametrize(
    ("cost", "shown", "in_force"),
    [
        ("0", "0", "0: it counts as free"),
        ("0.0", "0.0", "0: it counts as free"),
        ("", "", "10"),
        ("-3", "-3", "10"),
        ("NaN", "NaN", "10"),
        ("1e300", "1e300", "10"),
        ("9" * 100_000, "9" * 40 + "...", "10"),
        ("cheap", "cheap", "10"),
    ],
)
async def test_a_cost_that_is_not_meant_is_named(stage, cost, shown, in_force):
    """WVA decides with the cost in force, and reports the fault until it is corrected."""
    async with stage.controller(interval="100ms"):
        stage.force(VARIANTS, "va", lambda value: value["spec"].update(variantCost=cost))
        await until(lambda: stage.told("ConfigurationValid") == ("False", "InvalidConfiguration"))
        assert stage.message("ConfigurationValid") == f"spec.variantCost: got '{shown}', {COST}{in_force}"
        await stage.works()
        assert stage.series()["va"] == 2
        assert stage.told("ConfigurationValid", "proof") is None
        assert stage.decision().cost == float(in_force.split(":")[0])
        stage.force(VARIANTS, "va", lambda value: value["spec"].update(variantCost="20.0"))
        await until(lambda: stage.told("ConfigurationValid") == ("True", "ConfigurationAccepted"))


async def test_an_absent_cost_is_the_default(stage):
    """The API server writes the default into the object. Without it WVA uses the same default."""
    stage.va("written", target="proof")
    assert stage.api.store.get(VARIANTS, Key("ns", "written"))["spec"]["variantCost"] == "10.0"
    stage.delete_va("written")
    stage.force(VARIANTS, "va", lambda value: value["spec"].pop("variantCost", None))
    async with stage.controller(interval="100ms"):
        await stage.works()
        assert stage.decision().cost == 10.0


def node(stage, name="node", *, labels, gpus="8", resource=GPU):
    """Store a Ready node."""
    stage.force(
        "nodes",
        name,
        lambda value: value.update(
            metadata={**value["metadata"], "labels": labels},
            status={"allocatable": {resource: gpus}, "conditions": [{"type": "Ready", "status": "True"}]},
        ),
        namespace="",
    )


async def test_an_accelerator_unknown_to_the_inventory_is_named(stage):
    """The message lists the known accelerators. The variant does not grow, and other variants do."""
    node(stage, labels={f"{GPU}.product": "NVIDIA-A100-PCIE-80GB"})
    stage.force(VARIANTS, "va", lambda value: value["spec"].update(modelID="org/other"))
    stage.va("good", target="proof", accelerator="A100")
    stage.load["proof"] = stage.load["d"] = (0.95, 20)
    async with stage.controller(interval="100ms", **LIMITED):
        await until(lambda: stage.told("InventoryConsistent") == ("False", "AcceleratorUnknown"))
        assert stage.message("InventoryConsistent") == (
            "label inference.optimization/acceleratorName: got H100, expected one of A100; "
            "in force: no GPUs, so it does not grow"
        )
        await stage.scrape()
        await until(lambda: stage.series()["good"] > 3)
        assert stage.series()["va"] == 2
        assert stage.told("InventoryConsistent", "good") is None
        node(stage, "new", labels={f"{GPU}.product": "NVIDIA-H100-80GB-HBM3"})
        await until(lambda: stage.told("InventoryConsistent") == ("True", "InventoryRead"))


LIES = {
    "count": (
        {"labels": {f"{GPU}.product": "NVIDIA-H100-80GB-HBM3", f"{GPU}.count": "8"}, "gpus": "4"},
        f"label {GPU}.count=8, expected 4 as allocatable; in force: 4",
    ),
    "count-no-number": (
        {"labels": {f"{GPU}.product": "NVIDIA-H100-80GB-HBM3", f"{GPU}.count": "all"}},
        f"label {GPU}.count=all, expected 8 as allocatable; in force: 8",
    ),
    "no-such-gpus": (
        {"labels": {f"{GPU}.product": "NVIDIA-H100-80GB-HBM3"}, "resource": "amd.com/gpu"},
        f"label {GPU}.product=NVIDIA-H100-80GB-HBM3, expected allocatable {GPU}; in force: 0",
    ),
    "allocatable-no-number": (
        {"labels": {f"{GPU}.product": "NVIDIA-H100-80GB-HBM3"}, "gpus": "plenty"},
        f"allocatable {GPU} is plenty, expected a number; in force: 0",
    ),
    "no-product": ({"labels": {}}, f"no label {GPU}.product, expected one; in force: its 8 GPUs are not counted"),
    "product-no-name": (
        {"labels": {f"{GPU}.product": "NVIDIA-"}},
        f"label {GPU}.product=NVIDIA-, expected a product such as NVIDIA-A100-PCIE-80GB; in force: its 8 GPUs",
    ),
}


@pytest.mark.parametrize(("lie", "words"), LIES.values(), ids=LIES.keys())
async def test_a_node_whose_labels_lie_is_named(stage, lie, words):
    """The variants of its accelerator report it. The allocatable GPUs of the node count, not its label."""
    node(stage, "honest", labels={f"{GPU}.product": "NVIDIA-H100-80GB-HBM3"}, gpus="1")
    node(stage, "liar", **lie)
    async with stage.controller(interval="100ms", **LIMITED):
        await until(lambda: stage.told("InventoryConsistent") == ("False", "NodeLabelsDisagree"))
        assert f"node liar: {words}" in stage.message("InventoryConsistent")
        await stage.works()
        assert stage.series()["va"] == 2
        node(stage, "liar", labels={f"{GPU}.product": "NVIDIA-H100-80GB-HBM3", f"{GPU}.count": "8"})
        await until(lambda: stage.told("InventoryConsistent") == ("True", "InventoryRead"))


async def test_a_replica_on_a_node_of_another_product_is_named(stage):
    """The label of the node differs from the accelerator of the variant, and the label of the node is in force."""
    node(stage, "a100", labels={f"{GPU}.product": "NVIDIA-A100-PCIE-80GB"})
    node(stage, "h100", labels={f"{GPU}.product": "NVIDIA-H100-80GB-HBM3"})
    for pod in stage.api.store.list("pods"):
        stage.force("pods", pod["metadata"]["name"], occupy)
    async with stage.controller(interval="100ms", **LIMITED):
        await until(lambda: stage.told("InventoryConsistent") == ("False", "NodeLabelsDisagree"))
        message = stage.message("InventoryConsistent")
        assert f"runs on node a100 with label {GPU}.product=NVIDIA-A100-PCIE-80GB, expected H100" in message
        assert message.endswith("in force: the label of the node")
        await stage.works()
        assert stage.series()["va"] == 2


def occupy(pod):
    """Let the pod use a GPU of node a100."""
    pod["spec"] = {"nodeName": "a100", "containers": [{"name": "c", "resources": {"limits": {GPU: "1"}}}]}


async def test_without_a_limit_nobody_asks_what_nodes_say(stage):
    """Without the GPU limit the variant reports no fault of a node."""
    node(stage, labels={f"{GPU}.product": "NVIDIA-"})
    async with stage.controller(interval="100ms"):
        await stage.works()
        assert stage.told("InventoryConsistent") is None
        assert stage.api.store.get(DEPLOYMENTS, Key("ns", "d"))["spec"]["replicas"] == 2
