"""What the controllers published over time, so that tests can judge the whole sequence and not only one moment.

A thread asks each controller twice a second, one after the other. So a test cannot tell the order of things that
happen within half a second.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from e2e.controller import ControllerProcess
from e2e.exposition import MetricsPage

INTERVAL_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerObservation:
    """One look at one controller; without an answer (``answered`` False) everything is empty."""

    at_seconds: float  # on the monotonic clock
    controller: str
    answered: bool = True
    desired: Mapping[str, int] = field(default_factory=dict)
    current: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    prometheus_up: float | None = None
    leader: float | None = None


@dataclass(frozen=True, slots=True)
class NumberChange:
    """A variant's number changed."""

    at_seconds: float
    variant: str
    old: int
    new: int


class ObservedHistory:
    """All observations so far, in order of time; safe to read while it grows."""

    def __init__(self) -> None:
        """Start empty."""
        self._observations: list[ControllerObservation] = []
        self._watched: list[ControllerProcess] = []
        self._stop = threading.Event()
        self.error: Exception | None = None

    def watch(self, controller: ControllerProcess) -> None:
        """Ask this controller, too, from now on."""
        self._watched.append(controller)

    def observations(self, *, since_seconds: float = 0.0) -> Sequence[ControllerObservation]:
        """Return the observations since a time of the monotonic clock."""
        return [entry for entry in list(self._observations) if entry.at_seconds >= since_seconds]

    def published(self, variant: str, *, since_seconds: float = 0.0) -> list[int]:
        """Return the numbers that any controller published for a variant, without repetitions."""
        numbers: list[int] = []
        for entry in self.observations(since_seconds=since_seconds):
            number = entry.desired.get(variant)
            if number is not None and (not numbers or numbers[-1] != number):
                numbers.append(number)
        return numbers

    def changes(self, *, since_seconds: float = 0.0) -> list[NumberChange]:
        """Return every change of a number since then, of all variants, in order of time."""
        last: dict[str, int] = {}
        found = []
        for entry in self.observations():
            for variant, number in sorted(entry.desired.items()):
                old = last.get(variant, number)
                if number != old and entry.at_seconds >= since_seconds:
                    found.append(NumberChange(entry.at_seconds, variant, old, number))
                last[variant] = number
        return found

    def rounds(self) -> list[list[ControllerObservation]]:
        """Return the observations of each turn of the thread together."""
        grouped: dict[float, list[ControllerObservation]] = {}
        for entry in self.observations():
            grouped.setdefault(entry.at_seconds, []).append(entry)
        return list(grouped.values())

    def run(self) -> None:
        """Record until ``stop``."""
        try:
            while not self._stop.wait(INTERVAL_SECONDS):
                now = time.monotonic()
                for controller in list(self._watched):
                    self._observations.append(_look(controller, now))
        except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to; the test's end does it
            self.error = error

    def stop(self) -> None:
        """End ``run``."""
        self._stop.set()

    def __str__(self) -> str:
        """Return the changes, for a failure's report."""
        start = self._observations[0].at_seconds if self._observations else 0.0
        lines = [
            f"{change.at_seconds - start:7.1f} s {change.variant}: {change.old} -> {change.new}"
            for change in self.changes()
        ]
        return "\n".join(lines) or "no change"


@contextlib.contextmanager
def recording() -> Iterator[ObservedHistory]:
    """Record from a thread inside the block."""
    history = ObservedHistory()
    thread = threading.Thread(target=history.run, name="history")
    thread.start()
    try:
        yield history
    finally:
        history.stop()
        thread.join()
    if history.error is not None:
        raise history.error


def _look(controller: ControllerProcess, now: float) -> ControllerObservation:
    try:
        page = controller.metrics()
    except OSError:
        return ControllerObservation(at_seconds=now, controller=controller.name, answered=False)
    return ControllerObservation(
        at_seconds=now,
        controller=controller.name,
        desired=_numbers(page, "wva_desired_replicas"),
        current=_numbers(page, "wva_current_replicas"),
        sources={entry.labels["variant_name"]: entry.labels["source"] for entry in page.series("wva_desired_source")},
        prometheus_up=page.value("wva_prometheus_up"),
        leader=page.value("wva_leader"),
    )


def _numbers(page: MetricsPage, name: str) -> dict[str, int]:
    return {entry.labels["variant_name"]: int(entry.value) for entry in page.series(name)}
