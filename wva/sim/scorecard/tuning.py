"""Which targets of a policy run when it is tuned in hindsight: few of them where there are many to try.

A lower target costs more and has more requests in time, so what is best lies beside the best of a few. Every third
target runs first, then those between the best of these and the next ones on either side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

ALL_UP_TO: Final = 7
"""A family of so few targets runs them all at once."""
_STEP: Final = 3


def spread(members: Sequence[str]) -> tuple[str, ...]:
    """Return the members of a family that run first, in order of their targets: the first and the last among them."""
    if len(members) <= ALL_UP_TO:
        return tuple(members)
    return tuple(dict.fromkeys((*members[::_STEP], members[-1])))


def beside(members: Sequence[str], best: Callable[[Sequence[str]], str]) -> tuple[str, ...]:
    """Return the members that run next; ``best`` names the best of those that have run. None where all have."""
    tried = spread(members)
    if len(tried) == len(members):
        return ()
    place = members.index(best(tried))
    return tuple(member for member in members[max(0, place - _STEP + 1) : place + _STEP] if member not in tried)
