"""A past cycle: what it saw, what it decided, and how to decide on it again.

A recording holds the inputs and the decisions of a cycle, and nothing else: no token, no URL, no label of a pod. So
users can give it to other people. ``Recording.again`` repeats the decisions bit for bit if an engine of this format
made them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Reversible
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

from wva.decide.failed import Outcome
from wva.decide.pipeline import conclude
from wva.model.decision import Decision
from wva.model.memory import Memory
from wva.model.policy import Policy
from wva.model.records import replace, split
from wva.model.snapshot import Snapshot
from wva.model.variant import ModelKey, Variant, VariantKey

FORMAT: Final = 5
"""Grows whenever older recordings cannot be read any more, lead to other decisions, or lack something.

Format 4 has what the engines counted, and the memory of demand. In format 5 the demand analyzer has the objectives of
each model, for an engine of format 4 read no service class with it; a snapshot says whether the fast lane has woken
its cycle, and for which models; and peaks have the times of their scrapes.
"""

WITHOUT_DECISIONS: Final = 2
"""The last format without decisions."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Inputs and decisions of one cycle.

    ``now`` is in seconds since the epoch. ``memory`` comes from the cycle before. ``decisions`` include those for
    variants that were deleted before WVA could publish them; formats before 3 have none. A recording with other inputs
    (``replace``) is a cycle that never ran: ``again`` says what it would have decided.
    """

    now: float
    policy: Policy
    memory: Memory
    snapshot: Snapshot
    decisions: tuple[Decision, ...] = ()
    version: int = FORMAT

    @property
    def has_decisions(self) -> bool:
        """Whether the format holds decisions."""
        return self.version > WITHOUT_DECISIONS

    @property
    def of_before(self) -> bool:
        """Whether an older engine decided. This one may decide differently on the same inputs."""
        return self.version < FORMAT

    def again(self) -> Cycle:
        """Decide on the same inputs with this engine."""
        return Cycle(self, conclude(self.snapshot, self.memory, self.policy, self.now))

    def variant(self, key: VariantKey) -> Variant | None:
        """Return a variant that the cycle saw, None if it did not."""
        return next((variant for variant in self.snapshot.variants if variant.key == key), None)

    def model_of(self, key: VariantKey) -> ModelKey | None:
        """Return the model of a variant that the cycle decided on or saw; None if it did neither."""
        entry = decision_on(self.decisions, key) or self.variant(key)
        return None if entry is None else entry.model

    def grouped(self, groups: Mapping[ModelKey, int], count: int) -> list[Recording]:
        """Return ``count`` recordings of the cycle; ``groups`` says for each model in which of them it is.

        The data of no model, such as the policy and the GPUs, is in each of them.
        """
        group_of = {variant.key: groups.get(variant.model) for variant in self.snapshot.variants}
        group_of |= {decision.key: groups.get(decision.model) for decision in self.decisions}
        memories = self.memory.grouped(groups, group_of, count)
        decisions = split(self.decisions, lambda decision: groups.get(decision.model), count)
        return [
            replace(self, snapshot=snapshot, memory=memory, decisions=own_decisions)
            for snapshot, memory, own_decisions in zip(
                self.snapshot.grouped(groups, count), memories, decisions, strict=True
            )
        ]


@dataclass(frozen=True, slots=True)
class Cycle:
    """A recording, and the outcome of deciding on it: by the controller that ran the cycle, or again."""

    recording: Recording
    outcome: Outcome

    def decision(self, key: VariantKey) -> Decision | None:
        """Return the decision on a variant, None if there is none."""
        return decision_on(self.outcome.decisions, key)


def decision_on(decisions: Iterable[Decision], key: VariantKey) -> Decision | None:
    """Return the decision on a variant, None if there is none."""
    return next((decision for decision in decisions if decision.key == key), None)


class _Begun(Protocol):
    """What began at a time."""

    @property
    def now(self) -> float:
        """When it began, in seconds since the epoch."""


B = TypeVar("B", bound=_Begun)


def at_or_before(cycles: Reversible[B], when: float) -> B | None:
    """Return the last cycle that began at ``when`` or before, None if none did; the oldest of ``cycles`` is first."""
    return next((cycle for cycle in reversed(cycles) if cycle.now <= when), None)
