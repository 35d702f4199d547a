"""ConfigMaps of the Go controller: what this one rejects in them, and what takes effect now that had none before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from wva.api.core import ConfigMap
from wva.api.meta import Key
from wva.config import Given, Settings, load
from wva.config.kinds import MapKind
from wva.config.load import unknown_keys
from wva.config.policy_maps import LivePolicy
from wva.config.prometheus import PrometheusSettings
from wva.migration.finding import Finding, Severity
from wva.migration.objects import CONFIG_MAPS, Inventory

_MAIN: Final = str(Settings.model_fields["config_map_name"].default)
_MAIN_SUFFIX: Final = _MAIN.removeprefix("wva-")
_POLICY_NAMES: Final = tuple(
    dict.fromkeys((*(kind.canonical for kind in MapKind), *(name for kind in MapKind for name in kind.aliases)))
)
_HAD_NO_EFFECT: Final = {
    "GLOBAL_OPT_INTERVAL": "the Go controller decided every 30 s with any value",
    "LOG_LEVEL": "the Go controller did not read it",
    "WVA_SCALE_TO_ZERO": "the Go controller took it from the environment only",
    "PROMETHEUS_METRICS_CACHE_ENABLED": "the Go controller stored it and did not use it",
    "PROMETHEUS_METRICS_CACHE_TTL": "the Go controller stored it and did not use it",
    "PROMETHEUS_METRICS_CACHE_FETCH_INTERVAL": "the Go controller stored it and did not use it",
    "PROMETHEUS_METRICS_CACHE_FRESH_THRESHOLD": "the Go controller stored it and did not use it",
    "PROMETHEUS_METRICS_CACHE_STALE_THRESHOLD": "the Go controller stored it and did not use it",
    "PROMETHEUS_METRICS_CACHE_UNAVAILABLE_THRESHOLD": "the Go controller stored it and did not use it",
    "PROMETHEUS_METRICS_CACHE_CLEANUP_INTERVAL": "the Go controller stored it and did not use it",
    "PROMETHEUS_METRICS_CACHE_MAX_SIZE": "the Go controller did not read it",
}


def configuration_findings(inventory: Inventory) -> Iterator[Finding]:
    """Yield what is the matter with each ConfigMap of the controller, under the names of any installation."""
    for config_map in inventory.config_maps:
        name = config_map.metadata.name
        if name == _MAIN or name.endswith(f"-{_MAIN_SUFFIX}"):
            yield from _main(config_map)
            continue
        known = next((policy for policy in _POLICY_NAMES if name == policy or name.endswith(f"-{policy}")), None)
        if known is not None:
            yield from _policy(config_map, known)


def _main(config_map: ConfigMap) -> Iterator[Finding]:
    key, data = config_map.metadata.key, config_map.data
    loaded = load(Given({}, {}, data))
    for problem in loaded.problems:
        line = problem.refusal if problem.fatal else str(problem)
        yield _finding(key, Severity.MUST if problem.fatal else Severity.SHOULD, line, f"mend {problem.key}")
    if loaded.settings.prometheus_base_url:
        for line in PrometheusSettings.of(loaded.settings).problems():
            yield _finding(key, Severity.MUST, line, "mend it; nothing is decided without Prometheus")
    for line in loaded.without_effect:
        yield _finding(key, Severity.NOTE, line)
    for unknown in unknown_keys(data):
        yield _finding(key, Severity.SHOULD, f"{unknown}: no such setting", "remove it, or mend its name")
    yield from _newly_in_effect(key, data)


def _newly_in_effect(key: Key, data: Mapping[str, str]) -> Iterator[Finding]:
    for name, before in _HAD_NO_EFFECT.items():
        if data.get(name):
            yield _finding(key, Severity.NOTE, f"{name}={data[name]!r} takes effect: {before}")


def _policy(config_map: ConfigMap, known: str) -> Iterator[Finding]:
    key = config_map.metadata.key
    own = load(Given({}, {"POD_NAMESPACE": key.namespace}, {})).settings
    outcome = LivePolicy(own).apply(Key(key.namespace, known), config_map.data)
    for problem in outcome.problems if outcome else ():
        yield _finding(key, Severity.SHOULD, problem, "mend the entry; until then it is left out")


def _finding(key: Key, severity: Severity, problem: str, change: str = "") -> Finding:
    return Finding(severity, CONFIG_MAPS.kind, key, problem, change)
