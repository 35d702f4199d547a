"""The allocator on a large fleet: 10,000 models of one or two variants, and groups that share scarce GPUs."""

from __future__ import annotations

import random

import pytest

from bench.paired import cpu_seconds
from wva.decide.allocate import Offer, Plan, Stock, Want, allocate
from wva.model.inventory import Inventory
from wva.model.variant import ModelKey, VariantKey

MODELS = 10_000
SECONDS = 0.25
COUNTED_SECONDS = 0.3
JOINT_SECONDS = 0.5
WITHIN = 0.01
POOLS = ("A100", "H100", "L40S")


def fleet(models: int) -> list[Want]:
    """Return models that are about as large as they should be."""
    draw = random.Random(7)  # noqa: S311 - the same fleet each time
    wants = []
    for place in range(models):
        offers = []
        for variant in range(draw.randint(1, 2)):
            present = draw.randint(0, 5)
            price, capacity = draw.choice([10, 20, draw.randint(50, 800) / 10]), draw.randint(10, 90) / 10
            key = VariantKey("ns", f"m{place}-{variant}")
            offers.append(
                Offer(key, price, capacity, present, present, gpus=draw.choice([1, 2, 4]), limits=(draw.choice(POOLS),))
            )
        wants.append(Want(ModelKey("ns", f"m{place}"), draw.randint(0, 400) / 10, tuple(offers)))
    return wants


def needed(wants: list[Want], plan: Plan) -> dict[str, int]:
    """Return the GPUs that a plan takes beyond what exists."""
    taken = dict.fromkeys(POOLS, 0)
    for want in wants:
        for offer in want.offers:
            taken[offer.limits[0]] += max(0, plan.numbers[offer.key] - offer.existing) * offer.gpus
    return taken


def test_without_scarce_gpus() -> None:
    """The allocator solves each model alone."""
    wants = fleet(MODELS)
    seconds = min(cpu_seconds(lambda: allocate(wants)) for _ in range(3))
    print(f"\n{MODELS} models alone: {seconds:.3f} s")
    assert seconds < SECONDS


def test_within_a_stock_that_suffices() -> None:
    """The allocator counts the GPUs, and they are enough."""
    wants = fleet(MODELS)
    stock = Stock(needed(wants, allocate(wants)), Inventory())
    seconds = min(cpu_seconds(lambda: allocate(wants, stock)) for _ in range(3))
    print(f"\n{MODELS} models with GPUs enough: {seconds:.3f} s")
    assert seconds < COUNTED_SECONDS


@pytest.mark.parametrize("tenths", [9, 5, 2])
def test_scarce_gpus(tenths: int) -> None:
    """A thousand models share three kinds of GPUs: so many tenths of those that they want are there."""
    wants = fleet(1000)
    free = {name: gpus * tenths // 10 for name, gpus in needed(wants, allocate(wants)).items()}
    plans: list[Plan] = []
    seconds = min(cpu_seconds(lambda: plans.append(allocate(wants, Stock(free, Inventory())))) for _ in range(3))
    print(f"\n1000 models, {tenths} of 10 GPUs: {seconds:.3f} s, gap {plans[0].gap:.2%}")
    assert seconds < JOINT_SECONDS
    assert plans[0].gap < WITHIN
