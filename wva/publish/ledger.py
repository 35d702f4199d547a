"""The last decision of every variant: where the loop that decides and the reconciler that writes status meet.

Three verbs. ``record``: a cycle decided. ``hold``: a known variant has no decision yet, so that its number is what its
status says, else what exists; a series must be there before the first decision, because an HPA without a metric does
nothing. ``drop``: the variant or its target is gone, so its series must go at once.

Listeners hear of every key whose decision changed; they must not block. An error of one keeps none from hearing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wva.model.decision import Decision, MetricsVerdict, Reason, Source, Step
from wva.model.metrics import Coverage
from wva.model.variant import Variant, VariantKey

Listener = Callable[[VariantKey, Decision | None, Decision | None], None]


class Ledger:
    """Last decision per variant, in memory."""

    def __init__(self) -> None:
        """Start empty."""
        self._decisions: dict[VariantKey, Decision] = {}
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        """Call ``listener(key, old, new)`` on every change; ``new`` is None when the variant was dropped."""
        self._listeners.append(listener)

    def get(self, key: VariantKey) -> Decision | None:
        """Return the last decision of a variant."""
        return self._decisions.get(key)

    def decisions(self) -> list[Decision]:
        """Return all decisions, sorted by variant."""
        return [self._decisions[key] for key in sorted(self._decisions)]

    def record(self, decisions: Iterable[Decision]) -> None:
        """Store what a cycle decided."""
        for decision in decisions:
            self._store(decision.key, decision)

    def hold(self, variant: Variant) -> Decision:
        """Store and return the number of a variant that no cycle has decided on yet.

        Never 0 for a running workload: without a positive number in its status the replicas that exist are kept.
        """
        known = variant.status_desired or None
        if not variant.active:
            desired, source = 0, Source.CURRENT_REPLICAS
        elif known is None:
            desired, source = variant.current_replicas, Source.CURRENT_REPLICAS
        else:
            desired, source = known, Source.PREVIOUS_DESIRED
        desired = variant.bounds.clamp(desired) if variant.active else desired
        message = f"not decided yet, keeping {desired} ({source.value})"
        decision = Decision(
            key=variant.key,
            model=variant.model,
            accelerator=variant.known_accelerator,
            cost=variant.cost,
            current=variant.current_replicas if variant.active else 0,
            desired=desired,
            previous=variant.status_desired,
            reason=Reason.NOT_DECIDED,
            message=message,
            source=source,
            metrics=MetricsVerdict(
                available=False, reason="MetricsUnavailable", message="no cycle has read metrics yet"
            ),
            coverage=Coverage(0, variant.ready_replicas),
            steps=(Step("hold", message, desired, desired),),
            settling_since=variant.settling_since,
        )
        self._store(variant.key, decision)
        return decision

    def drop(self, key: VariantKey) -> None:
        """Forget a variant; nothing happens when it is not known."""
        old = self._decisions.pop(key, None)
        if old is not None:
            self._tell(key, old, None)

    def _store(self, key: VariantKey, decision: Decision) -> None:
        old = self._decisions.get(key)
        self._decisions[key] = decision
        if old != decision:
            self._tell(key, old, decision)

    def _tell(self, key: VariantKey, old: Decision | None, new: Decision | None) -> None:
        """Tell every listener, also after one that raises; then raise the first error."""
        errors = []
        for listener in self._listeners:
            try:
                listener(key, old, new)
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
        if errors:
            raise errors[0]
