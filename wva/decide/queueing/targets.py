"""What is promised for a model: latencies and throughput."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """Wanted time to first token and inter-token latency in ms, and tokens per second; 0 means no target."""

    ttft: float = 0.0
    itl: float = 0.0
    tps: float = 0.0

    def problem(self) -> str:
        """Return in words what is wrong, empty if nothing is."""
        for name, value in (("TTFT", self.ttft), ("ITL", self.itl), ("TPS", self.tps)):
            if not (math.isfinite(value) and value >= 0):
                return f"target {name} is {value:g}, expected a number of at least 0"
        return ""
