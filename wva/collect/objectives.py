"""What the annotations of a VariantAutoscaling say about the objectives of its model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from wva.api.variantautoscaling import VariantAutoscaling
from wva.model.objectives import IN_TIME, ITL_MILLISECONDS, TTFT_MILLISECONDS, AskedObjectives
from wva.model.optimizers import Analyzer
from wva.model.policy import Policy
from wva.model.variant import ModelKey
from wva.numbers import NumberError

TTFT_ANNOTATION: Final = "wva.llmd.ai/slo-ttft"
ITL_ANNOTATION: Final = "wva.llmd.ai/slo-tpot"
IN_TIME_ANNOTATION: Final = "wva.llmd.ai/in-time"
"""Named as in service classes, and in the same units: milliseconds, and a share."""

_TAKEN: Final = (
    (TTFT_ANNOTATION, TTFT_MILLISECONDS, " of milliseconds"),
    (ITL_ANNOTATION, ITL_MILLISECONDS, " of milliseconds"),
    (IN_TIME_ANNOTATION, IN_TIME, ""),
)


def asked_objectives(va: VariantAutoscaling) -> AskedObjectives | None:
    """Return what the annotations ask for, None if nothing; a wrong annotation counts as absent."""
    annotations = va.metadata.annotations
    ttft, itl, share = [limits.find(annotations.get(name)) for name, limits, _ in _TAKEN]
    asked = AskedObjectives(
        None if ttft is None else ttft / 1000.0,
        None if itl is None else itl / 1000.0,
        share,
        f"annotation of {va.metadata.name}",
        tenant=True,
    )
    return asked if asked.says else None


def objective_problems(
    va: VariantAutoscaling, policy: Policy, others: Callable[[], Iterable[AskedObjectives]] = tuple
) -> list[str]:
    """Return one line for people for each objective that the VA or its namespace asks for and that is not in force.

    ``others`` returns what the other variants of the model ask for, which may be in force instead. It is called only if
    there may be a line, since it has to search them.
    """
    annotations, model = va.metadata.annotations, ModelKey(va.metadata.namespace, va.spec.model_id)
    given = [one for one in _TAKEN if annotations.get(one[0]) is not None]
    analyzer = policy.analyzer_for(model) if given else Analyzer.DEMAND
    if analyzer is not Analyzer.DEMAND:
        expected = f"none, since the analyzer of the model is {analyzer.shown}, which does not read it"
        instead = "the targets of its ConfigMaps" if analyzer is Analyzer.QUEUEING else "its thresholds"
        lines = [_line(va, name, expected, instead) for name, _, _ in given]
        return [*lines, *(refused.words for refused in policy.objectives_for(model).refused)]
    asked = asked_objectives(va)
    own = () if asked is None else (asked,)
    wrong = [one for one in given if one[1].find(annotations[one[0]]) is None]
    if not wrong and not policy.objectives_for(model, own).refused:
        return []
    beside = tuple(others())
    agreed = policy.objectives_for(model, (*own, *beside))
    in_force = agreed.words or "the objectives that are built in"
    lines = [_line(va, name, f"{limits.expected}{unit}", in_force) for name, limits, unit in wrong]
    return [*lines, *(refused.words for refused in agreed.refused if refused.source not in beside)]


def _line(va: VariantAutoscaling, name: str, expected: str, in_force: str) -> str:
    return str(NumberError(f"annotation {name}", va.metadata.annotations[name], expected=expected, in_force=in_force))
