"""How much of an object is kept: owners may write up to 1.5 MiB into each, and every cycle reads all of them.

The caches pass each object through here before they keep it. What is left out is counted in the object, so that the
condition ``ConfigurationValid`` of a variant can say so.
"""

from __future__ import annotations

from typing import Final

import msgspec

from wva.api.meta import Condition
from wva.api.pod_template import Container, EnvVar, PodSpec, PodTemplate
from wva.api.variantautoscaling import ConditionType, VariantAutoscaling
from wva.targets import ScaleTarget

MAX_ARGUMENT_BYTES: Final = 64 * 1024
"""Of command and args of one container together. The operating system takes 128 KiB for one argument."""

MAX_CONTAINERS: Final = 64
"""Of one pod template."""

MAX_MODEL_ID_CHARACTERS: Final = 512
"""A model id becomes the label of a series. The longest in public registries have about a hundred characters."""

MAX_CONDITIONS: Final = 32
"""Of one status; the controller itself writes a third of that."""

ENGINE_SWITCH: Final = "VLLM_USE_V1"
"""The only environment variable that the caches keep. Others may hold secrets."""

_OWN: Final = frozenset(ConditionType)
_TOLD: Final = 3


def bounded_target(target: ScaleTarget) -> ScaleTarget:
    """Return a target with what is read of its containers and no more."""
    return target.with_templates(_bounded_template)


def _bounded_template(template: PodTemplate) -> PodTemplate:
    containers = template.spec.containers
    kept = tuple(_bounded(container) for container in containers[:MAX_CONTAINERS])
    if len(kept) == len(containers) and all(map(_is, kept, containers)):
        return template
    return msgspec.structs.replace(template, spec=PodSpec(kept, containers_left_out=len(containers) - len(kept)))


def bounded_variant(va: VariantAutoscaling) -> VariantAutoscaling:
    """Return a VariantAutoscaling with a model id and conditions of bounded size.

    A model id that is too long stays too long by one character. Of the conditions, those of the controller are kept
    first.
    """
    if len(va.spec.model_id) > MAX_MODEL_ID_CHARACTERS:
        model_id = va.spec.model_id[: MAX_MODEL_ID_CHARACTERS + 1]
        va = msgspec.structs.replace(va, spec=msgspec.structs.replace(va.spec, model_id=model_id))
    if len(va.status.conditions) > MAX_CONDITIONS:
        status = msgspec.structs.replace(va.status, conditions=_most_useful(va.status.conditions))
        va = msgspec.structs.replace(va, status=status)
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
    template = PodSpec() if target is None else target.template.spec
    lines += [
        f"container {container.name}: got {container.argument_bytes:,} bytes of command and args, "
        f"expected at most {MAX_ARGUMENT_BYTES:,}; in force: the defaults of vLLM"
        for container in template.containers
        if container.argument_bytes
    ][:_TOLD]
    if template.containers_left_out:
        count = len(template.containers) + template.containers_left_out
        expected = f"expected at most {MAX_CONTAINERS}"
        lines.append(f"containers: got {count:,}, {expected}; in force: the first {len(template.containers)}")
    return lines


def _bounded(container: Container) -> Container:
    env = _last_switch(container.env)
    if len(container.env) > len(env):
        container = msgspec.structs.replace(container, env=env)
    size = sum(len(word.encode("utf-8", errors="replace")) + 1 for word in (*container.command, *container.args))
    if size > MAX_ARGUMENT_BYTES:
        container = msgspec.structs.replace(container, command=(), args=(), argument_bytes=size)
    return container


def _last_switch(env: tuple[EnvVar, ...]) -> tuple[EnvVar, ...]:
    """Return the entry in force: of several for one variable the last one counts."""
    found = next((variable for variable in reversed(env) if variable.name == ENGINE_SWITCH), None)
    return () if found is None else (found,)


def _most_useful(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    own = {condition.type: condition for condition in reversed(conditions) if condition.type in _OWN}
    others = [condition for condition in conditions if condition.type not in _OWN]
    return (*own.values(), *others)[:MAX_CONDITIONS]


def _is(one: Container, other: Container) -> bool:
    return one is other
