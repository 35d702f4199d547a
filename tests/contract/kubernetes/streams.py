"""Expectations about watches: which events arrive, from which version on, and how a stream ends."""

# An expectation states what holds; it is no command.
# ruff: noqa: D401

from __future__ import annotations

from tests.contract.kubernetes.client import ContractClient
from tests.contract.kubernetes.documents import config_map, core, served, widget, widgets
from tests.contract.kubernetes.registry import embedded_only, expectation

SELECTED = {"labelSelector": "watched=yes"}
WATCHED = {"watched": "yes"}


@expectation
async def a_watch_from_a_list_sees_what_follows(client: ContractClient, namespace: str) -> None:
    """ADDED, MODIFIED and DELETED arrive with growing versions; DELETED has the last state and a new version."""
    path = core(namespace, "configmaps")
    (await client.post(path, config_map("before", labels=WATCHED))).ok()
    version = (await client.get(path, **SELECTED)).ok()["metadata"]["resourceVersion"]
    (await client.post(path, config_map("a", labels=WATCHED))).ok()
    async with client.watch(path, resourceVersion=version, **SELECTED) as stream:
        kind, value = await stream.next()
        assert (kind, value["metadata"]["name"], value["kind"], value["apiVersion"]) == (
            "ADDED",
            "a",
            "ConfigMap",
            "v1",
        )
        versions = [int(version), int(value["metadata"]["resourceVersion"])]
        (await client.patch(f"{path}/a", {"data": {"key": "changed"}})).ok()
        kind, value = await stream.next()
        assert (kind, value["data"]) == ("MODIFIED", {"key": "changed"})
        versions.append(int(value["metadata"]["resourceVersion"]))
        (await client.delete(f"{path}/a")).ok()
        kind, value = await stream.next()
        assert (kind, value["data"]) == ("DELETED", {"key": "changed"})
        versions.append(int(value["metadata"]["resourceVersion"]))
        assert versions == sorted(set(versions))


@expectation
async def a_watch_without_a_version_starts_with_what_exists(client: ContractClient, namespace: str) -> None:
    """A watch without a version, or with version 0, begins with ADDED events for the present state."""
    path = core(namespace, "configmaps")
    (await client.post(path, config_map("a", labels=WATCHED))).ok()
    (await client.post(path, config_map("b", labels=WATCHED))).ok()
    for query in ({}, {"resourceVersion": 0}):
        async with client.watch(path, **query, **SELECTED) as stream:
            seen = {(kind, value["metadata"]["name"]) for kind, value in [await stream.next(), await stream.next()]}
            assert seen == {("ADDED", "a"), ("ADDED", "b")}
            (await client.post(path, config_map("c", labels=WATCHED))).ok()
            kind, value = await stream.next()
            assert (kind, value["metadata"]["name"]) == ("ADDED", "c")
        (await client.delete(f"{path}/c")).ok()


@expectation
async def a_watch_replays_after_its_version(client: ContractClient, namespace: str) -> None:
    """Events between the list and the watch arrive, and no older event is repeated."""
    path = core(namespace, "configmaps")
    first = (await client.post(path, config_map("a", labels=WATCHED))).ok()
    (await client.patch(f"{path}/a", {"data": {"key": "2"}})).ok()
    (await client.delete(f"{path}/a")).ok()
    async with client.watch(path, resourceVersion=first["metadata"]["resourceVersion"], **SELECTED) as stream:
        assert [(await stream.next())[0] for _ in range(2)] == ["MODIFIED", "DELETED"]


@expectation
async def a_watch_for_a_name_hears_of_nothing_else(client: ContractClient, namespace: str) -> None:
    """With a field selector on the name, list and watch of all namespaces have only objects of that name."""
    path, name = core(namespace, "configmaps"), f"named-{namespace}"
    query = {"fieldSelector": f"metadata.name={name}"}
    (await client.post(path, config_map("other"))).ok()
    listed = (await client.get("/api/v1/configmaps", **query)).ok()
    assert listed["items"] == []
    version = listed["metadata"]["resourceVersion"]
    async with client.watch("/api/v1/configmaps", resourceVersion=version, **query) as stream:
        (await client.patch(f"{path}/other", {"data": {"key": "2"}})).ok()
        (await client.post(path, config_map(name))).ok()
        (await client.post(path, config_map(f"{name}-longer"))).ok()
        (await client.patch(f"{path}/{name}", {"data": {"key": "2"}})).ok()
        (await client.delete(f"{path}/{name}")).ok()
        events = [await stream.next() for _ in range(3)]
        assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "DELETED"]
        assert {(value["metadata"]["namespace"], value["metadata"]["name"]) for _, value in events} == {
            (namespace, name)
        }
    (await client.post(path, config_map(name))).ok()
    listed = (await client.get("/api/v1/configmaps", **query)).ok()
    assert [item["metadata"]["namespace"] for item in listed["items"]] == [namespace]
    for other, count in ((namespace, 0), ("elsewhere", 1)):
        fields = f"metadata.name={name},metadata.namespace!={other}"
        assert len((await client.get("/api/v1/configmaps", fieldSelector=fields)).ok()["items"]) == count


