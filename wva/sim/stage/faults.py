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


@dataclass(frozen=True, slots=True)
class Eviction:
    """At a time a share of the Ready pods goes, oldest first, and their workloads create as many new ones at once.

    It is a share (0 to 1, in whole pods, rounded up) of the pods of ``variants`` together; of all variants when none is
    named. Each has ``grace_seconds`` to finish what it has, None for those of the scenario; with 0 that is broken.
    """

    at_seconds: float
    share: float
    variants: tuple[str, ...] = ()
    grace_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class NoStarts:
    """From a time until another no pod of a variant becomes Ready. Those that would have, are so at the end.

    The scheduler says nothing: it is as with a registry that does not answer.
    """

    variant: str
    from_seconds: float
    until_seconds: float


@dataclass(frozen=True, slots=True)
class UnreadablePod:
    """From a time until another the gauges of a variant's oldest Ready pod are NaN. It serves requests all the same."""

    variant: str
    from_seconds: float
    until_seconds: float


@dataclass(frozen=True, slots=True)
class PrometheusOutage:
    """From a time until another Prometheus cannot be reached."""

    from_seconds: float
    until_seconds: float


Fault = SlowPods | Eviction | NoStarts | UnreadablePod | PrometheusOutage


class UnplayableError(ValueError):
    """A world cannot play a scenario; the message is a sentence that says what it lacks."""
