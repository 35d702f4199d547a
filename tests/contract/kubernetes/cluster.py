"""Expectations about leases, events, pods, access reviews and the server itself."""

# An expectation states what holds; it is no command.
# ruff: noqa: D401

from __future__ import annotations

from typing import Any

from tests.contract.kubernetes.client import ContractClient
from tests.contract.kubernetes.documents import core, leases
from tests.contract.kubernetes.registry import expectation


def lease(name: str, holder: str, **spec: Any) -> dict[str, Any]:
    """Return a Lease."""
    times = {"acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:05.123456Z"}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": 0, **times, **spec},
    }


def event(namespace: str, name: str, **more: Any) -> dict[str, Any]:
    """Return an Event about a Deployment."""
    involved = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "namespace": namespace, "uid": "u1"}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": involved,
        "type": "Normal",
        "reason": "Scaled",
        "message": "from 1 to 2",
        "source": {"component": "contract"},
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
        **more,
    }


@expectation
async def a_lease_is_taken_by_one(client: ContractClient, namespace: str) -> None:
    """The server refuses the second client that creates a lease, and the second that replaces one version."""
    created = (await client.post(leases(namespace), lease("l", "a"))).ok()
    assert created["spec"]["renewTime"] == "2026-01-01T00:00:05.123456Z"
    (await client.post(leases(namespace), lease("l", "b"))).refused(409, "AlreadyExists")
    taken = {**created, "spec": {**created["spec"], "holderIdentity": "b", "leaseTransitions": 1}}
    assert (await client.put(leases(namespace, "l"), taken)).ok()["spec"]["holderIdentity"] == "b"
    late = {**created, "spec": {**created["spec"], "holderIdentity": "c"}}
    (await client.put(leases(namespace, "l"), late)).refused(409, "Conflict")
    released = {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1}}
    assert (await client.patch(leases(namespace, "l"), released)).ok()["spec"].get("holderIdentity", "") == ""


@expectation
async def a_lease_is_checked(client: ContractClient, namespace: str) -> None:
    """A PUT of a lease needs a version, a lease needs a positive duration and valid times, and a PUT may create it."""
    (await client.post(leases(namespace), lease("l", "a"))).ok()
    answer = await client.put(leases(namespace, "l"), lease("l", "b"))
    answer.refused(422, "Invalid")
    assert answer.causes() == {("metadata.resourceVersion", "FieldValueInvalid")}
    answer = await client.post(leases(namespace), lease("m", "a", leaseDurationSeconds=0))
    answer.refused(422, "Invalid")
    assert ("spec.leaseDurationSeconds", "FieldValueInvalid") in answer.causes()
    (await client.post(leases(namespace), lease("m", "a", renewTime="now"))).refused(400, "BadRequest")
    assert (await client.put(leases(namespace, "n"), lease("n", "a"))).status == 201


@expectation
async def events_are_written_counted_and_found(client: ContractClient, namespace: str) -> None:
    """An Event must be in the namespace of its object; clients can patch its count and select it by fields."""
    path = core(namespace, "events")
    (await client.post(path, event(namespace, "e1"))).ok()
    (await client.post(path, event(namespace, "e2", reason="Held"))).ok()
    assert (await client.patch(f"{path}/e1", {"count": 2})).ok()["count"] == 2
    listed = (await client.get(path, fieldSelector="involvedObject.name=d,reason=Scaled")).ok()
    assert [item["metadata"]["name"] for item in listed["items"]] == ["e1"]
    listed = (await client.get(path, fieldSelector="involvedObject.uid=other")).ok()
    assert listed["items"] == []
    answer = await client.post(path, event("another-namespace", "e3"))
    assert answer.status == 422, answer


@expectation
async def pods_are_pending_and_selected_by_phase_and_node(client: ContractClient, namespace: str) -> None:
    """A new pod is Pending even if the client sends another phase; selectors on phase and node work."""
    path = core(namespace, "pods")
    spec = {"containers": [{"name": "main", "image": "none:1"}], "schedulerName": "nobody"}
    body = {"metadata": {"name": "p"}, "spec": spec, "status": {"phase": "Running"}}
    created = (await client.post(path, body)).ok()
    assert created["status"]["phase"] == "Pending"
    assert created["spec"]["restartPolicy"] == "Always"
    (await client.patch(f"{path}/p/status", {"status": {"phase": "Running"}})).ok()
    found = (await client.get(path, fieldSelector="status.phase=Running,spec.nodeName=")).ok()
    assert [item["metadata"]["name"] for item in found["items"]] == ["p"]
    assert (await client.get(path, fieldSelector="spec.nodeName=n1")).ok()["items"] == []
    (await client.get(path, fieldSelector="spec.hostname=x")).refused(400, "BadRequest")
    assert (await client.delete(f"{path}/p", gracePeriodSeconds=0)).ok()["kind"] == "Pod"
    (await client.get(f"{path}/p")).refused(404, "NotFound")


@expectation
async def the_server_answers_about_itself(client: ContractClient, namespace: str) -> None:
    """The server answers with its version, its health and the discovery of the core group."""
    assert (await client.get("/version")).ok()["major"] == "1"
    for path in ("/healthz", "/livez", "/readyz"):
        answer = await client.get(path)
        assert (answer.status, answer.body) == (200, "ok")
    assert (await client.get("/api")).ok()["versions"] == ["v1"]
    resources = {item["name"]: item for item in (await client.get("/api/v1")).ok()["resources"]}
    assert (resources["pods"]["kind"], resources["pods"]["namespaced"]) == ("Pod", True)
    assert resources["nodes"]["namespaced"] is False
    assert "pods/status" in resources
    assert "deployments/scale" in {item["name"] for item in (await client.get("/apis/apps/v1")).ok()["resources"]}
    (await client.get("/apis/apps/v99")).refused(404, "NotFound")
    assert namespace


@expectation
async def access_is_reviewed(client: ContractClient, namespace: str) -> None:
    """An administrator may do everything; the server does not authenticate an unknown token."""
    attributes = {"namespace": namespace, "verb": "patch", "group": "apps", "resource": "deployments"}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    answer = await client.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    assert answer.status == 201
    assert answer.body["status"]["allowed"] is True
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "nobodys-token"}}
    answer = await client.post("/apis/authentication.k8s.io/v1/tokenreviews", body)
    assert answer.status == 201
    assert not answer.body["status"].get("authenticated")
    resources = (await client.get("/apis/authorization.k8s.io/v1")).ok()["resources"]
    assert "selfsubjectaccessreviews" in {item["name"] for item in resources}
