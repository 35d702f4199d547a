"""Equal variants stay equal: a change of several is shared among them one replica at a time.

That is what the result is equal to. It is computed without such steps, since a change may be of any size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from wva.model.variant import VariantKey


def raised(
    numbers: Mapping[VariantKey, int],
    count: int,
    *,
    ties: Sequence[VariantKey],
    most: Mapping[VariantKey, int],
) -> dict[VariantKey, int]:
    """Return the numbers after ``count`` replicas were added, each to the smallest number that may still grow.

    Among equal numbers the key that comes first in ``ties`` grows; ``ties`` contains every key. ``most`` are the
    largest numbers, for the keys that have one. Replicas for which no key has room are left out.
    """
    if not numbers or count <= 0:
        return dict(numbers)

    def at(level: int) -> dict[VariantKey, int]:
        return {key: max(number, min(level, most.get(key, level))) for key, number in numbers.items()}

    total = sum(numbers.values())
    level, too_high = min(numbers.values()), max(numbers.values()) + count + 1
    while too_high - level > 1:
        middle = (level + too_high) // 2
        if sum(at(middle).values()) - total <= count:
            level = middle
        else:
            too_high = middle
    shared = at(level)
    rest = count - (sum(shared.values()) - total)
    for key in [key for key in ties if shared[key] == level and level < most.get(key, level + 1)][:rest]:
        shared[key] += 1
    return shared
