"""Expectations about strategic merge patches and server-side apply."""

# An expectation states what holds; it is no command.
# ruff: noqa: D401

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from tests.contract.kubernetes.client import APPLY, STRATEGIC, ClientAnswer, ContractClient
from tests.contract.kubernetes.documents import (
    GROUP,
    config_map,
    core,
    deployment,
    deployments,
    served,
    widget,
    widgets,
)
from tests.contract.kubernetes.registry import embedded_only, expectation

_TRIES = 20
"""How often a version is read and used at most, if a controller of the server writes the object between the two."""


async def apply(client: ContractClient, path: str, body: Any, manager: str, **query: Any) -> ClientAnswer:
    """Apply ``body`` as ``manager``."""
    return await client.patch(path, body, content=APPLY, fieldManager=manager, **query)


@expectation
async def strategic_merge_knows_lists(client: ContractClient, namespace: str) -> None:
    """Containers and their environment merge by name; directives delete; finalizers are added to the list."""
    path = deployments(namespace, "d")
    (await client.post(deployments(namespace), deployment("d"))).ok()

    async def merged(containers: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
        patch = {"spec": {"template": {"spec": {"containers": containers}}}}
        body = (await client.patch(path, patch, content=STRATEGIC)).ok()
        return {container["name"]: container for container in body["spec"]["template"]["spec"]["containers"]}

    found = await merged([{"name": "main", "env": [{"name": "A", "value": "1"}]}, {"name": "side", "image": "none:2"}])
    assert {name: container["image"] for name, container in found.items()} == {"main": "none:1", "side": "none:2"}
    found = await merged([{"name": "side", "$patch": "delete"}, {"name": "main", "env": [{"name": "B", "value": "2"}]}])
    assert set(found) == {"main"}
    assert {item["name"]: item["value"] for item in found["main"]["env"]} == {"A": "1", "B": "2"}
    for finalizer in ("contract.example.com/a", "contract.example.com/b"):
        body = await client.patch(path, {"metadata": {"finalizers": [finalizer]}}, content=STRATEGIC)
    assert set(body.ok()["metadata"]["finalizers"]) == {"contract.example.com/a", "contract.example.com/b"}
    removal = {"$deleteFromPrimitiveList/finalizers": ["contract.example.com/a", "contract.example.com/b"]}
    body = await client.patch(path, {"metadata": removal}, content=STRATEGIC)
    assert "finalizers" not in body.ok()["metadata"]


@expectation
async def conditions_merge_by_type(client: ContractClient, namespace: str) -> None:
    """A strategic patch of one condition leaves the others alone."""
    path = core(namespace, "pods", "p")
    spec = {"containers": [{"name": "main", "image": "none:1"}], "schedulerName": "nobody"}
    (await client.post(core(namespace, "pods"), {"metadata": {"name": "p"}, "spec": spec})).ok()
    for kind, status in (("one.example.com", "True"), ("two.example.com", "True"), ("one.example.com", "False")):
        patch = {"status": {"conditions": [{"type": kind, "status": status}]}}
        body = (await client.patch(f"{path}/status", patch, content=STRATEGIC)).ok()
    assert {item["type"]: item["status"] for item in body["status"]["conditions"]} == {
        "one.example.com": "False",
        "two.example.com": "True",
    }


@expectation
async def apply_creates_and_repeats_quietly(client: ContractClient, namespace: str) -> None:
    """The first apply gets 201; the same apply again gets 200 and keeps the version."""
    path = core(namespace, "configmaps", "a")
    first = await apply(client, path, config_map("a"), "one")
    assert first.status == 201
    entry = first.body["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"], entry["fieldsType"]) == ("one", "Apply", "FieldsV1")
    assert "f:key" in entry["fieldsV1"]["f:data"]
    second = await apply(client, path, config_map("a"), "one")
    assert second.status == 200
    assert second.body["metadata"]["resourceVersion"] == first.body["metadata"]["resourceVersion"]


