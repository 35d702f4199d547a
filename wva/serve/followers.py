"""The open streams of KEDA, by variant. There is a limit to them, and a newer stream replaces an older one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from wva.model.variant import VariantKey

FOLLOWERS: Final = 4096
"""Streams that follow variants that exist."""
FOLLOWERS_OF_ONE: Final = 8
"""Streams that follow one variant. KEDA has one for each ScaledObject; those of a broken connection stay a minute."""
STRANGERS: Final = 256
"""Streams that follow names without a variant. They do not count among the others."""


class NoPlaceError(Exception):
    """Every place is taken by the only stream of a variant."""


@dataclass(eq=False, slots=True)
class Follower:
    """One stream: ``changed`` is set when it has to look again, ``displaced`` if a newer one has its place."""

    key: VariantKey
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    displaced: bool = False


class Followers:
    """The open streams."""

    def __init__(self, exists: Callable[[VariantKey], bool]) -> None:
        """``exists`` tells whether there is such a variant now."""
        self._exists = exists
        self._of: dict[VariantKey, dict[Follower, None]] = {}  # oldest first
        self._strangers: dict[Follower, None] = {}  # those of them without a variant, oldest first
        self._total = 0

    def __len__(self) -> int:
        """Return how many streams are open."""
        return self._total

    def follows(self, key: VariantKey) -> bool:
        """Tell whether a stream follows this variant."""
        return key in self._of

    def wake(self, key: VariantKey) -> None:
        """Let the streams of a variant look again."""
        for follower in self._of.get(key, ()):
            follower.changed.set()

    @contextmanager
    def follow(self, key: VariantKey) -> Iterator[Follower]:
        """Hold a place during the body. Raises NoPlaceError."""
        follower = Follower(key)
        if not self._exists(key):
            self._add_stranger(follower)
        elif len(self._of.get(key, ())) >= FOLLOWERS_OF_ONE:
            self._displace(next(iter(self._of[key])))
        elif self._total - len(self._strangers) >= FOLLOWERS:
            self._displace_one_of_many()
        self._of.setdefault(key, {})[follower] = None
        self._total += 1
        try:
            yield follower
        finally:
            self._remove(follower)

    def look(self, follower: Follower) -> None:
        """Count a stream among the others once its variant exists, and no longer when the variant is gone."""
        if self._exists(follower.key):
            self._strangers.pop(follower, None)
        elif not follower.displaced and follower not in self._strangers:
            self._add_stranger(follower)

    def _add_stranger(self, follower: Follower) -> None:
        if len(self._strangers) >= STRANGERS:
            self._displace(next(iter(self._strangers)))
        self._strangers[follower] = None

    def _displace_one_of_many(self) -> None:
        """Take a place of the variant that has the most places. Raises NoPlaceError if each variant has one."""
        crowd = max((streams for streams in self._of.values() if next(iter(streams)) not in self._strangers), key=len)
        if len(crowd) == 1:
            raise NoPlaceError
        self._displace(next(iter(crowd)))

    def _displace(self, follower: Follower) -> None:
        self._remove(follower)
        follower.displaced = True
        follower.changed.set()

    def _remove(self, follower: Follower) -> None:
        """Forget a stream. A second call does nothing."""
        if follower.displaced:
            return
        self._strangers.pop(follower, None)
        of_variant = self._of[follower.key]
        del of_variant[follower]
        if not of_variant:
            del self._of[follower.key]
        self._total -= 1