@expectation
async def a_selector_makes_objects_appear_and_disappear(client: ContractClient, namespace: str) -> None:
    """An object that leaves the selection looks deleted, in its last selected state and with the new version."""
    path = core(namespace, "configmaps")
    version = (await client.get(path)).ok()["metadata"]["resourceVersion"]
    async with client.watch(path, resourceVersion=version, **SELECTED) as stream:
        (await client.post(path, config_map("a"))).ok()
        (await client.patch(f"{path}/a", {"metadata": {"labels": WATCHED}})).ok()
        kind, value = await stream.next()
        assert (kind, value["metadata"]["labels"]) == ("ADDED", WATCHED)
        changed = (await client.patch(f"{path}/a", {"metadata": {"labels": {"watched": "no"}}})).ok()
        kind, value = await stream.next()
        assert (kind, value["metadata"]["labels"]) == ("DELETED", WATCHED)
        assert value["metadata"]["resourceVersion"] == changed["metadata"]["resourceVersion"]
        (await client.patch(f"{path}/a", {"data": {"key": "unseen"}})).ok()
        (await client.patch(f"{path}/a", {"metadata": {"labels": WATCHED}})).ok()
        assert (await stream.next())[0] == "ADDED"


@expectation
async def a_watch_of_one_name_and_of_all_namespaces(client: ContractClient, namespace: str) -> None:
    """A field selector narrows a watch to one object, a path without namespace widens it to all."""
    path = core(namespace, "configmaps")
    (await client.post(path, config_map("a", labels={"run": namespace}))).ok()
    (await client.post(path, config_map("b", labels={"run": namespace}))).ok()
    async with client.watch(path, fieldSelector="metadata.name=b") as stream:
        assert (await stream.next())[1]["metadata"]["name"] == "b"
    async with client.watch("/api/v1/configmaps", labelSelector=f"run={namespace}") as stream:
        names = [(await stream.next())[1]["metadata"]["name"] for _ in range(2)]
        assert sorted(names) == ["a", "b"]


@expectation
async def custom_objects_are_watched_alike(client: ContractClient, namespace: str) -> None:
    """Writes to status and scale arrive as MODIFIED with the whole object."""
    await served(client)
    path = widgets(namespace)
    version = (await client.post(path, widget("a", {"model": "m", "replicas": 1}))).ok()["metadata"]["resourceVersion"]
    async with client.watch(path, resourceVersion=version) as stream:
        (await client.patch(f"{path}/a/status", {"status": {"replicas": 1}})).ok()
        kind, value = await stream.next()
        assert (kind, value["kind"], value["status"]) == ("MODIFIED", "Widget", {"replicas": 1})
        (await client.patch(f"{path}/a/scale", {"spec": {"replicas": 3}})).ok()
        kind, value = await stream.next()
        assert (kind, value["spec"]["replicas"], value["status"]) == ("MODIFIED", 3, {"replicas": 1})


@expectation
async def a_held_object_is_modified_then_deleted(client: ContractClient, namespace: str) -> None:
    """Deleting an object with a finalizer sends MODIFIED; removing its last finalizer sends DELETED."""
    path = core(namespace, "configmaps")
    body = config_map("a", finalizers=["contract.example.com/hold"])
    version = (await client.post(path, body)).ok()["metadata"]["resourceVersion"]
    async with client.watch(path, resourceVersion=version, fieldSelector="metadata.name=a") as stream:
        (await client.delete(f"{path}/a")).ok()
        kind, value = await stream.next()
        assert kind == "MODIFIED"
        assert value["metadata"]["deletionTimestamp"]
        (await client.patch(f"{path}/a", {"metadata": {"finalizers": None}})).ok()
        kind, value = await stream.next()
        assert kind == "DELETED"
        assert value["metadata"]["deletionTimestamp"]


@expectation
async def a_watch_ends_in_order_at_its_time_out(client: ContractClient, namespace: str) -> None:
    """The stream ends at its time-out; a bookmark before that has the version to continue from."""
    path = core(namespace, "configmaps")
    (await client.post(path, config_map("a"))).ok()
    query = {"fieldSelector": "metadata.name=a", "allowWatchBookmarks": "true", "timeoutSeconds": 3}
    async with client.watch(path, **query) as stream:
        events = await stream.rest()
    assert [kind for kind, _ in events if kind != "BOOKMARK"] == ["ADDED"]
    bookmarks = [value for kind, value in events if kind == "BOOKMARK"]
    assert bookmarks
    assert all(value["kind"] == "ConfigMap" and int(value["metadata"]["resourceVersion"]) > 0 for value in bookmarks)


@expectation
async def no_bookmarks_unless_asked_for(client: ContractClient, namespace: str) -> None:
    """Without ``allowWatchBookmarks`` a quiet stream sends nothing."""
    version = (await client.get(core(namespace, "secrets"))).ok()["metadata"]["resourceVersion"]
    async with client.watch(core(namespace, "secrets"), resourceVersion=version, timeoutSeconds=2) as stream:
        assert await stream.rest() == []


