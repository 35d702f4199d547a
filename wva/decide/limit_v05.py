"""The GPU limiter of v0.5, for the compatibility mode (docs/design/compatibility-v05.md#gpu-limiter).

It differs from ours: only the replicas of this cycle's decisions count as used, labels are compared as they are
written, the remainder of a grant that makes no whole replica is lost, and an inventory that cannot be read limits
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wva.decide.limit import STAGE, Claim
from wva.decide.wording import LIMITER
from wva.model.decision import Decision, Reason
from wva.model.inventory import Inventory


@dataclass(frozen=True, slots=True)
class Request:
    """A target that may want GPUs; ``accelerator`` empty can have none."""

    accelerator: str
    current: int
    target: int
    gpus_per_replica: int
    spare_capacity: float
    cost: float

    @property
    def gpus(self) -> int:
        """GPUs per replica, 1 when it is unknown."""
        return self.gpus_per_replica if self.gpus_per_replica > 0 else 1


@dataclass(frozen=True, slots=True)
class Grant:
    """What became of a request."""

    target: int
    gpus_allocated: int
    was_limited: bool
    words: str


def used(requests: Sequence[Request]) -> dict[str, int]:
    """Return the GPUs that the replicas of the requests take, by accelerator; an unknown size counts as 0."""
    total: dict[str, int] = {}
    for request in requests:
        if request.accelerator:
            total[request.accelerator] = total.get(request.accelerator, 0) + request.current * max(
                0, request.gpus_per_replica
            )
    return total


def grants(requests: Sequence[Request], free: dict[str, int]) -> list[Grant]:
    """Return the grants in the order of the requests; ``free`` is left as it is after them."""
    granted: dict[int, Grant] = {}
    for index in sorted(range(len(requests)), key=lambda index: (requests[index].spare_capacity, requests[index].cost)):
        granted[index] = _grant(requests[index], free)
    return [granted[index] for index in range(len(requests))]


def _grant(request: Request, free: dict[str, int]) -> Grant:
    asked = request.target - request.current
    if asked <= 0:
        return Grant(request.target, 0, was_limited=False, words=_none(request.target, request.current))
    given = min(asked * request.gpus, free.get(request.accelerator, 0) if request.accelerator else 0)
    if given > 0:
        free[request.accelerator] -= given
    count = given // request.gpus
    target, limited = request.current + count, count < asked
    words = f"allocated {count * request.gpus} GPUs for +{count} replicas"
    if limited:
        words = f"limited: {words}"
    return Grant(target, count * request.gpus, was_limited=limited, words=words if count else _none(target, target))


def _none(target: int, current: int) -> str:
    return f"no scale-up (target={target}, current={current})"


def limit_v05(claims: Sequence[Claim], inventory: Inventory | None) -> tuple[Decision, ...]:
    """Return the decisions as the old limiter leaves them; it did not see variants without a target."""
    if inventory is None:
        return tuple(claim.decision.noted(STAGE, "GPU inventory unknown: not limited") for claim in claims)
    seen = [claim for claim in claims if not claim.decision.held]
    requests = [_request(claim) for claim in seen]
    taken = used(requests)
    free = {pool.accelerator: max(0, pool.capacity - taken.get(pool.accelerator, 0)) for pool in inventory.pools}
    limited = {
        claim.decision.key: _apply(claim, grant) for claim, grant in zip(seen, grants(requests, free), strict=True)
    }
    return tuple(limited.get(claim.decision.key, claim.decision) for claim in claims)


def _request(claim: Claim) -> Request:
    decision = claim.decision
    return Request(
        claim.variant.accelerator,
        decision.current,
        decision.desired,
        claim.variant.gpus_per_replica,
        decision.spare_capacity,
        decision.cost,
    )


def _apply(claim: Claim, grant: Grant) -> Decision:
    if not grant.was_limited:
        return claim.decision.noted(STAGE, grant.words)
    return claim.decision.limited(STAGE, Reason.GPU_LIMITED, grant.words, grant.target, by=LIMITER)
