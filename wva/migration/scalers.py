"""Checks the scalers that apply a variant's number: HPAs, ScaledObjects and the rules of prometheus-adapter.

Each must take the number of its own variant one to one, and only from the controller's series. Every pod that
Prometheus scrapes may expose series with the same names and labels, except for the label ``namespace``: Prometheus
renames that label of a page to ``exported_namespace``. So a query that names ``namespace`` is safe; it is "pinned".
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import yaml

from wva.actuation import ACTUATION_ANNOTATION, MODE_ANNOTATION, VARIANT_METADATA, Actuation, Mode
from wva.api.meta import Key
from wva.api.scalers import SCALED_OBJECT_KIND
from wva.api.variantautoscaling import CONTROLLER_INSTANCE_LABEL, ConditionType
from wva.migration.checks import known_controllers
from wva.migration.objects import (
    Finding,
    FoundObjects,
    Manifest,
    ManifestAutoscaler,
    ManifestScaledObject,
    ManifestVariant,
    MetricSource,
    Subject,
    Trigger,
    about,
)

DESIRED: Final = "wva_desired_replicas"
_ALIAS: Final = "inferno_desired_replicas"
_ALIAS_PROBLEM: Final = f"asks for {_ALIAS}, which is published only with WVA_INFERNO_METRIC_ALIASES=true"
_ALIAS_CHANGE: Final = f"ask for {DESIRED}, or switch the aliases on"
_ONE_TO_ONE: Final = 'target {type: AverageValue, averageValue: "1"}'
_SUM: Final = re.compile(r"\bsum\s*(?:by\s*\([^)]*\)\s*|without\s*\([^)]*\)\s*)?\(", re.IGNORECASE)

_PINNED: Final = re.compile(r"""(?<!\w)namespace\s*=~?\s*["'`][^"'`]+["'`]""")
_UNPINNED: Final = "takes the number from every page that Prometheus scrapes: any pod can forge it"

_PUSH: Final = "external-push"

_MAX_RULE_BYTES: Final = 1024 * 1024
_PUBLISHED: Final = re.compile(r"\b(wva|inferno)_(desired_replicas|current_replicas|desired_ratio)\b")
_MAX: Final = re.compile(r"\bmax\s*by\s*\(", re.IGNORECASE)
_ADDS: Final = re.compile(r"\bsum\b|<<\s*\.?GroupBy\s*>>", re.IGNORECASE)
_RULE_QUERY: Final = f"max by (variant_name, exported_namespace) ({DESIRED}{{<<.LabelMatchers>>}})"


def autoscaler_findings(objects: FoundObjects) -> Iterator[Finding]:
    """Yield the problems of each HPA that asks for our metric."""
    variants = {variant.metadata.key: variant for variant in reversed(objects.variants)}
    for hpa in objects.autoscalers:
        subject, key = about(hpa), hpa.metadata.key
        for type_, source in _metrics(hpa):
            metric, labels = source.metric.name, source.metric.selector.match_labels
            if type_ != "External":
                problem = f"asks for {metric} as a metric of type {type_}: it is an external one"
                yield subject.must(problem, f"use type: External with {_ONE_TO_ONE}")
            elif source.target.type != "AverageValue" or _number(source.target.average_value) != 1:
                yield subject.must(f"does not take {metric} one to one", f"use {_ONE_TO_ONE}")
            if metric == _ALIAS:
                yield subject.must(_ALIAS_PROBLEM, _ALIAS_CHANGE)
            if hpa.spec.min_replicas == 0:
                problem = "minReplicas is 0: the API server accepts that only with the feature gate HPAScaleToZero"
                yield subject.note(problem)

            # Its selector must name the variant, in the namespace of the HPA.
            name = labels.get("variant_name", "")
            if not name:
                problem = "its metric selector has no variant_name: it adds up the numbers of all variants"
                yield subject.must(problem, "add variant_name to the selector's matchLabels")
                continue
            wanted = labels.get("exported_namespace")
            change = f"add exported_namespace: {key.namespace} to its matchLabels"
            if wanted is None:
                problem = "its metric selector has no exported_namespace: a variant of the same name elsewhere is added"
                yield subject.should(f"{problem} to its number", change)
            elif wanted != key.namespace:
                problem = f"its metric selector asks for exported_namespace {wanted}, and it scales in {key.namespace}"
                yield subject.must(problem, change)

            # That variant must exist, and have the same target.
            variant = variants.get(Key(key.namespace, name))
            if variant is None:
                if objects.whole:
                    problem = f"asks for the variant {name}, which does not exist in {key.namespace}"
                    yield subject.must(problem, "name the variant of its target")
                continue
            if variant.target and hpa.target and variant.target_key != hpa.target_key:
                kind, _, target_name = variant.target.partition(" ")
                change = f"set spec.scaleTargetRef.name to {target_name}"
                change += "" if hpa.target.startswith(f"{kind} ") else f" and its kind to {kind}"
                problem = f"scales {hpa.target} by the number of {name}, which is for {variant.target}"
                yield subject.must(problem, change)
            instance = variant.metadata.labels.get(CONTROLLER_INSTANCE_LABEL, "")
            if instance and labels.get("controller_instance") != instance:
                needed = f"controller_instance: {instance}"
                problem = f"its metric selector has no {needed}, the instance that decides on {name}"
                yield subject.should(problem, f"add {needed} to its matchLabels")


def scaled_object_findings(objects: FoundObjects) -> Iterator[Finding]:
    """Yield the problems of each ScaledObject that asks for our metric, or the controller itself."""
    for scaled in objects.scaled_objects:
        for trigger, variant in _pushes(scaled, objects):
            if variant.metadata.annotations.get(ACTUATION_ANNOTATION) != Actuation.KEDA_PUSH:
                change = about(variant).kubectl("annotate", f"{ACTUATION_ANNOTATION}={Actuation.KEDA_PUSH}")
                problem = f"asks the controller for {variant.metadata.name}, which has no {ACTUATION_ANNOTATION}"
                yield about(scaled).must(f"{problem}: {Actuation.KEDA_PUSH}", change)
            if trigger.metric_type not in ("", "AverageValue"):
                yield about(scaled).must("does not take the number one to one", "use metricType: AverageValue")
        triggers = _triggers(scaled)
        if not triggers:
            continue
        subject = about(scaled)
        if not scaled.spec.fallback:
            patch = {"spec": {"fallback": {"failureThreshold": 3, "replicas": 1, "behavior": "currentReplicas"}}}
            problem = "has no fallback: without Prometheus its HPA has no number"
            yield subject.should(problem, subject.merge_patch(patch))
        if not scaled.spec.min_replica_count:
            change = subject.merge_patch({"spec": {"minReplicaCount": 1}})
            problem = "minReplicaCount is 0: KEDA takes the target to zero as soon as the number is 0 or missing"
            yield subject.should(problem, f"{change}, unless scale to zero is on for its model")
        for query, trigger in triggers:
            for label, make_finding in (("variant_name", subject.must), ("exported_namespace", subject.should)):
                if not re.search(rf"\b{label}\s*=", query):
                    yield make_finding(
                        f"its query has no {label}: it takes in other variants", f"add {label} to its query"
                    )
            if not _PINNED.search(query):
                change = f"add {_target_matchers(objects)} to the selector in its query"
                yield subject.should(f"its query {_UNPINNED}", change)
            if _SUM.search(query):
                problem = "its query sums: while two series of a variant exist, it asks for twice the replicas"
                yield subject.must(problem, "use max(...) in its query")
            if DESIRED not in query:
                yield subject.must(_ALIAS_PROBLEM, _ALIAS_CHANGE)
            if str(trigger.metadata.get("ignoreNullValues", "true")).lower() != "false":
                problem = "a missing number counts as 0 (ignoreNullValues): it scales down when the controller is away"
                yield subject.must(problem, 'set ignoreNullValues: "false" in its trigger')
            if trigger.metric_type not in ("", "AverageValue") or _number(trigger.metadata.get("threshold")) != 1:
                change = 'use metricType: AverageValue and threshold: "1"'
                yield subject.must("does not take the number one to one", change)
            if str(trigger.metadata.get("unsafeSsl", "false")).lower() == "true":
                problem = "does not check Prometheus' certificate (unsafeSsl): anybody in between sets the number of"
                yield subject.should(f"{problem} replicas", "give it the authority with a TriggerAuthentication")


def pair_findings(objects: FoundObjects) -> Iterator[Finding]:
    """Yield the variants without a scaler or with more than one."""
    scalers: defaultdict[str | None, list[str]] = defaultdict(list)
    asking: list[Manifest] = [hpa for hpa in objects.autoscalers if _metrics(hpa)]
    asking += (scaled for scaled in objects.scaled_objects if _triggers(scaled) or _pushes(scaled, objects))
    for scaler in asking:
        scalers[scaler.target_key].append(f"{about(scaler).kind} {scaler.metadata.name}")
    for variant in objects.variants:
        subject, own_scalers = about(variant), scalers.get(variant.target_key, [])
        # No scaler is needed if the controller itself writes the number, or if nothing must follow it. If the
        # namespace is in shadow mode, the condition says so.
        annotations, conditions = variant.metadata.annotations, variant.status.conditions
        needs_none = (
            annotations.get(ACTUATION_ANNOTATION) == Actuation.DIRECT
            or annotations.get(MODE_ANNOTATION) == Mode.SHADOW
            or any(condition.type == ConditionType.SHADOW and condition.status == "True" for condition in conditions)
        )
        if variant.target and len(own_scalers) > 1:
            problem = f"its {variant.target} is scaled by {' and '.join(own_scalers)}: they undo each other"
            yield subject.must(problem, "keep one of them")
        elif variant.target and not own_scalers and objects.whole and not needs_none:
            problem = f"no HPA and no ScaledObject takes {DESIRED} to its {variant.target}"
            yield subject.should(problem, "create one: see deploy/samples")


def adapter_findings(objects: FoundObjects) -> Iterator[Finding]:
    """Yield the problems of each rule of prometheus-adapter for our metrics.

    The rules are in the adapter's ConfigMap, or in the values of its chart. A rule must return one number per variant.
    """
    rules = [
        (Subject("prometheus-adapter values", Key("", name)), rule)
        for name, adapter_rules in objects.values
        for rule in adapter_rules
    ]
    for config_map in objects.config_maps:
        for text in config_map.data.values():
            if _PUBLISHED.search(text) is None or "externalRules" not in text or len(text) > _MAX_RULE_BYTES:
                continue
            try:
                document = yaml.safe_load(text)
            except (yaml.YAMLError, ValueError, RecursionError):
                continue  # the adapter cannot start with it, so it belongs to another program
            external_rules = document.get("externalRules") if isinstance(document, dict) else None
            if isinstance(external_rules, list):
                rules += [(about(config_map), rule) for rule in external_rules if isinstance(rule, dict)]
    for subject, rule in rules:
        series, query = str(rule.get("seriesQuery", "")), str(rule.get("metricsQuery", ""))
        published = _PUBLISHED.search(series)
        if published is not None and not _PINNED.search(query):
            change = f"put {_target_matchers(objects)} first into the braces of its seriesQuery and of its metricsQuery"
            yield subject.should(f"its rule for {published[0]} {_UNPINNED}", change)
        if DESIRED not in series or _MAX.search(query):
            continue
        change, its_rule = f"use metricsQuery: '{_RULE_QUERY}'", f"its rule for {DESIRED}"
        if _ADDS.search(query):
            problem = f"{its_rule} sums: while two series of a variant exist, the HPA asks for twice the replicas"
            yield subject.must(problem, change)
        else:
            problem = f"{its_rule} does not aggregate, so the HPA adds up: twice the replicas at a hand-over"
            yield subject.should(problem, change)


def _metrics(hpa: ManifestAutoscaler) -> list[tuple[str, MetricSource]]:
    """Return our metrics that an HPA asks for, with their types. KEDA's HPAs have none: they follow a ScaledObject."""
    owner = hpa.metadata.controller
    if owner is not None and owner.kind == SCALED_OBJECT_KIND:
        return []
    sources = ((metric.type, metric.external or metric.pods or metric.object) for metric in hpa.spec.metrics)
    return [(type_, source) for type_, source in sources if source and source.metric.name in (DESIRED, _ALIAS)]


def _triggers(scaled: ManifestScaledObject) -> list[tuple[str, Trigger]]:
    """Return the triggers of a ScaledObject that ask for our metric, each with its query."""
    asking = (trigger for trigger in scaled.spec.triggers if trigger.type == "prometheus")
    queries = ((str(trigger.metadata.get("query", "")), trigger) for trigger in asking)
    return [(query, trigger) for query, trigger in queries if DESIRED in query or _ALIAS in query]


def _pushes(scaled: ManifestScaledObject, objects: FoundObjects) -> list[tuple[Trigger, ManifestVariant]]:
    """Return the triggers of a ScaledObject that ask the controller itself, each with the variant that it names."""
    variants = {variant.metadata.key: variant for variant in objects.variants}
    pushes = []
    for trigger in scaled.spec.triggers:
        name = str(trigger.metadata.get(VARIANT_METADATA) or scaled.metadata.name)
        variant = variants.get(Key(scaled.metadata.key.namespace, name))
        ours = variant is not None and (
            VARIANT_METADATA in trigger.metadata
            or variant.metadata.annotations.get(ACTUATION_ANNOTATION) == Actuation.KEDA_PUSH
        )
        if trigger.type == _PUSH and variant is not None and ours:
            pushes.append((trigger, variant))
    return pushes


def _target_matchers(objects: FoundObjects) -> str:
    """Return the matchers to add, with the controller's namespace if it is known. People complete them."""
    namespaces = {controller.subject.key.namespace for controller in known_controllers(objects)}
    namespace = namespaces.pop() if len(namespaces) == 1 else "NAMESPACE-OF-THE-CONTROLLER"
    return f'job="NAME-OF-ITS-METRICS-SERVICE",namespace="{namespace}"'


def _number(value: Any) -> Decimal | None:
    """Return a number or a plain quantity, such as ``1000m`` for 1; None for anything else."""
    text = str(value)
    scale = Decimal("0.001") if text.endswith("m") else Decimal(1)
    try:
        return Decimal(text.removesuffix("m")) * scale
    except InvalidOperation:
        return None
