"""A recorded cycle: everything a decision depends on, what was decided, and nothing else.

``decide(recording.snapshot, recording.memory, recording.policy, recording.now)`` gives the decisions of that cycle
again, bit by bit, if an engine of this format made them. It holds no token, no URL and no labels, so that it can be
handed to other people.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wva.model.decision import Decision
from wva.model.memory import Memory
from wva.model.policy import Policy
from wva.model.snapshot import Snapshot

FORMAT: Final = 4
"""Counted up whenever an older recording can no longer be read, would be decided on differently, or lacks something.

Format 4 has what the engines counted, and the memory of demand.
"""

WITHOUT_DECISIONS: Final = 2
"""The last format that held the inputs of a cycle alone."""

READ: Final = (2, 3, FORMAT)
"""The formats that are read. What an older one does not have is as if it were not known."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Inputs and decisions of one cycle.

    ``now`` is in seconds since the epoch; ``memory`` is what the cycle before left. ``decisions`` are those of the
    cycle, also of a variant that went before its decision was published; none before format 3.
    """

    now: float
    policy: Policy
    memory: Memory
    snapshot: Snapshot
    decisions: tuple[Decision, ...] = ()
    version: int = FORMAT

    @property
    def has_decisions(self) -> bool:
        """Whether the format holds what was decided."""
        return self.version > WITHOUT_DECISIONS

    @property
    def of_before(self) -> bool:
        """Whether an older engine decided, so that this one may decide otherwise on the same inputs."""
        return self.version < FORMAT
