"""Discovery documents: which groups, versions and resources are served at the moment."""

from __future__ import annotations

from typing import Final

from wva.sim.apiserver.kinds import KindSpec, Registry
from wva.sim.apiserver.objects import JsonObject
from wva.sim.apiserver.reviews import REVIEWS

_VERBS: Final = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_VERSION: Final = {
    "major": "1",
    "minor": "34",
    "gitVersion": "v1.34.0+embedded",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "embedded",
}
_HEALTH: Final = frozenset({"healthz", "livez", "readyz"})


def document(kinds: Registry, path: str) -> JsonObject | str | None:
    """Return the answer for a path that names no resource: a document, a text, or None."""
    answer: JsonObject | str | None = None
    match path.strip("/").split("/"):
        case [health] if health in _HEALTH:
            answer = "ok"
        case ["version"]:
            answer = dict(_VERSION)
        case ["api"]:
            address = {"clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1"}
            answer = {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [address]}
        case ["apis"]:
            groups = [_group(name, versions) for name, versions in _versions(kinds).items() if name]
            answer = {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
        case ["api", version]:
            answer = _resources(kinds, "", version)
        case ["apis", group] if versions := _versions(kinds).get(group):
            answer = {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}
        case ["apis", group, version]:
            answer = _resources(kinds, group, version)
    return answer


def _versions(kinds: Registry) -> dict[str, list[str]]:
    return {**kinds.group_versions(), **{group: ["v1"] for group, _ in REVIEWS.values()}}


def _group(name: str, versions: list[str]) -> JsonObject:
    group_versions = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": group_versions, "preferredVersion": group_versions[0]}


def _resources(kinds: Registry, group: str, version: str) -> JsonObject | None:
    if version not in _versions(kinds).get(group, ()):
        return None
    resources: list[JsonObject] = []
    for spec in kinds:
        if (spec.group, spec.version) == (group, version):
            resources += _described(spec)
    for plural, (review_group, kind) in REVIEWS.items():
        if review_group == group:
            resources.append(
                {"name": plural, "singularName": kind.lower(), "namespaced": False, "kind": kind, "verbs": ["create"]}
            )
    group_version = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": resources}


def _described(spec: KindSpec) -> list[JsonObject]:
    resource: JsonObject = {
        "name": spec.plural,
        "singularName": spec.singular,
        "namespaced": spec.namespaced,
        "kind": spec.kind,
        "verbs": list(_VERBS),
    }
    if spec.short_names:
        resource["shortNames"] = list(spec.short_names)
    subresource_fields = {"singularName": "", "namespaced": spec.namespaced, "verbs": ["get", "patch", "update"]}
    resources = [resource]
    if spec.status:
        resources.append({"name": f"{spec.plural}/status", "kind": spec.kind, **subresource_fields})
    if spec.scale is not None:
        scale = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
        resources.append({"name": f"{spec.plural}/scale", **scale, **subresource_fields})
    return resources
