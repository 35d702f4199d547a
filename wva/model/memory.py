"""What one cycle leaves for the next.

Serialisable, and small: the numbers and clocks in it can be rebuilt from the VA status and the pods after a restart,
which is why no clock is reset and no number jumps when another process takes over. What has been learned of capacity
is lost then; the token analyzer treads lightly until it has learned again.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from wva.model.capacity import NOTHING_LEARNED, CapacityMemory
from wva.model.demand import DemandMemory, Foresight
from wva.model.variant import ModelKey, Variant, VariantKey


class VariantMemory(Struct, frozen=True, gc=False):
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


class PodPeak(Struct, frozen=True, gc=False):
    """What a replica has reported: KV usage (share) and queue length (requests), None where it was not fresh."""

    pod: str
    kv_usage: float | None
    queue_length: float | None


@dataclass(frozen=True, slots=True)
class Shrink:
    """A shrink of a model: the replicas that it leaves, the demand before it in the unit of its analyzer, and a time.

    The time, in seconds since the epoch, is when it was decided; of one that is regretted, when it was regretted. A
    recording of before has no demand: any demand counts as higher.
    """

    replicas: int
    demand: float = 0.0
    at: float = 0.0


class ModelMemory(Struct, frozen=True, gc=False):
    """What is remembered of a model.

    ``peaks`` are those with which the percentage analyzer compares the next ones, sorted by pod; ``shrunk`` is the last
    shrink until it is regretted, ``regretted`` the last one after which the model wanted to grow. ``answered`` is the
    demand, in the unit of the analyzer, that the replicas on their way were asked for; None when none are.
    """

    key: ModelKey
    peaks: tuple[PodPeak, ...] = ()
    shrunk: Shrink | None = None
    regretted: Shrink | None = None
    answered: float | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """One entry per variant of the last cycle, sorted by key, and what has been learned of the capacity of models.

    ``models`` has an entry for each model that sized growth decides on, sorted by key. ``failing`` are the models on
    which the last cycle could not decide, sorted. ``demand`` is what was observed of models whose requests are counted.
    """

    variants: tuple[VariantMemory, ...] = ()
    capacity: CapacityMemory = NOTHING_LEARNED
    models: tuple[ModelMemory, ...] = ()
    failing: tuple[ModelKey, ...] = ()
    demand: tuple[DemandMemory, ...] = ()
    foreseen: tuple[Foresight, ...] = ()

    def by_key(self) -> dict[VariantKey, VariantMemory]:
        """Return the entries by variant."""
        return {entry.key: entry for entry in self.variants}


def previous_of(variant: Variant, entry: VariantMemory | None) -> int | None:
    """Return the number published last; a 0 belongs to a time when the variant was switched off.

    A number kept for want of any history is none: it would undo a later change by another client.
    For a variant at zero that is only a number by which it was called back, and has not come yet.
    """
    remembered = entry.desired if entry is not None else 0
    if not variant.active:
        asked = entry is not None and entry.settling_since is not None and entry.ready_replicas == 0
        return remembered if asked and remembered > 0 else None
    if entry is not None and not entry.decided:
        return None
    if remembered > 0:
        return remembered
    status = variant.status_desired
    return status if status is not None and status > 0 else None
