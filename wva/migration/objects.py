"""The objects of a migration, their readers for clusters and files, and the findings about them.

These structs have more fields than those in ``wva.api``, which only have the fields that the controller needs.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, NamedTuple, TextIO

import msgspec
import yaml

from wva.api import kinds, wire
from wva.api.core import ConfigMap, EnvVar, LabelSelector, Lease
from wva.api.meta import Condition, Key, KubeObject, ObjectMeta
from wva.api.resource import Resource
from wva.api.scalers import SCALED_OBJECT_KIND, ScaledTarget
from wva.command_error import CommandError
from wva.files import read_bounded
from wva.kube.client import KubeClient
from wva.kube.errors import Forbidden, NotFound
from wva.targets import DEFAULT, scaled_key

STANDARD_INPUT: Final = "-"
_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
REFUSED: Final = "may not be listed, so it was not looked at"
"""The beginning of the problem of a kind that the cluster does not show."""
_MAX_BYTES: Final = 16 * 1024 * 1024
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# --- Findings ---------------------------------------------------------------------------------------------------------


class Severity(StrEnum):
    """How bad a finding is. The worst comes first."""

    MUST = "must"
    """It does not work, or it works on a wrong number, until it is changed."""
    SHOULD = "should"
    """It works now, and will fail some day."""
    NOTE = "note"
    """It behaves differently than before. Nothing has to be done."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong with one object. ``change`` is a command or a sentence, and empty for a note."""

    severity: Severity
    kind: str
    key: Key
    problem: str
    change: str = ""

    @property
    def order(self) -> tuple[int, str, Key, str]:
        """Sorts findings by severity, then by object."""
        return (list(Severity).index(self.severity), self.kind, self.key, self.problem)


class Subject(NamedTuple):
    """An object that findings are about, and that kubectl commands change."""

    kind: str
    key: Key

    def must(self, problem: str, change: str) -> Finding:
        """Return a finding of something that has to change."""
        return Finding(Severity.MUST, self.kind, self.key, problem, change)

    def should(self, problem: str, change: str) -> Finding:
        """Return a finding of something that should change."""
        return Finding(Severity.SHOULD, self.kind, self.key, problem, change)

    def note(self, problem: str) -> Finding:
        """Return a finding that asks for no change."""
        return Finding(Severity.NOTE, self.kind, self.key, problem)

    def kubectl(self, verb: str, *words: str) -> str:
        """Return a kubectl command on the object, quoted for a shell."""
        namespace = ("-n", self.key.namespace) if self.key.namespace else ()
        return shlex.join(("kubectl", verb, self.kind.lower(), self.key.name, *namespace, *words))

    def merge_patch(self, patch: Mapping[str, object]) -> str:
        """Return the kubectl command that merges ``patch`` into the object."""
        return self.kubectl("patch", "--type", "merge", "-p", msgspec.json.encode(patch).decode())


# --- Objects ----------------------------------------------------------------------------------------------------------


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    """A part of a manifest, whose field names are in camelCase."""


class _MetricIdentifier(_Part, frozen=True):
    name: str = ""
    selector: LabelSelector = LabelSelector()


class _MetricTarget(_Part, frozen=True):
    type: str = ""
    average_value: str | int | float | None = None


class MetricSource(_Part, frozen=True):
    """The source of one metric of an HPA, whichever type it has."""

    metric: _MetricIdentifier = _MetricIdentifier()
    target: _MetricTarget = _MetricTarget()


class _Metric(_Part, frozen=True):
    type: str = ""
    external: MetricSource | None = None
    pods: MetricSource | None = None
    object: MetricSource | None = None


class Trigger(_Part, frozen=True):
    """One of a ScaledObject's triggers."""

    type: str = ""
    metric_type: str = ""
    metadata: dict[str, Any] = {}


class ManifestContainer(_Part, frozen=True):
    """A container of a pod template."""

    name: str = ""
    image: str = ""
    args: list[str] = []
    env: list[EnvVar] = []


class _TemplateSpec(_Part, frozen=True):
    containers: list[ManifestContainer] = []


