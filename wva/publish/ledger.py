"""The last decision of every variant. The optimizer records it, and the reconciler writes it into the status.

``record`` stores the decisions of a cycle. ``hold`` gives a variant a number before its first decision, because an HPA
without a metric does nothing. ``drop`` removes a variant that is gone, and with it its series.

The ledger calls the listeners for every key whose decision changed, also after one of them raised an error. They must
not block.

``fallbacks`` is the safety net: the numbers that WVA keeps when a whole cycle fails or when it cannot publish a
decision. docs/metrics.md#the-safety-net says what operators see of it.

``shadow`` says of a decision that nothing may act on it. A variant enters shadow mode at once, and leaves it with the
next cycle: the last number of the shadow is the answer to replicas that may not exist any more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from wva.model.decision import Decision, MetricsVerdict, Reason, Source, Step
from wva.model.metrics import Coverage
from wva.model.records import replace
from wva.model.variant import Variant, VariantKey

Listener = Callable[[VariantKey, Decision | None, Decision | None], None]


class Ledger:
    """Last decision per variant, in memory."""

    def __init__(self, *, asked_for_shadow: Callable[[VariantKey], bool] = lambda _key: False) -> None:
        """Start empty. ``asked_for_shadow`` tells whether a variant shall be in shadow mode from now on."""
        self._asked_for_shadow = asked_for_shadow
        self._shadows: frozenset[VariantKey] = frozenset()
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

    def shadow(self, key: VariantKey) -> bool:
        """Tell whether the decision on a variant is not for its target: then nothing may act on it."""
        return key in self._shadows or self._asked_for_shadow(key)

    def settle_shadows(self, shadows: Collection[VariantKey]) -> None:
        """Note which variants of a cycle are in shadow mode. All other numbers are for their targets from now on."""
        acting, self._shadows = self._shadows.difference(shadows), frozenset(shadows)
        for key in sorted(acting):
            decision = self._decisions.get(key)
            if decision is not None:
                self._tell(key, decision, decision)  # the decision is the same, but is for its target now

    def hold(self, variant: Variant) -> Decision:
        """Store and return the number of a variant that no cycle has decided on yet.

        The number of a running workload is never 0: without a positive number in the status it is the current replicas.
        """
        desired, source = 0, Source.CURRENT_REPLICAS
        if variant.active and variant.status_desired:
            desired, source = variant.bounds.clamp(variant.status_desired), Source.PREVIOUS_DESIRED
        elif variant.active:
            desired = variant.bounds.clamp(variant.current_replicas)
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
        self._shadows -= {key}
        old = self._decisions.pop(key, None)
        if old is not None:
            self._tell(key, old, None)

    def _store(self, key: VariantKey, decision: Decision) -> None:
        old = self._decisions.get(key)
        self._decisions[key] = decision
        if old != decision:
            self._tell(key, old, decision)

    def _tell(self, key: VariantKey, old: Decision | None, new: Decision | None) -> None:
        """Call every listener, also after one that raises; then raise the first error."""
        errors = []
        for listener in self._listeners:
            try:
                listener(key, old, new)
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
        if errors:
            raise errors[0]


def fallbacks(
    decisions: Iterable[Decision], *, cause: str, reason: Reason = Reason.ANALYSIS_FAILED
) -> tuple[Decision, ...]:
    """Return the decisions in force as held ones, which stay because of a failure; ``cause`` says what failed.

    The last published number stays. A variant that no cycle has decided on keeps the replicas that exist. A variant at
    zero replicas is left out: it needs no number. Source, condition, event and log line say that the number is not
    measured, as for any other hold.
    """
    kept = []
    for decision in decisions:
        if decision.reason is Reason.INACTIVE:
            continue
        undecided = decision.source is Source.CURRENT_REPLICAS and decision.held
        source = Source.CURRENT_REPLICAS if undecided else Source.PREVIOUS_DESIRED
        message = f"{cause}; keeping {decision.desired} ({source.value})"
        kept.append(
            replace(
                decision,
                previous=decision.previous if undecided else decision.desired,
                reason=reason,
                message=message,
                source=source,
                steps=(Step("hold", message, decision.desired, decision.desired),),
            )
        )
    return tuple(kept)
