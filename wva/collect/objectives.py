"""What the annotations of a VariantAutoscaling say about the objectives of its model."""

from __future__ import annotations

from typing import Final

from wva.api.variantautoscaling import VariantAutoscaling
from wva.model.objectives import IN_TIME, ITL_MILLISECONDS, TTFT_MILLISECONDS, AskedObjectives
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


def objective_problems(va: VariantAutoscaling, policy: Policy) -> list[str]:
    """Return one line for people for each objective that the VA or its namespace asks for and that is not in force."""
    asked, model = asked_objectives(va), ModelKey(va.metadata.namespace, va.spec.model_id)
    agreed = policy.objectives_for(model, () if asked is None else (asked,))
    lines = []
    for name, limits, unit in _TAKEN:
        text = va.metadata.annotations.get(name)
        if text is not None and limits.find(text) is None:
            expected, in_force = f"{limits.expected}{unit}", agreed.words or "the objectives that are built in"
            lines.append(str(NumberError(f"annotation {name}", text, expected=expected, in_force=in_force)))
    return [*lines, *agreed.refused]
