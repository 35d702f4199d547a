"""The limiter asks for no more than the free GPUs: pools, quotas, order, and what it does without an inventory."""

from __future__ import annotations

import pytest

from tests.builders import variant
from tests.decide.story import BUSY, FULL, HOT, IDLE, Story, numbers, reasons
from wva.model.decision import Reason
from wva.model.inventory import AcceleratorPool, GpuQuota, Inventory, UnknownInventory, normalize_accelerator
from wva.model.policy import Policy
from wva.model.service import ServiceTarget
from wva.model.variant import Bounds


def gpus(free: int, *, accelerator: str = "A100", capacity: int = 100) -> AcceleratorPool:
    """Return a pool with so many free GPUs."""
    return AcceleratorPool(accelerator, capacity, capacity - free)


def story(*pools: AcceleratorPool, quotas: tuple[GpuQuota, ...] = (), **policy) -> Story:
    """Return a story with the limiter on."""
    return Story(Policy(enable_limiter=True, **policy), inventory=Inventory.of(list(pools), list(quotas)))


def test_growth_within_the_budget_is_granted():
    """With enough GPUs the model grows as without a limiter."""
    decision = story(gpus(4)).cycle(variant(replicas=2), a=[FULL] * 2)["a"]
    assert (decision.desired, decision.reason, decision.limits) == (4, Reason.SCALE_UP, ())


def test_growth_beyond_the_budget_is_cut_to_whole_replicas():
    """Three GPUs are free and a replica takes two, so the model gets one of two replicas more."""
    decision = story(gpus(3)).cycle(variant(replicas=2, gpus_per_replica=2), a=[FULL] * 2)["a"]
    assert (decision.desired, decision.reason) == (3, Reason.GPU_LIMITED)
    assert decision.message.startswith("limited to 3: 1 replica fewer than wanted (gpu-limiter A100); ")
    (step,) = decision.limits
    assert (step.stage, step.after, step.limited_by, step.fewer) == ("allocate", 3, "gpu-limiter A100", 1)


def test_a_remainder_is_left_for_others():
    """Of three GPUs one replica takes two, and the next model gets the third; the original lost it."""
    decisions = story(gpus(3)).cycle(
        variant("a", model="m", replicas=2, gpus_per_replica=2),
        variant("b", model="n", replicas=2),
        a=[(1.0, 9)] * 2,
        b=[HOT] * 2,
    )
    assert numbers(decisions) == {"a": 3, "b": 3}


def test_the_fullest_model_is_served_first():
    """The model with the least spare is first, then the lower cost, then the name."""
    decisions = story(gpus(1)).cycle(
        variant("a", model="m", cost=1), variant("b", model="n", cost=50), a=[(0.75, 0)], b=[(0.79, 0)]
    )
    assert numbers(decisions) == {"a": 1, "b": 2}
    assert reasons(decisions) == {"a": "GpuLimited", "b": "ScaleUp"}


def test_priority_comes_before_everything_else():
    """The service class of a model decides which model gets the last GPU."""
    premium = ServiceTarget("premium", priority=1, model_id="m")
    decisions = story(gpus(1), service_targets=(premium,)).cycle(
        variant("a", model="m", cost=50), variant("b", model="n"), a=[(0.75, 0)], b=[(0.79, 0)]
    )
    assert numbers(decisions) == {"a": 2, "b": 1}


def test_a_quota_of_the_namespace_binds_as_well():
    """Plenty of GPUs are free, but the quota of the namespace leaves one only."""
    quota = GpuQuota("ns", "nvidia.com/gpu", hard=4, used=3, name="team")
    decision = story(gpus(50), quotas=(quota,)).cycle(variant(replicas=2), a=[FULL] * 2)["a"]
    assert decision.desired == 3
    assert decision.limits[0].limited_by == "ResourceQuota ns/team"


def test_the_quota_of_another_namespace_does_not():
    """A quota for another vendor does not count, either."""
    quotas = (GpuQuota("other", "nvidia.com/gpu", 0, 0), GpuQuota("ns", "amd.com/gpu", 0, 0))
    assert story(gpus(50), quotas=quotas).cycle(variant(replicas=2), a=[FULL] * 2)["a"].desired == 4


def test_what_exists_is_never_cut():
    """The node is gone and its pods with it: WVA keeps the number and refuses growth."""
    decision = story(AcceleratorPool("A100", 0, 5)).cycle(variant(replicas=5), a=[FULL] * 5)["a"]
    assert (decision.desired, decision.reason) == (5, Reason.GPU_LIMITED)


def test_the_minimum_of_the_scaler_is_never_cut():
    """The scaler starts the minimum, whatever WVA publishes."""
    decision = story(gpus(0)).cycle(variant(replicas=1, minimum=3), a=[BUSY])["a"]
    assert (decision.desired, decision.reason) == (3, Reason.BOUNDED)


def test_a_shrink_of_this_cycle_frees_nothing_yet():
    """The pods that will go still exist and use their GPUs."""
    decisions = story(gpus(0)).cycle(
        variant("a", model="m", replicas=3), variant("b", model="n"), a=[IDLE] * 3, b=[FULL]
    )
    assert numbers(decisions) == {"a": 2, "b": 1}


