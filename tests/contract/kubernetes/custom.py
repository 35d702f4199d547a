"""Expectations about custom resources: schemas, status and scale subresources, discovery."""

# An expectation states what holds; it is no command.
# ruff: noqa: D401

from __future__ import annotations

from typing import Any

from tests.contract.kubernetes.client import MERGE, STRATEGIC, ContractClient
from tests.contract.kubernetes.documents import (
    GROUP,
    deployment,
    deployments,
    served,
    stateful_set,
    stateful_sets,
    widget,
    widgets,
)
from tests.contract.kubernetes.registry import expectation

ALLOCATION = {"accelerator": "L4", "at": "2026-01-01T00:00:00Z"}


@expectation
async def a_definition_makes_its_kind_discoverable(client: ContractClient, namespace: str) -> None:
    """Discovery has the kind with its subresources, and the items of its lists have their kind."""
    await served(client)
    document = (await client.get(f"/apis/{GROUP}/v1")).ok()
    found = {resource["name"]: resource for resource in document["resources"]}
    assert set(found) == {"widgets", "widgets/status", "widgets/scale"}
    assert (found["widgets"]["kind"], found["widgets"]["namespaced"]) == ("Widget", True)
    assert {"get", "list", "watch", "patch"} <= set(found["widgets"]["verbs"])
    assert found["widgets/scale"]["kind"] == "Scale"
    group = (await client.get(f"/apis/{GROUP}")).ok()
    assert group["preferredVersion"] == {"groupVersion": f"{GROUP}/v1", "version": "v1"}
    assert GROUP in {group["name"] for group in (await client.get("/apis")).ok()["groups"]}
    (await client.post(widgets(namespace), widget("a"))).ok()
    listed = (await client.get(widgets(namespace))).ok()
    assert listed["kind"] == "WidgetList"
    assert [(item["kind"], item["apiVersion"]) for item in listed["items"]] == [("Widget", f"{GROUP}/v1")]


@expectation
async def a_custom_object_must_say_what_it_is(client: ContractClient, namespace: str) -> None:
    """The server refuses a custom object without kind and apiVersion, unlike a built-in one."""
    await served(client)
    (await client.post(widgets(namespace), {"metadata": {"name": "a"}, "spec": {"model": "m"}})).refused(
        400, "BadRequest"
    )


@expectation
async def defaults_fill_in_and_unknown_fields_go(client: ContractClient, namespace: str) -> None:
    """Defaults apply inside present objects only; the server drops unknown fields with a warning."""
    await served(client)
    spec = {"model": "m", "unknown": {"x": 1}, "limits": {}, "free": {"any": {"thing": 1}}, "note": None}
    answer = await client.post(widgets(namespace), widget("a", spec, extra=True))
    assert answer.ok()["spec"] == {
        "model": "m",
        "cost": "10.0",
        "limits": {"burst": True},
        "free": {"any": {"thing": 1}},
        "note": None,
    }
    assert "extra" not in answer.body
    assert 'unknown field \\"spec.unknown\\"' in answer.headers["Warning"]
    bare = (await client.post(widgets(namespace), widget("b"))).ok()
    assert bare["spec"] == {"model": "m", "cost": "10.0"}
    (
        await client.post(widgets(namespace), widget("c", {"model": "m", "unknown": 1}), fieldValidation="Strict")
    ).refused(400, "BadRequest")


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({}, "spec.model", "FieldValueRequired"),
    ({"model": None}, "spec.model", "FieldValueRequired"),
    ({"model": 1}, "spec.model", "FieldValueTypeInvalid"),
    ({"model": ""}, "spec.model", "FieldValueInvalid"),
    ({"model": "m" * 21}, "spec.model", "FieldValueTooLong"),
    ({"model": "m", "cost": "dear"}, "spec.cost", "FieldValueInvalid"),
    ({"model": "m", "mode": "medium"}, "spec.mode", "FieldValueNotSupported"),
    ({"model": "m", "replicas": -1}, "spec.replicas", "FieldValueInvalid"),
    ({"model": "m", "replicas": 101}, "spec.replicas", "FieldValueInvalid"),
    ({"model": "m", "replicas": "3"}, "spec.replicas", "FieldValueTypeInvalid"),
    ({"model": "m", "replicas": 1.5}, "spec.replicas", "FieldValueTypeInvalid"),
    ({"model": "m", "labels": {"a": 1}}, "spec.labels.a", "FieldValueTypeInvalid"),
    ({"model": "m", "names": ["a", "b", "c", "d"]}, "spec.names", "FieldValueTooMany"),
    ({"model": "m", "names": ["a", 2]}, "spec.names[1]", "FieldValueTypeInvalid"),
    ({"model": "m", "names": "a"}, "spec.names", "FieldValueTypeInvalid"),
    ({"model": "m", "limits": {"burst": "yes"}}, "spec.limits.burst", "FieldValueTypeInvalid"),
]


