"""The faults of a scenario: what fails, when and how. Times are virtual seconds; policies are not told of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlowPods:
    """Every ``every``-th pod of a variant, in order of creation, runs at ``speed`` times the speed of its kind.

    Its metrics pages, its price and its objects are like those of the others.
    """

    variant: str
    every: int
    speed: float


@dataclass(frozen=True, slots=True)
class Eviction:
    """At a time a share of the Ready pods is evicted, oldest first; their workloads create as many new pods at once.

    The share (0 to 1, in whole pods, rounded up) is of the pods of ``variants`` together; of all variants when none is
    named. Each pod has ``grace_seconds`` to finish its requests, by default those of the scenario; with 0 they break.
    """

    at_seconds: float
    share: float
    variants: tuple[str, ...] = ()
    grace_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class NoStarts:
    """Between two times no pod of a variant becomes Ready. Pods that would have become Ready do so at the end.

    The scheduler reports nothing, as when an image registry does not answer.
    """

    variant: str
    from_seconds: float
    until_seconds: float


@dataclass(frozen=True, slots=True)
class UnreadablePod:
    """Between two times the gauges of a variant's oldest Ready pod are NaN. It serves requests all the same."""

    variant: str
    from_seconds: float
    until_seconds: float


@dataclass(frozen=True, slots=True)
class PrometheusOutage:
    """Between two times Prometheus cannot be reached."""

    from_seconds: float
    until_seconds: float


Fault = SlowPods | Eviction | NoStarts | UnreadablePod | PrometheusOutage


class UnplayableError(ValueError):
    """A world cannot play a scenario; the message is a sentence that says what the world lacks."""
