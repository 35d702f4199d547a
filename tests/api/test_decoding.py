"""How WVA decodes objects of API servers: whole and partial ones, with nulls and unknown fields, and broken ones.

``tests/fuzz`` draws bodies of any shape.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from tests.builders import decoded_list
from wva import targets
from wva.api import kinds
from wva.api.meta import Key
from wva.api.resource import Resource

ALL = [value for value in (*vars(kinds).values(), *vars(targets).values()) if isinstance(value, Resource)]
NULLABLE = ("labels", "annotations", "ownerReferences", "creationTimestamp", "deletionTimestamp", "generation")


def encoded(value):
    """Return the bytes of a document."""
    return json.dumps(value).encode()


DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {
        "name": "llama-decode",
        "namespace": "llm",
        "uid": "6f4922f4-5568-4a9b-96b0-3c5d5c31a6d1",
        "resourceVersion": "812345",
        "generation": 4,
        "creationTimestamp": "2026-01-02T03:04:05Z",
        "labels": {"app": "llama"},
        "annotations": {"deployment.kubernetes.io/revision": "3"},
        "managedFields": [{"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "llama"}},
        "template": {
            "metadata": {"creationTimestamp": None, "labels": {"app": "llama"}},
            "spec": {
                "containers": [
                    {
                        "name": "vllm",
                        "image": "vllm/vllm-openai",
                        "resources": {"limits": {"nvidia.com/gpu": "1", "memory": "64Gi"}, "requests": {"cpu": 4}},
                    }
                ],
                "terminationGracePeriodSeconds": 30,
            },
        },
        "strategy": {"type": "RollingUpdate"},
    },
    "status": {"observedGeneration": 4, "replicas": 2, "readyReplicas": 1, "unavailableReplicas": 1, "conditions": []},
}
VARIANT = {
    "apiVersion": "llmd.ai/v1alpha1",
    "kind": "VariantAutoscaling",
    "metadata": {"name": "llama", "namespace": "llm", "labels": {"inference.optimization/acceleratorName": "H100"}},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "llama-decode"},
        "modelID": "meta/llama",
        "variantCost": "40.0",
    },
    "status": {
        "desiredOptimizedAlloc": {"accelerator": "H100", "numReplicas": 3, "lastRunTime": "2026-01-02T03:04:05Z"},
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "VariantAccepted",
                "message": "",
                "lastTransitionTime": "2026-01-02T03:04:05Z",
            }
        ],
    },
}
POD = {
    "metadata": {
        "name": "llama-0",
        "namespace": "llm",
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
        ],
    },
    "status": {
        "phase": "Running",
        "podIP": "10.0.0.7",
        "conditions": [{"type": "Ready", "status": "True", "lastProbeTime": None, "lastTransitionTime": None}],
    },
}


def test_a_deployment():
    """WVA reads replicas, status and resources of a real Deployment."""
    found = targets.DEPLOYMENTS.decode(encoded(DEPLOYMENT))
    assert found.metadata.key == Key("llm", "llama-decode")
    assert (found.spec_replicas, found.current_replicas, found.status.ready_replicas) == (2, 2, 1)
    (container,) = found.spec.template.spec.containers
    assert container.resources.limits["nvidia.com/gpu"] == "1"
    assert container.resources.requests == {"cpu": 4}
    assert not found.metadata.deleting


def test_a_deployment_without_replicas_asks_for_one():
    """As in the API server. With an empty status, WVA takes the requested replicas for existing ones."""
    found = targets.DEPLOYMENTS.decode(b'{"spec":{}}')
    assert (found.spec_replicas, found.current_replicas) == (1, 1)
    assert targets.DEPLOYMENTS.decode(b'{"spec":{"replicas":0}}').spec_replicas == 0


def test_a_variant():
    """WVA reads spec, allocation and conditions."""
    found = kinds.VARIANT_AUTOSCALINGS.decode(encoded(VARIANT))
    assert (found.spec.model_id, found.spec.variant_cost) == ("meta/llama", "40.0")
    assert found.spec.scale_target_ref.name == "llama-decode"
    assert found.status.desired_optimized_alloc.num_replicas == 3
    assert found.status.condition("Ready").status == "True"
    assert found.status.condition("Other") is None


def test_a_variant_without_anything():
    """The API server permits an object without a spec."""
    found = kinds.VARIANT_AUTOSCALINGS.decode(b'{"metadata":{"name":"x"}}')
    assert found.spec.variant_cost == "10.0"
    assert found.status.desired_optimized_alloc is None


def test_a_pod():
    """WVA reads that the pod is Ready, owned and not finished."""
    found = kinds.PODS.decode(encoded(POD))
    assert found.ready
    assert not found.finished
    assert found.metadata.controller.name == "r"


@pytest.mark.parametrize(
    ("change", "ready"),
    [
        ({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}, False),
        ({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}, False),
        ({"status": {}}, False),
        ({"metadata": {**POD["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}, False),
        ({}, True),
    ],
)
def test_a_pod_is_ready_only_when_it_says_so_and_stays(change, ready):
    """A pod that is being deleted is not ready."""
    assert kinds.PODS.decode(encoded(POD | change)).ready is ready


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.kind)
@pytest.mark.parametrize("field", NULLABLE)
def test_a_null_in_the_metadata_is_like_nothing(resource, field):
    """Go writes null for an absent value if it does not omit the field."""
    found = resource.decode(encoded({"metadata": {"name": "x", field: None}}))
    assert found.metadata == resource.decode(b'{"metadata":{"name":"x"}}').metadata


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.kind)
@pytest.mark.parametrize("field", ["metadata", "spec", "status", "data"])
def test_a_null_part_is_like_nothing(resource, field):
    """A null for the whole part means that the part is absent."""
    assert resource.decode(encoded({field: None})) == resource.decode(b"{}")


def test_nulls_deep_inside_are_like_nothing():
    """Null lists and maps of status and template are empty."""
    status = {"conditions": None, "desiredOptimizedAlloc": None}
    assert kinds.VARIANT_AUTOSCALINGS.decode(encoded(VARIANT | {"status": status})).status.conditions == ()
    template = {"metadata": None, "spec": {"containers": [{"name": "c", "resources": {"limits": None}}]}}
    found = targets.DEPLOYMENTS.decode(encoded({"spec": {"replicas": None, "template": template}}))
    assert found.spec.template.spec.containers[0].resources.limits == {}
    assert found.spec_replicas == 1
    assert kinds.PODS.decode(b'{"status":{"podIP":null,"conditions":null}}').status.pod_ip == ""


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.kind)
def test_unknown_fields_are_skipped(resource):
    """A newer API server sends fields that WVA does not read."""
    extra = {"metadata": {"name": "x", "zone": {"a": [1]}}, "spec": {"new": 1}, "status": {"new": None}, "extra": []}
    assert resource.decode(encoded(extra)).metadata.name == "x"


@pytest.mark.parametrize("resource", ALL, ids=lambda resource: resource.kind)
@pytest.mark.parametrize("broken", [b"", b"{", b"[]", b"null", b'{"metadata":[]}', b'{"metadata":{"name":7}}'])
def test_what_is_no_object_is_refused(resource, broken):
    """Decoding raises the one exception that callers catch."""
    with pytest.raises(msgspec.DecodeError):
        resource.decode(broken)


@pytest.mark.parametrize("depth", [300, 600, 900, 5000])
def test_nesting_without_end_beside_a_null_is_refused_or_read(depth):
    """A null makes WVA decode the body a second time, and this must not run out of stack."""
    body = b'{"metadata":{"name":"x","labels":null},"extra":' + b"[" * depth + b"]" * depth + b"}"
    try:
        assert kinds.PODS.decode(body).metadata.name == "x"
    except msgspec.DecodeError:
        assert depth > 300


def test_one_broken_item_does_not_hide_the_others():
    """WVA leaves the broken item out and counts it."""
    broken = [{"metadata": {"name": 7}}, {"spec": {"replicas": "two"}}, "text", None]
    items = [DEPLOYMENT, *broken, {**DEPLOYMENT, "metadata": {"name": "other", "labels": None}}]
    found = decoded_list(targets.DEPLOYMENTS, encoded({"metadata": {"resourceVersion": "9"}, "items": items}))
    assert [item.metadata.name for item in found.items] == ["llama-decode", "other"]
    assert (found.undecodable, found.resource_version) == (4, "9")


@pytest.mark.parametrize(
    "body", [b'{"metadata":{"resourceVersion":"9"},"items":null}', b'{"metadata":{"resourceVersion":"9"}}']
)
def test_a_list_of_nothing_may_be_null(body):
    """Go writes null for an empty slice."""
    found = decoded_list(kinds.PODS, body)
    assert (found.items, found.undecodable, found.resource_version) == ((), 0, "9")


@pytest.mark.parametrize("body", [b"", b"[]", b'{"items":{}}', b'{"items":[}'])
def test_what_is_no_list_is_refused(body):
    """Decoding fails if the list itself is broken."""
    with pytest.raises(msgspec.DecodeError):
        decoded_list(kinds.PODS, body)
