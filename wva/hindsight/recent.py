"""The last cycles, kept in memory: the data of the explanations and of the console of a running controller.

The newest cycle is kept as it is. Older ones are kept as compressed recordings, about a hundred bytes for each replica,
and bounded by their bytes: a small fleet keeps an hour, a large one less.

Each recording is kept in parts, each with a few models, in the order of their namespaces. So a question about one
variant unpacks a few parts, one after the other, and never a whole fleet. Compressing and unpacking run in a thread.
"""

from __future__ import annotations

import asyncio
import math
import zlib
from collections import Counter, deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Final

import msgspec

from wva.hindsight.cycle import Recording, at_or_before
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.variant import ModelKey, VariantKey

MOST_CYCLES: Final = 240
"""An hour with a cycle each 15 s."""
MOST_BYTES: Final = 32 * 1024**2
_VARIANTS_PER_PART: Final = 64
_FASTEST: Final = 1

_decoder: Final = msgspec.json.Decoder(Recording)


@dataclass(frozen=True, slots=True)
class _PackedModels:
    """The models of the namespaces from ``first`` to ``last``, as a compressed recording of them alone."""

    first: str
    last: str
    data: bytes


@dataclass(frozen=True, slots=True)
class KeptCycle:
    """A cycle that is kept: the newest one as it is (``whole``), an older one in compressed ``parts``.

    ``now`` is when it began, in seconds since the epoch. ``rest`` is what belongs to no model, such as the policy and
    the GPUs.
    """

    now: float
    whole: Recording | None = None
    rest: bytes = b""
    parts: tuple[_PackedModels, ...] = ()

    @property
    def bytes(self) -> int:
        """How many bytes the compressed parts take."""
        return len(self.rest) + sum([len(part.data) for part in self.parts])

    async def of_namespace(self, namespace: str) -> AsyncGenerator[Recording]:
        """Yield the recordings of the parts that have models of a namespace (of all, if it is empty), in order.

        These recordings have other models of the same cycle, too.
        """
        if self.whole is not None:
            yield self.whole
        for part in self.parts:
            if not namespace or part.first <= namespace <= part.last:
                yield await asyncio.to_thread(self._unpacked, part)

    async def about(self, key: VariantKey) -> Recording | None:
        """Return the recording of the model of a variant; None if the cycle did not decide on it.

        The recording of the newest cycle has all models, that of an older cycle only this model.
        """
        async for recording in self.of_namespace(key.namespace):
            model = recording.model_of(key)
            if model is not None:
                return recording if recording is self.whole else recording.grouped({model: 0}, 1)[0]
        return None

    def _unpacked(self, part: _PackedModels) -> Recording:
        rest, models = (_decoder.decode(zlib.decompress(data)) for data in (self.rest, part.data))
        common = {name: getattr(rest.snapshot, name) for name in ("failures", "inventory", "inventory_detail")}
        return replace(models, policy=rest.policy, snapshot=replace(models.snapshot, **common))


class RecentCycles:
    """Keeps the recordings of the last cycles."""

    def __init__(self, *, most_cycles: int = MOST_CYCLES, most_bytes: int = MOST_BYTES) -> None:
        """Start empty."""
        self._most_cycles = most_cycles
        self._most_bytes = most_bytes
        self._cycles: deque[KeptCycle] = deque()
        self._bytes = 0
        self.newest: Recording | None = None
        self._next: asyncio.Future[float] | None = None

    async def keep(self, recording: Recording) -> None:
        """Keep a cycle, and forget the oldest ones beyond the limits."""
        self.newest = recording
        if self._next is not None:
            self._next.set_result(recording.now)
            self._next = None
        packed = await asyncio.to_thread(_packed, recording)
        self._cycles.append(packed)
        self._bytes += packed.bytes
        while self._cycles and (len(self._cycles) > self._most_cycles or self._bytes > self._most_bytes):
            self._bytes -= self._cycles.popleft().bytes

    async def next(self) -> float:
        """Wait for the next cycle, and return when it began, in seconds since the epoch."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._next)  # all who wait share it

    @property
    def times(self) -> tuple[float, ...]:
        """When each kept cycle began, in seconds since the epoch, the oldest first."""
        return tuple([cycle.now for cycle in self._cycles])

    def at(self, when: float = math.inf) -> KeptCycle | None:
        """Return the last cycle that began at ``when`` or before, in seconds since the epoch; None if none is kept."""
        if self.newest is not None and self.newest.now <= when:
            return KeptCycle(self.newest.now, self.newest)
        return at_or_before(self._cycles, when)


def _packed(recording: Recording) -> KeptCycle:
    groups: list[list[ModelKey]] = []
    counts = Counter([variant.model for variant in recording.snapshot.variants])
    counts.update([decision.model for decision in recording.decisions])
    size = math.inf
    for model in sorted(counts):
        if size >= 2 * _VARIANTS_PER_PART:  # each variant counts twice, with its decision
            groups.append([])
            size = 0
        groups[-1].append(model)
        size += counts[model]
    group_of = {model: index for index, models in enumerate(groups) for model in models}
    (rest,) = recording.grouped({}, 1)
    parts = [
        _PackedModels(models[0].namespace, models[-1].namespace, _compressed(replace(part, policy=Policy())))
        for models, part in zip(groups, recording.grouped(group_of, len(groups)), strict=True)
    ]
    return KeptCycle(recording.now, rest=_compressed(rest), parts=tuple(parts))


def _compressed(recording: Recording) -> bytes:
    return zlib.compress(msgspec.json.encode(recording), _FASTEST)
