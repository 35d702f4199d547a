"""The series that explain the numbers: the reason of each, its stages, and the limits that kept it from being larger.

They are for alerts and dashboards, beside the product's output (``publish.metrics``). Like that they are read from the
ledger, shown by the leader only, and gone with their variant. Label values are reasons, stages and
names of Kubernetes objects. ``model_name`` is what the user wrote in ``spec.modelID``, so that it can be joined with
vLLM's label of that name. Every variant has a ``wva_desired_reason``. The other series exist only while they apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from prometheus_client.samples import Sample

from wva.model.decision import Decision, Reason
from wva.model.variant import Bounds, VariantKey
from wva.publish.leader_collector import Head, LeaderCollector
from wva.publish.ledger import Ledger

MAXIMUM: Final = "maximum"
GPUS: Final = "gpus"
"""What keeps a number small: the maximum of its scaler or annotation, or the GPUs that there are (limiter, quota)."""

BoundsOf = Callable[[VariantKey], Bounds | None]
Row = tuple[tuple[str, ...], float]
"""The values of the labels after variant_name and namespace, and the value of the sample."""


@dataclass(frozen=True, slots=True)
class Family:
    """A gauge about variants. ``labels`` follow variant_name and namespace; ``rows`` are its series of one variant."""

    name: str
    help: str
    labels: tuple[str, ...]
    rows: Callable[[Decision, Bounds], list[Row]]

    @property
    def all_labels(self) -> tuple[str, ...]:
        """The names of all labels."""
        return ("variant_name", "namespace", *self.labels)


def _cost(decision: Decision, _: Bounds) -> list[Row]:
    return [((decision.model.model_id, decision.accelerator), decision.cost)]


def _maximum(_: Decision, bounds: Bounds) -> list[Row]:
    return [] if bounds.maximum is None else [((), bounds.maximum)]


def _reason(decision: Decision, _: Bounds) -> list[Row]:
    return [((decision.reason.value, "true" if decision.held else "false"), 1.0)]


def _steps(decision: Decision, _: Bounds) -> list[Row]:
    last = {step.stage: step.after for step in decision.steps}
    return [((stage,), after) for stage, after in last.items()]


def _limits(decision: Decision, bounds: Bounds) -> list[Row]:
    last = {(step.stage, step.limited_by): step.fewer for step in decision.limits}
    maxima = {bounds.maximum_origin, bounds.ceiling_origin}
    return [((stage, MAXIMUM if by in maxima else GPUS, by), fewer) for (stage, by), fewer in last.items()]


def _coverage(decision: Decision, _: Bounds) -> list[Row]:
    fresh, expected = decision.coverage.fresh, decision.coverage.expected
    return [] if decision.reason is Reason.NOT_DECIDED or not expected else [((), fresh / expected)]


def _settling(decision: Decision, _: Bounds) -> list[Row]:
    return [] if decision.settling_since is None else [((), decision.settling_since)]


FAMILIES: Final = (
    Family(
        "wva_desired_reason",
        "1 for the reason of the number; held is true while it is kept for lack of evidence.",
        ("reason", "held"),
        _reason,
    ),
    Family(
        "wva_desired_step_replicas",
        "The number after each stage of the decision: measure, allocate, settle, zero; hold if the model failed, "
        "activate if it was started from zero; with compatibility v0.5: analyze, optimize, enforce, limit.",
        ("stage",),
        _steps,
    ),
    Family(
        "wva_desired_limited_replicas",
        "Replicas that a limit withholds, by stage, kind of limit (maximum: of the scaler or an annotation; gpus) and "
        "name of the limit; 0 is an unknown amount, and there is no series without a limit.",
        ("stage", "limit", "limited_by"),
        _limits,
    ),
    Family(
        "wva_coverage_ratio",
        "Replicas with fresh samples of both signals over replicas expected to report; absent without replicas.",
        (),
        _coverage,
    ),
    Family(
        "wva_maximum_replicas",
        "The most replicas that the scaler or an annotation allows; absent without a maximum.",
        (),
        _maximum,
    ),
    Family(
        "wva_settling_since_timestamp_seconds",
        "Since when the replicas have been on their way to the number without any progress, in seconds since the "
        "epoch; absent when they have arrived.",
        (),
        _settling,
    ),
    Family(
        "wva_variant_cost",
        "Cost of one replica of the variant, and the model that it serves.",
        ("model_name", "accelerator_type"),
        _cost,
    ),
)


_HEADS: Final = tuple(Head(family.name, family.help) for family in FAMILIES)


def _rows(family: Family, decision: Decision, bounds: Bounds) -> list[Row]:
    return [(values, float(value)) for values, value in family.rows(decision, bounds)]


class ExplanationCollector(LeaderCollector):
    """Yields the series of every variant in the ledger."""

    def __init__(self, ledger: Ledger, *, bounds: BoundsOf, leading: Callable[[], bool], instance: str = "") -> None:
        """Read ``ledger`` and ``bounds``; ``instance`` adds the ``controller_instance`` label."""
        self._ledger = ledger
        self._bounds = bounds
        super().__init__(leading=leading, instance=instance)

    @property
    def heads(self) -> Sequence[Head]:
        """The families."""
        return _HEADS

    def keys(self) -> Iterable[VariantKey]:
        """Return the variants of the ledger."""
        return [decision.key for decision in self._ledger.decisions()]

    def samples_of(self, key: VariantKey) -> Sequence[Sequence[Sample]]:
        """Return the samples of one variant; none when the ledger does not know it."""
        decision = self._ledger.get(key)
        if decision is None:
            return [()] * len(FAMILIES)
        bounds = self._read(key, partial(self._bounds, key)) or Bounds()
        return [
            [
                self._sample(family.name, key, value, **dict(zip(family.labels, values, strict=True)))
                for values, value in self._read(key, partial(_rows, family, decision, bounds)) or []
            ]
            for family in FAMILIES
        ]
