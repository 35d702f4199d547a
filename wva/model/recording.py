"""A recorded cycle: everything a decision depends on, and nothing else.

``decide(recording.snapshot, recording.memory, recording.policy, recording.now)`` gives the decisions of that cycle
again, bit by bit. It holds no token, no URL and no labels, so that it can be handed to other people.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wva.model.memory import Memory
from wva.model.policy import Policy
from wva.model.snapshot import Snapshot

FORMAT: Final = 2
"""Counted up whenever an older recording can no longer be read, or would be decided on differently."""


@dataclass(frozen=True, slots=True)
class Recording:
    """Inputs of one cycle. ``now`` is in seconds since the epoch; ``memory`` is what the cycle before left."""

    now: float
    policy: Policy
    memory: Memory
    snapshot: Snapshot
    version: int = FORMAT
