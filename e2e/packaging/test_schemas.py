"""The schema check finds the errors that the API server would refuse, in Kubernetes' kinds and in custom kinds."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest

from e2e.controlplane.api import Body
from e2e.packaging import chart
from e2e.packaging.chart import only, render
from e2e.packaging.schemas import OLDEST, problems

INSTALL = Path(__file__).parents[2] / "docs" / "install.md"


@cache
def _items() -> list[Body]:
    return render({"actuator": "keda", "observability": {"alerts": {"enabled": True}}}, apis=[chart.MONITORING])


def _wrong(kind: str, change: Callable[[Body], object], *, ending: str = "") -> list[str]:
    item = deepcopy(only(_items(), kind, ending))
    assert problems({"right": [item]}) == []
    change(item)
    return problems({"wrong": [item]})


@pytest.mark.parametrize(
    ("kind", "field", "where"),
    [
        ("Deployment", "replica", "$.spec"),
        ("VariantAutoscaling", "modelId", "$.spec"),
        ("ScaledObject", "minReplicas", "$.spec"),
        ("PrometheusRule", "group", "$.spec"),
    ],
)
def test_a_misspelt_field(kind: str, field: str, where: str):
    """The error names the field and its place."""
    (found,) = _wrong(kind, lambda item: item["spec"].update({field: 1}))
    assert found.startswith(f"wrong: {kind} ")
    assert f": {where}: Additional properties are not allowed ('{field}' was unexpected)" in found


def test_a_misspelt_field_in_a_list():
    """The check finds a misspelt field below lists and references, too."""
    (found,) = _wrong(
        "Deployment",
        lambda item: item["spec"]["template"]["spec"]["containers"][0].update(imagePullPolice="Always"),
    )
    assert "$.spec.template.spec.containers[0]: " in found


@pytest.mark.parametrize("kind", ["Deployment", "VariantAutoscaling", "ScaledObject", "ServiceMonitor"])
def test_a_misspelt_field_of_the_metadata(kind: str):
    """Custom kinds have the metadata of every kind, of which their own definitions say nothing."""
    (found,) = _wrong(kind, lambda item: item["metadata"].update(label={}), ending=ENDINGS.get(kind, ""))
    assert "$.metadata: " in found


ENDINGS = {"ServiceMonitor": "metrics-monitor"}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("Deployment", lambda item: item["spec"].update(replicas="1")),
        ("VariantAutoscaling", lambda item: item["spec"].update(modelID=7)),
        ("ScaledObject", lambda item: item["spec"].update(minReplicaCount="1")),
        ("ServiceMonitor", lambda item: item["spec"]["endpoints"][0].update(port=8443)),
    ],
)
def test_a_value_of_another_type(kind: str, change: Callable[[Body], object]):
    """The check refuses a number as a text, and a text as a number."""
    (found,) = _wrong(kind, change, ending=ENDINGS.get(kind, ""))
    assert " is not of type " in found


@pytest.mark.parametrize("kind", ["Deployment", "VariantAutoscaling", "ScaledObject"])
def test_a_field_that_must_be_there(kind: str):
    """The check refuses a workload or scaler without a required field."""
    field = "selector" if kind == "Deployment" else "scaleTargetRef"
    (found,) = _wrong(kind, lambda item: item["spec"].pop(field))
    assert f"'{field}' is a required property" in found


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("Deployment", {"kind": "Deploymen"}),
        ("Deployment", {"apiVersion": "apps/v1beta1"}),
        ("Deployment", {"apiVersion": "apps.example.org/v1"}),
        ("VariantAutoscaling", {"apiVersion": "llmd.ai/v1"}),
        ("ScaledObject", {"kind": "ScaledObjects"}),
    ],
)
def test_an_unknown_kind(kind: str, change: dict[str, str]):
    """The check refuses a kind, version or group that no server has."""
    (found,) = _wrong(kind, lambda item: item.update(change))
    assert "find schema" in found or "is not one of ['apps/v1']" in found


def test_a_field_that_the_oldest_kubernetes_does_not_have():
    """Resources of a whole pod came with 1.32: only what the oldest supported version knows may be used."""
    (found,) = _wrong("Deployment", lambda item: item["spec"]["template"]["spec"].update(resources={}))
    assert "$.spec.template.spec: Additional properties are not allowed ('resources' was unexpected)" in found


def test_the_oldest_kubernetes_is_the_one_that_is_promised():
    """The page about installing names the oldest version that the tests check."""
    assert f"| Kubernetes {OLDEST} or newer," in INSTALL.read_text(encoding="utf-8")
