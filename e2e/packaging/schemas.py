"""Strict schemas for kubeconform, made from what the kinds' own sources say.

Kubernetes' kinds come from the OpenAPI document of the pinned ``k8s.io/kubernetes``, custom ones from the
CustomResourceDefinitions of the pinned KEDA and prometheus-operator and from ours. Objects take no fields that their
schema does not name, so a misspelt field is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from e2e import tools
from e2e.controlplane.build import KEDA_API, KUBERNETES_API, PROMETHEUS_OPERATOR, Module
from e2e.manifests import CRD

Schema = dict[str, Any]
_REFERENCE = "#/definitions/"
_INT_OR_STRING = {"type": ["integer", "string"]}
_QUANTITY = {"type": ["number", "string"]}
_SPECIAL = {
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _INT_OR_STRING,
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _QUANTITY,
}
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_FILE = "{{.Group}}_{{.ResourceAPIVersion}}_{{.ResourceKind}}.json"


class Kubeconform:
    """kubeconform with our schemas; schemas are written when a kind is first met."""

    def __init__(self, directory: Path) -> None:
        """``directory`` takes schemas and manifests."""
        self._schemas = directory / "schemas"
        self._manifests = directory / "manifests"
        for folder in (self._schemas, self._manifests):
            folder.mkdir()

    def problems(self, manifests: Mapping[str, Iterable[Schema]]) -> list[str]:
        """Return what is wrong with named manifests: one line for each object, empty when all are valid."""
        for name, items in manifests.items():
            objects = list(items)
            for item in objects:
                self._provide(item["apiVersion"], item["kind"])
            text = "\n---\n".join(json.dumps(item) for item in objects)  # JSON is YAML, and written fast
            (self._manifests / f"{name}.yaml").write_text(text, encoding="utf-8")
        done = tools.run(
            "kubeconform", "-strict", "-output", "json", "-schema-location", self._schemas / _FILE, self._manifests
        )
        found = json.loads(done.stdout)["resources"]
        return [
            f"{Path(entry['filename']).stem}: {entry['kind']} {entry['name']}: {entry['status']}: {entry['msg']}"
            for entry in found
        ]

    def _provide(self, api_version: str, kind: str) -> None:
        group, version = api_version.split("/", maxsplit=1)[0], api_version.rsplit("/", maxsplit=1)[-1]
        path = self._schemas / f"{group}_{version}_{kind.lower()}.json"
        if not path.exists():
            path.write_text(json.dumps(schema_of(api_version, kind)), encoding="utf-8")


def schema_of(api_version: str, kind: str) -> Schema:
    """Return the strict schema of a kind. KeyError for one that none of the sources has."""
    found = _custom(api_version, kind)
    if found is None:
        found = {"$ref": _REFERENCE + _names()[api_version, kind]}
    return {**found, "definitions": _closure(found)}


@cache
def _definitions() -> dict[str, Schema]:
    text = (_source(KUBERNETES_API, "openapi") / "swagger.json").read_text(encoding="utf-8")
    raw: dict[str, Schema] = json.loads(text)["definitions"]
    return {name: _SPECIAL.get(name) or _strict(schema) for name, schema in raw.items()}


@cache
def _names() -> dict[tuple[str, str], str]:
    """Definitions by apiVersion and kind."""
    found = {}
    for name, schema in _definitions().items():
        for entry in schema.get("x-kubernetes-group-version-kind", ()):
            version = f"{entry['group']}/{entry['version']}" if entry["group"] else entry["version"]
            found[version, entry["kind"]] = name
    return found


def _custom(api_version: str, kind: str) -> Schema | None:
    """Return the schema of a custom kind, None when none of the definitions is about it."""
    group, _, version = api_version.rpartition("/")
    for file in _definition_files():
        if not file.name.startswith(f"{group}_{kind.lower()}"):
            continue
        spec = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["spec"]
        for served in spec["versions"]:
            if (served["name"], spec["names"]["kind"]) == (version, kind):
                schema: Schema = _strict(served["schema"]["openAPIV3Schema"])
                schema["properties"]["metadata"] = {"$ref": _REFERENCE + _META}
                return schema
    return None


def _definition_files() -> list[Path]:
    folders = [_source(module, "crds") for module in (KEDA_API, PROMETHEUS_OPERATOR)]
    return [CRD, *(file for folder in folders for file in sorted(folder.glob("*.yaml")))]


def _source(module: Module, folder: str) -> Path:
    return module.binary(folder)


def _strict(schema: Any) -> Any:
    """Return a schema whose objects take no other fields than those it names."""
    if isinstance(schema, list):
        return [_strict(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return _INT_OR_STRING
    strict = {key: _strict(value) for key, value in schema.items() if key != "default"}
    open_ = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if isinstance(schema.get("properties"), dict) and not open_:
        strict["additionalProperties"] = False
    return strict


def _closure(schema: Schema) -> dict[str, Schema]:
    """Return the definitions that a schema leads to."""
    found: dict[str, Schema] = {}
    waiting = list(_references(schema))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = _definitions()[name]
            waiting += _references(found[name])
    return found


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            yield reference.removeprefix(_REFERENCE)
        for value in schema.values():
            yield from _references(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from _references(value)
