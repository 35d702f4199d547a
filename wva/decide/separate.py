"""Work over many keys, of which some make it fail: those are set aside, and the work is done for all others.

The work is tried with all keys. If it raises, it is tried with halves of them, until those that raise stand alone. Keys
that work alone and raise only together are found two by two, and both are set aside. The result is always that of one
try over all keys that are left, so keys that share something (GPUs, for example) still share it.

Those that failed last time are told as ``suspects``. They are tried apart from the others, so that a fault that stays
costs about one more try, and one that has gone is seen at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")

_MOST_REJOINING: Final = 8
"""Suspects that work alone and not with all others are tried one by one up to this number: each try is a whole one."""


@dataclass(frozen=True, slots=True)
class _Raised:
    error: Exception


def separate(
    keys: Sequence[K], attempt: Callable[[tuple[K, ...]], T], *, suspects: Collection[K] = ()
) -> tuple[T, dict[K, Exception]]:
    """Return what ``attempt`` gives for the keys that work together, and the error of each key that was set aside.

    ``attempt`` must not mind the order of its keys. Raises what it raises without any key.
    """
    return _Search(attempt).run(
        tuple(key for key in keys if key not in suspects), tuple(key for key in keys if key in suspects)
    )


class _Search(Generic[K, T]):
    """One pass over the keys."""

    def __init__(self, attempt: Callable[[tuple[K, ...]], T]) -> None:
        self._attempt = attempt

    def run(self, trusted: tuple[K, ...], suspects: tuple[K, ...]) -> tuple[T, dict[K, Exception]]:
        kept, failed, outcome = self._working(trusted)
        if suspects:
            found = self._try(suspects)
            if isinstance(found, _Raised):
                failed |= self._alone(suspects, found.error)
            again = tuple(key for key in suspects if key not in failed)
            if again:
                kept, refused, joined = self._joined(again, onto=kept, most=_MOST_REJOINING)
                failed |= refused
                outcome = joined or outcome
        if isinstance(outcome, _Raised):
            raise outcome.error
        return outcome[0], failed

    def _try(self, keys: Iterable[K]) -> tuple[T] | _Raised:
        try:
            return (self._attempt(tuple(keys)),)
        except Exception as error:  # noqa: BLE001 - this is what isolates
            return _Raised(error)

    def _working(self, keys: tuple[K, ...]) -> tuple[tuple[K, ...], dict[K, Exception], tuple[T] | _Raised]:
        """Return the keys that work together, the errors of the others, and what came of the work."""
        outcome = self._try(keys)
        if not keys or not isinstance(outcome, _Raised):
            return keys, {}, outcome
        failed = self._alone(keys, outcome.error)
        rest = tuple(key for key in keys if key not in failed)
        if failed:
            outcome = self._try(rest)
        if rest and isinstance(outcome, _Raised):
            rest, refused, joined = self._joined(rest)
            failed |= refused
            outcome = joined or self._try(())
        return rest, failed, outcome

    def _alone(self, keys: tuple[K, ...], error: Exception) -> dict[K, Exception]:
        """Return those of keys that raise together which raise alone, too."""
        if len(keys) == 1:
            return {keys[0]: error}
        failed: dict[K, Exception] = {}
        for half in _halves(keys):
            outcome = self._try(half)
            if isinstance(outcome, _Raised):
                failed |= self._alone(half, outcome.error)
        return failed

    def _joined(
        self, keys: tuple[K, ...], *, onto: tuple[K, ...] = (), most: int | None = None
    ) -> tuple[tuple[K, ...], dict[K, Exception], tuple[T] | None]:
        """Let keys that work alone join others as far as all work together; with whom one does not, both are left out.

        With ``most`` a larger number of keys is not divided: all of them join, or none, and the others stay.
        """
        kept, failed = list(onto), dict[K, Exception]()
        last: tuple[T] | None = None
        waiting = [keys]
        while waiting:
            group = waiting.pop()
            outcome = self._try((*kept, *group))
            if not isinstance(outcome, _Raised):
                kept += group
                last = outcome
            elif len(group) > 1 and (most is None or len(group) <= most):
                waiting += reversed(_halves(group))
            else:
                failed |= dict.fromkeys(group, outcome.error)
                partner = None if most is not None else self._partner(group[0], tuple(kept))
                if partner is not None:
                    kept.remove(partner)
                    failed[partner] = outcome.error
                    last = None
        if last is None and tuple(kept) != onto:
            outcome = self._try(kept)
            if isinstance(outcome, _Raised):
                failed |= dict.fromkeys(kept, outcome.error)
                kept = []
            else:
                last = outcome
        return tuple(kept), failed, last

    def _partner(self, key: K, others: tuple[K, ...]) -> K | None:
        """Return the one with which a key raises; None when it takes more than one."""
        while len(others) > 1:
            first, second = _halves(others)
            others = first if isinstance(self._try((*first, key)), _Raised) else second
        if not others or not isinstance(self._try((*others, key)), _Raised):
            return None
        return others[0]


def _halves(keys: tuple[K, ...]) -> tuple[tuple[K, ...], tuple[K, ...]]:
    middle = len(keys) // 2
    return keys[:middle], keys[middle:]
