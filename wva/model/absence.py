"""Why there is nothing to decide on."""

from __future__ import annotations

from dataclasses import dataclass

from wva.model.decision import Reason


@dataclass(frozen=True, slots=True)
class Absence:
    """Why there is nothing to decide on: a reason to hold the number, and a message for people."""

    reason: Reason
    message: str
