"""KV cache blocks of one engine, counted without looking at each sequence.

Every decoding sequence gains one token per step, so it needs a new block once per ``block_size`` steps, and when only
depends on its remainder. Keeping the number of sequences per remainder therefore gives the growth over any number of
steps in at most ``block_size`` additions, which is what makes jumping over steps cheap.

A decoding sequence is described by its *base*: tokens in the cache minus the engine's step count, constant over time.
"""

from __future__ import annotations


class KvBlocks:
    """How many blocks are in use, and how that number will grow. Steps are counted by the engine."""

    __slots__ = ("_remainders", "block_size", "decoding", "total", "used")

    def __init__(self, total: int, *, block_size: int) -> None:
        """Start with all ``total`` blocks free."""
        self.total = total
        self.block_size = block_size
        self.used = 0
        self.decoding = 0
        self._remainders = [0] * block_size

    @property
    def free(self) -> int:
        """Blocks not in use."""
        return self.total - self.used

    def blocks_for(self, tokens: int) -> int:
        """Return the blocks that hold ``tokens``."""
        return -(-tokens // self.block_size)

    def reserve(self, tokens: int) -> None:
        """Take the blocks of a prefill of ``tokens``. The caller has checked that they are free."""
        self.used += -(-tokens // self.block_size)

    def release(self, tokens: int) -> None:
        """Give back the blocks of a sequence of ``tokens``."""
        self.used -= -(-tokens // self.block_size)

    def start_decoding(self, base: int) -> None:
        """Let a sequence grow from now on. Its blocks are reserved already."""
        self._remainders[base % self.block_size] += 1
        self.decoding += 1

    def stop_decoding(self, base: int) -> None:
        """Stop the growth of a sequence; its blocks stay reserved until released."""
        self._remainders[base % self.block_size] -= 1
        self.decoding -= 1

    def growth(self, step: int, *, steps: int) -> int:
        """Return how many blocks the ``steps`` steps after ``step`` will take."""
        size = self.block_size
        cycles, rest = divmod(steps, size)
        grown = cycles * self.decoding
        remainders = self._remainders
        for ahead in range(rest):
            grown += remainders[(-step - ahead) % size]
        return grown

    def steps_within(self, step: int, *, limit: int) -> int:
        """Return how many of the next ``limit`` steps fit into the free blocks."""
        free = self.total - self.used
        count = self.decoding
        size = self.block_size
        if free >= (limit // size + 1) * count:
            return limit
        cycles = free // count
        steps = cycles * size
        if steps >= limit:
            return limit
        left = free - cycles * count
        remainders = self._remainders
        while steps < limit:
            left -= remainders[(-step - steps) % size]
            if left < 0:
                break
            steps += 1
        return steps
