"""Which targets of a policy run when it is tuned in hindsight: few of them where there are many to try.

A lower target costs more and has more requests in time, so what is best lies beside the best of a few. Every third
target runs first, then those between the best of these and the next ones on either side. Where a policy has two
targets, one of each role, the same is done with every second one along both.
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
    if places := _grid(members):
        edge = max(places.values())
        return tuple(
            member
            for member, pair in places.items()
            if all(place % 2 == 0 or place == last for place, last in zip(pair, edge, strict=True))
        )
    if len(members) <= ALL_UP_TO:
        return tuple(members)
    return tuple(dict.fromkeys((*members[::_STEP], members[-1])))


def beside(members: Sequence[str], best: Callable[[Sequence[str]], str]) -> tuple[str, ...]:
    """Return the members that run next; ``best`` names the best of those that have run. None where all have."""
    tried = spread(members)
    if places := _grid(members):
        row, column = places[best(tried)]
        near = [member for member, (one, two) in places.items() if max(abs(one - row), abs(two - column)) <= 1]
        return tuple(member for member in near if member not in tried)
    if len(tried) == len(members):
        return ()
    place = members.index(best(tried))
    return tuple(member for member in members[max(0, place - _STEP + 1) : place + _STEP] if member not in tried)


def _grid(members: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return where the targets of each member stand among the first and the second ones; empty where each has one."""
    targets = [tuple(member.partition("@")[2].split(",")) for member in members]
    if any(len(pair) != _PAIR for pair in targets):
        return {}
    first, second = (list(dict.fromkeys(pair[place] for pair in targets)) for place in range(_PAIR))
    return {
        member: (first.index(pair[0]), second.index(pair[1])) for member, pair in zip(members, targets, strict=True)
    }
