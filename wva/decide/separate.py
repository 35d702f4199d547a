"""Work over many keys, of which some make it fail: those are set aside, and the work is done for all others.

The work is tried with all keys. If it raises, it is tried with halves of them, until those that raise stand alone. Keys
that work alone and raise only together are found two by two, and both are set aside. The result is always that of one
try over all keys that are left, so keys that share something (GPUs, for example) still share it.

Those that failed last time are told as ``suspects``. They are tried apart from the others, so that a fault that stays
costs about one more try, and one that has gone is seen at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final, Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")

_MOST_REJOINING: Final = 8
"""Suspects that work alone and not with all others are tried one by one up to this number: each try is a whole one."""


def separate(
    keys: Sequence[K], attempt: Callable[[tuple[K, ...]], T], *, suspects: Collection[K] = ()
) -> tuple[T, dict[K, Exception]]:
    """Return what ``attempt`` gives for the keys that work together, and the error of each key that was set aside.

    The result of ``attempt`` must not depend on the order of its keys; it is asked once for the same ones. An exception
    that it raises without any key is raised.
    """
    tries = _Tries(attempt)
    kept = tries.joined((), tuple([key for key in keys if key not in suspects]), suspected=False)
    kept = tries.joined(kept, tuple([key for key in keys if key in suspects]), suspected=True)
    found = tries.of(kept)
    if kept and isinstance(found, Exception):
        tries.failed |= dict.fromkeys(kept, found)
        found = tries.of(())
    if isinstance(found, Exception):
        raise found
    return found[0], tries.failed


class _Tries(Generic[K, T]):
    """What came of the work, by its keys, and which keys were set aside."""

    def __init__(self, attempt: Callable[[tuple[K, ...]], T]) -> None:
        self._attempt = attempt
        self._known: dict[tuple[K, ...], tuple[T] | Exception] = {}
        self.failed: dict[K, Exception] = {}

    def of(self, keys: tuple[K, ...]) -> tuple[T] | Exception:
        if keys not in self._known:
            try:
                self._known[keys] = (self._attempt(keys),)
            except Exception as error:  # noqa: BLE001 - this is what isolates
                self._known[keys] = error
        return self._known[keys]

    def joined(self, kept: tuple[K, ...], keys: tuple[K, ...], *, suspected: bool) -> tuple[K, ...]:
        """Return those of keys that work together with the kept ones.

        Where a key fails only together with another one, both are left out; a suspected key is left out alone. Of many
        suspects all join or none.
        """
        self._set_aside(keys)
        waiting = [tuple([key for key in keys if key not in self.failed])]
        while waiting:
            group = waiting.pop()
            found = self.of(kept + group)
            if not isinstance(found, Exception):
                kept += group
            elif len(group) > 1 and not (suspected and len(group) > _MOST_REJOINING):
                waiting += reversed(_halves(group))
            elif group:
                apart = group if suspected else group + self._partner(group[0], kept)
                self.failed |= dict.fromkeys(apart, found)
                kept = tuple([key for key in kept if key not in self.failed])
        return kept

    def _set_aside(self, keys: tuple[K, ...]) -> None:
        """Set those of keys aside that raise alone, too."""
        found = self.of(keys) if keys else None
        if isinstance(found, Exception) and len(keys) == 1:
            self.failed[keys[0]] = found
        elif isinstance(found, Exception):
            for half in _halves(keys):
                self._set_aside(half)

    def _partner(self, key: K, others: tuple[K, ...]) -> tuple[K, ...]:
        """Return the one with which a key raises; none when it takes more than one."""
        while len(others) > 1:
            first, second = _halves(others)
            others = first if isinstance(self.of((*first, key)), Exception) else second
        return others if isinstance(self.of((*others, key)), Exception) else ()


def _halves(keys: tuple[K, ...]) -> tuple[tuple[K, ...], tuple[K, ...]]:
    middle = len(keys) // 2
    return keys[:middle], keys[middle:]
