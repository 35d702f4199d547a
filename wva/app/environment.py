"""What the application runs in."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from random import Random

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector

from wva.app.probes import Probes
from wva.clock import Clock, SystemClock
from wva.config import Given, Settings
from wva.instruments import Instruments
from wva.kube.client import KubeClient


@dataclass(frozen=True, slots=True)
class Environment:
    """What the application runs in; the embedded world passes its own clock.

    ``probes`` is a server of probes that listens already; without it the application starts its own. ``synced`` is
    called once every cache has been filled, and each cycle of decisions runs within ``cycle``. ``random`` spreads the
    pauses before a query is sent again.
    """

    settings: Settings
    given: Given
    client: KubeClient
    instruments: Instruments
    clock: Clock = field(default_factory=SystemClock)
    probes: Probes | None = None
    synced: Callable[[], None] = lambda: None
    cycle: Callable[[], AbstractContextManager[None]] = nullcontext
    random: Random = field(default_factory=Random)


def new_registry() -> CollectorRegistry:
    """Return a registry with the process's own metrics."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry
