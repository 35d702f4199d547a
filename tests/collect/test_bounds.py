"""The bounds of a variant: from its HPA and ScaledObject, narrowed by annotations."""

from __future__ import annotations

import msgspec
import pytest

from wva.api.scalers import HorizontalPodAutoscaler, ScaledObject
from wva.api.variantautoscaling import ScaleTargetRef, VariantAutoscaling
from wva.collect.resolution import ScalerStores, bound_problems, bounds_of
from wva.kube.cache import Store

DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}


@pytest.fixture
def scalers():
    """Return empty caches with their indexes."""
    stores = ScalerStores(hpas=Store(), scaled_objects=Store())
    stores.add_indexes()
    return stores


def va(**annotations):
    """Return a VariantAutoscaling of Deployment d with annotations, underscores standing for dashes."""
    written = {f"wva.llmd.ai/{name.replace('_', '-')}": text for name, text in annotations.items()}
    body = {
        "metadata": {"name": "va", "namespace": "ns", "annotations": written},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "d"}, "modelID": "m"},
    }
    return msgspec.convert(body, VariantAutoscaling)


def hpa(scalers, name="hpa", *, target=DEPLOYMENT, owner=None, namespace="ns", **spec):
    """Put an HPA."""
    owners = [{"kind": owner, "name": "x", "uid": "u", "controller": True}] if owner else []
    body = {
        "metadata": {"name": name, "namespace": namespace, "ownerReferences": owners},
        "spec": {"scaleTargetRef": target, **spec},
    }
    scalers.hpas.upsert(msgspec.convert(body, HorizontalPodAutoscaler))


def scaled_object(scalers, name="so", *, target=None, annotations=None, **spec):
    """Put a ScaledObject."""
    body = {
        "metadata": {"name": name, "namespace": "ns", "annotations": annotations or {}},
        "spec": {"scaleTargetRef": target or {"name": "d"}, **spec},
    }
    scalers.scaled_objects.upsert(msgspec.convert(body, ScaledObject))


def reach(made):
    """Return the numbers of bounds."""
    return made.minimum, made.maximum


def test_without_a_scaler_there_are_no_bounds(scalers):
    """Without a scaler a variant has only the bounds of its annotations."""
    assert reach(bounds_of(va(), scalers)) == (None, None)
    assert reach(bounds_of(va(min_replicas="3"), scalers)) == (3, None)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"maxReplicas": 5}, (1, 5)),
        ({"minReplicas": 0, "maxReplicas": 5}, (0, 5)),
        ({"minReplicas": 2, "maxReplicas": 2}, (2, 2)),
    ],
)
def test_an_hpa_sets_its_replicas(scalers, spec, expected):
    """An absent minimum is 1, as in the API server; the origin names the HPA."""
    hpa(scalers, **spec)
    found = bounds_of(va(), scalers)
    assert reach(found) == expected
    assert (found.minimum_origin, found.maximum_origin) == ("HPA hpa", "HPA hpa")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, (0, 100)),
        ({"minReplicaCount": 2, "maxReplicaCount": 4}, (2, 4)),
        ({"minReplicaCount": 2, "idleReplicaCount": 0}, (0, 100)),
    ],
)
def test_a_scaled_object_sets_its_replicas(scalers, spec, expected):
    """KEDA's defaults are 0 and 100; the idle count lowers the minimum."""
    scaled_object(scalers, **spec)
    assert reach(bounds_of(va(), scalers)) == expected


def test_a_paused_scaled_object_reaches_one_number(scalers):
    """KEDA holds the target at the number of the annotation; a text that is not a number is ignored."""
    scaled_object(scalers, annotations={"autoscaling.keda.sh/paused-replicas": "3"})
    found = bounds_of(va(), scalers)
    assert reach(found) == (3, 3)
    assert found.maximum_origin == "ScaledObject so, paused"
    scaled_object(scalers, annotations={"autoscaling.keda.sh/paused-replicas": "many"})
    assert reach(bounds_of(va(), scalers)) == (0, 100)


@pytest.mark.parametrize("text", ["9" * 30, "9" * 400, "9" * 5_000, "2147483648", "-1", "many"])
def test_a_pause_at_no_number_of_replicas_is_told_and_left_out(scalers, text):
    """The range of the ScaledObject stays in force, and one short line says so."""
    scaled_object(scalers, annotations={"autoscaling.keda.sh/paused-replicas": text}, maxReplicaCount=7)
    assert reach(bounds_of(va(), scalers)) == (0, 7)
    (line,) = bound_problems(va(), scalers)
    assert line.startswith("ScaledObject so: annotation autoscaling.keda.sh/paused-replicas: got '")
    assert line.endswith(", expected a whole number from 0 to 2,147,483,647; in force: its range, 0 to 7")
    assert len(line) < 250