@expectation
async def apply_conflicts_unless_forced(client: ContractClient, namespace: str) -> None:
    """An apply conflicts with another manager's different value; force takes the field; equal values are shared."""
    path = core(namespace, "configmaps", "a")
    (await apply(client, path, config_map("a", {"x": "1", "y": "1"}), "one")).ok()
    answer = await apply(client, path, config_map("a", {"x": "2"}), "two")
    body = answer.refused(409, "Conflict")
    assert answer.causes() == {(".data.x", "FieldManagerConflict")}
    assert body["details"]["causes"][0]["message"] == 'conflict with "one"'
    (await apply(client, path, config_map("a", {"y": "1"}), "two")).ok()
    forced = (await apply(client, path, config_map("a", {"x": "2", "y": "1"}), "two", force="true")).ok()
    assert forced["data"] == {"x": "2", "y": "1"}
    answer = await apply(client, path, config_map("a", {"x": "1", "y": "1"}), "one")
    assert answer.refused(409, "Conflict")["details"]["causes"][0]["message"] == 'conflict with "two"'


@expectation
async def apply_removes_what_is_given_up(client: ContractClient, namespace: str) -> None:
    """The server removes a field that its only manager no longer applies, and keeps one that another shares."""
    path = core(namespace, "configmaps", "a")
    (await apply(client, path, config_map("a", {"x": "1", "y": "1", "z": "1"}), "one")).ok()
    (await apply(client, path, config_map("a", {"y": "1"}), "two")).ok()
    body = (await apply(client, path, config_map("a", {"z": "1"}), "one")).ok()
    assert body["data"] == {"y": "1", "z": "1"}
    body = (await apply(client, path, {"apiVersion": "v1", "kind": "ConfigMap"}, "one")).ok()
    assert body["data"] == {"y": "1"}
    owners = {entry["manager"] for entry in body["metadata"]["managedFields"]}
    assert owners == {"two"}


@expectation
async def apply_conflicts_with_ordinary_writers(client: ContractClient, namespace: str) -> None:
    """A field that a client patched belongs to that client."""
    path = core(namespace, "configmaps", "a")
    (await apply(client, path, config_map("a", {"x": "1"}), "one")).ok()
    (await client.patch(path, {"data": {"x": "2"}}, fieldManager="editor")).ok()
    answer = await apply(client, path, config_map("a", {"x": "1"}), "one")
    cause = answer.refused(409, "Conflict")["details"]["causes"][0]
    assert (cause["field"], cause["message"]) == (".data.x", 'conflict with "editor" using v1')


@expectation
async def apply_knows_the_scale_subresource(client: ContractClient, namespace: str) -> None:
    """The client that scales a target owns the number of replicas."""
    path = deployments(namespace, "d")
    (await apply(client, path, deployment("d", replicas=1), "owner")).ok()
    (await client.patch(f"{path}/scale", {"spec": {"replicas": 4}}, fieldManager="scaler")).ok()
    answer = await apply(client, path, deployment("d", replicas=1), "owner")
    cause = answer.refused(409, "Conflict")["details"]["causes"][0]
    assert cause["field"] == ".spec.replicas"
    assert cause["message"] == 'conflict with "scaler" with subresource "scale" using apps/v1'
    assert (await apply(client, path, deployment("d"), "owner")).ok()["spec"]["replicas"] == 4


@expectation
async def apply_on_the_scale_of_a_built_in_kind(client: ContractClient, namespace: str) -> None:
    """The server takes the Scale, conflicts about the replicas, and notes the manager as one of the scale."""
    path = deployments(namespace, "d")
    (await apply(client, path, deployment("d", replicas=1), "owner")).ok()
    answer = await apply(client, f"{path}/scale", _scale("d", 4), "scaler")
    cause = answer.refused(409, "Conflict")["details"]["causes"][0]
    assert (cause["field"], cause["message"]) == (".spec.replicas", 'conflict with "owner"')
    scale = (await apply(client, f"{path}/scale", _scale("d", 4), "scaler", force="true")).ok()
    assert (scale["kind"], scale["spec"]) == ("Scale", {"replicas": 4})
    assert await _scalers(client, path) == {("scaler", "Apply", "scale")}


@expectation
async def a_patch_of_the_scale_moves_the_replicas_of_a_built_in_kind(client: ContractClient, namespace: str) -> None:
    """The manager of a merge patch owns the number it wrote, and those before it do not."""
    path = deployments(namespace, "d")
    (await apply(client, path, deployment("d", replicas=1), "owner")).ok()
    (await client.patch(f"{path}/scale", {"spec": {"replicas": 4}}, fieldManager="scaler")).ok()
    assert await _scalers(client, path) == {("scaler", "Update", "scale")}


