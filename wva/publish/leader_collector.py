"""What the collectors of variants' series share.

Only the leader publishes, every series may name the instance, and an error about one variant takes away no series of
the others. A collector tells the series of one variant at a time, so that a page can be kept up with what changes.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from wva import log
from wva.model.failures import cause_of
from wva.model.variant import VariantKey

INSTANCE_LABEL: Final = "controller_instance"

T = TypeVar("T")
_log = log.get("publish")


@dataclass(frozen=True, slots=True)
class Head:
    """The name of a family, its help text, and its type (gauge or counter)."""

    name: str
    help: str
    type: str = "gauge"


class VariantFamily(Metric):
    """A family about variants. Its samples are made when they are read for the first time."""

    def __init__(self, head: Head, make: Callable[[], list[Sample]]) -> None:
        """``make`` returns the samples."""
        self._make: Callable[[], list[Sample]] | None = None
        super().__init__(head.name, head.help, head.type)
        self._make = make

    @property
    def samples(self) -> list[Sample]:
        """All samples of all variants."""
        if self._make is not None:
            self._made, self._make = self._make(), None
        return self._made

    @samples.setter
    def samples(self, samples: list[Sample]) -> None:
        self._made = samples


class LeaderCollector(Collector):
    """Tells series of variants; a subclass has the families, the variants, and the samples of one variant."""

    def __init__(self, *, leading: Callable[[], bool], instance: str = "") -> None:
        """``instance`` adds the ``controller_instance`` label to every series."""
        self._leading = leading
        self._instance = {INSTANCE_LABEL: instance} if instance else {}
        self._throttle = log.Throttle()
        self.failed: set[VariantKey] = set()
        """Variants of which something could not be read; whoever keeps what was read asks again."""

    @property
    @abstractmethod
    def heads(self) -> Sequence[Head]:
        """The families, in the order of the page."""

    @abstractmethod
    def keys(self) -> Iterable[VariantKey]:
        """Return the variants that may have series, in order."""

    @abstractmethod
    def samples_of(self, key: VariantKey) -> Sequence[Sequence[Sample]]:
        """Return the samples of one variant, those of each head; nothing is raised."""

    def collect(self) -> Iterator[Metric]:
        """Yield all families; they are empty while this process does not lead."""
        found: list[Sequence[Sequence[Sample]]] = []

        def samples(place: int) -> list[Sample]:
            if not found and self._leading():
                found.extend(self.samples_of(key) for key in self.keys())
            return [sample for rows in found for sample in rows[place]]

        for place, head in enumerate(self.heads):
            yield VariantFamily(head, lambda place=place: samples(place))  # type: ignore[misc]  # mypy cannot tell

    def _sample(self, name: str, key: VariantKey, value: float, **labels: str) -> Sample:
        """Return a sample with the labels that all have."""
        return Sample(name, {"variant_name": key.name, "namespace": key.namespace, **labels, **self._instance}, value)

    def _read(self, key: VariantKey, read: Callable[[], T | None]) -> T | None:
        """Return what series of one variant are made of; None if that raises."""
        try:
            return read()
        except Exception as error:  # noqa: BLE001 - the other variants have theirs
            cause = cause_of(error)
            self.failed.add(key)
            if self._throttle.permits(key, cause, time.monotonic()):
                _log.exception("variant_not_shown", variant=str(key), cause=cause)
            return None

    def describe(self) -> list[Metric]:
        """Register without a scrape."""
        return []
