"""What a replica did in a cycle, as the Kalman filter of the original takes it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ObservedReplica:
    """What a replica did in a cycle: requests per second, mean tokens per request, mean latencies in ms.

    ``batch`` is the largest number of requests that it computes at once; ``time`` in seconds since the epoch.
    """

    time: float
    rate: float
    input_tokens: float
    output_tokens: float
    ttft: float
    itl: float
    batch: int
