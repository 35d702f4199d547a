"""Returns the rights of an account, by the roles that are bound to it in a set of objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

from e2e.controlplane.api import Body

ROLES = ("Role", "ClusterRole")
BINDINGS = ("RoleBinding", "ClusterRoleBinding")


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """One verb on one resource (with its subresource). An empty ``name`` means all objects."""

    group: str
    resource: str
    verb: str
    name: str = ""

    def __str__(self) -> str:
        """Return the right as ``kubectl auth can-i`` would take it."""
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {what}{'/' if self.name else ''}{self.name}"


def rights(rules: Iterable[Body]) -> set[Right]:
    """Return what rules about resources allow, one right for each combination."""
    return {
        Right(group, resource, verb, name)
        for rule in rules
        if "resources" in rule
        for group, resource, verb, name in product(
            rule["apiGroups"], rule["resources"], rule["verbs"], rule.get("resourceNames", [""])
        )
    }


def rights_of(account: str, items: Iterable[Body]) -> set[Right]:
    """Return the rights of a ServiceAccount in any namespace, by the roles and bindings among the objects."""
    objects = list(items)
    return {right for role, _ in _bound(account, objects) for right in rights(role["rules"])}


def places_of(account: str, items: Iterable[Body]) -> dict[Right, set[str]]:
    """Return in which namespaces a ServiceAccount has each right; the empty one stands for all of the cluster."""
    found: dict[Right, set[str]] = {}
    for role, namespace in _bound(account, list(items)):
        for right in rights(role["rules"]):
            found.setdefault(right, set()).add(namespace)
    return found


def _bound(account: str, objects: list[Body]) -> Iterator[tuple[Body, str]]:
    """Yield each role that is bound to an account, and in which namespace; none for a ClusterRoleBinding."""
    roles = {_identity(item, item["kind"], item["metadata"]["name"]): item for item in objects if item["kind"] in ROLES}
    for item in objects:
        if item["kind"] in BINDINGS and account in {subject["name"] for subject in item["subjects"]}:
            reference = _identity(item, item["roleRef"]["kind"], item["roleRef"]["name"])
            if reference in roles:  # the cluster itself defines the others
                yield roles[reference], item["metadata"].get("namespace", "")


def _identity(item: Body, kind: str, name: str) -> tuple[str, str, str]:
    """Return what names a role in the binding ``item``, or the role itself: a Role belongs to its namespace."""
    return kind, item["metadata"].get("namespace", "") if kind == "Role" else "", name
