"""The kinds of Kubernetes itself that the product or its world uses.

Their schemas are deliberately partial: they have the defaults and required fields that this project depends on, and
accept everything else. The checks are the rules that a writer can run into: immutable fields, ConfigMap values, the
namespace of Events.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from wva.sim.apiserver.kinds import Check, KindSpec, ScalePaths, ValidationProblem
from wva.sim.apiserver.objects import MISSING, Json, JsonObject, Object, Path, lookup, text_at
from wva.sim.apiserver.validation import PRESERVE

_TEXT: Final = {"type": "string"}
_COUNT: Final = {"type": "integer", "minimum": 0}
_TEXT_MAP: Final = {"type": "object", "additionalProperties": _TEXT, PRESERVE: True}


_CHANGEABLE: Final = (
    "replicas", "ordinals", "template", "updateStrategy", "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy", "minReadySeconds",
)  # fmt: skip
"""The fields of a StatefulSet's ``spec`` that may change."""


def _open(required: tuple[str, ...] = (), **properties: Any) -> JsonObject:
    """Return the schema of an object that may hold more than is named here."""
    return {"type": "object", "required": required, "properties": properties, PRESERVE: True}


def _shown(value: Json) -> str:
    return msgspec.json.encode(None if value is MISSING else value).decode()


def _immutable(path: Path, new: Object, old: Object | None) -> list[ValidationProblem]:
    old_value = lookup(old, path) if old is not None else MISSING
    if old_value is MISSING or lookup(new, path) == old_value:
        return []
    text = f"Invalid value: {_shown(lookup(new, path))}: field is immutable"
    return [ValidationProblem(".".join(path), "FieldValueInvalid", text)]


def _selector_is_fixed(new: Object, old: Object | None) -> list[ValidationProblem]:
    labels = lookup(new, ("spec", "template", "metadata", "labels"))
    match_labels = lookup(new, ("spec", "selector", "matchLabels"))
    problems = _immutable(("spec", "selector"), new, old)
    if isinstance(match_labels, dict) and any((labels or {}).get(key) != value for key, value in match_labels.items()):
        text = f"Invalid value: {_shown(labels)}: `selector` does not match template `labels`"
        problems.append(ValidationProblem("spec.template.metadata.labels", "FieldValueInvalid", text))
    return problems


def _stateful_set(new: Object, old: Object | None) -> list[ValidationProblem]:
    """Find changes of a StatefulSet outside the few fields that may change."""
    problems = _selector_is_fixed(new, None)
    old_spec, new_spec = ({} if value is None else dict(value["spec"]) for value in (old, new))
    for field in _CHANGEABLE:
        old_spec.pop(field, None)
        new_spec.pop(field, None)
    if old is not None and old_spec != new_spec:
        *names, last = (f"'{field}'" for field in _CHANGEABLE)
        exceptions = f"other than {', '.join(names)} and {last} are forbidden"
        text = f"Forbidden: updates to statefulset spec for fields {exceptions}"
        problems.append(ValidationProblem("spec", "FieldValueForbidden", text))
    return problems


def _frozen_data(new: Object, old: Object | None) -> list[ValidationProblem]:
    if old is None or not old.get("immutable"):
        return []
    if not new.get("immutable"):
        return [_sealed("immutable")]
    return [_sealed(field) for field in ("data", "binaryData") if new.get(field) != old.get(field)]


def _sealed(field: str) -> ValidationProblem:
    return ValidationProblem(field, "FieldValueForbidden", "Forbidden: field is immutable when `immutable` is set")


def _event_namespace(new: Object, old: Object | None) -> list[ValidationProblem]:
    del old
    namespace = text_at(new, ("metadata", "namespace"))
    involved_namespace = text_at(new, ("involvedObject", "namespace")) or "default"
    if namespace == involved_namespace:
        return []
    text = f'Invalid value: "{involved_namespace}": does not match event.namespace'
    return [ValidationProblem("involvedObject.namespace", "FieldValueInvalid", text)]


def _lease_times(new: Object, old: Object | None) -> list[ValidationProblem]:
    del old
    duration = lookup(new, ("spec", "leaseDurationSeconds"))
    if duration is MISSING or duration is None or duration > 0:
        return []
    text = f"Invalid value: {duration}: must be greater than 0"
    return [ValidationProblem("spec.leaseDurationSeconds", "FieldValueInvalid", text)]


