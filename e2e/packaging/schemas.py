"""Finds errors in rendered manifests without an API server.

Kubernetes' kinds are checked by the strict schemas of ``kubernetes-validate``, once for the oldest version that is
supported and once for the one that ``e2e`` runs, so that nothing newer than the oldest is used. Custom kinds are
checked by the CustomResourceDefinitions of the pinned KEDA, Prometheus Operator and cert-manager and by ours. A field
that the schema does not name, a value of another type and an unknown kind are errors. The API server judges what
schemas cannot express (``e2e/test_manifests.py``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from e2e.controlplane.build import CERT_MANAGER, KEDA_API, KUBERNETES, PROMETHEUS_OPERATOR
from e2e.manifests import CRD

Schema = dict[str, Any]
OLDEST = "1.29"  # what docs/install.md promises
_VERSIONS = (OLDEST, KUBERNETES.version.rpartition(".")[0])


def problems(manifests: Mapping[str, Iterable[Schema]]) -> list[str]:
    """Return the problems of named manifests: one line for each invalid object."""
    return [
        f"{name}: {item['kind']} {item['metadata']['name']}: {found}"
        for name, items in manifests.items()
        for item in items
        if (found := _problem(json.dumps(item)))
    ]


@cache  # most objects are the same in many manifests
def _problem(text: str) -> str:
    """Return the first problem of an object, empty when it is valid."""
    item = json.loads(text)
    try:
        schema = _custom(item["apiVersion"], item["kind"])
        if schema is not None:
            jsonschema.Draft202012Validator(schema).validate(item)
            item = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": item["metadata"]}  # all kinds have the same
        for version in _VERSIONS:
            used = kubernetes_validate.validate(item, version, strict=True)
            assert used == version, f"kubernetes-validate has no schemas of {version} and took those of {used}"
    except jsonschema.ValidationError as error:
        return f"{error.json_path}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError as error:
        return error.message
    return ""


@cache
def _custom(api_version: str, kind: str) -> Schema | None:
    """Return the strict schema of a custom kind, None when none of the definitions is about it."""
    group, _, version = api_version.rpartition("/")
    folders = [module.binary("crds") for module in (KEDA_API, PROMETHEUS_OPERATOR, CERT_MANAGER)]
    for file in (CRD, *(file for folder in folders for file in sorted(folder.glob(f"{group}_*.yaml")))):
        if not file.name.startswith(f"{group}_{kind.lower()}"):
            continue
        spec = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["spec"]
        for served in spec["versions"]:
            if (served["name"], spec["names"]["kind"]) == (version, kind):
                schema: Schema = _strict(served["schema"]["openAPIV3Schema"])
                return schema
    return None


def _strict(schema: Any) -> Any:
    """Return a schema whose objects take no other fields than those it names."""
    if isinstance(schema, list):
        return [_strict(entry) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    strict = {key: _strict(value) for key, value in schema.items()}
    open_ = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if isinstance(schema.get("properties"), dict) and not open_:
        strict["additionalProperties"] = False
    return strict
