"""What was started from zero and does not show in the caches yet.

Between the write of the scale subresource and its watch event the caches still say zero replicas. A cycle that believed
them would publish 0, and an autoscaler would take the start back.
"""

from __future__ import annotations

from typing import Final

from wva.model.records import replace
from wva.model.variant import Variant, VariantKey

ACTIVATION_SECONDS: Final = 30.0
"""How long a start counts although the caches say zero; they are rarely behind by a second."""


class Activations:
    """Starts, until the caches show them or they have become too old to believe."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._started: dict[VariantKey, tuple[int, float]] = {}

    def __len__(self) -> int:
        """Return how many starts the caches do not show yet."""
        return len(self._started)

    def __contains__(self, key: VariantKey) -> bool:
        """Tell whether a variant was started and the caches were not seen to show it."""
        return key in self._started

    def note(self, key: VariantKey, desired: int, now: float) -> None:
        """Remember that a variant was started with so many replicas at ``now`` (seconds since the epoch)."""
        self._started[key] = (desired, now)

    def forget(self, key: VariantKey) -> None:
        """Forget a start that failed."""
        self._started.pop(key, None)

    def apply(self, variant: Variant, now: float) -> Variant:
        """Return the variant as it will be once the caches have caught up.

        A start that the caches show is forgotten: if the target goes to zero after that, another client has taken it
        there.
        """
        started = self._started.get(variant.key)
        if started is None:
            return variant
        desired, at = started
        if variant.active or now - at > ACTIVATION_SECONDS:
            del self._started[variant.key]
            return variant
        return replace(variant, spec_replicas=desired, current_replicas=desired, activated_at=at)
