"""``--policy FILE``: another policy from ConfigMaps in a file, laid over a recorded one.

The entries are read by the code that reads them in a cluster. What it would reject there ends the command here.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from wva.api.meta import Key
from wva.collect.config.names import CANONICAL, MapKind
from wva.collect.live_policy import LivePolicy
from wva.migration.manifests import Manifests, UnreadableError
from wva.model.policy import NamespacePolicy, Policy
from wva.model.records import replace
from wva.settings import Given, load

_GLOBAL: Final = {
    MapKind.SATURATION: ("saturation", "overrides", "compatibility", "enable_limiter", "unknown_inventory"),
    MapKind.SCALE_TO_ZERO: ("scale_to_zero",),
    MapKind.QUEUEING: ("queueing", "solver"),
    MapKind.SERVICE_CLASSES: ("service_targets",),
    MapKind.ACCELERATOR_COSTS: ("accelerator_costs",),
    MapKind.PROFILES: ("profiles",),
}
_LOCAL: Final = {
    MapKind.SATURATION: "saturation",
    MapKind.SCALE_TO_ZERO: "scale_to_zero",
    MapKind.QUEUEING: "queueing",
}


class PolicyFileError(Exception):
    """The file cannot be used; each line of the text names the file and what is wrong."""


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """What the ConfigMaps of a file say. ``kinds`` are the global ones, ``local`` those of namespaces."""

    policy: Policy
    kinds: tuple[MapKind, ...]
    local: tuple[tuple[str, MapKind], ...]

    def over(self, recorded: Policy) -> Policy:
        """Return a recorded policy with the kinds of ConfigMaps that are in the file replaced by those."""
        names = [name for kind in self.kinds for name in _GLOBAL[kind]]
        merged = replace(recorded, **{name: getattr(self.policy, name) for name in names})
        if not self.local:
            return merged
        spaces: dict[str, NamespacePolicy] = {each.namespace: each for each in recorded.namespaces}
        said = {each.namespace: each for each in self.policy.namespaces}
        for namespace, kind in self.local:
            old, new = spaces.get(namespace, NamespacePolicy(namespace)), said.get(namespace)
            change: dict[str, Any] = {_LOCAL[kind]: getattr(new or NamespacePolicy(namespace), _LOCAL[kind])}
            spaces[namespace] = replace(old, **change)
        return replace(merged, namespaces=tuple(spaces[namespace] for namespace in sorted(spaces)))

    @property
    def title(self) -> str:
        """What is replaced, in words."""
        told = [f"{kind.value} (global)" for kind in self.kinds]
        return ", ".join([*told, *(f"{kind.value} of namespace {namespace}" for namespace, kind in self.local)])


def read_policy(name: str, namespaces: Collection[str]) -> PolicyFile:
    """Return what the ConfigMaps in a file say. Raises PolicyFileError.

    A ConfigMap in one of ``namespaces``, which are those of models, counts there alone; each other one counts globally.
    """
    settings = load(Given({}, {}, {})).settings
    own = settings.pod_namespace
    manifests = Manifests(own)
    try:
        manifests.read([name], sys.stdin)
    except UnreadableError as error:
        raise PolicyFileError(str(error)) from error
    live = LivePolicy(settings, refusal=lambda _namespace: "")
    problems = [f"{name}: {finding.kind} {finding.key}: {finding.problem}" for finding in manifests.findings]
    kinds: list[MapKind] = []
    local: list[tuple[str, MapKind]] = []
    for config_map in manifests.inventory.config_maps:
        found, place = config_map.metadata.key, config_map.metadata.namespace
        key = Key(place if place in namespaces else own, found.name)
        outcome = live.apply(key, config_map.data)
        if outcome is None:
            problems.append(f"{name}: ConfigMap {found}: expected one of {', '.join(CANONICAL.values())}")
            continue
        problems += [f"{name}: ConfigMap {found}: {problem}" for problem in outcome.problems]
        of_map = live.names.kinds_of(key.name, local=key.namespace != own)
        kinds += [kind for kind in of_map if key.namespace == own]
        local += [(key.namespace, kind) for kind in of_map if key.namespace != own]
    if not kinds and not local and not problems:
        problems.append(f"{name}: expected at least one ConfigMap, such as {CANONICAL[MapKind.SATURATION]}")
    if problems:
        raise PolicyFileError("\n".join(problems))
    return PolicyFile(live.current, tuple(dict.fromkeys(kinds)), tuple(dict.fromkeys(local)))
