"""Rules of prometheus-adapter, in its ConfigMap or in the values of its chart: one number for each variant."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import yaml

from wva.api.meta import Key
from wva.migration.finding import Finding, Severity
from wva.migration.objects import Inventory
from wva.migration.pins import UNPINNED, pinned, target_matchers
from wva.migration.scalers import DESIRED

_MAX_BYTES: Final = 1024 * 1024
_MAX: Final = re.compile(r"\bmax\s*by\s*\(", re.IGNORECASE)
_ADDS: Final = re.compile(r"\bsum\b|<<\s*\.?GroupBy\s*>>", re.IGNORECASE)
_QUERY: Final = f"max by (variant_name, exported_namespace) ({DESIRED}{{<<.LabelMatchers>>}})"
_PUBLISHED: Final = re.compile(r"\b(wva|inferno)_(desired_replicas|current_replicas|desired_ratio)\b")


def adapter_findings(inventory: Inventory) -> Iterator[Finding]:
    """Yield what is the matter with each rule about our metric."""
    for values in inventory.values:
        for rule in values.external_rules:
            yield from _rule(rule, "prometheus-adapter values", Key("", values.metadata.name), inventory)
    for config_map in inventory.config_maps:
        for text in config_map.data.values():
            for rule in _rules(text):
                yield from _rule(rule, "ConfigMap", config_map.metadata.key, inventory)


def _rule(rule: dict[str, Any], kind: str, key: Key, inventory: Inventory) -> Iterator[Finding]:
    series, query = str(rule.get("seriesQuery", "")), str(rule.get("metricsQuery", ""))
    published = _PUBLISHED.search(series)
    if published is not None and not pinned(query):
        matchers = target_matchers(inventory)
        change = f"put {matchers} first into the braces of its seriesQuery and of its metricsQuery"
        yield Finding(Severity.SHOULD, kind, key, f"its rule for {published[0]} {UNPINNED}", change)
    if DESIRED in series:
        yield from _aggregation(query, kind, key)


def _rules(text: str) -> list[dict[str, Any]]:
    if _PUBLISHED.search(text) is None or "externalRules" not in text or len(text) > _MAX_BYTES:
        return []
    try:
        document = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        return []  # not the adapter's configuration; it would not have started with it
    rules = document.get("externalRules") if isinstance(document, dict) else None
    return [rule for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else []


def _aggregation(query: str, kind: str, key: Key) -> Iterator[Finding]:
    change = f"use metricsQuery: '{_QUERY}'"
    if _MAX.search(query):
        return
    if _ADDS.search(query):
        problem = (
            f"its rule for {DESIRED} sums: while two series of a variant exist, the HPA asks for twice the replicas"
        )
        yield Finding(Severity.MUST, kind, key, problem, change)
    else:
        problem = f"its rule for {DESIRED} does not aggregate, so the HPA adds up: twice the replicas at a hand-over"
        yield Finding(Severity.SHOULD, kind, key, problem, change)
