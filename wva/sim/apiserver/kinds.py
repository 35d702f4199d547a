"""The definition of a kind, and the registry of the kinds that the API server serves.

A ``KindSpec`` comes from ``builtin`` (the kinds of Kubernetes itself that the product or its world uses) or from a
CustomResourceDefinition document. One version per kind is served: the storage version. The registry may change while
the server runs, since a CRD can be posted or deleted at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import msgspec

from wva.sim.apiserver.objects import Object, Path, dotted

METADATA_FIELDS = ("metadata.name", "metadata.namespace")


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where the scale subresource finds its numbers; ``selector`` leads to a text or to a LabelSelector."""

    spec_replicas: Path = ("spec", "replicas")
    status_replicas: Path = ("status", "replicas")
    selector: Path | None = ("spec", "selector")


@dataclass(frozen=True, slots=True)
class ValidationProblem:
    """One finding of validation: the field, a machine-readable reason (``FieldValueRequired``), a sentence."""

    field: str
    reason: str
    message: str


Check: TypeAlias = Callable[[Object, Object | None], list[ValidationProblem]]


def no_check(new: Object, old: Object | None) -> list[ValidationProblem]:
    """Find nothing: the check of kinds without rules beyond their schema."""
    del new, old
    return []


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KindSpec:
    """One served kind.

    ``schema`` is a structural OpenAPI v3 schema, None when every object is accepted. ``fields`` are the field selectors
    beyond name and namespace. ``check`` compares the new object with the old one and finds the problems that a schema
    cannot express.
    """

    group: str
    version: str
    plural: str
    kind: str
    singular: str = ""
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    status: bool = False
    scale: ScalePaths | None = None
    schema: Mapping[str, Any] | None = None
    fields: tuple[str, ...] = ()
    check: Check = no_check
    built_in: bool = False
    generation: bool = True
    unconditional_update: bool = False
    create_on_update: bool = False
    status_on_create: bool = False

    @property
    def name(self) -> str:
        """The resource's full name: ``deployments.apps``, or ``pods`` in the core group."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        """The kind with its group, as validation messages name it: ``Deployment.apps``."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def api_version(self) -> str:
        """``apps/v1``, or ``v1`` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def type_meta(self) -> bytes:
        """The opening of an encoded object: its kind and version, up to the following field."""
        encoded = msgspec.json.encode({"apiVersion": self.api_version, "kind": self.kind})
        return encoded[:-1] + b","

    @property
    def selectable(self) -> tuple[str, ...]:
        """All fields that a field selector may name."""
        return METADATA_FIELDS + self.fields


class Named(Protocol):
    """Anything that knows its resource name: a ``KindSpec`` or a ``wva.api`` resource."""

    @property
    def name(self) -> str:
        """``plural.group``."""
        ...


Kind: TypeAlias = str | Named


class Registry:
    """The kinds that are served at the moment."""

    def __init__(self, specs: Iterable[KindSpec] = ()) -> None:
        """Start with ``specs``."""
        self._by_name: dict[str, KindSpec] = {}
        for spec in specs:
            self.add(spec)

    def __iter__(self) -> Iterator[KindSpec]:
        """Iterate in the order of registration."""
        return iter(tuple(self._by_name.values()))

    def add(self, spec: KindSpec) -> None:
        """Serve ``spec``, in place of an older one of the same name."""
        self._by_name[spec.name] = spec

    def remove(self, spec: KindSpec) -> None:
        """Stop serving the kind."""
        self._by_name.pop(spec.name, None)

    def get(self, kind: Kind) -> KindSpec:
        """Return the kind. Raises KeyError when it is not served."""
        return self._by_name[kind if isinstance(kind, str) else kind.name]

    def find(self, group: str, version: str, plural: str) -> KindSpec | None:
        """Return the kind behind a URL, or None."""
        spec = self._by_name.get(f"{plural}.{group}" if group else plural)
        return spec if spec is not None and spec.version == version else None

    def group_versions(self) -> dict[str, list[str]]:
        """Return the served versions by group."""
        result: dict[str, list[str]] = {}
        for spec in self._by_name.values():
            versions = result.setdefault(spec.group, [])
            if spec.version not in versions:
                versions.append(spec.version)
        return result


def kind_from_definition(definition: Object) -> KindSpec:
    """Return the kind that a CustomResourceDefinition document (``apiextensions.k8s.io/v1``) defines.

    Raises KeyError when the document lacks a field that every definition has.
    """
    spec = definition["spec"]
    names = spec["names"]
    versions = spec["versions"]
    version = next(
        (candidate for candidate in versions if candidate.get("storage") and candidate.get("served")), versions[0]
    )
    subresources = version.get("subresources") or {}
    return KindSpec(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        singular=names.get("singular", names["kind"].lower()),
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames", ())),
        status="status" in subresources,
        scale=_scale_paths(subresources.get("scale")),
        schema=(version.get("schema") or {}).get("openAPIV3Schema"),
        fields=tuple(field["jsonPath"].lstrip(".") for field in version.get("selectableFields", ())),
    )


def _scale_paths(scale: Object | None) -> ScalePaths | None:
    if scale is None:
        return None
    selector = scale.get("labelSelectorPath")
    return ScalePaths(
        spec_replicas=dotted(scale["specReplicasPath"]),
        status_replicas=dotted(scale["statusReplicasPath"]),
        selector=dotted(selector) if selector else None,
    )