@expectation
async def the_schema_is_enforced_with_causes(client: ContractClient, namespace: str) -> None:
    """An object that breaks the schema gets 422 with the path of the field and the kind of mistake."""
    await served(client)
    for spec, field, reason in REFUSED:
        answer = await client.post(widgets(namespace), widget("bad", spec))
        body = answer.refused(422, "Invalid")
        assert (field, reason) in answer.causes(), (spec, answer.causes())
        assert {key: body["details"][key] for key in ("name", "group", "kind")} == {
            "name": "bad",
            "group": GROUP,
            "kind": "Widget",
        }
        assert body["message"].startswith(f'Widget.{GROUP} "bad" is invalid: ')
    absent = {key: value for key, value in widget("bad").items() if key != "spec"}
    answer = await client.post(widgets(namespace), absent)
    answer.refused(422, "Invalid")
    assert ("spec", "FieldValueRequired") in answer.causes()


@expectation
async def status_and_spec_do_not_mix(client: ContractClient, namespace: str) -> None:
    """The main endpoint writes the spec and ``/status`` the status; only a change of the spec moves the generation."""
    await served(client)
    path = widgets(namespace, "a")
    created = (await client.post(widgets(namespace), widget("a", status={"replicas": 9}))).ok()
    assert "status" not in created
    assert created["metadata"]["generation"] == 1
    patched = (await client.patch(f"{path}/status", {"spec": {"replicas": 5}, "status": {"replicas": 3}})).ok()
    assert patched["status"] == {"replicas": 3}
    assert "replicas" not in patched["spec"]
    assert patched["metadata"]["generation"] == 1
    patched = (await client.patch(path, {"spec": {"replicas": 5}, "status": {"replicas": 7}})).ok()
    assert (patched["spec"]["replicas"], patched["status"], patched["metadata"]["generation"]) == (
        5,
        {"replicas": 3},
        2,
    )
    labelled = (await client.patch(path, {"metadata": {"labels": {"x": "y"}}})).ok()
    assert labelled["metadata"]["generation"] == 2
    through_status = {"metadata": {"labels": {"x": "z"}, "annotations": {"q": "r"}}, "status": {"replicas": 4}}
    answer = (await client.patch(f"{path}/status", through_status)).ok()
    assert answer["metadata"]["labels"] == {"x": "y"}
    assert "annotations" not in answer["metadata"]
    assert (await client.get(f"{path}/status")).ok() == (await client.get(path)).ok()


