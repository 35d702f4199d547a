"""What a model's users got and how its variants are used: the fleet's report for people, tests and benchmarks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from wva.sim.fleet.columns import BROKEN, REFUSED, TIMED_OUT
from wva.sim.fleet.pool import ModelPool
from wva.sim.fleet.replica import PoolKey, PoolVariant, ReplicaState
from wva.sim.fleet.service_log import Served, ServiceLevel


@dataclass(frozen=True, slots=True)
class VariantUsage:
    """The Ready replicas of one variant at this moment. Usage is None without replicas, which is not idle."""

    deployment: str
    accelerator: str
    ready: int
    draining: int
    running: int
    waiting: int
    kv_cache_usage_mean: float | None
    kv_cache_usage_max: float | None


@dataclass(frozen=True, slots=True)
class ModelSummary:
    """One model.

    Attributes:
        model: its key.
        arrived: requests offered since the start.
        served_total: requests finished since the start.
        dropped: requests refused since the start: gateway full, or prompt too long.
        timed_out: requests since the start whose users gave up waiting.
        broken: requests since the start that ended with their replica.
        retried: attempts beyond the first since the start.
        retrying: requests that their users will send again in a moment.
        queued: requests at the gateway now, for want of a ready replica.
        waiting: requests in engine queues now.
        running: requests being computed now.
        offered_per_second: requests that arrived in the last minute, per second.
        served: latencies and attainment of the chosen span.
        variants: usage now.

    """

    model: PoolKey
    arrived: int
    served_total: int
    dropped: int
    timed_out: int
    broken: int
    retried: int
    retrying: int
    queued: int
    waiting: int
    running: int
    offered_per_second: float
    served: Served
    variants: tuple[VariantUsage, ...]


def summarise(
    model: PoolKey, *, pool: ModelPool, variants: Iterable[PoolVariant], level: ServiceLevel, since_seconds: float
) -> ModelSummary:
    """Summarise one pool; latencies are those of requests finished since ``since_seconds``."""
    replicas = list(pool.replicas.values())
    return ModelSummary(
        model=model,
        arrived=pool.arrived,
        served_total=pool.log.requests,
        dropped=pool.failed[REFUSED],
        timed_out=pool.failed[TIMED_OUT],
        broken=pool.failed[BROKEN],
        retried=pool.retried,
        retrying=pool.retrying,
        queued=pool.queued,
        waiting=sum(map(pool.waiting, replicas)),
        running=sum(map(pool.running, replicas)),
        offered_per_second=pool.arrivals.rate(pool.now_seconds),
        served=pool.log.served(level, since_seconds=since_seconds),
        variants=tuple(_usage(variant, pool=pool) for variant in variants),
    )


def _usage(variant: PoolVariant, *, pool: ModelPool) -> VariantUsage:
    replicas = [replica for replica in pool.replicas.values() if replica.variant.deployment == variant.deployment]
    ready = [replica for replica in replicas if pool.state(replica) is ReplicaState.READY]
    usages = [usage for replica in ready for usage in pool.kv_cache_usages(replica)]
    return VariantUsage(
        deployment=variant.deployment,
        accelerator=variant.accelerator,
        ready=len(ready),
        draining=sum(pool.state(replica) is ReplicaState.DRAINING for replica in replicas),
        running=sum(map(pool.running, ready)),
        waiting=sum(map(pool.waiting, ready)),
        kv_cache_usage_mean=sum(usages) / len(usages) if usages else None,
        kv_cache_usage_max=max(usages, default=None),
    )