@expectation
async def a_streamed_list_marks_its_end(client: ContractClient, namespace: str) -> None:
    """``sendInitialEvents`` sends the state as ADDED events, then a bookmark that marks their end."""
    path = core(namespace, "configmaps")
    (await client.post(path, config_map("a"))).ok()
    query = {
        "sendInitialEvents": "true",
        "resourceVersionMatch": "NotOlderThan",
        "allowWatchBookmarks": "true",
        "fieldSelector": "metadata.name=a",
    }
    async with client.watch(path, **query) as stream:
        assert (await stream.any())[0] == "ADDED"
        kind, value = await stream.any()
        assert kind == "BOOKMARK"
        assert value["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


@expectation
async def a_list_from_the_future_is_refused(client: ContractClient, namespace: str) -> None:
    """A list at a version that does not exist yet gets 504 with the reason."""
    answer = await client.get(core(namespace, "configmaps"), resourceVersion=10**12)
    body = answer.refused(504, "Timeout")
    assert {cause["reason"] for cause in body["details"]["causes"]} == {"ResourceVersionTooLarge"}
    (await client.get(core(namespace, "configmaps"), resourceVersion="abc")).refused(400, "BadRequest")


@expectation
async def a_list_that_is_not_older_than_a_version(client: ContractClient, namespace: str) -> None:
    """The list has at least the state of that version, in one piece or in pages."""
    path = core(namespace, "configmaps")
    for name in ("a", "b", "c"):
        created = (await client.post(path, config_map(name, labels=WATCHED))).ok()
    version = created["metadata"]["resourceVersion"]
    query = {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan", **SELECTED}
    listed = (await client.get(path, **query)).ok()
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b", "c"]
    assert int(listed["metadata"]["resourceVersion"]) >= int(version)
    page = (await client.get(path, limit=2, **query)).ok()
    assert [item["metadata"]["name"] for item in page["items"]] == ["a", "b"]
    token = page["metadata"]["continue"]
    rest = (await client.get(path, limit=1, **SELECTED, **{"continue": token})).ok()
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c"]
    assert rest["metadata"]["resourceVersion"] == page["metadata"]["resourceVersion"]
    assert int(page["metadata"]["resourceVersion"]) >= int(version)


@expectation
async def a_list_from_the_cache_has_no_pages(client: ContractClient, namespace: str) -> None:
    """The server ignores the limit of a list at version 0; a list without a version has pages."""
    path = core(namespace, "configmaps")
    for name in ("a", "b", "c"):
        (await client.post(path, config_map(name, labels=WATCHED))).ok()
    listed = (await client.get(path, resourceVersion=0, limit=1, **SELECTED)).ok()
    assert "continue" not in listed["metadata"]
    page = (await client.get(path, limit=1, **SELECTED)).ok()
    assert len(page["items"]) == 1
    assert page["metadata"]["continue"]


@expectation
async def a_list_that_is_not_older_than_the_future_is_refused(client: ContractClient, namespace: str) -> None:
    """The server waits some seconds for its cache and then says when to retry."""
    path = core(namespace, "configmaps")
    for pages in ({}, {"limit": 500}):
        query = {"resourceVersion": 10**12, "resourceVersionMatch": "NotOlderThan", **pages}
        body = (await client.get(path, **query)).refused(504, "Timeout")
        assert {cause["reason"] for cause in body["details"]["causes"]} == {"ResourceVersionTooLarge"}
        assert body["details"]["retryAfterSeconds"] == 1


@expectation
async def a_condition_on_the_version_needs_one(client: ContractClient, namespace: str) -> None:
    """A match condition needs a version; the server refuses unknown conditions."""
    path = core(namespace, "configmaps")
    (await client.get(path, resourceVersionMatch="NotOlderThan")).refused(422, "Invalid")
    (await client.get(path, resourceVersion=1, resourceVersionMatch="Roughly")).refused(422, "Invalid")


@embedded_only("a real server keeps its watch cache as long as it runs, whatever etcd forgets")
async def a_forgotten_version_is_gone(client: ContractClient, namespace: str) -> None:
    """A watch from a version before the history gets HTTP 200 and one ERROR event with 410 Expired."""
    path = core(namespace, "configmaps")
    created = (await client.post(path, config_map("a"))).ok()
    for number in range(200):  # more than the embedded server remembers
        (await client.patch(f"{path}/a", {"data": {"key": str(number)}})).ok()
    async with client.watch(path, resourceVersion=created["metadata"]["resourceVersion"]) as stream:
        events = await stream.rest()
    assert [kind for kind, _ in events] == ["ERROR"]
    status = events[0][1]
    assert (status["kind"], status["code"], status["reason"], status["status"]) == ("Status", 410, "Expired", "Failure")
    assert status["message"].startswith("too old resource version")
