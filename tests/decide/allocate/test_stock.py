"""Which GPUs are free, and from which of them a variant takes."""

from __future__ import annotations

from wva.decide.allocate import UNLIMITED, Stock
from wva.decide.allocate.records import UNKNOWN_STOCK
from wva.model.inventory import AcceleratorPool, GpuQuota, Inventory, UnknownInventory
from wva.model.variant import ModelKey, Variant, VariantKey

INVENTORY = Inventory.of(
    [AcceleratorPool("A100", 10, 4), AcceleratorPool("H100", 4, 4), AcceleratorPool("MI300X", 8, 0, "amd.com/gpu")],
    [GpuQuota("ns", "nvidia.com/gpu", 5, 2, "q"), GpuQuota("ns", "amd.com/gpu", 3, 0, "q")],
)


def variant(name="v", accelerator="A100", **others):
    """Return a variant."""
    return Variant(VariantKey("ns", name), ModelKey("ns", "m"), name, accelerator=accelerator, **others)


def test_free_is_what_no_pod_has():
    """Pools and quotas have names."""
    assert Stock.of(INVENTORY, []).free == {
        "gpu-limiter A100": 6,
        "gpu-limiter H100": 0,
        "gpu-limiter MI300X": 8,
        "ResourceQuota ns/q": 3,
        "ResourceQuota ns/q amd.com/gpu": 3,
    }


def test_pods_that_wait_for_a_node_have_theirs_first():
    """Pods that found no node for long and pods that were created just now are the same pods, counted once."""
    waiting = variant(unplaced_pods=2, unschedulable_pods=1, gpus_per_replica=2)
    assert Stock.of(INVENTORY, [waiting]).free["gpu-limiter A100"] == 2
    many = variant(unplaced_pods=9, gpus_per_replica=0)
    assert Stock.of(INVENTORY, [many]).free["gpu-limiter A100"] == 0
    assert Stock.of(INVENTORY, [variant(accelerator="H900", unplaced_pods=1)]).free["gpu-limiter A100"] == 6


def test_a_variant_takes_from_its_pool_and_the_quotas_of_its_namespace():
    """Long and short names are the same; the status names the accelerator where the label does not."""
    stock = Stock.of(INVENTORY, [])
    expected = ("gpu-limiter A100", "ResourceQuota ns/q")
    assert stock.limits_of(variant(accelerator="NVIDIA-A100-PCIE-80GB")) == expected
    assert stock.limits_of(variant(accelerator="", status_accelerator="a100")) == expected
    assert stock.limits_of(variant(accelerator="MI300X")) == ("gpu-limiter MI300X", "ResourceQuota ns/q amd.com/gpu")


def test_gpus_that_do_not_exist():
    """No GPUs are free under the name of an unknown accelerator."""
    stock = Stock.of(INVENTORY, [])
    assert stock.limits_of(variant(accelerator="H900")) == ("gpu-limiter H900",)
    assert stock.limits_of(variant(accelerator="")) == ("gpu-limiter unknown",)


def test_an_unknown_inventory_allows_no_growth_or_all():
    """The policy says whether a model may grow without a known inventory."""
    assert Stock.of(None, []).limits_of(variant()) == (UNKNOWN_STOCK,)
    assert Stock.of(None, []).frozen
    assert Stock.of(None, [], unknown=UnknownInventory.UNLIMITED) is UNLIMITED
    assert not UNLIMITED.frozen
    assert UNLIMITED.limits_of(variant()) == ()


def test_one_accelerator_under_two_resources():
    """The first pool is the one that variants take from."""
    inventory = Inventory.of([AcceleratorPool("X", 5, 0, "a.com/gpu"), AcceleratorPool("X", 9, 0, "b.com/gpu")])
    assert Stock.of(inventory, []).free == {"gpu-limiter X": 5}
