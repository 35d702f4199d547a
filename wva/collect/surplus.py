"""Limits how much of an object the caches keep: its owner may write 1.5 MiB into it, and every cycle reads all of it.

The caches pass each object through here before they keep it. The object counts the parts that were left out, so
that the condition ``ConfigurationValid`` of a variant can say so.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from wva.api.core import PodTemplate, TemplateSpec
from wva.api.variantautoscaling import ConditionType, VariantAutoscaling
from wva.targets import ScaleTarget

MAX_ARGUMENT_BYTES: Final = 64 * 1024
"""The limit of command and args of one container together. The operating system takes 128 KiB for one argument."""
MAX_CONTAINERS: Final = 64
"""The limit of one pod template."""
MAX_MODEL_ID_CHARACTERS: Final = 512
"""A model id becomes the label of a series. The longest in public registries have about a hundred characters."""
MAX_CONDITIONS: Final = 32
"""The limit of one status; the controller itself writes a third of that."""
ENGINE_SWITCH: Final = "VLLM_USE_V1"
"""The only environment variable that the caches keep. Others may hold secrets."""

_OWN: Final = frozenset(ConditionType)
_SHOWN_CONTAINERS: Final = 3


def bounded_target(target: ScaleTarget) -> ScaleTarget:
    """Return a target with only the parts of its containers that are read."""
    return target.with_templates(_bounded_template)


def _bounded_template(template: PodTemplate) -> PodTemplate:
    containers = template.spec.containers
    kept = []
    for container in containers[:MAX_CONTAINERS]:
        # Of several entries for one variable the last one counts.
        env = [variable for variable in container.env if variable.name == ENGINE_SWITCH][-1:]
        if len(container.env) > len(env):
            container = replace(container, env=tuple(env))  # noqa: PLW2901 - the same one, bounded
        size = sum(len(word.encode("utf-8", errors="replace")) + 1 for word in (*container.command, *container.args))
        if size > MAX_ARGUMENT_BYTES:
            container = replace(container, command=(), args=(), argument_bytes=size)  # noqa: PLW2901
        kept.append(container)
    if tuple(kept) == containers:
        return template
    return replace(template, spec=TemplateSpec(tuple(kept), containers_left_out=len(containers) - len(kept)))


def bounded_variant(va: VariantAutoscaling) -> VariantAutoscaling:
    """Return a VariantAutoscaling with a model id and conditions of bounded size.

    A model id that is too long is cut to one character above the limit, so WVA still sees that it is too long. The
    conditions of the controller are kept first.
    """
    if len(va.spec.model_id) > MAX_MODEL_ID_CHARACTERS:
        model_id = va.spec.model_id[: MAX_MODEL_ID_CHARACTERS + 1]
        va = replace(va, spec=replace(va.spec, model_id=model_id))
    if len(va.status.conditions) > MAX_CONDITIONS:
        own = {condition.type: condition for condition in reversed(va.status.conditions) if condition.type in _OWN}
        others = [condition for condition in va.status.conditions if condition.type not in _OWN]
        status = replace(va.status, conditions=(*own.values(), *others)[:MAX_CONDITIONS])
        va = replace(va, status=status)
    return va


def model_id_fits(va: VariantAutoscaling) -> bool:
    """Tell whether a VariantAutoscaling names a model that can be decided on."""
    return 0 < len(va.spec.model_id) <= MAX_MODEL_ID_CHARACTERS


def surplus_problems(va: VariantAutoscaling, target: ScaleTarget | None) -> list[str]:
    """Return a line for people about each part of the objects that is not read because there is too much of it."""
    lines = []
    if len(va.spec.model_id) > MAX_MODEL_ID_CHARACTERS:
        expected = f"expected at most {MAX_MODEL_ID_CHARACTERS}"
        lines.append(f"spec.modelID: got more characters, {expected}; in force: no decision on this variant")
    template = TemplateSpec() if target is None else target.template.spec
    lines += [
        f"container {container.name}: got {container.argument_bytes:,} bytes of command and args, "
        f"expected at most {MAX_ARGUMENT_BYTES:,}; in force: the defaults of vLLM"
        for container in template.containers
        if container.argument_bytes
    ][:_SHOWN_CONTAINERS]
    if template.containers_left_out:
        count = len(template.containers) + template.containers_left_out
        expected = f"expected at most {MAX_CONTAINERS}"
        lines.append(f"containers: got {count:,}, {expected}; in force: the first {len(template.containers)}")
    return lines