_WORKLOAD: Final = _open(("spec",), spec=_open(("selector", "template"), replicas={**_COUNT, "default": 1}))
_AUTOSCALER: Final = _open(
    ("spec",),
    spec=_open(("scaleTargetRef", "maxReplicas"), minReplicas={**_COUNT, "default": 1}, maxReplicas=_COUNT),
)
_CONFIG_MAP: Final = _open(data=_TEXT_MAP, binaryData=_TEXT_MAP, immutable={"type": "boolean"})
_LEASE: Final = _open(
    spec=_open(
        holderIdentity={**_TEXT, "nullable": True},
        leaseDurationSeconds={"type": "integer", "nullable": True},
        leaseTransitions={"type": "integer", "nullable": True},
        acquireTime={**_TEXT, "format": "date-time", "nullable": True},
        renewTime={**_TEXT, "format": "date-time", "nullable": True},
    )
)
_EVENT: Final = _open(("involvedObject",), involvedObject=_open(), count={"type": "integer"}, type=_TEXT, reason=_TEXT)
_POD: Final = _open(("spec",), spec=_open(restartPolicy={**_TEXT, "default": "Always"}))

_EVENT_FIELDS: Final = (
    *(f"involvedObject.{part}" for part in ("kind", "namespace", "name", "uid", "apiVersion", "fieldPath")),
    "reason",
    "reportingComponent",
    "source",
    "type",
)
_POD_FIELDS: Final = ("spec.nodeName", "spec.restartPolicy", "spec.serviceAccountName", "status.phase", "status.podIP")


def _core(plural: str, kind: str, **more: Any) -> KindSpec:
    return KindSpec(
        group="",
        version="v1",
        plural=plural,
        kind=kind,
        singular=kind.lower(),
        built_in=True,
        unconditional_update=True,
        **{"generation": False, **more},
    )


PODS: Final = _core("pods", "Pod", short_names=("po",), status=True, fields=_POD_FIELDS, schema=_POD, generation=True)
NODES: Final = _core(
    "nodes",
    "Node",
    short_names=("no",),
    namespaced=False,
    status=True,
    status_on_create=True,
    fields=("spec.unschedulable",),
)
NAMESPACES: Final = _core(
    "namespaces", "Namespace", short_names=("ns",), namespaced=False, status=True, fields=("status.phase",)
)
CONFIG_MAPS: Final = _core("configmaps", "ConfigMap", short_names=("cm",), schema=_CONFIG_MAP, check=_frozen_data)
SECRETS: Final = _core("secrets", "Secret", schema=_CONFIG_MAP, check=_frozen_data, fields=("type",))
SERVICES: Final = _core("services", "Service", short_names=("svc",), status=True)
EVENTS: Final = _core(
    "events",
    "Event",
    short_names=("ev",),
    fields=_EVENT_FIELDS,
    schema=_EVENT,
    check=_event_namespace,
    create_on_update=True,
)
SERVICE_ACCOUNTS: Final = _core("serviceaccounts", "ServiceAccount", short_names=("sa",))
RESOURCE_QUOTAS: Final = _core("resourcequotas", "ResourceQuota", short_names=("quota",), status=True)


def _workload(plural: str, kind: str, short_name: str, *, check: Check = _selector_is_fixed) -> KindSpec:
    return KindSpec(
        group="apps",
        version="v1",
        plural=plural,
        kind=kind,
        singular=kind.lower(),
        short_names=(short_name,),
        status=True,
        scale=ScalePaths(),
        schema=_WORKLOAD,
        check=check,
        built_in=True,
        unconditional_update=True,
    )


DEPLOYMENTS: Final = _workload("deployments", "Deployment", "deploy")
REPLICA_SETS: Final = _workload("replicasets", "ReplicaSet", "rs")
STATEFUL_SETS: Final = _workload("statefulsets", "StatefulSet", "sts", check=_stateful_set)
LEASES: Final = KindSpec(
    group="coordination.k8s.io",
    version="v1",
    plural="leases",
    kind="Lease",
    singular="lease",
    schema=_LEASE,
    check=_lease_times,
    built_in=True,
    generation=False,
    create_on_update=True,
)
HORIZONTAL_POD_AUTOSCALERS: Final = KindSpec(
    group="autoscaling",
    version="v2",
    plural="horizontalpodautoscalers",
    kind="HorizontalPodAutoscaler",
    singular="horizontalpodautoscaler",
    short_names=("hpa",),
    status=True,
    schema=_AUTOSCALER,
    built_in=True,
    generation=False,
    unconditional_update=True,
)
CUSTOM_RESOURCE_DEFINITIONS: Final = KindSpec(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    singular="customresourcedefinition",
    short_names=("crd", "crds"),
    namespaced=False,
    status=True,
    schema=_open(("spec",), spec=_open(("group", "names", "scope", "versions"))),
    built_in=True,
)

BUILT_IN: Final = (
    PODS,
    NODES,
    NAMESPACES,
    CONFIG_MAPS,
    SECRETS,
    SERVICES,
    EVENTS,
    SERVICE_ACCOUNTS,
    RESOURCE_QUOTAS,
    DEPLOYMENTS,
    REPLICA_SETS,
    STATEFUL_SETS,
    LEASES,
    HORIZONTAL_POD_AUTOSCALERS,
    CUSTOM_RESOURCE_DEFINITIONS,
)