@expectation
async def the_scale_of_a_custom_object_has_managers_without_a_time(client: ContractClient, namespace: str) -> None:
    """The server fails on an apply of the Scale that no conflict stops. A patch moves the replicas to its manager."""
    await served(client)
    path = widgets(namespace, "a")
    (await apply(client, path, widget("a", {"model": "m", "replicas": 1}), "owner")).ok()
    (await apply(client, f"{path}/scale", _scale("a", 2), "scaler")).refused(409, "Conflict")
    (await apply(client, f"{path}/scale", _scale("a", 2), "scaler", force="true")).refused(500, "")
    old = (await client.get(path)).ok()["metadata"]["resourceVersion"]
    patch = {"metadata": {"resourceVersion": old}, "spec": {"replicas": 2}}
    (await client.patch(f"{path}/scale", patch, fieldManager="scaler")).ok()
    (await client.patch(f"{path}/scale", patch, fieldManager="scaler")).refused(409, "Conflict")
    assert (await client.get(path)).ok()["spec"]["replicas"] == 2
    assert await _scalers(client, path) == {("scaler", "Update", "scale")}
    managed = (await client.get(path)).ok()["metadata"]["managedFields"]
    (entry,) = [each for each in managed if each["manager"] == "scaler"]
    assert "time" not in entry


def _scale(name: str, replicas: int) -> dict[str, Any]:
    """Return the Scale to apply."""
    kind = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
    return {**kind, "metadata": {"name": name}, "spec": {"replicas": replicas}}


async def _scalers(client: ContractClient, path: str) -> set[tuple[str, str, str]]:
    """Return who owns ``spec.replicas`` of an object: manager, operation and subresource."""
    entries = (await client.get(path)).ok()["metadata"]["managedFields"]
    return {
        (entry["manager"], entry["operation"], entry.get("subresource", ""))
        for entry in entries
        if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
    }


@expectation
async def apply_on_a_custom_object(client: ContractClient, namespace: str) -> None:
    """Maps merge field by field, removed fields get their defaults, and keyed lists merge by their keys."""
    await served(client)
    path = widgets(namespace, "a")
    spec = {"model": "m", "labels": {"x": "1", "y": "2"}, "cost": "5"}
    assert (await apply(client, path, widget("a", spec), "one")).status == 201
    (await apply(client, path, widget("a", {"labels": {"z": "3"}}), "two")).ok()
    body = (await apply(client, path, widget("a", {"model": "m", "labels": {"x": "1"}}), "one")).ok()
    assert body["spec"] == {"model": "m", "labels": {"x": "1", "z": "3"}, "cost": "10.0"}

    def conditions(**found: str) -> dict[str, Any]:
        listed = [{"type": kind, "status": status} for kind, status in found.items()]
        metadata = {"name": "a"}
        return {
            "apiVersion": f"{GROUP}/v1",
            "kind": "Widget",
            "metadata": metadata,
            "status": {"conditions": listed},
        }

    (await apply(client, f"{path}/status", conditions(Ready="True", Extra="True"), "one")).ok()
    (await apply(client, f"{path}/status", conditions(Scaled="True"), "two")).ok()
    answer = await apply(client, f"{path}/status", conditions(Ready="False"), "two")
    cause = answer.refused(409, "Conflict")["details"]["causes"][0]
    assert cause["field"] == '.status.conditions[type="Ready"].status'
    assert cause["message"] == 'conflict with "one" with subresource "status"'
    body = (await apply(client, f"{path}/status", conditions(Ready="False"), "one")).ok()
    assert {item["type"]: item["status"] for item in body["status"]["conditions"]} == {
        "Ready": "False",
        "Scaled": "True",
    }


@expectation
async def apply_needs_a_manager_and_a_typed_object(client: ContractClient, namespace: str) -> None:
    """An apply without fieldManager gets 422, without kind 400, with managedFields 400; YAML is accepted."""
    path = core(namespace, "configmaps", "a")
    answer = await client.patch(path, config_map("a"), content=APPLY)
    answer.refused(422, "Invalid")
    assert answer.causes() == {("fieldManager", "FieldValueRequired")}
    (await apply(client, path, "kind: ConfigMap", "one")).refused(400, "BadRequest")
    bad = config_map("a", managedFields=[{"manager": "x"}])
    (await apply(client, path, bad, "one")).refused(400, "BadRequest")
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  number: '1'\n"
    assert (await apply(client, path, text, "one")).ok()["data"] == {"number": "1"}


