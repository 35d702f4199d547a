"""VariantAutoscalings: a target, an accelerator, a cost, and no other variant on the same Deployment."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from wva.api.crd import COST_PATTERN
from wva.api.meta import Key
from wva.api.variantautoscaling import ACCELERATOR_LABEL, DEFAULT_VARIANT_COST, KIND, SUPPORTED_TARGET_KIND
from wva.migration.finding import Finding, Severity, kubectl, merge_patch
from wva.migration.objects import Inventory, Variant

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
    reference = variant.spec.scale_target_ref
    if reference is None or not reference.name:
        patch = {"spec": {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "DEPLOYMENT"}}}
        change = merge_patch(KIND, variant.metadata.key, patch)
        yield _finding(
            variant,
            Severity.MUST,
            "spec.scaleTargetRef is missing: nothing is decided for it, and the CRD accepts no change of it",
            f"{change}, with the name of its Deployment",
        )
    elif reference.kind != SUPPORTED_TARGET_KIND:
        problem = f"spec.scaleTargetRef.kind is {reference.kind!r}: only Deployments are scaled"
        yield _finding(variant, Severity.MUST, problem, "name a Deployment, or delete the variant")
    elif workloads is not None and Key(variant.metadata.namespace, reference.name) not in workloads:
        problem = f"its Deployment {reference.name} does not exist"
        yield _finding(variant, Severity.SHOULD, problem, "create the Deployment, or delete the variant")


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
    by_target: defaultdict[Key, list[Variant]] = defaultdict(list)
    for variant in inventory.variants:
        if variant.target:
            by_target[Key(variant.metadata.namespace, variant.target)].append(variant)
    for target, variants in by_target.items():
        names = sorted(variant.metadata.name for variant in variants)
        for variant in variants if len(variants) > 1 else ():
            others = ", ".join(name for name in names if name != variant.metadata.name)
            problem = f"scales Deployment {target.name} as {others} does: both say TargetConflict, neither is decided"
            yield _finding(variant, Severity.MUST, problem, "keep one variant for each Deployment")


def _finding(variant: Variant, severity: Severity, problem: str, change: str) -> Finding:
    return Finding(severity, KIND, variant.metadata.key, problem, change)
