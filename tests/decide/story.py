"""Tells a story cycle by cycle: variants, the reports of their replicas, and the time; keeps the memory in between."""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.builders import NAMESPACE, NOW, policy, replica
from wva.decide.pipeline import conclude
from wva.model.decision import Decision
from wva.model.inventory import Inventory
from wva.model.memory import Memory, VariantMemory
from wva.model.metrics import Sample
from wva.model.policy import Policy
from wva.model.records import replace
from wva.model.snapshot import CollectionFailure, RequestCounts, Snapshot
from wva.model.trouble import Trouble
from wva.model.variant import Variant, VariantKey

Value = float | Sample | None
Load = tuple[Value, Value]

IDLE: Load = (0.0, 0)
BUSY: Load = (0.5, 1)
"""Needs no growth, and two of them allow no shrink."""
TIGHT: Load = (0.75, 0)
"""Not saturated, but with too little spare."""
FULL: Load = (0.95, 9)
"""Saturated by both signals."""
HOT: Load = (0.95, 0)
"""Saturated by its KV cache; one idle replica among up to seven of these restores the mean spare."""
SILENT: Load = (None, None)


@dataclass
class Story:
    """One snapshot after another, with the memory of the last."""

    policy: Policy = field(default_factory=policy)
    memory: Memory = field(default_factory=Memory)
    inventory: Inventory | None = None
    inventory_detail: str = ""
    requests: RequestCounts | None = None
    decisions: dict[str, Decision] = field(default_factory=dict)
    late: dict[str, Trouble] = field(default_factory=dict)

    def cycle(
        self, *variants: Variant, after: float = 0.0, failure: str | None = None, **loads: list[Load]
    ) -> dict[str, Decision]:
        """Decide ``after`` seconds past the beginning; ``loads`` has what replicas report, by variant."""
        seen = replace(
            snapshot(*variants, after=after, failure=failure, **loads),
            inventory=self.inventory,
            inventory_detail=self.inventory_detail,
            request_counts=() if self.requests is None else (self.requests,),
        )
        outcome = conclude(seen, self.memory, self.policy, NOW + after)
        self.memory = outcome.memory
        self.late = {key.name: trouble for key, trouble in outcome.late.items()}
        self.decisions = {decision.key.name: decision for decision in outcome.decisions}
        return self.decisions

    def remembers(self, name: str) -> VariantMemory:
        """Return what is remembered of a variant."""
        return self.memory.by_key()[VariantKey(NAMESPACE, name)]


def snapshot(*variants: Variant, after: float = 0.0, failure: str | None = None, **loads: list[Load]) -> Snapshot:
    """Return a snapshot ``after`` seconds past the beginning, with the replicas given by variant name."""
    replicas = [
        replica(f"{name}-{number}", variant=name, kv=kv, queue=queue, at=NOW + after - 5)
        for name, reports in loads.items()
        for number, (kv, queue) in enumerate(reports)
    ]
    failures = [] if failure is None else [CollectionFailure((NAMESPACE,), failure)]
    return Snapshot.of(list(variants), replicas, failures)


def numbers(decisions: dict[str, Decision]) -> dict[str, int]:
    """Return the desired numbers by variant."""
    return {name: decision.desired for name, decision in decisions.items()}


def reasons(decisions: dict[str, Decision]) -> dict[str, str]:
    """Return the reasons by variant."""
    return {name: decision.reason.value for name, decision in decisions.items()}
