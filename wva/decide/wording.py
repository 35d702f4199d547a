"""Words that several stages need."""

from __future__ import annotations


def replicas(count: int) -> str:
    """Return ``1 replica``, ``2 replicas``."""
    return f"{count} replica" if count == 1 else f"{count} replicas"