@expectation
async def apply_is_validated(client: ContractClient, namespace: str) -> None:
    """The server refuses an applied object that breaks its schema, and a status without its object."""
    await served(client)
    (await apply(client, widgets(namespace, "a"), widget("a", {}), "one")).refused(422, "Invalid")
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Widget", "metadata": {"name": "a"}, "status": {"replicas": 1}}
    (await apply(client, f"{widgets(namespace, 'a')}/status", body, "one")).refused(404, "NotFound")


@expectation
async def an_object_made_without_apply_resists_it(client: ContractClient, namespace: str) -> None:
    """A field that a client wrote without apply conflicts when a manager applies another value."""
    path = core(namespace, "configmaps", "a")
    (await client.post(core(namespace, "configmaps"), config_map("a", {"x": "1"}))).ok()
    (await apply(client, path, config_map("a", {"x": "2"}), "one")).refused(409, "Conflict")
    (await apply(client, path, config_map("a", {"x": "1"}), "one")).ok()
    body = (await apply(client, path, {"apiVersion": "v1", "kind": "ConfigMap"}, "one")).ok()
    assert body["data"] == {"x": "1"}


@embedded_only("the real server tracks ownership from the first write on")
async def ownership_is_tracked_from_the_first_apply(client: ContractClient, namespace: str) -> None:
    """An object that no client has applied has no managedFields, which keeps it small."""
    path = core(namespace, "configmaps", "a")
    created = (await client.post(core(namespace, "configmaps"), config_map("a"))).ok()
    assert "managedFields" not in created["metadata"]
    body = (await apply(client, path, config_map("a", {"new": "1"}), "one")).ok()
    assert {entry["manager"] for entry in body["metadata"]["managedFields"]} == {"before-first-apply", "one"}


@expectation
async def an_answer_has_the_time_of_the_server(client: ContractClient, namespace: str) -> None:
    """The header ``Date`` is the clock by which the server stamps objects."""
    created = await client.post(deployments(namespace), deployment("d"))
    stamped = created.ok()["metadata"]["creationTimestamp"]
    read = await client.get(deployments(namespace), fieldSelector="metadata.name=d")
    moments = [parsedate_to_datetime(each.headers["Date"]) for each in (created, read)]
    for moment in moments:
        assert abs((moment - datetime.fromisoformat(stamped)).total_seconds()) <= 5.0


@expectation
async def a_scale_that_nobody_owns_is_owned_by_apply_alone(client: ContractClient, namespace: str) -> None:
    """A merge patch of such a scale leaves no manager; an apply does, and holds for one version only."""
    path, body = deployments(namespace, "d"), deployment("d")
    body["spec"].pop("replicas", None)
    (await apply(client, path, body, "one")).ok()
    (await client.patch(f"{path}/scale", {"spec": {"replicas": 2}}, fieldManager="two")).ok()
    read = (await client.get(path)).ok()
    assert "two" not in {entry["manager"] for entry in read["metadata"]["managedFields"]}
    scale = _scale("d", 3)
    for _ in range(_TRIES):
        version = (await client.get(path)).ok()["metadata"]["resourceVersion"]
        scale["metadata"] = {"name": "d", "namespace": namespace, "resourceVersion": version}
        answer = await apply(client, f"{path}/scale", scale, "three", force="true")
        if answer.status != 409:
            break
    answer.ok()
    read = (await client.get(path)).ok()
    (owner,) = [entry for entry in read["metadata"]["managedFields"] if entry["manager"] == "three"]
    assert (owner["subresource"], owner["fieldsV1"]["f:spec"]) == ("scale", {"f:replicas": {}})
    assert read["spec"]["replicas"] == 3
    stale = {**scale, "spec": {"replicas": 4}}
    (await apply(client, f"{path}/scale", stale, "three", force="true")).refused(409, "Conflict")
    (await client.patch(f"{path}/scale", {"spec": {"replicas": 5}}, fieldManager="two")).ok()
    managers = {entry["manager"] for entry in (await client.get(path)).ok()["metadata"]["managedFields"]}
    assert "two" in managers
    assert "three" not in managers
