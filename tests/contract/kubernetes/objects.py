"""Expectations about objects of any kind: create, read, replace, merge, delete, and the refusals of each."""

# An expectation states what holds; it is no command.
# ruff: noqa: D401

from __future__ import annotations

from tests.contract.kubernetes.client import JSON_PATCH, ContractClient
from tests.contract.kubernetes.documents import config_map, core, deployment, deployments
from tests.contract.kubernetes.registry import embedded_only, expectation


@expectation
async def create_stamps_and_get_returns_the_same(client: ContractClient, namespace: str) -> None:
    """The server sets uid, version and creation time of a new object, and returns the same object later."""
    answer = await client.post(core(namespace, "configmaps"), config_map("a", labels={"x": "y"}))
    assert answer.status == 201
    created = answer.body
    metadata = created["metadata"]
    assert (metadata["name"], metadata["namespace"], metadata["labels"]) == ("a", namespace, {"x": "y"})
    assert metadata["uid"]
    assert int(metadata["resourceVersion"]) > 0
    assert metadata["creationTimestamp"].endswith("Z")
    assert "generation" not in metadata
    assert (await client.get(core(namespace, "configmaps", "a"))).ok() == created


@expectation
async def list_has_a_version_and_sorted_items_without_kind(client: ContractClient, namespace: str) -> None:
    """A list has its own version; items of built-in kinds have no kind."""
    for name in ("b", "a"):
        (await client.post(core(namespace, "configmaps"), config_map(name, labels={"c": "1"}))).ok()
    listed = (await client.get(core(namespace, "configmaps"), labelSelector="c=1")).ok()
    assert (listed["kind"], listed["apiVersion"]) == ("ConfigMapList", "v1")
    assert [item["metadata"]["name"] for item in listed["items"]] == ["a", "b"]
    assert all("kind" not in item and "apiVersion" not in item for item in listed["items"])
    assert int(listed["metadata"]["resourceVersion"]) >= max(
        int(item["metadata"]["resourceVersion"]) for item in listed["items"]
    )


@expectation
async def an_empty_list_has_an_empty_array(client: ContractClient, namespace: str) -> None:
    """A list without objects has an empty array, also in a namespace that does not exist."""
    assert (await client.get(core(namespace, "secrets"), labelSelector="no=such")).ok()["items"] == []
    assert (await client.get(core("does-not-exist", "configmaps"))).ok()["items"] == []


@expectation
async def list_at_version_zero_is_served(client: ContractClient, namespace: str) -> None:
    """``resourceVersion=0`` asks for any version."""
    assert (await client.get(core(namespace, "configmaps"), resourceVersion=0)).ok()["kind"] == "ConfigMapList"


@expectation
async def label_selectors_select(client: ContractClient, namespace: str) -> None:
    """Equality, inequality, sets and existence work; a malformed selector gets 400."""
    path = core(namespace, "configmaps")
    for name, labels in (("a", {"s": "1", "t": "x"}), ("b", {"s": "2", "t": "y"}), ("c", {"s": "3"})):
        (await client.post(path, config_map(name, labels=labels))).ok()

    async def names(selector: str) -> list[str]:
        listed = (await client.get(path, labelSelector=selector)).ok()
        return [item["metadata"]["name"] for item in listed["items"] if "s" in item["metadata"].get("labels", {})]

    assert await names("s=1") == ["a"]
    assert await names("s==2") == ["b"]
    assert await names("s,s!=1") == ["b", "c"]
    assert await names("s in (1,3)") == ["a", "c"]
    assert await names("s notin (1, 3)") == ["b"]
    assert await names("s,t") == ["a", "b"]
    assert await names("s,!t") == ["c"]
    (await client.get(path, labelSelector="a b")).refused(400, "BadRequest")


@expectation
async def field_selectors_select(client: ContractClient, namespace: str) -> None:
    """Selectors on name and namespace work for every kind; an unknown field gets 400."""
    path = core(namespace, "configmaps")
    for name in ("a", "b"):
        (await client.post(path, config_map(name))).ok()
    one = (await client.get(path, fieldSelector="metadata.name=b")).ok()
    assert [item["metadata"]["name"] for item in one["items"]] == ["b"]
    others = (await client.get(path, fieldSelector=f"metadata.namespace={namespace},metadata.name!=b")).ok()
    assert "b" not in [item["metadata"]["name"] for item in others["items"]]
    (await client.get(path, fieldSelector="data.key=value")).refused(400, "BadRequest")


