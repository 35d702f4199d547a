"""How the gateway of a model routes, and how patient its users are."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from math import inf

from wva.sim.fleet.transfer import KvTransfer


class Routing(IntEnum):
    """How the gateway chooses among Ready engines."""

    LEAST = 0
    """The engine that will be least loaded with the request, as of now."""
    RANDOM = 1
    STALE = 2
    """The engine that was least loaded when the view was taken; of several a random one."""
    PREFIX = 3
    """As ``LEAST``, but an engine that has the prompt's prefix counts as less loaded."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """Settings of one model's gateway, and of its users.

    Attributes:
        queue_limit: most requests that it holds while no replica is Ready.
        routing: how it chooses a replica.
        view_seconds: how old the loads are that ``Routing.STALE`` goes by.
        prefix_weight: how much less load a prompt wholly in the cache is worth to ``Routing.PREFIX``.
        patience_seconds: how long a user waits for the first token before giving up.
        attempts: how often a user sends a request at most.
        retry_seconds: how long a user waits before sending it again.
        transfer: how requests go from prefill to decode; None where each pod computes all of a request.

    """

    queue_limit: int = 1000
    routing: Routing = Routing.LEAST
    view_seconds: float = 0.0
    prefix_weight: float = 0.0
    patience_seconds: float = inf
    attempts: int = 1
    retry_seconds: float = 1.0
    transfer: KvTransfer | None = None

    def __post_init__(self) -> None:
        """Refuse a router that is not built for roles.

        Raises:
            ValueError: with ``transfer``, ``routing`` is not ``LEAST``.

        """
        if self.transfer is not None and self.routing is not Routing.LEAST:
            raise ValueError(f"routing is {self.routing.name}: where pods have roles it is LEAST")
