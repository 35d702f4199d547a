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

_WITHOUT_OBJECTIVES: Final = {
    Analyzer.PERCENTAGE: ("percentage", "its thresholds"),
    Analyzer.TOKENS: ("saturation", "its thresholds"),
    Analyzer.QUEUEING: ("queueing", "the targets of its ConfigMaps"),
}
"""The analyzers that do not read objectives: how users call them, and what is in force instead."""

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
    annotations = va.metadata.annotations
    asked, model = asked_objectives(va), ModelKey(va.metadata.namespace, va.spec.model_id)
    if (analyzer := _WITHOUT_OBJECTIVES.get(policy.analyzer_for(model))) is not None:
        name, instead = analyzer
        expected = f"none, since the analyzer of the model is {name}, which does not read it"
        return [
            str(NumberError(f"annotation {one}", annotations[one], expected=expected, in_force=instead))
            for one, _, _ in _TAKEN
            if one in annotations
        ]
    own = () if asked is None else (asked,)
    wrong = [one for one in _TAKEN if (text := annotations.get(one[0])) is not None and one[1].find(text) is None]
    if not wrong and not policy.objectives_for(model, own).refused:
        return []
    beside = tuple(others())
    agreed = policy.objectives_for(model, (*own, *beside))
    in_force = agreed.words or "the objectives that are built in"
    lines = []
    for name, limits, unit in wrong:
        expected = f"{limits.expected}{unit}"
        lines.append(str(NumberError(f"annotation {name}", annotations[name], expected=expected, in_force=in_force)))
    return [*lines, *(refused.words for refused in agreed.refused if refused.source not in beside)]
