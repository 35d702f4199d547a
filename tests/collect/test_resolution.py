"""Which Deployment a VA scales, when it scales none, and the message for the user."""

from __future__ import annotations

import pytest

from wva.api.variantautoscaling import TargetReason
from wva.collect.resolution import resolve

DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


def _resolve(cluster, va):
    return resolve(va, vas=cluster.stores.variant_autoscalings, targets=cluster.stores.targets)


def test_an_existing_deployment_is_found(cluster):
    """The resolution has the Deployment."""
    deployment = cluster.deployment("d")
    resolution = _resolve(cluster, cluster.va(target="d"))
    assert (resolution.reason, resolution.target) == (TargetReason.TARGET_FOUND, deployment)
    assert resolution.message == "Scale target Deployment d found"
    assert resolution.reason is TargetReason.TARGET_FOUND


def test_an_absent_api_version_means_apps_v1(cluster):
    """The field is optional in the CustomResourceDefinition."""
    cluster.deployment("d")
    va = cluster.va(spec={"scaleTargetRef": {"kind": "Deployment", "name": "d"}})
    assert _resolve(cluster, va).reason is TargetReason.TARGET_FOUND


def test_a_missing_deployment_is_not_found(cluster):
    """The message names the Deployment."""
    resolution = _resolve(cluster, cluster.va(target="d"))
    assert (resolution.reason, resolution.message) == (
        TargetReason.TARGET_NOT_FOUND,
        "Scale target Deployment d not found",
    )


def test_a_deployment_of_the_same_name_elsewhere_is_not_the_target(cluster):
    """A VA scales in its own namespace only."""
    cluster.deployment("d", namespace="other")
    assert _resolve(cluster, cluster.va(target="d")).reason is TargetReason.TARGET_NOT_FOUND


def test_a_deployment_being_deleted_is_not_found(cluster):
    """Its replicas go away, so there is nothing to scale."""
    cluster.deployment("d", **DELETED)
    assert _resolve(cluster, cluster.va(target="d")).reason is TargetReason.TARGET_NOT_FOUND


def test_an_empty_name_says_which_field_is_empty(cluster):
    """Objects from before the field existed have no target."""
    resolution = _resolve(cluster, cluster.va(spec={"scaleTargetRef": {}}))
    assert resolution.reason is TargetReason.TARGET_NOT_FOUND
    assert "spec.scaleTargetRef.name is empty" in resolution.message


@pytest.mark.parametrize(
    ("kind", "api_version"), [("StatefulSet", "apps/v1"), ("Deployment", "apps/v2"), ("", "apps/v2")]
)
def test_anything_but_an_apps_v1_deployment_is_unsupported(cluster, kind, api_version):
    """The message names the supported kind."""
    cluster.deployment("d")
    reference = {"kind": kind, "apiVersion": api_version, "name": "d"}
    resolution = _resolve(cluster, cluster.va(spec={"scaleTargetRef": reference}))
    assert resolution.reason is TargetReason.TARGET_UNSUPPORTED
    assert "only apps/v1 Deployment is" in resolution.message


def test_two_vas_on_one_deployment_conflict_and_name_each_other(cluster):
    """WVA accepts neither, because two scalers would change the replicas in turns."""
    cluster.deployment("d")
    spec = {"scaleTargetRef": {"kind": "Deployment", "name": "d"}}
    first, second = cluster.va("a", target="d"), cluster.va("b", spec=spec)
    for va, other in ((first, "b"), (second, "a")):
        resolution = _resolve(cluster, va)
        assert (resolution.reason, resolution.target) == (TargetReason.TARGET_CONFLICT, None)
        assert f"is also claimed by VariantAutoscaling {other};" in resolution.message


def test_a_va_being_deleted_does_not_compete(cluster):
    """A user can replace a VA by one of another name without a pause."""
    cluster.deployment("d")
    cluster.va("old", target="d", metadata=DELETED)
    assert _resolve(cluster, cluster.va("new", target="d")).reason is TargetReason.TARGET_FOUND


def test_many_competitors_are_counted_not_listed(cluster):
    """The message names some of the other VAs and counts the rest."""
    cluster.deployment("d")
    vas = [cluster.va(f"va-{index:02}", target="d") for index in range(20)]
    resolution = _resolve(cluster, vas[0])
    assert resolution.message.count("va-") == 5
    assert "and 14 more" in resolution.message


def test_the_conflict_ends_when_the_other_goes(cluster):
    """When the other VA is deleted, the target is found again."""
    cluster.deployment("d")
    va, other = cluster.va("a", target="d"), cluster.va("b", target="d")
    cluster.stores.variant_autoscalings.delete(other)
    assert _resolve(cluster, va).reason is TargetReason.TARGET_FOUND
