"""Which targets of a policy run when it is tuned in hindsight: few of them where there are many to try.

A lower target costs more and has more requests in time, so the best target lies beside the best of a few. Every third
target runs first, then those between the best of these and the next ones on either side. If a policy has two targets,
one for each role, the same is done with every second one of both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

ALL_UP_TO: Final = 7
"""A family of so few targets runs them all at once."""
_STEP: Final = 3
_PAIR: Final = 2


def spread(members: Sequence[str]) -> tuple[str, ...]:
    """Return the members of a family that run first, in order of their targets: the first and the last among them."""
    if positions := _grid(members):
        edge = max(positions.values())
        return tuple(
            member
            for member, pair in positions.items()
            if all(index % 2 == 0 or index == last for index, last in zip(pair, edge, strict=True))
        )
    if len(members) <= ALL_UP_TO:
        return tuple(members)
    return tuple(dict.fromkeys((*members[::_STEP], members[-1])))


def beside(members: Sequence[str], best: Callable[[Sequence[str]], str]) -> tuple[str, ...]:
    """Return the members that run next, none if all have run. ``best`` names the best of those that have run."""
    tried = spread(members)
    if positions := _grid(members):
        row, column = positions[best(tried)]
        near = [
            member
            for member, (near_row, near_column) in positions.items()
            if max(abs(near_row - row), abs(near_column - column)) <= 1
        ]
        return tuple(member for member in near if member not in tried)
    if len(tried) == len(members):
        return ()
    index = members.index(best(tried))
    return tuple(member for member in members[max(0, index - _STEP + 1) : index + _STEP] if member not in tried)


def _grid(members: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the positions of each member's two targets among all first and all second ones; empty for one target."""
    targets = [tuple(member.partition("@")[2].split(",")) for member in members]
    if any(len(pair) != _PAIR for pair in targets):
        return {}
    first, second = (list(dict.fromkeys(pair[axis] for pair in targets)) for axis in range(_PAIR))
    return {
        member: (first.index(pair[0]), second.index(pair[1])) for member, pair in zip(members, targets, strict=True)
    }
