"""The series that explain the numbers: the reason of each, its stages, and the limits that kept it from being larger.

They are for alerts and dashboards, beside the product's output (``publish.metrics``). Like that they are read from the
ledger at every scrape, shown by the leader only, and gone with their variant. Label values are reasons, stages and
names of Kubernetes objects. ``model_name`` is what the user wrote in ``spec.modelID``, so that it can be joined with
vLLM's label of that name. Every variant has a ``wva_desired_reason``. The other series exist only while they apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from wva.model.decision import Decision
from wva.model.variant import Bounds, VariantKey
from wva.publish.leader_collector import LeaderCollector
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
        "The number after each stage of the decision: analyze, optimize, arbitrate, enforce, limit; hold if the number "
        "was held, activate if a model was started from zero.",
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


def _rows(family: Family, decision: Decision, bounds: Bounds) -> list[Row]:
    return [(values, float(value)) for values, value in family.rows(decision, bounds)]


class ExplanationCollector(LeaderCollector):
    """Yields the series of every variant in the ledger."""

    def __init__(self, ledger: Ledger, *, bounds: BoundsOf, leading: Callable[[], bool], instance: str = "") -> None:
        """Read ``ledger`` and ``bounds`` at each scrape; ``instance`` adds the ``controller_instance`` label."""
        self._ledger = ledger
        self._bounds = bounds
        super().__init__(leading=leading, instance=instance)

    def collect(self) -> Iterator[Metric]:
        """Yield all families; they are empty while this process does not lead."""
        decisions = self._ledger.decisions() if self._leading() else []
        known = [
            (decision, self._read(decision.key, partial(self._bounds, decision.key)) or Bounds())
            for decision in decisions
        ]
        for family in FAMILIES:
            metric = GaugeMetricFamily(family.name, family.help, labels=(*family.all_labels, *self._instance_label))
            for decision, bounds in known:
                key = decision.key
                for values, value in self._read(key, partial(_rows, family, decision, bounds)) or []:
                    metric.add_metric([key.name, key.namespace, *values, *self._instance_value], value)
            yield metric
