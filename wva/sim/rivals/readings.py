"""What Prometheus tells an autoscaler of the pods of one variant, through an adapter.

A reading is the value of an instant query: of the last scrape of a pod, if that succeeded and is at most five minutes
old. The adapter answers with what it read a little earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Final

from wva.sim.stage.prometheus import latest
from wva.sim.stage.view import ScrapedSignal, StagePodView, StageView


class LoadReading(Enum):
    """What an autoscaler reads of each pod; the value is the name in a policy's name."""

    KV_USAGE = "kv"
    """vllm:kv_cache_usage_perc, 0 to 1."""
    QUEUE = "queue"
    """vllm:num_requests_waiting"""
    IN_FLIGHT = "inflight"
    """vllm:num_requests_running + vllm:num_requests_waiting"""


DEFAULT_TARGETS: Final[Mapping[LoadReading, float]] = MappingProxyType(
    {LoadReading.KV_USAGE: 0.7, LoadReading.QUEUE: 5.0, LoadReading.IN_FLIGHT: 100.0}
)
"""What a pod should have on average, as the guides have it. See docs/rivals.md for each one's source."""

TARGETS: Final[Mapping[LoadReading, tuple[float, ...]]] = MappingProxyType(
    {
        LoadReading.KV_USAGE: (0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95),
        LoadReading.QUEUE: (0.5, 1, 2, 3, 5, 8, 12, 20, 40, 80, 160),
        LoadReading.IN_FLIGHT: (2, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256),
    }
)
"""The targets that are tried where a policy is tuned in hindsight.

They range from values for long prompts, of which a few are enough for a pod, to values that only a long queue reaches.
"""

_VALUES: dict[LoadReading, Callable[[Sequence[float]], float]] = {
    LoadReading.KV_USAGE: lambda values: values[ScrapedSignal.KV_USAGE],
    LoadReading.QUEUE: lambda values: values[ScrapedSignal.WAITING],
    LoadReading.IN_FLIGHT: lambda values: values[ScrapedSignal.RUNNING] + values[ScrapedSignal.WAITING],
}


def readings(stage: StageView, pods: Sequence[StagePodView], load: LoadReading, *, at_seconds: float) -> list[float]:
    """Return a value for each of these pods that has one at this time, oldest pod first."""
    scrapes = (latest(stage.scrapes(pod.name), at_seconds) for pod in pods)
    return [_VALUES[load](scrape.values) for scrape in scrapes if scrape is not None]
