"""The enforcer of v0.5, for the compatibility mode (docs/design/compatibility-v05.md#enforcer).

It knows the finished requests only. If there were none within the retention period, every variant goes to zero, also
while requests run or wait. Where scaling to zero is not allowed, a model whose targets are all zero keeps one replica.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

UNKNOWN_COST: Final = 10.0


def idle_targets(targets: Mapping[str, int], *, finished: float | None) -> tuple[dict[str, int], bool]:
    """Return the targets of a model that may go to zero, and whether it does; ``finished`` None is not known."""
    if finished is None or finished > 0:
        return dict(targets), False
    return dict.fromkeys(targets, 0), True


def kept_targets(targets: Mapping[str, int], costs: Mapping[str, float]) -> tuple[dict[str, int], bool]:
    """Return the targets of a model that may not go to zero, and whether one had to be raised for that."""
    if not targets or sum(targets.values()) > 0:
        return dict(targets), False
    cheapest = min(targets, key=lambda variant: (costs.get(variant, UNKNOWN_COST), variant))
    return {**targets, cheapest: 1}, True