class _Template(_Part, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: _TemplateSpec = _TemplateSpec()


class ManifestSpec(_Part, frozen=True):
    """``spec`` of any kind below. Fields that the manifest or the kind lacks have their default."""

    # of a VariantAutoscaling since 0.5, an HPA and a ScaledObject
    scale_target_ref: ScaledTarget = ScaledTarget()
    # of a VariantAutoscaling
    model_id: str = msgspec.field(name="modelID", default="")
    variant_cost: str | int | float | None = None
    # of an HPA
    min_replicas: int | None = None
    metrics: list[_Metric] = []
    # of a ScaledObject
    min_replica_count: int | None = None
    fallback: dict[str, Any] | None = None
    triggers: list[Trigger] = []
    # of a Deployment
    replicas: int | None = None
    template: _Template = _Template()


class Manifest(_Part, frozen=True):
    """An object as it is written."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ManifestSpec = ManifestSpec()

    @property
    def target(self) -> str:
        """Kind and name of its target, such as ``Deployment chat``; empty without one that can be scaled."""
        reference = self.spec.scale_target_ref
        return "" if self.target_key is None else f"{reference.kind or DEFAULT.resource.kind} {reference.name}"

    @property
    def target_key(self) -> str | None:
        """The key of its target, unique among all targets; None without one that can be scaled."""
        return scaled_key(self.metadata.namespace, self.spec.scale_target_ref)


class _ManifestStatus(_Part, frozen=True):
    conditions: list[Condition] = []


class ManifestVariant(Manifest, frozen=True):
    """A VariantAutoscaling of any version. Its status is empty in a file, and has conditions in a cluster."""

    status: _ManifestStatus = _ManifestStatus()


class ManifestAutoscaler(Manifest, frozen=True):
    """A HorizontalPodAutoscaler, autoscaling/v2."""


class ManifestScaledObject(Manifest, frozen=True):
    """A KEDA ScaledObject."""


class ManifestDeployment(Manifest, frozen=True):
    """A Deployment."""


def _as_written(resource: Resource[Any], type_: type[Manifest]) -> Resource[Any]:
    return replace(resource, type=type_)


RESOURCES: Final[Mapping[str, Resource[Any]]] = {
    "variants": _as_written(kinds.VARIANT_AUTOSCALINGS, ManifestVariant),
    "autoscalers": _as_written(kinds.HPAS, ManifestAutoscaler),
    "scaled_objects": _as_written(kinds.SCALED_OBJECTS, ManifestScaledObject),
    "deployments": _as_written(DEFAULT.resource, ManifestDeployment),
    "config_maps": kinds.CONFIG_MAPS,
    "leases": kinds.LEASES,
}
"""The resources to read, by their field in FoundObjects."""


def about(item: KubeObject) -> Subject:
    """Return an object as the subject of findings."""
    kind = next(resource.kind for resource in RESOURCES.values() if resource.type is type(item))
    return Subject(kind, item.metadata.key)


class FoundObjects(msgspec.Struct, kw_only=True):
    """Everything that was found.

    ``values`` has the name and the rules of each values file for the chart of prometheus-adapter. ``whole`` says that
    these are all objects of a cluster, so an object that is missing here does not exist.
    """

    variants: list[ManifestVariant] = []
    autoscalers: list[ManifestAutoscaler] = []
    scaled_objects: list[ManifestScaledObject] = []
    deployments: list[ManifestDeployment] = []
    config_maps: list[ConfigMap] = []
    leases: list[Lease] = []
    values: list[tuple[str, list[dict[str, Any]]]] = []
    whole: bool = False

    @property
    def size(self) -> int:
        """How many objects there are."""
        return sum(len(objects) for objects in msgspec.structs.astuple(self) if isinstance(objects, list))


async def read_cluster(client: KubeClient, namespace: str = "") -> tuple[FoundObjects, list[Finding]]:
    """Return the objects of the cluster, or of one namespace, and a finding for each kind that could not be read.

    Raises ApiError when the API server does not answer.
    """
    findings: list[Finding] = []
    lists: dict[str, Any] = {}
    for field, resource in RESOURCES.items():
        lists[field] = []
        problem = ""
        try:
            listed = await client.list(resource, namespace=namespace)
            lists[field] = list(listed.items)
            if listed.undecodable:
                problem = f"{listed.undecodable} objects of this kind could not be read"
        except NotFound:
            if resource.kind != SCALED_OBJECT_KIND:  # KEDA may not be installed
                problem = "is not served by this cluster: apply deploy/crd first"
        except Forbidden as error:
            problem = f"{REFUSED}: {error}"
        if problem:
            findings.append(Subject(resource.kind, Key("", resource.name)).should(problem, "check this kind by hand"))
    return FoundObjects(**lists, whole=not findings and not namespace), findings


class Manifests:
    """Collects objects from files of YAML or JSON. An object that does not decode becomes a finding."""

    def __init__(self, namespace: str = "default") -> None:
        """Begin with nothing. Objects without a namespace are in ``namespace``."""
        self._namespace = namespace
        lists: dict[str, Any] = {field: [] for field in RESOURCES}
        self._known = {
            (resource.group, resource.kind): (lists[field], resource.type) for field, resource in RESOURCES.items()
        }
        self.objects = FoundObjects(**lists)
        self.findings: list[Finding] = []

    def read(self, paths: Iterable[str], standard_input: TextIO) -> None:
        """Read files, all YAML and JSON files in folders, and standard input for ``-``. Raises CommandError."""
        for name in paths:
            if name == STANDARD_INPUT:
                self._read_text(standard_input.read(_MAX_BYTES + 1), STANDARD_INPUT)
                continue
            path = Path(name)
            try:
                files = [path]
                if path.is_dir():
                    files = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
            except OSError as error:
                raise CommandError(f"{name}: {error.strerror}") from error
            for file in files:
                try:
                    text = read_bounded(file, _MAX_BYTES).decode("utf-8")
                except OSError as error:
                    raise CommandError(f"{file}: {error.strerror}: expected a file of manifests") from error
                except UnicodeDecodeError as error:
                    raise CommandError(f"{file}: expected text in UTF-8") from error
                self._read_text(text, str(file))

    def _read_text(self, text: str, origin: str) -> None:
        if len(text) > _MAX_BYTES:
            raise CommandError(f"{origin}: expected at most {_MAX_BYTES // 1024 // 1024} MiB")
        try:
            for document in yaml.load_all(text, Loader=_LOADER):
                self._take(document, origin)
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            reason = " ".join(str(error).split())[:200]
            raise CommandError(f"{origin}: expected YAML or JSON (a chart is rendered first): {reason}") from error

    def _take(self, document: Any, origin: str) -> None:
        """Take a document, or each item of a list of kubectl."""
        if not isinstance(document, dict):
            return
        kind, items = str(document.get("kind", "")), document.get("items")
        if kind.endswith("List") and isinstance(items, list):
            for item in items:
                self._take(item, origin)
            return
        group, _, version = str(document.get("apiVersion", "")).partition("/")
        destination = self._known.get((group if version else "", kind))
        if destination is not None:
            metadata = document.get("metadata")
            fields = metadata if isinstance(metadata, dict) else {}
            key = Key(str(fields.get("namespace") or self._namespace), str(fields.get("name", "")))
            whole = {**wire.without_nulls(document), "metadata": {**wire.without_nulls(fields), **key._asdict()}}
            objects, type_ = destination
            try:
                objects.append(msgspec.convert(whole, type_, strict=False))
            except (msgspec.ValidationError, ValueError) as error:
                problem = f"cannot be read: {error} (in {origin})"
                self.findings.append(Subject(kind, key).must(problem, "mend the field that is named"))
        elif not kind:
            # A document without a kind may be the values of the adapter's chart.
            rules = document.get("rules")
            external = rules.get("external") if isinstance(rules, dict) else None
            if isinstance(external, list):
                self.objects.values.append((origin, [rule for rule in external if isinstance(rule, dict)]))
