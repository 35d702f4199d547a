"""Equal variants stay equal: a change of several is shared among them one replica at a time."""

from __future__ import annotations

from collections.abc import Mapping

from wva.model.variant import VariantKey


def balanced(numbers: Mapping[VariantKey, int], change: int) -> dict[VariantKey, int]:
    """Return the numbers of equal variants with so many replicas more (negative: fewer) in all.

    Each replica goes to the smallest number or is taken from the largest, names break ties: who began with more keeps
    more when they grow, and numbers that are one apart at most stay so.
    """
    shared = dict(numbers)
    for _ in range(abs(change)):
        if change > 0:
            shared[min(shared, key=lambda key: (shared[key], key))] += 1
        else:
            shared[max(shared, key=lambda key: (shared[key], key))] -= 1
    return shared
