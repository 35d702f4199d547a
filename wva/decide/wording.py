"""Words that several stages need."""

from __future__ import annotations

from typing import Final

LIMITER: Final = "gpu-limiter"
"""Who limits a number for want of GPUs; the accelerator follows."""


def replicas(count: int) -> str:
    """Return ``1 replica``, ``2 replicas``."""
    return f"{count} replica" if count == 1 else f"{count} replicas"
