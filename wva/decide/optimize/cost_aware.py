"""Cost-aware: the capacity that a model lacks or can spare, in the analyzer's unit, becomes replicas.

Growth takes the variants in the order of cost per capacity. Each gets as many replicas as the gap needs and its bounds
allow; the rest of the gap goes to the next variant. Shrinking takes the most expensive variant first. In one cycle a
model grows or shrinks, never both. A variant with replicas on their way is not skipped: the analyzer has counted them
as supply.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from wva.decide.amounts import rounded_down, rounded_up
from wva.decide.balance import balanced
from wva.model.variant import VariantKey


@dataclass(frozen=True, slots=True)
class Candidate:
    """A variant that may change.

    ``number`` is where it starts from, ``per_replica`` what one replica carries (0: unknown, so it never grows).
    ``minimum`` 0 means that it may go to zero while a sibling stays; ``maximum`` None is unbounded. ``step`` is the
    smallest shrink that its scaler does not ignore.
    """

    key: VariantKey
    cost: float
    per_replica: float
    number: int
    minimum: int = 0
    maximum: int | None = None
    accelerator: str = ""
    gpus_per_replica: int = 1
    step: int = 1

    @property
    def room(self) -> float:
        """Replicas that it may have more."""
        return math.inf if self.maximum is None else self.maximum - self.number

    @property
    def cost_per_capacity(self) -> float:
        """What a unit of capacity costs; infinite when the capacity is not known."""
        return self.cost / self.per_replica if self.per_replica > 0 else math.inf

    def by(self, replicas: int) -> Candidate:
        """Return it with so many replicas more."""
        return replace(self, number=self.number + replicas)


def grow(candidates: Sequence[Candidate], required: float, *, limit: int | None = None) -> list[Candidate]:
    """Return the candidates, in their order, grown until ``required`` is covered or no variant has room.

    ``limit`` is the most replicas to add, None without a limit.
    """
    grown = list(candidates)
    left, allowed = required, math.inf if limit is None else limit
    for index in sorted(range(len(grown)), key=lambda index: grown[index].cost_per_capacity):
        candidate = grown[index]
        if left <= 0 or candidate.per_replica <= 0:
            break
        count = int(min(max(1, rounded_up(left / candidate.per_replica)), candidate.room, allowed))
        if count > 0:
            grown[index] = candidate.by(count)
            left -= count * candidate.per_replica
            allowed -= count
    return grown


def shrink(candidates: Sequence[Candidate], spare: float, *, limit: int | None = None) -> list[Candidate]:
    """Return the candidates, in their order, shrunk by what ``spare`` allows; one replica of the model always stays.

    ``limit`` is the most replicas to take, None without a limit.
    """
    shrunk = list(candidates)
    left, allowed = spare, math.inf if limit is None else limit
    order = sorted(range(len(shrunk)), key=lambda index: _dearest(shrunk[index]))
    for position, index in enumerate(order):
        candidate = shrunk[index]
        if left <= 0 or candidate.per_replica <= 0:
            continue
        count = min(rounded_down(left / candidate.per_replica), candidate.number - candidate.minimum, allowed)
        last = position == len(order) - 1 and not any(shrunk[other].number > 0 for other in order[:position])
        if last and candidate.number - count < 1:
            count = candidate.number - 1
        if count >= max(1, candidate.step):
            shrunk[index] = candidate.by(-int(count))
            left -= count * candidate.per_replica
            allowed -= count
    return shrunk


def spread(before: Sequence[Candidate], after: Sequence[Candidate]) -> list[Candidate]:
    """Return ``after`` with the change of equal variants shared among them, so that they differ by one at most.

    Equal are those that differ in name and number only.
    """
    result = list(after)
    groups: dict[Candidate, list[int]] = {}
    for index, candidate in enumerate(before):
        groups.setdefault(replace(candidate, key=VariantKey("", ""), number=0), []).append(index)
    for indexes in groups.values():
        change = sum(after[index].number - before[index].number for index in indexes)
        numbers = balanced({before[index].key: before[index].number for index in indexes}, change)
        for index in indexes:
            result[index] = replace(after[index], number=numbers[before[index].key])
    return result


def _dearest(candidate: Candidate) -> tuple[float, float, VariantKey]:
    return -candidate.cost, candidate.per_replica, candidate.key
