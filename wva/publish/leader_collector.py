"""What the collectors of variants' series share.

Only the leader publishes, every series may name the instance, and an error about one variant takes away no series of
the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from wva import log
from wva.model.failures import cause_of
from wva.model.variant import VariantKey

INSTANCE_LABEL: Final = "controller_instance"

T = TypeVar("T")
_log = log.get("publish")


class LeaderCollector(Collector):
    """Reads its series anew at every scrape; a subclass yields them in ``collect``."""

    def __init__(self, *, leading: Callable[[], bool], instance: str = "") -> None:
        """``instance`` adds the ``controller_instance`` label to every series."""
        self._leading = leading
        self._instance_label = (INSTANCE_LABEL,) if instance else ()
        self._instance_value = (instance,) if instance else ()
        self._throttle = log.Throttle()

    def _read(self, key: VariantKey, read: Callable[[], T | None]) -> T | None:
        """Return what series of one variant are made of; None if that raises."""
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - the other variants have theirs
            cause = cause_of(error)
            if self._throttle.permits(key, cause, time.monotonic()):
                _log.exception("variant_not_shown", variant=str(key), cause=cause)
            return None

    def describe(self) -> list[Metric]:
        """Register without a scrape."""
        return []