def test_pods_that_wait_for_a_node_take_theirs_first():
    """Two GPUs are free and one pod waits for a node, so the model gets one more replica."""
    decisions = story(gpus(2)).cycle(
        variant("a", model="m", replicas=2, ready_replicas=1, unschedulable_pods=1),
        variant("b", model="n", replicas=2),
        a=[HOT],
        b=[FULL] * 2,
    )
    assert numbers(decisions)["b"] == 3


def test_pods_that_the_scheduler_has_not_seen_yet_take_theirs_as_well():
    """The pods were created a moment ago; without a node, the GPUs of no node count them as used."""
    decisions = story(gpus(3)).cycle(
        variant("a", model="m", replicas=2, ready_replicas=1, unplaced_pods=1, gpus_per_replica=2),
        variant("b", model="n", replicas=2),
        a=[HOT],
        b=[FULL] * 2,
    )
    assert numbers(decisions)["b"] == 3


@pytest.mark.parametrize("label", ["A100", "a100", "NVIDIA-A100-PCIE-80GB"])
def test_names_of_accelerators_are_normalised_for_both_sides(label):
    """The label may be the short name or the product."""
    pool = gpus(4, accelerator=normalize_accelerator("NVIDIA-A100-SXM4-40GB"))
    assert story(pool).cycle(variant(replicas=2, accelerator=label), a=[FULL] * 2)["a"].desired == 4


def test_pools_of_the_same_product_are_one():
    """The same product has different names on different nodes."""
    assert story(gpus(1), gpus(1)).cycle(variant(replicas=2), a=[FULL] * 2)["a"].desired == 4


@pytest.mark.parametrize("label", ["", "H100"])
def test_an_accelerator_that_nobody_has_does_not_grow(label):
    """The decision names the missing accelerator."""
    decision = story(gpus(4)).cycle(variant(replicas=2, accelerator=label), a=[FULL] * 2)["a"]
    assert (decision.desired, decision.reason) == (2, Reason.GPU_LIMITED)
    assert f"gpu-limiter {label or 'unknown'}" in decision.message


def test_without_an_inventory_nothing_grows():
    """By default WVA stops growth without an inventory, and the decision says so."""
    blind = Story(Policy(enable_limiter=True), inventory_detail="nodes is forbidden")
    decision = blind.cycle(variant(replicas=2), a=[FULL] * 2)["a"]
    assert (decision.desired, decision.reason) == (2, Reason.GPU_LIMITED)
    assert "2 replicas fewer than wanted (gpu-limiter inventory: nodes is forbidden)" in decision.message


def test_without_an_inventory_what_was_granted_before_stays():
    """WVA keeps the number if it could not list the nodes once."""
    limited = story(gpus(4))
    assert limited.cycle(variant(replicas=2), a=[FULL] * 2)["a"].desired == 4
    limited.inventory = None
    decision = limited.cycle(variant(replicas=2), after=10, a=[FULL] * 2)["a"]
    assert (decision.desired, decision.limits) == (4, ())


def test_without_an_inventory_growth_may_be_declared_unlimited():
    """A setting allows growth without an inventory."""
    open_ = Story(Policy(limited_mode=True, unknown_inventory=UnknownInventory.UNLIMITED))
    decision = open_.cycle(variant(replicas=2), a=[FULL] * 2)["a"]
    assert (decision.desired, decision.limits) == (4, ())


def test_without_an_inventory_nothing_is_said_of_what_asks_for_nothing():
    """A model that asks for nothing stays steady, and its message does not name the inventory."""
    decision = Story(Policy(enable_limiter=True)).cycle(variant(), a=[BUSY])["a"]
    assert (decision.reason, decision.limits) == (Reason.STEADY, ())


def test_a_granted_growth_is_cut_when_the_gpus_have_gone():
    """Other pods took the GPUs before the new pods of the model came."""
    limited = story(gpus(2))
    assert limited.cycle(variant(replicas=2), a=[FULL] * 2)["a"].desired == 4
    limited.inventory = Inventory.of([gpus(0)])
    assert limited.cycle(variant(replicas=2), after=10, a=[FULL] * 2)["a"].desired == 2


def test_a_held_number_keeps_its_reason():
    """The GPUs change nothing about the reason, which says that nothing was measured."""
    decision = story(gpus(0)).cycle(variant(replicas=2, desired=4), failure="refused")["a"]
    assert (decision.desired, decision.reason) == (2, Reason.PROMETHEUS_ERROR)


def test_without_the_limiter_gpus_do_not_matter():
    """The limiter is off by default."""
    free = Story(inventory=Inventory.of([gpus(0)]))
    assert free.cycle(variant(replicas=2), a=[FULL] * 2)["a"].desired == 4


def test_the_smallest_step_that_a_scaler_acts_on():
    """The step is above the tolerance, even where floating point would decide."""
    assert [Bounds().smallest_step(current) for current in (0, 1, 9, 10, 19, 20, 30)] == [1, 1, 1, 2, 2, 3, 4]
    assert Bounds(tolerance=0.0).smallest_step(50) == 1