@expectation
async def status_patches_are_validated_and_versioned(client: ContractClient, namespace: str) -> None:
    """A status without its required fields gets 422, an outdated version 409, and neither changes anything."""
    await served(client)
    path = widgets(namespace, "a")
    created = (await client.post(widgets(namespace), widget("a"))).ok()
    answer = await client.patch(f"{path}/status", {"status": {"allocation": {"accelerator": "L4"}}})
    answer.refused(422, "Invalid")
    assert ("status.allocation.at", "FieldValueRequired") in answer.causes()
    answer = await client.patch(f"{path}/status", {"status": {"allocation": {"accelerator": "L4", "at": "noon"}}})
    answer.refused(422, "Invalid")
    assert ("status.allocation.at", "FieldValueTypeInvalid") in answer.causes()
    version = created["metadata"]["resourceVersion"]
    guarded = {"metadata": {"resourceVersion": version}, "status": {"allocation": ALLOCATION}}
    assert (await client.patch(f"{path}/status", guarded)).ok()["status"] == {"allocation": ALLOCATION}
    guarded["status"] = {"allocation": None}
    (await client.patch(f"{path}/status", guarded)).refused(409, "Conflict")
    assert (await client.patch(f"{path}/status", {"status": {"allocation": None}})).ok().get("status") == {}


@expectation
async def status_can_be_replaced(client: ContractClient, namespace: str) -> None:
    """A PUT on ``/status`` replaces the status and nothing else."""
    await served(client)
    path = widgets(namespace, "a")
    created = (await client.post(widgets(namespace), widget("a"))).ok()
    created["spec"]["replicas"] = 8
    created["status"] = {"replicas": 2}
    replaced = (await client.put(f"{path}/status", created)).ok()
    assert replaced["status"] == {"replicas": 2}
    assert "replicas" not in replaced["spec"]
    replaced["metadata"]["resourceVersion"] = "1"
    (await client.put(f"{path}/status", replaced)).refused(409, "Conflict")


@expectation
async def custom_objects_are_replaced_by_version_only(client: ContractClient, namespace: str) -> None:
    """A PUT without a resourceVersion gets 422."""
    await served(client)
    (await client.post(widgets(namespace), widget("a"))).ok()
    answer = await client.put(widgets(namespace, "a"), widget("a"))
    answer.refused(422, "Invalid")
    assert answer.causes() == {("metadata.resourceVersion", "FieldValueInvalid")}


@expectation
async def strategic_patches_are_for_built_in_kinds(client: ContractClient, namespace: str) -> None:
    """A strategic merge patch of a custom resource gets 415."""
    await served(client)
    (await client.post(widgets(namespace), widget("a"))).ok()
    answer = await client.patch(widgets(namespace, "a"), {"spec": {"replicas": 1}}, content=STRATEGIC)
    body = answer.refused(415, "UnsupportedMediaType")
    assert MERGE in body["message"]


@expectation
async def scale_of_a_custom_object(client: ContractClient, namespace: str) -> None:
    """The Scale reads and writes the fields that the definition declares; without spec.replicas a GET fails."""
    await served(client)
    path = widgets(namespace, "a")
    (await client.post(widgets(namespace), widget("a"))).ok()
    (await client.get(f"{path}/scale")).refused(500, "InternalError")
    (await client.patch(path, {"spec": {"replicas": 2}})).ok()
    (await client.patch(f"{path}/status", {"status": {"replicas": 1, "selector": "app=a"}})).ok()
    scale = (await client.get(f"{path}/scale")).ok()
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 1, "selector": "app=a"})
    patched = (await client.patch(f"{path}/scale", {"spec": {"replicas": 6}})).ok()
    assert (patched["kind"], patched["spec"]) == ("Scale", {"replicas": 6})
    stored = (await client.get(path)).ok()
    assert (stored["spec"]["replicas"], stored["metadata"]["generation"]) == (6, 3)
    (await client.patch(f"{path}/scale", {"spec": {"replicas": -1}})).refused(422, "Invalid")
    (await client.patch(f"{path}/scale", {"spec": {"replicas": 1000}})).refused(422, "Invalid")


