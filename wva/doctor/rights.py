"""The rights that the controller needs at the API server; a test compares them with the roles in ``deploy/rbac``."""

from __future__ import annotations

from typing import Final, NamedTuple

from wva.config.kinds import MapKind


class Needed(NamedTuple):
    """Rights to one resource. ``own``: only in the namespace of the controller. ``role`` grants them."""

    role: str
    group: str
    resource: str
    verbs: tuple[str, ...]
    own: bool = False
    names: tuple[str, ...] = ()


_READ: Final = ("list", "watch")
_POLICIES: Final = tuple(name for kind in MapKind if kind.local for name in (kind.canonical, *kind.aliases))

NEEDED: Final = (
    Needed("manager-role", "", "pods", _READ),
    Needed("manager-role", "apps", "deployments", _READ),
    Needed("manager-role", "apps", "replicasets", _READ),
    Needed("manager-role", "autoscaling", "horizontalpodautoscalers", _READ),
    Needed("manager-role", "keda.sh", "scaledobjects", _READ),
    Needed("manager-role", "inference.networking.k8s.io", "inferencepools", _READ),
    Needed("manager-role", "inference.networking.x-k8s.io", "inferencepools", _READ),
    Needed("manager-role", "", "resourcequotas", _READ),
    Needed("manager-role", "llmd.ai", "variantautoscalings", _READ),
    Needed("manager-role", "llmd.ai", "variantautoscalings/status", ("patch",)),
    Needed("manager-role", "", "events", ("create", "patch")),
    Needed("manager-cluster-role", "", "nodes", _READ),
    Needed("manager-cluster-role", "", "namespaces", _READ),
    Needed("manager-cluster-role", "", "configmaps", _READ, names=_POLICIES),
    Needed("leader-election-role", "coordination.k8s.io", "leases", ("get", *_READ, "create", "update"), own=True),
    Needed("config-role", "", "configmaps", ("get", *_READ), own=True),
    Needed("scale-from-zero-role", "", "services", ("get",)),
    Needed("scale-from-zero-role", "apps", "deployments/scale", ("patch",)),
    Needed("metrics-auth-role", "authentication.k8s.io", "tokenreviews", ("create",)),
    Needed("metrics-auth-role", "authorization.k8s.io", "subjectaccessreviews", ("create",)),
)
"""The rights of an installation with the defaults."""

OF_ALL_NAMESPACES: Final = frozenset({"manager-cluster-role", "metrics-auth-role"})
"""The roles that a controller of one namespace does not need."""
PER_NAMESPACE: Final = frozenset({"scale-from-zero-role"})
"""The roles that an installation may grant in named namespaces instead of all."""
CLUSTER_WIDE: Final = frozenset({"nodes", "namespaces", "tokenreviews", "subjectaccessreviews"})
"""Resources without a namespace."""