@expectation
async def lists_come_in_pages(client: ContractClient, namespace: str) -> None:
    """``limit`` cuts a list, ``continue`` gets the next page, and all pages show the state of the first one."""
    path = core(namespace, "configmaps")
    for number in range(5):
        (await client.post(path, config_map(f"p{number}", labels={"page": "1"}))).ok()
    first = (await client.get(path, labelSelector="page=1", limit=2)).ok()
    (await client.delete(core(namespace, "configmaps", "p3"))).ok()
    second = (
        await client.get(path, labelSelector="page=1", limit=2, **{"continue": first["metadata"]["continue"]})
    ).ok()
    third = (
        await client.get(path, labelSelector="page=1", limit=2, **{"continue": second["metadata"]["continue"]})
    ).ok()
    pages = [[item["metadata"]["name"] for item in page["items"]] for page in (first, second, third)]
    assert pages == [["p0", "p1"], ["p2", "p3"], ["p4"]]
    assert len({page["metadata"]["resourceVersion"] for page in (first, second, third)}) == 1
    assert "continue" not in third["metadata"]
    (await client.get(path, limit=2, **{"continue": "nonsense"})).refused(400, "BadRequest")


@expectation
async def replace_with_an_old_version_conflicts(client: ContractClient, namespace: str) -> None:
    """If two clients write after reading the same version, the second write gets 409."""
    path = core(namespace, "configmaps", "a")
    created = (await client.post(core(namespace, "configmaps"), config_map("a"))).ok()
    replaced = (await client.put(path, {**created, "data": {"key": "first"}})).ok()
    assert replaced["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]
    assert replaced["metadata"]["uid"] == created["metadata"]["uid"]
    body = (await client.put(path, {**created, "data": {"key": "second"}})).refused(409, "Conflict")
    assert body["details"] == {"name": "a", "kind": "configmaps"}
    assert "the object has been modified" in body["message"]
    assert (await client.get(path)).ok()["data"] == {"key": "first"}


@expectation
async def replace_without_a_version_overwrites_where_the_kind_allows(client: ContractClient, namespace: str) -> None:
    """A PUT of a ConfigMap needs no version; a PUT of an object that does not exist gets 404."""
    (await client.post(core(namespace, "configmaps"), config_map("a"))).ok()
    replaced = (await client.put(core(namespace, "configmaps", "a"), config_map("a", {"other": "1"}))).ok()
    assert replaced["data"] == {"other": "1"}
    (await client.put(core(namespace, "configmaps", "zz"), config_map("zz"))).refused(404, "NotFound")
    (await client.put(core(namespace, "configmaps", "a"), config_map("b"))).refused(400, "BadRequest")


@expectation
async def merge_patch_merges_and_null_removes(client: ContractClient, namespace: str) -> None:
    """A merge patch changes the fields that it names, removes those it sets to null, and leaves the rest."""
    path = core(namespace, "configmaps", "a")
    (await client.post(core(namespace, "configmaps"), config_map("a", {"keep": "1", "drop": "2"}))).ok()
    patched = (await client.patch(path, {"data": {"drop": None, "new": "3"}})).ok()
    assert patched["data"] == {"keep": "1", "new": "3"}
    (await client.patch(core(namespace, "configmaps", "zz"), {"data": {}})).refused(404, "NotFound")


@expectation
async def merge_patch_with_an_old_version_conflicts(client: ContractClient, namespace: str) -> None:
    """The server refuses a patch with a resourceVersion that is not the current one."""
    path = core(namespace, "configmaps", "a")
    created = (await client.post(core(namespace, "configmaps"), config_map("a"))).ok()
    version = created["metadata"]["resourceVersion"]
    (await client.patch(path, {"metadata": {"resourceVersion": version}, "data": {"key": "1"}})).ok()
    stale = {"metadata": {"resourceVersion": version}, "data": {"key": "2"}}
    (await client.patch(path, stale)).refused(409, "Conflict")


@expectation
async def a_write_that_changes_nothing_takes_no_version(client: ContractClient, namespace: str) -> None:
    """A write without a change keeps the resourceVersion."""
    path = core(namespace, "configmaps", "a")
    created = (await client.post(core(namespace, "configmaps"), config_map("a"))).ok()
    same = (await client.patch(path, {"data": {"key": "value"}})).ok()
    assert same["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"]


@expectation
async def json_patch_operates(client: ContractClient, namespace: str) -> None:
    """Operations apply in order; a failing test gets 422 and changes nothing."""
    path = core(namespace, "configmaps", "a")
    (await client.post(core(namespace, "configmaps"), config_map("a", labels={"x/y": "1"}))).ok()
    operations = [
        {"op": "test", "path": "/metadata/labels/x~1y", "value": "1"},
        {"op": "copy", "from": "/metadata/labels/x~1y", "path": "/data/z"},
        {"op": "remove", "path": "/data/key"},
        {"op": "add", "path": "/data/n", "value": "2"},
        {"op": "replace", "path": "/data/n", "value": "3"},
    ]
    assert (await client.patch(path, operations, content=JSON_PATCH)).ok()["data"] == {"z": "1", "n": "3"}
    failing = [{"op": "test", "path": "/data/n", "value": "no"}, {"op": "remove", "path": "/data/n"}]
    (await client.patch(path, failing, content=JSON_PATCH)).refused(422, "Invalid")
    assert (await client.get(path)).ok()["data"] == {"z": "1", "n": "3"}


@expectation
async def generate_name_completes_the_name(client: ContractClient, namespace: str) -> None:
    """``generateName`` gives distinct names with five more characters."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "gen-"}}
    names = {(await client.post(core(namespace, "configmaps"), body)).ok()["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("gen-") and len(name) == len("gen-") + 5 for name in names)


@expectation
async def refusals_are_status_objects(client: ContractClient, namespace: str) -> None:
    """A Status explains each 404, 409 and 422 and names the object."""
    path = core(namespace, "configmaps")
    body = (await client.get(core(namespace, "configmaps", "zz"))).refused(404, "NotFound")
    assert (body["message"], body["details"]) == (
        'configmaps "zz" not found',
        {"name": "zz", "kind": "configmaps"},
    )
    body = (await client.get(deployments(namespace, "zz"))).refused(404, "NotFound")
    assert body["details"] == {"name": "zz", "group": "apps", "kind": "deployments"}
    (await client.post(path, config_map("a"))).ok()
    body = (await client.post(path, config_map("a"))).refused(409, "AlreadyExists")
    assert (body["message"], body["details"]) == (
        'configmaps "a" already exists',
        {"name": "a", "kind": "configmaps"},
    )
    answer = await client.post(path, config_map("Not_A_Name"))
    assert answer.refused(422, "Invalid")["details"]["kind"] == "ConfigMap"
    assert answer.causes() == {("metadata.name", "FieldValueInvalid")}
    answer = await client.post(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})
    answer.refused(422, "Invalid")
    assert answer.causes() == {("metadata.name", "FieldValueRequired")}


@expectation
async def senseless_requests_are_refused(client: ContractClient, namespace: str) -> None:
    """Bad bodies get 400, other media types 415, verbs in the wrong place 405, unknown resources 404."""
    path = core(namespace, "configmaps")
    (await client.post(path, '{"half')).refused(400, "BadRequest")
    (await client.post(path, config_map("b", namespace="elsewhere"))).refused(400, "BadRequest")
    (await client.post(path, config_map("b", {"key": 1}))).refused(400, "BadRequest")
    (await client.request("POST", path, config_map("b"), content="text/plain")).refused(415, "UnsupportedMediaType")
    (await client.post(path, config_map("a"))).ok()
    (await client.patch(f"{path}/a", {"data": {}}, content="application/json")).refused(415, "UnsupportedMediaType")
    (await client.post(f"{path}/a", config_map("a"))).refused(405, "MethodNotAllowed")
    (await client.get(core(namespace, "nonsense"))).refused(404, "NotFound")
    assert (await client.get("/apis/no-such-group.example.com/v1/things")).status == 404
    (await client.post(core("does-not-exist", "configmaps"), config_map("a"))).refused(404, "NotFound")


@expectation
async def a_version_on_create_is_refused(client: ContractClient, namespace: str) -> None:
    """A client cannot choose the version of a new object."""
    answer = await client.post(core(namespace, "configmaps"), config_map("a", resourceVersion="7"))
    answer.refused(500, "")


@expectation
async def dry_run_keeps_nothing(client: ContractClient, namespace: str) -> None:
    """A dry run gets the usual answer and stores nothing."""
    path = core(namespace, "configmaps")
    assert (await client.post(path, config_map("dry"), dryRun="All")).status == 201
    (await client.get(f"{path}/dry")).refused(404, "NotFound")
    (await client.post(path, config_map("a"))).ok()
    assert (await client.patch(f"{path}/a", {"data": {"key": "x"}}, dryRun="All")).ok()["data"] == {"key": "x"}
    (await client.delete(f"{path}/a", dryRun="All")).ok()
    assert (await client.get(f"{path}/a")).ok()["data"] == {"key": "value"}
    (await client.post(path, config_map("dry"), dryRun="Some")).refused(422, "Invalid")


@expectation
async def delete_answers_success_and_the_object_is_gone(client: ContractClient, namespace: str) -> None:
    """The answer to a deletion names the object; a second deletion gets 404."""
    path = core(namespace, "configmaps", "a")
    uid = (await client.post(core(namespace, "configmaps"), config_map("a"))).ok()["metadata"]["uid"]
    body = (await client.delete(path)).ok()
    assert (body["kind"], body["status"]) == ("Status", "Success")
    assert body["details"] == {"name": "a", "kind": "configmaps", "uid": uid}
    (await client.delete(path)).refused(404, "NotFound")


@expectation
async def delete_minds_its_preconditions(client: ContractClient, namespace: str) -> None:
    """The server deletes no object whose uid or version differs from the expected one."""
    path = core(namespace, "configmaps", "a")
    (await client.post(core(namespace, "configmaps"), config_map("a"))).ok()
    for condition in ({"uid": "another"}, {"resourceVersion": "1"}):
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": condition}
        (await client.delete(path, options)).refused(409, "Conflict")
    (await client.get(path)).ok()


@expectation
async def finalizers_hold_a_deleted_object(client: ContractClient, namespace: str) -> None:
    """The server only marks an object with a finalizer, and deletes it once the finalizer is removed."""
    path = core(namespace, "configmaps", "a")
    body = config_map("a", finalizers=["contract.example.com/hold"])
    (await client.post(core(namespace, "configmaps"), body)).ok()
    answer = (await client.delete(path)).ok()
    marked = (await client.get(path)).ok()
    assert (answer["kind"], answer["metadata"]["name"]) == ("ConfigMap", "a")
    assert marked["metadata"]["deletionTimestamp"]
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 0
    (await client.patch(path, {"metadata": {"finalizers": None}})).ok()
    (await client.get(path)).refused(404, "NotFound")


@expectation
async def delete_collection_deletes_what_is_selected(client: ContractClient, namespace: str) -> None:
    """The deletion of a collection deletes only the selected objects."""
    path = core(namespace, "configmaps")
    for name, label in (("a", "1"), ("b", "1"), ("c", "2")):
        (await client.post(path, config_map(name, labels={"set": label}))).ok()
    (await client.delete(path, labelSelector="set=1")).ok()
    left = (await client.get(path, labelSelector="set")).ok()
    assert [item["metadata"]["name"] for item in left["items"]] == ["c"]


@expectation
async def an_immutable_config_map_stays(client: ContractClient, namespace: str) -> None:
    """The data of an immutable ConfigMap cannot change, nor can it become mutable again; its labels can change."""
    path = core(namespace, "configmaps", "a")
    (await client.post(core(namespace, "configmaps"), {**config_map("a"), "immutable": True})).ok()
    answer = await client.patch(path, {"data": {"key": "other"}})
    answer.refused(422, "Invalid")
    assert answer.causes() == {("data", "FieldValueForbidden")}
    answer = await client.patch(path, {"immutable": None})
    answer.refused(422, "Invalid")
    assert answer.causes() == {("immutable", "FieldValueForbidden")}
    assert (await client.patch(path, {"metadata": {"labels": {"x": "y"}}})).ok()["metadata"]["labels"] == {"x": "y"}


@expectation
async def identity_cannot_be_patched(client: ContractClient, namespace: str) -> None:
    """A patch cannot change name, namespace, uid and creation time of an object."""
    path = core(namespace, "configmaps", "a")
    (await client.post(core(namespace, "configmaps"), config_map("a"))).ok()
    (await client.patch(path, {"metadata": {"name": "b"}})).refused(400, "BadRequest")
    (await client.patch(path, {"metadata": {"namespace": "b"}})).refused(400, "BadRequest")
    (await client.patch(path, {"metadata": {"uid": "b"}})).refused(422, "Invalid")
    stamps = {"creationTimestamp": "2020-01-01T00:00:00Z", "generation": 77}
    before = (await client.get(path)).ok()
    after = (await client.patch(path, {"metadata": stamps})).ok()
    assert after["metadata"]["creationTimestamp"] == before["metadata"]["creationTimestamp"]


@expectation
async def label_values_are_checked(client: ContractClient, namespace: str) -> None:
    """The server refuses an invalid label value."""
    answer = await client.post(core(namespace, "configmaps"), config_map("a", labels={"x": "not a value"}))
    answer.refused(422, "Invalid")
    assert answer.causes() == {("metadata.labels", "FieldValueInvalid")}


@expectation
async def a_deployment_has_defaults_and_a_fixed_selector(client: ContractClient, namespace: str) -> None:
    """A Deployment has one replica by default; its selector must fit the template and cannot change."""
    created = (await client.post(deployments(namespace), deployment("d"))).ok()
    assert created["spec"]["replicas"] == 1
    assert created["metadata"]["generation"] == 1
    answer = await client.patch(
        deployments(namespace, "d"), {"spec": {"selector": {"matchLabels": {"app": "d", "x": "y"}}}}
    )
    answer.refused(422, "Invalid")
    assert ("spec.selector", "FieldValueInvalid") in answer.causes()
    wrong = deployment("e")
    wrong["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    (await client.post(deployments(namespace), wrong)).refused(422, "Invalid")
    (await client.post(deployments(namespace), deployment("f", replicas=-1))).refused(422, "Invalid")


@expectation
async def a_namespace_names_itself_and_is_active(client: ContractClient, namespace: str) -> None:
    """A namespace has its name as a label, and the phase Active."""
    body = (await client.get(f"/api/v1/namespaces/{namespace}")).ok()
    assert body["metadata"]["labels"]["kubernetes.io/metadata.name"] == namespace
    assert body["status"]["phase"] == "Active"


@embedded_only("the contents are removed by the namespace controller, some seconds later")
async def a_deleted_namespace_takes_its_contents_along(client: ContractClient, namespace: str) -> None:
    """The server deletes all objects of the namespace at once."""
    (await client.post(core(namespace, "configmaps"), config_map("a"))).ok()
    (await client.delete(f"/api/v1/namespaces/{namespace}")).ok()
    assert (await client.get(core(namespace, "configmaps"))).ok()["items"] == []
    (await client.get(f"/api/v1/namespaces/{namespace}")).refused(404, "NotFound")


@embedded_only("dependents are removed by the garbage collector, some seconds later")
async def dependents_go_with_their_owner(client: ContractClient, namespace: str) -> None:
    """The server deletes a dependent as soon as its last owner is gone."""
    path = core(namespace, "configmaps")
    owners = []
    for name in ("o1", "o2"):
        uid = (await client.post(path, config_map(name))).ok()["metadata"]["uid"]
        owners.append({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid})
    (await client.post(path, config_map("child", ownerReferences=owners))).ok()
    (await client.delete(f"{path}/o1")).ok()
    child = (await client.get(f"{path}/child")).ok()
    assert [owner["name"] for owner in child["metadata"]["ownerReferences"]] == ["o2"]
    (await client.delete(f"{path}/o2")).ok()
    (await client.get(f"{path}/child")).refused(404, "NotFound")