@expectation
async def scale_of_a_deployment(client: ContractClient, namespace: str) -> None:
    """GET, PATCH and PUT of the Scale work; the server omits a zero, and refuses an old version."""
    path = deployments(namespace, "d")
    (await client.post(deployments(namespace), deployment("d", replicas=3))).ok()
    scale = (await client.get(f"{path}/scale")).ok()
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 0, "selector": "app=d"}
    assert int(scale["metadata"]["resourceVersion"]) > 0
    assert (await client.patch(f"{path}/scale", {"spec": {"replicas": 0}})).ok()["spec"] == {}
    deployed = (await client.get(path)).ok()
    assert (deployed["spec"]["replicas"], deployed["metadata"]["generation"]) == (0, 2)
    (await client.put(f"{path}/scale", {**scale, "spec": {"replicas": 5}})).refused(409, "Conflict")
    answer = None
    while answer is None or answer.status == 409:  # a controller may have written the status meanwhile
        current = (await client.get(f"{path}/scale")).ok()
        answer = await client.put(f"{path}/scale", {**current, "spec": {"replicas": 5}})
    assert answer.ok()["spec"] == {"replicas": 5}
    (await client.patch(f"{path}/scale", {"spec": {"replicas": -1}})).refused(422, "Invalid")
    (await client.get(f"{deployments(namespace, 'zz')}/scale")).refused(404, "NotFound")


@expectation
async def scale_of_a_stateful_set(client: ContractClient, namespace: str) -> None:
    """The Scale works as that of a Deployment: default one, zero omitted, a patch of an old version conflicts."""
    path = stateful_sets(namespace, "s")
    created = (await client.post(stateful_sets(namespace), stateful_set("s"))).ok()
    assert created["spec"]["replicas"] == 1
    scale = (await client.get(f"{path}/scale")).ok()
    assert (scale["kind"], scale["spec"], scale["status"]["selector"]) == ("Scale", {"replicas": 1}, "app=s")
    assert (await client.patch(f"{path}/scale", {"spec": {"replicas": 0}})).ok()["spec"] == {}
    stored = (await client.get(path)).ok()
    assert (stored["spec"]["replicas"], stored["metadata"]["generation"]) == (0, 2)
    old = {"metadata": {"resourceVersion": created["metadata"]["resourceVersion"]}, "spec": {"replicas": 2}}
    (await client.patch(f"{path}/scale", old)).refused(409, "Conflict")
    (await client.patch(f"{path}/scale", {"spec": {"replicas": -1}})).refused(422, "Invalid")
    (await client.get(f"{stateful_sets(namespace, 'zz')}/scale")).refused(404, "NotFound")


@expectation
async def most_of_a_stateful_set_is_fixed(client: ContractClient, namespace: str) -> None:
    """Replicas and template may change; the selector and the Service may not."""
    path = stateful_sets(namespace, "f")
    (await client.post(stateful_sets(namespace), stateful_set("f", replicas=0))).ok()
    more = {"template": {"metadata": {"labels": {"app": "f", "more": "1"}}}}
    assert (await client.patch(path, {"spec": {"replicas": 0, **more}})).ok()["metadata"]["generation"] == 2
    for change in ({"serviceName": "other"}, {"selector": {"matchLabels": {"more": "1"}}}):
        answer = await client.patch(path, {"spec": change})
        answer.refused(422, "Invalid")
        assert ("spec", "FieldValueForbidden") in answer.causes()


@expectation
async def a_definition_can_go_again(client: ContractClient, namespace: str) -> None:
    """Deleting a definition also deletes its kind and all objects of the kind."""
    name = "".join(letter for letter in namespace if letter.isalnum())
    group = f"{name}.example.com"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"gadgets.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert (await client.get(f"/apis/{group}/v1/gadgets")).status == 404
    async with client.watch(collection, fieldSelector=f"metadata.name=gadgets.{group}", resourceVersion=0) as stream:
        (await client.post(collection, definition)).ok()
        established = False
        while not established:
            _, value = await stream.next()
            conditions = value.get("status", {}).get("conditions") or ()
            established = ("Established", "True") in {(item["type"], item["status"]) for item in conditions}
        (await client.delete(f"{collection}/gadgets.{group}")).ok()
        while (await stream.next())[0] != "DELETED":
            pass