def test_a_number_in_a_scaler_that_none_can_be_of_replicas_is_told_and_left_out(scalers):
    """WVA ignores and reports numbers out of range, in case the API server did not check them."""
    scaled_object(scalers, minReplicaCount=-3, idleReplicaCount=10**30, maxReplicaCount=2**31)
    assert reach(bounds_of(va(), scalers)) == (0, 100)
    assert len(bound_problems(va(), scalers)) == 3
    hpa(scalers, "other", target={"kind": "Deployment", "name": "e"}, minReplicas=-3, maxReplicas=10**30)
    other = msgspec.structs.replace(
        va(), spec=msgspec.structs.replace(va().spec, scale_target_ref=ScaleTargetRef("Deployment", "e"))
    )
    assert reach(bounds_of(other, scalers)) == (1, None)
    assert [line.partition(":")[0] for line in bound_problems(other, scalers)] == ["HPA other", "HPA other"]


def test_the_hpa_that_keda_made_is_left_out(scalers):
    """KEDA scales to zero itself, so the minimum of its HPA does not count beside the ScaledObject."""
    hpa(scalers, owner="ScaledObject", minReplicas=1, maxReplicas=9)
    assert reach(bounds_of(va(), scalers)) == (1, 9)
    scaled_object(scalers, minReplicaCount=0, maxReplicaCount=7)
    assert reach(bounds_of(va(), scalers)) == (0, 7)


def test_several_scalers_allow_what_all_of_them_allow(scalers):
    """The highest minimum and the lowest maximum count, and each bound names its scaler."""
    hpa(scalers, "wide", minReplicas=1, maxReplicas=9)
    hpa(scalers, "narrow", minReplicas=2, maxReplicas=4)
    found = bounds_of(va(), scalers)
    assert reach(found) == (2, 4)
    assert (found.minimum_origin, found.maximum_origin) == ("HPA narrow", "HPA narrow")


@pytest.mark.parametrize(
    "target",
    [
        {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "d"},
        {"apiVersion": "argoproj.io/v1alpha1", "kind": "Deployment", "name": "d"},
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "other"},
        {"apiVersion": "apps/v1", "kind": "Deployment"},
    ],
)
def test_a_scaler_of_something_else_says_nothing(scalers, target):
    """A scaler with another target gives no bounds."""
    hpa(scalers, target=target, maxReplicas=3)
    scaled_object(scalers, target=target, maxReplicaCount=3)
    assert reach(bounds_of(va(), scalers)) == (None, None)


def test_a_scaler_of_another_namespace_says_nothing(scalers):
    """A scaler gives bounds in its own namespace only."""
    hpa(scalers, namespace="elsewhere", maxReplicas=3)
    assert reach(bounds_of(va(), scalers)) == (None, None)


def test_annotations_narrow(scalers):
    """Annotations cannot widen the bounds of the scaler."""
    hpa(scalers, minReplicas=2, maxReplicas=8)
    assert reach(bounds_of(va(min_replicas="3", max_replicas="5"), scalers)) == (3, 5)
    assert reach(bounds_of(va(min_replicas="0", max_replicas="100"), scalers)) == (2, 8)
    found = bounds_of(va(max_replicas="5"), scalers)
    assert found.maximum_origin == "annotation wva.llmd.ai/max-replicas"


@pytest.mark.parametrize("text", ["", "-1", "1.5", "three", "1e3", "٣", "9" * 10, " 3"])
def test_an_annotation_that_is_no_number_is_told_and_left_out(scalers, text):
    """The line names the key, the value, the expected number and the number in force."""
    hpa(scalers, minReplicas=2, maxReplicas=8)
    written = va(max_replicas=text)
    assert reach(bounds_of(written, scalers)) == (2, 8)
    (line,) = bound_problems(written, scalers)
    assert "wva.llmd.ai/max-replicas" in line
    assert repr(text) in line
    assert "expected a whole number" in line
    assert bound_problems(va(max_replicas="5"), scalers) == []


def test_a_long_annotation_is_cut_in_the_line(scalers):
    """A condition message must stay short."""
    (line,) = bound_problems(va(min_replicas="x" * 1_000_000), scalers)
    assert len(line) < 200
