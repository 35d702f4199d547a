"""The CustomResourceDefinition is that of v0.5.1 in every copy, and the API server enforces it."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import yaml

from wva.api.crd import definition, render
from wva.api.meta import Key
from wva.api.variantautoscaling import ConditionType, VariantAutoscaling
from wva.sim.apiserver import ObjectStore, Patch, ServedError, StoreOptions, kind_from_definition

ROOT = Path(__file__).parents[2]
COPIES = sorted(
    [
        *ROOT.glob("deploy/crd/*variantautoscalings*.yaml"),
        *ROOT.glob("charts/workload-variant-autoscaler/crds/*variantautoscalings*.yaml"),
    ]
)
VARIANTS = "variantautoscalings.llmd.ai"
KEY = Key("ns", "va")
TARGET = {"kind": "Deployment", "name": "d"}


def version():
    """Return the only version."""
    (only,) = definition()["spec"]["versions"]
    return only


def schema(*path):
    """Return the schema of a field by its path of properties."""
    found = version()["schema"]["openAPIV3Schema"]
    for name in path:
        found = found["items"] if name == "[]" else found["properties"][name]
    return found


def test_the_identity_is_that_of_the_original():
    """Group, version, names and scope are the same, because clusters already have such objects."""
    spec = definition()["spec"]
    assert definition()["metadata"]["name"] == VARIANTS
    assert (spec["group"], spec["scope"], version()["name"]) == ("llmd.ai", "Namespaced", "v1alpha1")
    assert spec["names"] == {
        "kind": "VariantAutoscaling",
        "listKind": "VariantAutoscalingList",
        "plural": "variantautoscalings",
        "singular": "variantautoscaling",
        "shortNames": ["va"],
    }
    assert version()["served"] is True
    assert version()["storage"] is True
    assert version()["subresources"] == {"status": {}}
    assert "conversion" not in spec


def columns():
    """Return the printer columns by name."""
    return {column["name"]: column for column in version()["additionalPrinterColumns"]}


def test_the_printer_columns_tell_where_a_variant_stands():
    """``kubectl get va`` shows the narrow columns in this order, and ``-o wide`` adds the others."""
    narrow = [name for name, column in columns().items() if not column.get("priority")]
    wide = [name for name, column in columns().items() if column.get("priority") == 1]
    assert narrow == ["Model", "Accelerator", "Current", "Desired", "Ready", "Reason", "Age"]
    assert wide == [
        "Target",
        "Role",
        "Cost",
        "MetricsReady",
        "Limited",
        "OnTime",
        "InTime",
        "Actuated",
        "Optimized",
        "CurrentReplicas",
    ]
    assert len(columns()) == len(version()["additionalPrinterColumns"])


def test_the_printer_columns_of_the_original_are_there():
    """Name, type and path are the same, because scripts read them."""
    original = [
        ("Target", "string", ".spec.scaleTargetRef.name"),
        ("Model", "string", ".spec.modelID"),
        ("Optimized", "string", ".status.desiredOptimizedAlloc.numReplicas"),
        ("MetricsReady", "string", ".status.conditions[?(@.type=='MetricsAvailable')].status"),
        ("Age", "date", ".metadata.creationTimestamp"),
    ]
    for name, type_, path in original:
        assert (columns()[name]["type"], columns()[name]["jsonPath"]) == (type_, path)


def test_every_printer_column_reads_what_a_status_has():
    """Each path leads to a field of the schema, or to a condition that the controller writes."""
    for column in columns().values():
        path = column["jsonPath"]
        condition = re.fullmatch(r"\.status\.conditions\[\?\(@\.type=='(\w+)'\)\]\.(status|reason)", path)
        if condition:
            assert condition[1] in set(ConditionType)
        elif not path.startswith(".metadata"):
            found = schema(*path.removeprefix(".").split("."))
            assert found["type"] == column["type"] or column["type"] == "string"


def test_the_spec_is_that_of_the_original():
    """The fields, the required ones, the default and the pattern are the same, but a target needs no kind."""
    spec = schema("spec")
    assert set(spec["properties"]) == {"scaleTargetRef", "modelID", "variantCost"}
    assert sorted(spec["required"]) == ["modelID", "scaleTargetRef"]
    assert schema("spec", "modelID")["minLength"] == 1
    cost = schema("spec", "variantCost")
    assert (cost["type"], cost["default"], cost["pattern"]) == ("string", "10.0", r"^\d+(\.\d+)?$")
    target = schema("spec", "scaleTargetRef")
    assert set(target["properties"]) == {"apiVersion", "kind", "name"}
    assert target["required"] == ["name"]
    assert target["x-kubernetes-map-type"] == "atomic"
    assert {name: field.get("default") for name, field in target["properties"].items()} == {
        "apiVersion": None,
        "kind": "Deployment",
        "name": None,
    }
    assert all(set(field) - {"default"} == {"type", "description"} for field in target["properties"].values())


def test_the_status_is_that_of_the_original_and_two_fields_more():
    """The additional fields are ``currentReplicas`` and ``role``."""
    ours = {"currentReplicas", "role"}
    assert set(schema("status")["properties"]) == {"desiredOptimizedAlloc", "actuation", "conditions"} | ours
    assert (schema("status", "currentReplicas")["type"], schema("status", "currentReplicas")["minimum"]) == (
        "integer",
        0,
    )
    allocation = schema("status", "desiredOptimizedAlloc")
    assert sorted(allocation["required"]) == ["accelerator", "numReplicas"]
    assert schema("status", "desiredOptimizedAlloc", "accelerator")["minLength"] == 2
    assert schema("status", "desiredOptimizedAlloc", "numReplicas")["minimum"] == 0
    assert schema("status", "desiredOptimizedAlloc", "lastRunTime")["format"] == "date-time"
    assert schema("status", "actuation")["required"] == ["applied"]
    conditions = schema("status", "conditions")
    assert conditions["x-kubernetes-list-type"] == "map"
    assert conditions["x-kubernetes-list-map-keys"] == ["type"]
    assert sorted(schema("status", "conditions", "[]")["required"]) == [
        "lastTransitionTime",
        "message",
        "reason",
        "status",
        "type",
    ]


def test_neither_spec_nor_status_is_required():
    """The API server accepts an object without a spec, as in the original."""
    assert "required" not in version()["schema"]["openAPIV3Schema"]


def test_every_field_is_described():
    """``kubectl explain`` shows a description for every field."""

    def walk(node, path):
        for name, field in node.get("properties", {}).items():
            if (path, name) != ("", "metadata"):
                assert field.get("description"), f"{path}.{name}"
            walk(field, f"{path}.{name}")
        if "items" in node:
            walk(node["items"], f"{path}[]")

    walk(version()["schema"]["openAPIV3Schema"], "")


def test_there_is_a_copy_for_manifests_and_one_for_the_chart():
    """Without copies the next test would compare nothing."""
    assert len(COPIES) == 2


@pytest.mark.parametrize("path", COPIES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_copies_are_current(path):
    """The generated files have the definition of the source."""
    name = path.relative_to(ROOT)
    assert path.read_text(encoding="utf-8") == render(), f"{name} is stale: run `wva crd > {name}`"


def test_rendering_gives_the_definition_back():
    """The YAML reads back as the definition."""
    assert yaml.safe_load(render()) == definition()


# --- what the API server makes of it ---------------------------------------------------------------------------------


@pytest.fixture
def store():
    """Return an API server to which the definition was applied as users do it."""
    made = ObjectStore(now=lambda: 1_700_000_000.0, options=StoreOptions(namespaces=("ns",)))
    made.create("customresourcedefinitions.apiextensions.k8s.io", yaml.safe_load(render()))
    return made


def create(store, spec):
    """Create a VariantAutoscaling with a spec."""
    return store.create(VARIANTS, {"metadata": {"name": "va", "namespace": "ns"}, "spec": spec})


def test_the_definition_is_accepted_and_established(store):
    """The API server serves the kind from then on."""
    assert store.list(VARIANTS) == []
    assert kind_from_definition(definition()).kind == "VariantAutoscaling"


def test_the_cost_has_a_default(store):
    """The API server stores an object without a cost with 10.0."""
    assert create(store, {"modelID": "m", "scaleTargetRef": TARGET})["spec"]["variantCost"] == "10.0"


def test_a_target_without_a_kind_is_a_deployment(store):
    """The API server stores the kind, and the controller reads it so where an older definition stored none."""
    stored = create(store, {"modelID": "m", "scaleTargetRef": {"name": "d"}})
    assert stored["spec"]["scaleTargetRef"] == TARGET
    for reference in ({"name": "d"}, {"name": "d", "kind": ""}):
        va = msgspec.convert({"spec": {"modelID": "m", "scaleTargetRef": reference}}, VariantAutoscaling)
        assert va.spec.scale_target_ref.kind == "Deployment"


@pytest.mark.parametrize("cost", ["0", "5", "40.5", "007"])
def test_costs_that_are_accepted(store, cost):
    """A cost is a quoted number without sign and exponent."""
    assert create(store, {"modelID": "m", "scaleTargetRef": TARGET, "variantCost": cost})["spec"]["variantCost"] == cost


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"modelID": "", "scaleTargetRef": TARGET}, "modelID"),
        ({"scaleTargetRef": TARGET}, "modelID"),
        ({"modelID": "m"}, "scaleTargetRef"),
        ({"modelID": "m", "scaleTargetRef": {"kind": "Deployment"}}, "name"),
        *(
            ({"modelID": "m", "scaleTargetRef": TARGET, "variantCost": cost}, "variantCost")
            for cost in ("", "-1", "1.", ".5", "1e3", "ten", 10, 10.0)
        ),
    ],
)
def test_what_the_schema_refuses(store, spec, complaint):
    """The API server answers 422 with the name of the field."""
    with pytest.raises(ServedError, match=complaint) as refused:
        create(store, spec)
    assert refused.value.code == 422


@pytest.mark.parametrize("name", ["", "d"])
def test_an_empty_target_name_passes_the_schema(store, name):
    """The schema accepts it as in the original, and the controller reports it."""
    target = {"kind": "Deployment", "name": name}
    assert create(store, {"modelID": "m", "scaleTargetRef": target})["spec"]["scaleTargetRef"] == target


@pytest.mark.parametrize(
    "allocation",
    [{}, {"accelerator": "H100"}, {"accelerator": "H", "numReplicas": 1}, {"accelerator": "H100", "numReplicas": -1}],
)
def test_a_partial_allocation_is_refused(store, allocation):
    """Therefore the controller writes the whole allocation or removes it."""
    create(store, {"modelID": "m", "scaleTargetRef": TARGET})
    with pytest.raises(ServedError) as refused:
        store.patch_status(VARIANTS, KEY, {"desiredOptimizedAlloc": allocation})
    assert refused.value.code == 422


def test_the_status_is_written_through_its_subresource_only(store):
    """A write to the object does not change the status."""
    create(store, {"modelID": "m", "scaleTargetRef": TARGET})
    body = {"status": {"desiredOptimizedAlloc": {"accelerator": "H100", "numReplicas": 1}}}
    assert "status" not in store.patch(VARIANTS, KEY, Patch(body=body))
    assert store.patch(VARIANTS, KEY, Patch(body=body, subresource="status"))["status"] == body["status"]
