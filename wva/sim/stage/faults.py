"""What goes wrong in a scenario: who, when and what. Times are virtual seconds; no policy is told."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlowPods:
    """Of a variant, every ``every``-th pod in order of creation runs at ``speed`` times the speed of its kind.

    Its pages, its price and its objects are those of the others.
    """

    variant: str
    every: int
    speed: float


Fault = SlowPods
