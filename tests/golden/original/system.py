"""A whole system of the original's optimizer: accelerators, profiles, classes and servers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tests.golden.original.allocations import Allocation, Options, OriginalLoad, OriginalServer
from tests.golden.original.service import Parameters
from tests.golden.original.targets import OriginalTarget

LOWEST_PRIORITY: Final = 100
_PENALTY: Final = 0.1


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An accelerator of ``multiplicity`` cards of a counted ``type``; the cost is that of all its cards."""

    name: str
    type: str
    cost: float
    multiplicity: int = 1


@dataclass(frozen=True, slots=True)
class Profile:
    """How a model performs on an accelerator.

    One replica needs ``accelerators``. ``max_batch`` holds at ``at_tokens`` tokens per answer, or at any number of
    tokens if that is 0. (The original divided by it.)
    """

    model: str
    accelerator: str
    parameters: Parameters
    max_batch: int
    at_tokens: int = 0
    accelerators: int = 1

    @property
    def units(self) -> int:
        """Accelerators per replica, at least 1."""
        return self.accelerators if self.accelerators > 0 else 1


@dataclass(frozen=True, slots=True)
class ServiceClass:
    """Targets per model. A priority outside 1 (most important) to 100 counts as 100."""

    name: str
    priority: int
    targets: Mapping[str, OriginalTarget]

    @property
    def rank(self) -> int:
        """The priority in force."""
        return self.priority if 1 <= self.priority <= LOWEST_PRIORITY else LOWEST_PRIORITY


@dataclass(frozen=True, slots=True)
class System:
    """All inputs of an allocation; ``capacity`` counts cards per type."""

    accelerators: Mapping[str, Accelerator]
    profiles: Mapping[tuple[str, str], Profile]
    classes: Mapping[str, ServiceClass]
    servers: Mapping[str, OriginalServer]
    capacity: Mapping[str, int] = field(default_factory=dict)
    options: Options = field(default_factory=Options)

    def rank(self, server: OriginalServer) -> int:
        """Return the priority of a server; a server of an unknown class comes last."""
        known = self.classes.get(server.service_class)
        return LOWEST_PRIORITY if known is None else known.rank

    def type_of(self, accelerator: str) -> str:
        """Return the type of card that counts an accelerator."""
        return self.accelerators[accelerator].type

    def cards(self, server: OriginalServer, accelerator: str) -> int:
        """Return the cards that one replica needs."""
        return self.profiles[server.model, accelerator].units * self.accelerators[accelerator].multiplicity


def transition_value(current: Allocation, accelerator: str, *, replicas: int, cost: float) -> float:
    """Return the change in cost, with a penalty of a tenth of both costs for another accelerator."""
    if current.accelerator == accelerator:
        return 0.0 if current.replicas == replicas else cost - current.cost
    return _PENALTY * (current.cost + cost) + (cost - current.cost)


def load_problem(load: OriginalLoad) -> str:
    """Return in words what is wrong with a load; "" if nothing is."""
    for name, value in (
        ("arrival rate", load.per_minute),
        ("input tokens", load.input_tokens),
        ("output tokens", load.output_tokens),
    ):
        if not (math.isfinite(value) and value >= 0):
            return f"{name} {value:g}, expected a number of at least 0"
    return ""


def idle(load: OriginalLoad) -> bool:
    """Tell whether the load has nothing to compute."""
    return load.per_minute == 0 or load.output_tokens == 0


def saturated(allocation: Allocation, per_minute: float) -> bool:
    """Tell whether more requests arrive per minute than the replicas serve within their targets."""
    return per_minute > allocation.replicas * allocation.max_rpm
