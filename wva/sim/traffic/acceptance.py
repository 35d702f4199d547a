"""How near the generated traffic is to the published traces: their statistics, the bounds, and what is generated.

A generated statistic is the mean over some seeds, each with traffic as long as the trace: an estimate from one hour has
a bias, and the published ones have it too.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final, Protocol

import numpy as np

from wva.sim.traffic import traces
from wva.sim.traffic.requests import Traffic
from wva.sim.traffic.statistics import statistics, week_statistics


class TrafficKind(Protocol):
    """Makes the requests of a seed."""

    def __call__(self, seed: int, /) -> Traffic:
        """Return the requests."""
        ...


@dataclass(frozen=True, slots=True)
class Bound:
    """How far a statistic may be off: by a share of the published value, or by a difference."""

    share: float = 0.0
    difference: float = 0.0

    def holds(self, generated: float, *, published: float) -> bool:
        """Return whether the generated value is near enough."""
        return abs(generated - published) <= self.share * abs(published) + self.difference

    def __str__(self) -> str:
        """Return the bound as a page shows it."""
        return f"±{self.difference:g}" if self.difference else f"±{self.share * 100:g} %"


_LENGTH: Final = Bound(share=0.05)
_DISPERSION: Final = Bound(share=0.25)
_PEAK: Final = Bound(share=0.10)

BOUNDS: Final = MappingProxyType(
    {
        "rate": Bound(share=0.05),
        "gap_variation": Bound(share=0.05),
        "dispersion_1s": _DISPERSION,
        "dispersion_10s": _DISPERSION,
        "dispersion_60s": _DISPERSION,
        "minute_correlation": Bound(difference=0.1),
        "peak_to_mean_1s": _PEAK,
        "peak_to_mean_60s": _PEAK,
        "empty_seconds": Bound(difference=0.05),
        "prompt_mean": _LENGTH,
        "prompt_p50": _LENGTH,
        "prompt_p95": _LENGTH,
        "output_mean": _LENGTH,
        "output_p50": _LENGTH,
        "output_p95": _LENGTH,
        "hit_ratio": Bound(difference=0.02),
        "peak_to_mean": _PEAK,
        "peak_to_trough": _PEAK,
        "growth": _PEAK,
        "weekend": _PEAK,
    }
)


@dataclass(frozen=True, slots=True)
class Trace:
    """A published trace, and the traffic that is like it.

    ``seeds``: how many are averaged. ``weekly`` is a kind that makes a whole week, for the statistics of the hours.
    """

    kind: TrafficKind
    published: dict[str, float]
    seeds: int = 8
    weekly: TrafficKind | None = None
    hours: dict[str, float] | None = None


_WEEK: Final = 7 * 24 * 3600.0

TRACES: Final = MappingProxyType(
    {
        "azure-2023-conversation": Trace(
            traces.azure_2023_conversation,
            {
                "rate": 5.53,
                "gap_variation": 1.09,
                "dispersion_1s": 1.4,
                "dispersion_10s": 3.9,
                "dispersion_60s": 16.0,
                "minute_correlation": 0.85,
                "peak_to_mean_60s": 1.52,
                "prompt_mean": 1155.0,
                "prompt_p50": 1020.0,
                "prompt_p95": 4083.0,
                "output_mean": 211.0,
                "output_p50": 129.0,
                "output_p95": 451.0,
            },
            seeds=64,
        ),
        "azure-2023-code": Trace(
            traces.azure_2023_code,
            {
                "rate": 2.567,
                "dispersion_1s": 13.0,
                "dispersion_10s": 72.0,
                "dispersion_60s": 164.0,
                "minute_correlation": 0.16,
                "peak_to_mean_1s": 26.0,
                "peak_to_mean_60s": 4.2,
                "empty_seconds": 0.73,
                "prompt_mean": 2048.0,
                "prompt_p50": 1469.0,
                "prompt_p95": 7303.0,
                "output_mean": 28.0,
                "output_p50": 13.0,
                "output_p95": 90.0,
            },
            seeds=160,
        ),
        "azure-2024-conversation": Trace(
            partial(traces.azure_2024_conversation, duration_seconds=1800.0),
            {
                "prompt_p50": 897.0,
                "prompt_p95": 4880.0,
                "output_p50": 33.0,
                "output_p95": 443.0,
            },
            seeds=3,
            weekly=partial(traces.azure_2024_conversation, duration_seconds=_WEEK, rate=4.0, day="Sun"),
            hours={"peak_to_mean": 1.65, "peak_to_trough": 3.5, "growth": 1.27},
        ),
        "azure-2024-coding": Trace(
            partial(traces.azure_2024_coding, duration_seconds=1800.0),
            {
                "prompt_p50": 1902.0,
                "prompt_p95": 7662.0,
                "output_p95": 67.0,
            },
            seeds=3,
            weekly=partial(traces.azure_2024_coding, duration_seconds=_WEEK, rate=4.0, day="Sun"),
            hours={"peak_to_mean": 2.99, "peak_to_trough": 31.0, "growth": 1.95, "weekend": 0.31},
        ),
        "burstgpt": Trace(traces.burstgpt, {"rate": 0.51, "gap_variation": 2.0**0.5}, seeds=8),
        "mooncake-conversation": Trace(
            traces.mooncake_conversation,
            {
                "rate": 12_031 / 3600,
                "prompt_mean": 12_035.0,
                "prompt_p50": 8400.0,
                "prompt_p95": 29_100.0,
                "output_mean": 343.0,
                "output_p50": 346.0,
                "hit_ratio": 0.40,
            },
        ),
        "mooncake-tool": Trace(
            traces.mooncake_tool,
            {"rate": 23_608 / 3600, "prompt_mean": 8596.0, "output_mean": 182.0, "hit_ratio": 0.59},
        ),
        "mooncake-synthetic": Trace(
            traces.mooncake_synthetic,
            {"rate": 3993 / 3600, "prompt_mean": 15_325.0, "output_mean": 149.0, "hit_ratio": 0.66},
        ),
    }
)


@dataclass(frozen=True, slots=True)
class StatisticComparison:
    """A statistic of a trace beside that of the traffic."""

    trace: str
    statistic: str
    published: float
    generated: float

    @property
    def bound(self) -> Bound:
        """How far the generated value may be off."""
        return BOUNDS[self.statistic]

    @property
    def holds(self) -> bool:
        """Whether the generated value is near enough."""
        return self.bound.holds(self.generated, published=self.published)


def comparisons(name: str, *, first_seed: int = 0) -> Iterator[StatisticComparison]:
    """Yield the statistics of a trace, by name, beside those of the traffic."""
    trace = TRACES[name]
    seeds = range(first_seed, first_seed + trace.seeds)
    by_seed = [statistics(trace.kind(seed)) for seed in seeds]
    for statistic, value in trace.published.items():
        yield StatisticComparison(
            name, statistic, value, float(np.mean([getattr(seed_statistics, statistic) for seed_statistics in by_seed]))
        )
    if trace.weekly is not None:
        week = week_statistics(trace.weekly(first_seed))
        for statistic, value in (trace.hours or {}).items():
            yield StatisticComparison(name, statistic, value, float(getattr(week, statistic)))
