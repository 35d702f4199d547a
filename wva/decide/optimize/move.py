"""What an optimizer does to one variant: a number, or none to keep it, with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from wva.model.decision import Reason


@dataclass(frozen=True, slots=True)
class Move:
    """``desired`` None keeps the number as it is."""

    reason: Reason
    words: str
    desired: int | None = None
