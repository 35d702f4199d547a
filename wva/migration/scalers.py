"""HPAs and ScaledObjects: whether they take exactly their variant's number, and what they do without one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from wva.api.meta import Key, ObjectMeta
from wva.api.scalers import SCALED_OBJECT_KIND
from wva.api.variantautoscaling import CONTROLLER_INSTANCE_LABEL
from wva.migration.finding import Finding, Severity, merge_patch
from wva.migration.objects import AUTOSCALERS, Autoscaler, Inventory, Metric, Scaled, Trigger, Variant
from wva.migration.pins import UNPINNED, pinned, target_matchers
from wva.targets import scaled_key, scaled_name

DESIRED: Final = "wva_desired_replicas"
_ALIAS: Final = "inferno_desired_replicas"
_NAMES: Final = (DESIRED, _ALIAS)
_HPA: Final = AUTOSCALERS.kind
_ONE_TO_ONE: Final = 'target {type: AverageValue, averageValue: "1"}'
_SUM: Final = re.compile(r"\bsum\s*(?:by\s*\([^)]*\)\s*|without\s*\([^)]*\)\s*)?\(", re.IGNORECASE)


def scaler_findings(inventory: Inventory) -> Iterator[Finding]:
    """Yield what is the matter with each HPA and ScaledObject that asks for our metric, and with variants without."""
    scaled: defaultdict[str | None, list[str]] = defaultdict(list)
    for hpa in inventory.autoscalers:
        owner = hpa.metadata.controller
        if owner is not None and owner.kind == SCALED_OBJECT_KIND:
            continue  # KEDA's own: it follows its ScaledObject
        metrics = [metric for metric in hpa.spec.metrics if metric.source and metric.source.metric.name in _NAMES]
        if metrics:
            scaled[_target(hpa)].append(f"{_HPA} {hpa.metadata.name}")
        for metric in metrics:
            yield from _hpa_metric(hpa, metric, inventory)
    for scaled_object in inventory.scaled_objects:
        triggers = [trigger for trigger in scaled_object.spec.triggers if _asks_for_ours(trigger)]
        if triggers:
            scaled[_target(scaled_object)].append(f"{SCALED_OBJECT_KIND} {scaled_object.metadata.name}")
            yield from _scaled_object(scaled_object)
        for trigger in triggers:
            yield from _trigger(scaled_object, trigger)
            if not pinned(_query(trigger)):
                change = f"add {target_matchers(inventory)} to the selector in its query"
                yield Finding(
                    Severity.SHOULD, SCALED_OBJECT_KIND, scaled_object.metadata.key, f"its query {UNPINNED}", change
                )
    yield from _pairs(inventory, scaled)


def _target(scaler: Autoscaler | Scaled) -> str | None:
    return scaled_key(scaler.metadata.namespace, scaler.spec.scale_target_ref)


def _pairs(inventory: Inventory, scaled: dict[str | None, list[str]]) -> Iterator[Finding]:
    for variant in inventory.variants:
        if not variant.target:
            continue
        scalers = scaled.get(variant.target_key, [])
        if len(scalers) > 1:
            problem = f"its {variant.target} is scaled by {' and '.join(scalers)}: they undo each other"
            yield _variant(variant, Severity.MUST, problem, "keep one of them")
        elif not scalers and inventory.whole:
            problem = f"no HPA and no ScaledObject takes {DESIRED} to its {variant.target}"
            yield _variant(variant, Severity.SHOULD, problem, "create one: see deploy/samples")


def _variant(variant: Variant, severity: Severity, problem: str, change: str) -> Finding:
    return Finding(severity, "VariantAutoscaling", variant.metadata.key, problem, change)


def _hpa_metric(hpa: Autoscaler, metric: Metric, inventory: Inventory) -> Iterator[Finding]:
    source = metric.source
    if source is None:
        return
    key = hpa.metadata.key
    if metric.type != "External":
        problem = f"asks for {source.metric.name} as a metric of type {metric.type}: it is an external one"
        yield Finding(Severity.MUST, _HPA, key, problem, f"use type: External with {_ONE_TO_ONE}")
    elif source.target.type != "AverageValue" or _number(source.target.average_value) != 1:
        problem = f"does not take {source.metric.name} one to one"
        yield Finding(Severity.MUST, _HPA, key, problem, f"use {_ONE_TO_ONE}")
    yield from _alias(_HPA, hpa.metadata, source.metric.name)
    yield from _selector(hpa, source.metric.selector.match_labels, inventory)
    if hpa.spec.min_replicas == 0:
        problem = "minReplicas is 0: the API server accepts that only with the feature gate HPAScaleToZero"
        yield Finding(Severity.NOTE, _HPA, key, problem, "")


def _selector(hpa: Autoscaler, labels: dict[str, str], inventory: Inventory) -> Iterator[Finding]:
    key = hpa.metadata.key
    name = labels.get("variant_name", "")
    if not name:
        problem = "its metric selector has no variant_name: it adds up the numbers of all variants"
        yield Finding(Severity.MUST, _HPA, key, problem, "add variant_name to the selector's matchLabels")
        return
    if labels.get("exported_namespace") != key.namespace:
        given = labels.get("exported_namespace")
        problem = (
            "its metric selector has no exported_namespace: a variant of the same name elsewhere is added to its number"
            if given is None
            else f"its metric selector asks for exported_namespace {given}, and it scales in {key.namespace}"
        )
        severity = Severity.SHOULD if given is None else Severity.MUST
        yield Finding(severity, _HPA, key, problem, f"add exported_namespace: {key.namespace} to its matchLabels")
    yield from _named_variant(hpa, inventory.variant(Key(key.namespace, name)), labels, whole=inventory.whole)


def _named_variant(
    hpa: Autoscaler, variant: Variant | None, labels: dict[str, str], *, whole: bool
) -> Iterator[Finding]:
    key, reference = hpa.metadata.key, hpa.spec.scale_target_ref
    name = labels["variant_name"]
    if variant is None:
        if whole:
            problem = f"asks for the variant {name}, which does not exist in {key.namespace}"
            yield Finding(Severity.MUST, _HPA, key, problem, "name the variant of its target")
        return
    target = _target(hpa)
    if variant.target and target is not None and variant.target_key != target:
        problem = f"scales {scaled_name(reference)} by the number of {name}, which is for {variant.target}"
        kind, _, own = variant.target.partition(" ")
        change = f"set spec.scaleTargetRef.name to {own}"
        change += "" if scaled_name(reference).startswith(f"{kind} ") else f" and its kind to {kind}"
        yield Finding(Severity.MUST, _HPA, key, problem, change)
    instance = variant.metadata.labels.get(CONTROLLER_INSTANCE_LABEL, "")
    if instance and labels.get("controller_instance") != instance:
        problem = f"its metric selector has no controller_instance: {instance}, the instance that decides on {name}"
        yield Finding(Severity.SHOULD, _HPA, key, problem, f"add controller_instance: {instance} to its matchLabels")


def _asks_for_ours(trigger: Trigger) -> bool:
    return trigger.type == "prometheus" and any(name in _query(trigger) for name in _NAMES)


def _query(trigger: Trigger) -> str:
    return str(trigger.metadata.get("query", ""))


def _scaled_object(scaled_object: Scaled) -> Iterator[Finding]:
    key = scaled_object.metadata.key
    if not scaled_object.spec.fallback:
        patch = {"spec": {"fallback": {"failureThreshold": 3, "replicas": 1, "behavior": "currentReplicas"}}}
        problem = "has no fallback: without Prometheus its HPA has no number"
        yield Finding(Severity.SHOULD, SCALED_OBJECT_KIND, key, problem, merge_patch(SCALED_OBJECT_KIND, key, patch))
    if not scaled_object.spec.min_replica_count:
        problem = "minReplicaCount is 0: KEDA takes the target to zero as soon as the number is 0 or missing"
        change = merge_patch(SCALED_OBJECT_KIND, key, {"spec": {"minReplicaCount": 1}})
        yield Finding(
            Severity.SHOULD, SCALED_OBJECT_KIND, key, problem, f"{change}, unless scale to zero is on for its model"
        )


def _trigger(scaled_object: Scaled, trigger: Trigger) -> Iterator[Finding]:
    key, query = scaled_object.metadata.key, _query(trigger)

    def found(severity: Severity, problem: str, change: str) -> Finding:
        return Finding(severity, SCALED_OBJECT_KIND, key, problem, change)

    for label, severity in (("variant_name", Severity.MUST), ("exported_namespace", Severity.SHOULD)):
        if not re.search(rf"\b{label}\s*=", query):
            yield found(severity, f"its query has no {label}: it takes in other variants", f"add {label} to its query")
    if _SUM.search(query):
        problem = "its query sums: while two series of a variant exist, it asks for twice the replicas"
        yield found(Severity.MUST, problem, "use max(...) in its query")
    if str(trigger.metadata.get("ignoreNullValues", "true")).lower() != "false":
        problem = "a missing number counts as 0 (ignoreNullValues): it scales down when the controller is away"
        yield found(Severity.MUST, problem, 'set ignoreNullValues: "false" in its trigger')
    if trigger.metric_type not in ("", "AverageValue") or _number(trigger.metadata.get("threshold")) != 1:
        yield found(
            Severity.MUST, "does not take the number one to one", 'use metricType: AverageValue and threshold: "1"'
        )
    if str(trigger.metadata.get("unsafeSsl", "false")).lower() == "true":
        yield found(
            Severity.SHOULD,
            "does not check Prometheus' certificate (unsafeSsl): anybody in between sets the number of replicas",
            "give it the authority with a TriggerAuthentication",
        )
    if DESIRED not in query:
        yield from _alias(SCALED_OBJECT_KIND, scaled_object.metadata, _ALIAS)


def _alias(kind: str, metadata: ObjectMeta, name: str) -> Iterator[Finding]:
    if name == _ALIAS:
        problem = f"asks for {_ALIAS}, which is published only with WVA_INFERNO_METRIC_ALIASES=true"
        yield Finding(Severity.MUST, kind, metadata.key, problem, f"ask for {DESIRED}, or switch the aliases on")


def _number(value: Any) -> Decimal | None:
    """Return a number or plain quantity; ``1000m`` is 1."""
    text = str(value)
    scale = Decimal("0.001") if text.endswith("m") else Decimal(1)
    try:
        return Decimal(text.removesuffix("m")) * scale
    except InvalidOperation:
        return None
