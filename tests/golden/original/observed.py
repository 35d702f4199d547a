"""The observation of a replica in a cycle, the input of the original's Kalman filter."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObservedReplica:
    """An observed replica in a cycle: requests per second, mean tokens per request, mean latencies in ms.

    ``batch`` is the largest number of requests that the replica computes at once; ``time`` in seconds since the epoch.
    """

    time: float
    rate: float
    input_tokens: float
    output_tokens: float
    ttft: float
    itl: float
    batch: int
