"""The result of one run: figures, and a timeline to draw."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a run over the measured time. Shares are 0 to 1; a request that failed misses every objective.

    Attributes:
        requests: requests that arrived.
        served: those that were answered.
        timed_out: those whose users gave up in the end.
        refused: those that found no room at the gateway.
        broken: those that ended with their replica.
        retried: attempts beyond the first.
        ttft_attainment: share of requests with their first token in time.
        itl_attainment: share of requests answered with a mean time between tokens within the objective.
        attainment: share of requests within both.
        ttft_p50_seconds: this and the other quantiles are over the requests that were answered.
        ttft_p99_seconds: see above.
        itl_p50_seconds: see above.
        goodput_per_second: requests within both objectives, per second.
        replica_hours: by variant name, from creation to end of each pod.
        gpu_hours: GPUs times hours, over all variants.
        cost: price times hours, over all variants.
        ideal_cost: cost of the cheapest fleet that carries the traffic at each instant.
        most_asked: the highest price per hour of what spec.replicas asked for at once: nodes are bought for this peak.
        causal_bound: the highest share in time that is possible without seeing the future or keeping spare replicas, as
            ``causal`` computes it; None where it cannot be computed.
        most_needed: the highest price per hour of the cheapest fleet that carries the traffic at each instant.
        mean_replicas: mean of the replicas that exist, of all variants together.
        peak_replicas: the most of them at once.
        reversals: how often the total went up after it had gone down, or down after it had gone up.
        scale_ups: changes upwards of what was asked for, over all variants.
        scale_downs: changes downwards.
        late_by_cause: requests that failed or whose first token was late, by cause, with the keys of ``late.CAUSES``.
        late_tokens_by_cause: requests with the first token in time and a long time between tokens, by its cause.
        seconds_to_capacity: for each time that the demand outgrew the Ready replicas, how long until they carried it.

    """

    requests: int
    served: int
    timed_out: int
    refused: int
    broken: int
    retried: int
    ttft_attainment: float
    itl_attainment: float
    attainment: float
    ttft_p50_seconds: float | None
    ttft_p99_seconds: float | None
    itl_p50_seconds: float | None
    goodput_per_second: float
    replica_hours: dict[str, float]
    gpu_hours: float
    cost: float
    ideal_cost: float
    most_asked: float
    most_needed: float
    mean_replicas: float
    peak_replicas: int
    reversals: int
    scale_ups: int
    scale_downs: int
    late_by_cause: dict[str, int] = field(default_factory=dict)
    late_tokens_by_cause: dict[str, int] = field(default_factory=dict)
    seconds_to_capacity: tuple[float, ...] = ()
    causal_bound: float | None = None


@dataclass(frozen=True, slots=True)
class TimelineOfVariant:
    """One variant over time; each list has a value for each instant of the timeline."""

    name: str
    price: float
    asked: tuple[int, ...]
    existing: tuple[int, ...]
    ready: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StageTimeline:
    """What a plot shows, at instants ``step_seconds`` apart, from 0."""

    step_seconds: float
    offered_per_second: tuple[float, ...]
    late_share: tuple[float | None, ...]
    """The share of late requests among those that arrived since the instant before; None without any."""
    waiting: tuple[int, ...]
    ideal_replicas: tuple[float, ...]
    variants: tuple[TimelineOfVariant, ...]


@dataclass(frozen=True, slots=True)
class RunResult:
    """One policy in one scenario with one seed."""

    scenario: str
    policy: str
    seed: int
    figures: Figures
    timeline: StageTimeline
