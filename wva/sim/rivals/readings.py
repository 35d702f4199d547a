"""What Prometheus tells an autoscaler of the pods of one variant, through an adapter.

A reading is the value of an instant query: of the last scrape of a pod, if that succeeded and is at most five minutes
old. The adapter answers with what it read a little earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

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


_VALUES: dict[LoadReading, Callable[[Sequence[float]], float]] = {
    LoadReading.KV_USAGE: lambda values: values[ScrapedSignal.KV_USAGE],
    LoadReading.QUEUE: lambda values: values[ScrapedSignal.WAITING],
    LoadReading.IN_FLIGHT: lambda values: values[ScrapedSignal.RUNNING] + values[ScrapedSignal.WAITING],
}


def readings(stage: StageView, pods: Sequence[StagePodView], load: LoadReading, *, at_seconds: float) -> list[float]:
    """Return a value for each of these pods that has one at this time, oldest pod first."""
    scrapes = (latest(stage.scrapes(pod.name), at_seconds) for pod in pods)
    return [_VALUES[load](scrape.values) for scrape in scrapes if scrape is not None]
