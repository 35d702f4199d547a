"""``--policy FILE``: ConfigMaps in a file that replace parts of a recorded policy.

The controller's code reads the entries. An entry that it would reject in a cluster ends the command. A problem that it
would only report is a remark.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from wva.api.meta import Key
from wva.command_error import CommandError
from wva.config import Inputs, load
from wva.config.kinds import MapKind
from wva.config.live import LiveConfiguration
from wva.migration.objects import Manifests
from wva.model.policy import NamespacePolicy, Policy
from wva.model.records import replace

_LOCAL: Final = {
    MapKind.SATURATION: "saturation",
    MapKind.SCALE_TO_ZERO: "scale_to_zero",
    MapKind.QUEUEING: "queueing",
}


@dataclass(frozen=True, slots=True)
class PolicyFile:
    """The policy in the ConfigMaps of a file.

    ``parts`` are the fields of a policy that global ConfigMaps set, by kind. ``local`` lists namespaces with the kinds
    of their own ConfigMaps. ``remarks`` are about values that the controller would accept in a cluster, but report.
    """

    policy: Policy
    parts: Mapping[MapKind, Mapping[str, Any]]
    local: tuple[tuple[str, MapKind], ...]
    remarks: tuple[str, ...]

    def over(self, recorded: Policy) -> Policy:
        """Return a recorded policy in which the ConfigMaps of the file replace those of the same kind."""
        merged = replace(recorded, **{name: value for part in self.parts.values() for name, value in part.items()})
        if not self.local:
            return merged
        spaces: dict[str, NamespacePolicy] = {
            namespace_policy.namespace: namespace_policy for namespace_policy in recorded.namespaces
        }
        in_file = {namespace_policy.namespace: namespace_policy for namespace_policy in self.policy.namespaces}
        for namespace, kind in self.local:
            old, new = spaces.get(namespace, NamespacePolicy(namespace)), in_file.get(namespace)
            change: dict[str, Any] = {_LOCAL[kind]: getattr(new or NamespacePolicy(namespace), _LOCAL[kind])}
            spaces[namespace] = replace(old, **change)
        return replace(merged, namespaces=tuple(spaces[namespace] for namespace in sorted(spaces)))

    @property
    def title(self) -> str:
        """The replaced ConfigMaps, in words."""
        titles = [f"{kind.title} (global)" for kind in self.parts]
        return ", ".join([*titles, *(f"{kind.title} of namespace {namespace}" for namespace, kind in self.local)])


def read_policy(name: str, namespaces: Collection[str]) -> PolicyFile:
    """Return the policy in the ConfigMaps of a file. Raises CommandError.

    ``namespaces`` are those of models. A ConfigMap in one of them applies only there; any other applies globally.
    """
    settings = load(Inputs({}, {}, {})).settings
    own_namespace = settings.pod_namespace
    manifests = Manifests(own_namespace)
    manifests.read([name], sys.stdin)
    live = LiveConfiguration(settings, refusal=lambda _namespace: "")
    problems = [f"{name}: {finding.kind} {finding.key}: {finding.problem}" for finding in manifests.findings]
    remarks: list[str] = []
    kinds: list[MapKind] = []
    local: list[tuple[str, MapKind]] = []
    for config_map in manifests.objects.config_maps:
        map_key, namespace = config_map.metadata.key, config_map.metadata.namespace
        key = Key(namespace if namespace in namespaces else own_namespace, map_key.name)
        outcome = live.apply(key, config_map.data)
        if outcome is None:
            problems.append(
                f"{name}: ConfigMap {map_key}: expected one of {', '.join(kind.canonical for kind in MapKind)}"
            )
            continue
        for problem in outcome.problems:
            lines = remarks if problem in outcome.accepted else problems
            lines.append(f"{name}: ConfigMap {map_key}: {problem}")
        of_map = live.kinds_of(key)
        kinds += [kind for kind in of_map if key.namespace == own_namespace]
        local += [(key.namespace, kind) for kind in of_map if key.namespace != own_namespace]
    if not kinds and not local and not problems:
        problems.append(f"{name}: expected at least one ConfigMap, such as {MapKind.SATURATION.canonical}")
    if problems:
        raise CommandError("\n".join(problems))
    parts = live.global_parts()
    of_kinds = {kind: parts[kind] for kind in kinds}
    return PolicyFile(live.policy, of_kinds, tuple(dict.fromkeys(local)), tuple(remarks))
