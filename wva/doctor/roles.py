"""The roles of the variants of a model: which they are, and whether a request finds all stages that it needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from wva.collect.variants import role_of_target
from wva.doctor.cluster import condition
from wva.doctor.diagnosis import Diagnosis, Link
from wva.doctor.variants import ExaminedVariant
from wva.model.roles import DECODE, PREFILL, ROLE_LABEL, RoleLabels, computes
from wva.model.trouble import TroubleReason


def role_labels_of(settings: Mapping[str, str]) -> RoleLabels:
    """Return the labels that the controller reads, the default where its settings are not known. Raises ValueError."""
    return RoleLabels.of(settings.get("role_labels") or ROLE_LABEL, settings.get("role_values") or "")


def role_links(model: str, views: Sequence[ExaminedVariant], labels: RoleLabels) -> Iterator[Diagnosis]:
    """Yield the roles of all variants of a model, and which of them cannot serve a request; nothing without roles.

    Decode without prefill is no fault: its pods compute the prompts, too, and llm-d gives this role to plain pods.
    """
    role_by_subject = {view.subject: role for view in views if (role := _role_of(view, labels)) is not None}
    roles: dict[str, list[str]] = {}
    for subject, role in role_by_subject.items():
        roles.setdefault(role, []).append(subject.key.name)
    unknown = roles.pop("", [])
    if not roles:
        return

    roles_text = "; ".join(f"{role}: {', '.join(sorted(names))}" for role, names in sorted(roles.items()))
    first = min(role_by_subject, key=lambda subject: subject.key)
    alone = (
        "" if unknown or any(computes(role, PREFILL) for role in roles) else "; decode pods compute the prompts, too"
    )
    yield Diagnosis(Link.VARIANT, "roles", first.note(f"the roles of model {model} are {roles_text}{alone}"))
    key = labels.keys[0]
    if not unknown and not any(computes(role, DECODE) for role in roles):
        problem = f"no variant of model {model} computes answers: its roles are {roles_text}"
        change = f"give the Deployment with the decode pods the label {key}: decode, and a VariantAutoscaling"
        yield Diagnosis(Link.VARIANT, "role-without-partner", first.should(problem, change))
    for view in views:
        reported = condition(view.item, "EnginesReadable").get("reason") == TroubleReason.ROLE_UNKNOWN
        if role_by_subject.get(view.subject) == "" and not reported:  # else the condition already says it
            problem = f"does not say its role, and other variants of model {model} are {' and '.join(sorted(roles))}"
            change = f"put the label {key} into its pod template, as the other variants have it"
            yield Diagnosis(Link.VARIANT, "role-unknown", view.subject.should(problem, change))


def _role_of(view: ExaminedVariant, labels: RoleLabels) -> str | None:
    """Return the role that a target says, empty if it says none; None if the target is not known."""
    if view.kind is None or view.target is None:
        return None
    try:
        return role_of_target(msgspec.convert(view.target, view.kind.resource.type, strict=False), labels)
    except msgspec.ValidationError:
        return None
