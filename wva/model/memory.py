"""What one cycle leaves for the next.

Serialisable, and small: the numbers and clocks in it can be rebuilt from the VA status and the pods after a restart,
which is why no clock is reset and no number jumps when another process takes over. What has been learned of capacity
is lost then; the token analyzer treads lightly until it has learned again.
"""

from __future__ import annotations

from dataclasses import dataclass

from wva.model.capacity import NOTHING_LEARNED, CapacityMemory
from wva.model.queueing import NOTHING_OBSERVED, QueueingMemory
from wva.model.variant import ModelKey, VariantKey


@dataclass(frozen=True, slots=True)
class VariantMemory:
    """The last number of a variant, since when it has been unsettled, and the most Ready pods seen since then.

    ``settling_since`` is in seconds since the epoch, None while settled; then ``ready_replicas`` are those of the last
    cycle. Without ``decided`` the number is only the replicas that existed: nothing was ever known of the variant, and
    those that exist now are as good.
    """

    key: VariantKey
    desired: int
    settling_since: float | None
    ready_replicas: int
    decided: bool = True


@dataclass(frozen=True, slots=True)
class PodPeak:
    """What a replica has reported: KV usage (share) and queue length (requests), None where it was not fresh."""

    pod: str
    kv_usage: float | None
    queue_length: float | None


@dataclass(frozen=True, slots=True)
class Shrink:
    """A shrink of a model: the replicas that it leaves, the sum of all KV usages before it, and a time.

    The time, in seconds since the epoch, is when it was decided; of one that is regretted, when it was regretted.
    """

    replicas: int
    kv_used: float
    at: float


@dataclass(frozen=True, slots=True)
class ModelMemory:
    """What sized growth remembers of a model.

    ``peaks`` are those with which the next ones are compared, sorted by pod; ``shrunk`` is the last shrink until it is
    regretted, ``regretted`` the last one after which the model wanted to grow.
    """

    key: ModelKey
    peaks: tuple[PodPeak, ...] = ()
    shrunk: Shrink | None = None
    regretted: Shrink | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """One entry per variant of the last cycle, sorted by key, and what has been learned of the capacity of models.

    ``queueing`` is what the queueing analyzer has seen and learned; ``models`` has an entry for each model that sized
    growth decides on, sorted by key. ``failing`` are the models on which the last cycle could not decide, sorted.
    """

    variants: tuple[VariantMemory, ...] = ()
    capacity: CapacityMemory = NOTHING_LEARNED
    queueing: QueueingMemory = NOTHING_OBSERVED
    models: tuple[ModelMemory, ...] = ()
    failing: tuple[ModelKey, ...] = ()

    def by_key(self) -> dict[VariantKey, VariantMemory]:
        """Return the entries by variant."""
        return {entry.key: entry for entry in self.variants}
