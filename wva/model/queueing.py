"""What the queueing analyzer remembers from cycle to cycle: what pods counted, and what their engines taught."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wva.model.demand import DemandMemory


@dataclass(frozen=True, slots=True)
class QueueingMemory:
    """What the analyzer left, an entry per model, sorted by model."""

    models: tuple[DemandMemory, ...] = ()


NOTHING_OBSERVED: Final = QueueingMemory()
