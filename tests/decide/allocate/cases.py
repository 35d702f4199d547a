"""Short ways to write models, variants and stocks for the tests."""

from __future__ import annotations

from wva.decide.allocate import AllocationPolicy, Offer, Plan, Stock, Want, allocate
from wva.model.inventory import Inventory
from wva.model.variant import ModelKey, VariantKey


def offer(name, price=10.0, capacity=1.0, present=0, **others):
    """Return a variant; all replicas that it asks for exist, unless the test says otherwise."""
    others.setdefault("existing", present)
    others.setdefault("limits", ())
    return Offer(VariantKey("ns", name), price, capacity, present, **others)


def on(pool, name, price=10.0, capacity=1.0, present=0, **others):
    """Return a variant that takes its GPUs from a pool, or from several limits."""
    return offer(name, price, capacity, present, limits=(pool,) if isinstance(pool, str) else pool, **others)


def want(name, need, *offers, **others):
    """Return a model."""
    return Want(ModelKey("ns", name), need, offers, **others)


def stock(**free):
    """Return a stock with so many free GPUs by pool."""
    return Stock(free, Inventory())


def numbers(plan: Plan) -> dict[str, int]:
    """Return the numbers of a plan by the names of the variants."""
    return {key.name: number for key, number in plan.numbers.items()}


def limits(plan: Plan) -> dict[str, tuple[str, int]]:
    """Return which limit cuts which variant by how many replicas, by the names of the variants."""
    return {key.name: (limit.by, limit.fewer) for key, limit in plan.limits.items()}


def missing(plan: Plan) -> dict[str, float]:
    """Return the missing capacity by the ids of the models."""
    return {key.model_id: lack for key, lack in plan.missing.items()}


def alone(need, *offers, policy=AllocationPolicy(), **others):  # noqa: B008 - it is frozen
    """Return the numbers of one model that no limit of GPUs applies to."""
    return numbers(allocate([want("m", need, *offers, **others)], policy=policy))


def shared(free, *wants, **policy):
    """Return the plan of models that share a stock."""
    return allocate(wants, free, AllocationPolicy(**policy))
