"""How much computing a run takes, and with how many seeds it is worth doing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

from wva.sim.scorecard.runs import RunJob
from wva.sim.stage.scenario import Scenario

MANY_REQUESTS: Final = 60_000
"""A run of so many requests averages over so much chance that its seeds differ little."""
FEW_SEEDS: Final = 3
"""The number of seeds of a scenario of many requests in a suite with more: fewer have no useful interval."""

_SECONDS_PER_REQUEST: Final = 3e-6
"""CPU time of the engines, whatever the policy: a request of some hundred tokens, on a core of a server of 2023."""
_SECONDS_PER_HOUR: Final[Mapping[str, float]] = MappingProxyType(
    {
        "wva-queueing": 2.0,
        "wva-hybrid": 2.0,
        "wva-v0.5": 0.2,
        "wva-percentage": 0.4,
        "wva-one-step": 0.4,
        "wva-tokens": 0.6,
        "wva-chart": 0.4,
        "wva": 1.0,
        "kpa": 0.3,
        "ray-serve": 0.4,
        "clairvoyant": 1.2,
        "static": 0.5,
    }
)
"""CPU time of the decisions of a virtual hour, by the beginning of the policy's name; the first that fits counts."""
_OTHERS_PER_HOUR: Final = 0.08


@dataclass(frozen=True, slots=True)
class ScenarioLoad:
    """How much happens in a run of a scenario: requests, and hours of virtual time."""

    requests: int
    hours: float


@cache
def load_of(scenario: Scenario, seed: int) -> ScenarioLoad:
    """Return the load of a scenario with a seed. Its traffic is made for that."""
    traffics = [model.traffic(seed) for model in scenario.models]
    return ScenarioLoad(sum(traffic.count for traffic in traffics), traffics[0].duration_seconds / 3600.0)


def fewer_seeds(scenarios: Iterable[Scenario], seeds: Sequence[int]) -> dict[str, int]:
    """Return by name the number of seeds of the scenarios that need fewer than these."""
    if len(seeds) <= FEW_SEEDS:
        return {}
    return {scenario.name: FEW_SEEDS for scenario in scenarios if load_of(scenario, seeds[0]).requests > MANY_REQUESTS}


def cpu_seconds(jobs: Iterable[RunJob], seed: int) -> float:
    """Return about how much CPU time some runs take; the traffic of ``seed`` stands for that of all."""
    return sum(_of_run(job.policy, load_of(job.scenario, seed)) for job in jobs)


def _of_run(policy: str, load: ScenarioLoad) -> float:
    per_hour = next((value for name, value in _SECONDS_PER_HOUR.items() if policy.startswith(name)), _OTHERS_PER_HOUR)
    return load.requests * _SECONDS_PER_REQUEST + load.hours * per_hour
