"""Writes the solution as the original logged it: one line per server, one per type of card. No numpy.

Times are in ms, rates per minute. ``servTime`` is the inter-token latency, ``rho`` the share of time with at least one
request, ``maxRPM`` the rate of one replica within its targets, ``sol`` the number of the server's candidates.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.golden.original.targets import OriginalTarget


@dataclass(frozen=True, slots=True)
class ReplicaPlan:
    """The performance of a server's replicas at the present load.

    ``batch`` is the number of requests at once per replica, ``cost`` that of all replicas and ``value`` its change.
    Latencies are means in ms. ``busy`` is the share of time with any request, ``max_rpm`` the requests per minute that
    one replica serves within the targets.
    """

    replicas: int
    batch: int
    cost: float
    value: float
    itl: float
    wait: float
    ttft: float
    busy: float
    max_rpm: float
    per_minute: float

    @property
    def saturated(self) -> bool:
        """Whether more requests arrive than the replicas serve within the targets."""
        return self.per_minute > self.replicas * self.max_rpm


def server_line(head: str, plan: ReplicaPlan, *, accelerator: str, target: OriginalTarget) -> str:
    """Return the line of a server; ``head`` is its beginning."""
    return (
        f"{head}sat={str(plan.saturated).lower()}, alloc={{acc={accelerator}; num={plan.replicas}; "
        f"maxBatch={plan.batch}; cost={plan.cost:.9g}, val={plan.value:.9g}, servTime={plan.itl:.9g}, "
        f"waitTime={plan.wait:.9g}, rho={plan.busy:.9g}, maxRPM={plan.max_rpm:.9g}}}; "
        f"slo-itl={target.itl:.9g}, slo-ttft={target.ttft:.9g}, slo-tps={target.tps:.9g}"
    )


def server_head(name: str, *, service_class: str, model: str, load: tuple[float, float], candidates: int) -> str:
    """Return the beginning of a server's line; ``load`` is requests per minute and tokens per answer."""
    rate, tokens = load
    return f"s={name}; c={service_class}; m={model}; rate={rate:.9g}; tk={tokens:.9g}; sol={candidates}, "


def type_lines(uses: Iterable[tuple[str, int, int, float]], *, total: float) -> tuple[str, ...]:
    """Return the lines of the cards: type, count, limit and cost of each type, and the total cost."""
    lines = tuple(f"name={name}, count={count}, limit={limit}, cost={cost:.9g}" for name, count, limit, cost in uses)
    return (*(("AllocationByType:", *lines) if lines else ()), f"totalCost={total:.9g}")
