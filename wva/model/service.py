"""Values of ``Policy`` from ConfigMaps: service classes, unit costs, and performance profiles of engines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wva.model.objectives import ITL_MILLISECONDS, TTFT_MILLISECONDS, AskedObjectives

HIGHEST_PRIORITY: Final = 1
LOWEST_PRIORITY: Final = 100
"""Priorities of service classes; a priority outside of this range counts as the lowest."""

MAX_BATCH_SIZE: Final = 100_000
"""Requests that one replica computes at once at most; the time to size a replica grows with it."""


UNTOUCHED_TTFT_MILLISECONDS: Final = 1000.0
UNTOUCHED_ITL_MILLISECONDS: Final = 10.0
"""The defaults of the chart, which writes them into a service class for everybody who installs it. So they tell nothing
of what somebody wants, and the demand analyzer takes them as not given."""


@dataclass(frozen=True, slots=True)
class ServiceTarget:
    """The objectives of one model in its service class; an objective of 0 is none.

    ``priority`` is 1 (most important) to 100. ``ttft_milliseconds`` is the time to the first token,
    ``itl_milliseconds`` the time per further token, ``tps`` tokens per second, ``in_time`` the share of requests that
    shall meet the two times.
    """

    class_name: str
    priority: int = LOWEST_PRIORITY
    ttft_milliseconds: float = 0.0
    itl_milliseconds: float = 0.0
    tps: float = 0.0
    model_id: str = ""
    in_time: float = 0.0

    @property
    def asked(self) -> AskedObjectives:
        """The objectives that the class gives to the demand analyzer; a time out of its range counts as not given."""
        ttft, itl = TTFT_MILLISECONDS.find(self.ttft_milliseconds), ITL_MILLISECONDS.find(self.itl_milliseconds)
        return AskedObjectives(
            None if ttft is None or ttft == UNTOUCHED_TTFT_MILLISECONDS else ttft / 1000.0,
            None if itl is None or itl == UNTOUCHED_ITL_MILLISECONDS else itl / 1000.0,
            self.in_time or None,
            f"service class {self.class_name}",
        )


@dataclass(frozen=True, slots=True)
class AcceleratorCost:
    """What one accelerator costs per hour, and the product name of the device."""

    accelerator: str
    cost: float
    device: str = ""


@dataclass(frozen=True, slots=True)
class PerformanceProfile:
    """Known parameters of one replica of a model on an accelerator.

    A decode step with n requests takes ``alpha`` + ``beta`` * n milliseconds; prefill of i tokens takes ``gamma`` +
    ``delta`` * i * n. ``max_batch_size`` requests run at once when answers have ``at_tokens`` tokens (0: of any
    length); 0 means not known. A replica needs ``accelerator_count`` accelerators.
    """

    alpha: float
    beta: float
    gamma: float = 0.0
    delta: float = 0.0
    max_batch_size: int = 0
    accelerator_count: int = 1
    at_tokens: int = 0
    model_id: str = ""
    accelerator: str = ""
