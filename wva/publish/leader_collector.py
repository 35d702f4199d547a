"""What the collectors of variants' series share: only the leader publishes, and every series may name the instance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

INSTANCE_LABEL: Final = "controller_instance"


class LeaderCollector(Collector):
    """Reads its series anew at every scrape; a subclass yields them in ``collect``."""

    def __init__(self, *, leading: Callable[[], bool], instance: str = "") -> None:
        """``instance`` adds the ``controller_instance`` label to every series."""
        self._leading = leading
        self._instance_label = (INSTANCE_LABEL,) if instance else ()
        self._instance_value = (instance,) if instance else ()

    def describe(self) -> list[Metric]:
        """Register without a scrape."""
        return []
