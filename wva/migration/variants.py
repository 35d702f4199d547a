"""VariantAutoscalings: a target, an accelerator, a cost, and no other variant on the same target."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from wva.api.crd import COST_PATTERN
from wva.api.meta import Key
from wva.api.variantautoscaling import ACCELERATOR_LABEL, DEFAULT_VARIANT_COST, KIND
from wva.migration.finding import Finding, Severity, kubectl, merge_patch
from wva.migration.objects import Inventory, Variant
from wva.targets import DEFAULT, KINDS

_COST: Final = re.compile(COST_PATTERN)


def variant_findings(inventory: Inventory) -> Iterator[Finding]:
    """Yield what is the matter with each variant."""
    workloads = {workload.metadata.key for workload in inventory.workloads}
    for variant in inventory.variants:
        yield from _target(variant, workloads if inventory.whole else None)
        yield from _accelerator(variant)
        yield from _cost(variant)
        if not variant.spec.model_id:
            yield _finding(variant, Severity.MUST, "spec.modelID is empty", "set it to the model that vLLM serves")
    yield from _shared_targets(inventory)


def _target(variant: Variant, workloads: set[Key] | None) -> Iterator[Finding]:
    reference, kind = variant.spec.scale_target_ref, DEFAULT.resource.kind
    if reference is None or not reference.name:
        usual = {"apiVersion": DEFAULT.resource.api_version, "kind": kind, "name": kind.upper()}
        change = merge_patch(KIND, variant.metadata.key, {"spec": {"scaleTargetRef": usual}})
        yield _finding(
            variant,
            Severity.MUST,
            "spec.scaleTargetRef is missing: nothing is decided for it, and the CRD accepts no change of it",
            f"{change}, with the name of its {kind}",
        )
    elif reference.kind not in {each.resource.kind for each in KINDS}:
        problem = f"spec.scaleTargetRef.kind is {reference.kind!r}: only {kind}s are scaled"
        yield _finding(variant, Severity.MUST, problem, f"name a {kind}, or delete the variant")
    elif reference.kind != kind:
        problem = f"scales a {reference.kind}: the controller does that only where WVA_TARGET_KINDS names the kind"
        yield _finding(variant, Severity.NOTE, problem, "")
    elif workloads is not None and Key(variant.metadata.namespace, reference.name) not in workloads:
        problem = f"its {kind} {reference.name} does not exist"
        yield _finding(variant, Severity.SHOULD, problem, f"create the {kind}, or delete the variant")


def _accelerator(variant: Variant) -> Iterator[Finding]:
    if not variant.metadata.labels.get(ACCELERATOR_LABEL):
        change = kubectl("label", KIND, variant.metadata.key, f"{ACCELERATOR_LABEL}=ACCELERATOR")
        yield _finding(
            variant,
            Severity.SHOULD,
            f"has no label {ACCELERATOR_LABEL}: its accelerator is unknown, so no GPU budget holds for it; "
            "the Go controller published nothing for it, this one publishes accelerator_type=unknown",
            f"{change}, for example H100",
        )


def _cost(variant: Variant) -> Iterator[Finding]:
    cost = variant.spec.variant_cost
    if cost is not None and not (isinstance(cost, str) and _COST.fullmatch(cost)):
        patch = {"spec": {"variantCost": DEFAULT_VARIANT_COST}}
        yield _finding(
            variant,
            Severity.MUST,
            f'spec.variantCost is {cost!r}: expected a quoted decimal number such as "10.0"',
            f"{merge_patch(KIND, variant.metadata.key, patch)}, with its cost per replica",
        )


def _shared_targets(inventory: Inventory) -> Iterator[Finding]:
    by_target: defaultdict[str | None, list[Variant]] = defaultdict(list)
    for variant in inventory.variants:
        if variant.target:
            by_target[variant.target_key].append(variant)
    for variants in by_target.values():
        names = sorted(variant.metadata.name for variant in variants)
        for variant in variants if len(variants) > 1 else ():
            others = ", ".join(name for name in names if name != variant.metadata.name)
            problem = f"scales {variant.target} as {others} does: both say TargetConflict, neither is decided"
            yield _finding(variant, Severity.MUST, problem, f"keep one variant for each {variant.target.split()[0]}")


def _finding(variant: Variant, severity: Severity, problem: str, change: str) -> Finding:
    return Finding(severity, KIND, variant.metadata.key, problem, change)
