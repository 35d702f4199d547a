"""The store deletes dependents, namespaces and kinds; finalizers and grace periods delay a deletion."""

import pytest

from tests.sim.apiserver.widgets import WIDGETS, config_map, widget
from wva.api.meta import Key
from wva.sim.apiserver import DeleteOptions, ObjectStore, Patch, ServedError, StoreOptions

A, B, C = (Key("default", name) for name in "abc")


def owned_by(*owners):
    """Return owner references to stored objects."""
    return [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
        for owner in owners
    ]


def test_dependents_go_down_the_whole_chain(store):
    """The deletion of an owner also deletes the dependents of its dependents, each with its own version."""
    a = store.create("configmaps", config_map("a"))
    b = store.create("configmaps", config_map("b", ownerReferences=owned_by(a)))
    store.create("configmaps", config_map("c", ownerReferences=owned_by(b)))
    version = store.version
    store.delete("configmaps", A)
    assert store.list("configmaps") == []
    assert store.version == version + 3


def test_a_dependent_with_another_owner_stays(store):
    """The dependent only loses the reference. It goes with its last owner."""
    a, b = store.create("configmaps", config_map("a")), store.create("configmaps", config_map("b"))
    store.create("configmaps", config_map("c", ownerReferences=owned_by(a, b)))
    store.delete("configmaps", A)
    assert [owner["name"] for owner in store.get("configmaps", C)["metadata"]["ownerReferences"]] == ["b"]
    store.delete("configmaps", B)
    assert store.find("configmaps", C) is None


def test_an_owner_that_never_was_holds_nothing(store):
    """If a dependent has only one existing owner, it goes with that owner."""
    a = store.create("configmaps", config_map("a"))
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "name": "ghost", "uid": "none"}
    store.create("configmaps", config_map("b", ownerReferences=[*owned_by(a), ghost]))
    store.delete("configmaps", A)
    assert store.find("configmaps", B) is None


def test_orphans_live_on(store):
    """With the policy Orphan the dependent stays, without its reference."""
    a = store.create("configmaps", config_map("a"))
    store.create("configmaps", config_map("b", ownerReferences=owned_by(a)))
    store.delete("configmaps", A, DeleteOptions(propagation="Orphan"))
    assert "ownerReferences" not in store.get("configmaps", B)["metadata"]


def test_foreground_deletes_dependents_first(store):
    """With the policy Foreground the owner is deleted after its dependents."""
    gone = []
    a = store.create("configmaps", config_map("a"))
    store.create("configmaps", config_map("b", ownerReferences=owned_by(a)))
    store.subscribe("configmaps", lambda change: gone.append(change.key.name))
    store.delete("configmaps", A, DeleteOptions(propagation="Foreground"))
    assert gone == ["b", "a"]


def test_a_cycle_of_owners_ends(store):
    """Two objects that own each other are deleted together."""
    a = store.create("configmaps", config_map("a"))
    b = store.create("configmaps", config_map("b", ownerReferences=owned_by(a)))
    store.patch("configmaps", A, Patch(body={"metadata": {"ownerReferences": owned_by(b)}}))
    store.delete("configmaps", A)
    assert store.list("configmaps") == []


def test_a_grace_period_marks_and_the_second_deletion_removes(store):
    """A pod with a grace period stays with its deadline until it is deleted without one."""
    store.create("pods", {"metadata": {"name": "a", "namespace": "default"}, "spec": {"nodeName": "n"}})
    marked = store.delete("pods", A, DeleteOptions(grace_period_seconds=30))
    assert marked["metadata"]["deletionTimestamp"] == "2023-11-14T22:13:50Z"
    assert marked["metadata"]["deletionGracePeriodSeconds"] == 30
    version = store.version
    store.delete("pods", A, DeleteOptions(grace_period_seconds=30))
    assert store.version == version
    store.delete("pods", A)
    assert store.find("pods", A) is None


def test_a_marked_object_goes_with_its_last_finalizer_only(store):
    """A deleted object stays and can be changed until its last finalizer is removed."""
    store.create("configmaps", config_map("a", finalizers=["x.example.com/a", "x.example.com/b"]))
    store.delete("configmaps", A)
    store.patch("configmaps", A, Patch(body={"data": {"key": "2"}}))
    store.patch("configmaps", A, Patch(body={"metadata": {"finalizers": ["x.example.com/b"]}}))
    assert store.get("configmaps", A)["metadata"]["finalizers"] == ["x.example.com/b"]
    store.patch("configmaps", A, Patch(body={"metadata": {"finalizers": None}}))
    assert store.find("configmaps", A) is None


def test_a_namespace_waits_for_what_is_held_in_it(store):
    """The namespace is Terminating, and the store refuses new objects, until its last object has gone."""
    store.create("namespaces", {"metadata": {"name": "n"}})
    store.create("configmaps", config_map("a", "n"))
    store.create("configmaps", config_map("held", "n", finalizers=["x.example.com/hold"]))
    store.delete("namespaces", Key("", "n"))
    assert [item["metadata"]["name"] for item in store.list("configmaps", namespace="n")] == ["held"]
    assert store.get("namespaces", Key("", "n"))["status"]["phase"] == "Terminating"
    with pytest.raises(ServedError) as refused:
        store.create("configmaps", config_map("new", "n"))
    assert (refused.value.code, refused.value.reason) == (403, "Forbidden")
    store.patch("configmaps", Key("n", "held"), Patch(body={"metadata": {"finalizers": None}}))
    assert store.find("namespaces", Key("", "n")) is None


def test_a_namespace_must_exist_unless_told_otherwise(store):
    """The store refuses an object in a missing namespace, unless namespaces are not required."""
    with pytest.raises(ServedError) as refused:
        store.create("configmaps", config_map("a", "nowhere"))
    assert refused.value.code == 404
    lax = ObjectStore(now=lambda: 0.0, options=StoreOptions(require_namespaces=False, namespaces=()))
    lax.create("configmaps", config_map("a", "nowhere"))
    assert lax.find("configmaps", Key("nowhere", "a")) is not None


def definition(version="v1", **properties):
    """Return a CustomResourceDefinition of Gadgets."""
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": properties}}}
    return {
        "metadata": {"name": "gadgets.test.example.com"},
        "spec": {
            "group": "test.example.com",
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "kind": "Gadget"},
            "versions": [
                {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}},
                {"name": "v0", "served": True, "storage": False},
            ],
        },
    }


def test_a_definition_serves_its_kind_and_takes_it_away(store):
    """A definition makes its kind available.

    A change of it holds for new objects, and its deletion deletes all of them.
    """
    definitions = "customresourcedefinitions.apiextensions.k8s.io"
    key = Key("", "gadgets.test.example.com")
    store.create(definitions, definition(size={"type": "integer"}))
    conditions = store.get(definitions, key)["status"]["conditions"]
    assert ("Established", "True") in {(item["type"], item["status"]) for item in conditions}
    gadget = {"metadata": {"name": "g", "namespace": "default"}, "spec": {"size": 1, "colour": "red"}}
    assert store.create("gadgets.test.example.com", gadget)["spec"] == {"size": 1}
    store.patch(definitions, key, Patch(body=definition(colour={"type": "string"})))
    later = store.create("gadgets.test.example.com", {**gadget, "metadata": {"name": "h", "namespace": "default"}})
    assert later["spec"] == {"colour": "red"}
    gone = []
    store.subscribe("gadgets.test.example.com", lambda change: gone.append((change.type.value, change.key.name)))
    store.delete(definitions, key)
    assert gone == [("DELETED", "g"), ("DELETED", "h")]
    with pytest.raises(LookupError):
        store.list("gadgets.test.example.com")


def test_a_status_write_forgives_an_outdated_spec(store):
    """If a later schema refuses the spec of an object, its status can still be written."""
    definitions = "customresourcedefinitions.apiextensions.k8s.io"
    body = definition(size={"type": "integer"})
    body["spec"]["versions"][0]["subresources"] = {"status": {}}
    body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = {
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": True,
    }
    store.create(definitions, body)
    gadget = {"metadata": {"name": "a", "namespace": "default"}, "spec": {"size": 5}}
    store.create("gadgets.test.example.com", gadget)
    body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"] = {
        "size": {"type": "integer", "maximum": 3}
    }
    store.patch(definitions, Key("", "gadgets.test.example.com"), Patch(body=body))
    assert store.patch_status("gadgets.test.example.com", A, {"seen": True})["status"] == {"seen": True}
    with pytest.raises(ServedError):
        store.patch("gadgets.test.example.com", A, Patch(body={"spec": {"size": 4}}))


def test_an_object_needs_a_name_and_a_namespace(store):
    """The store refuses an object without a name or a namespace."""
    with pytest.raises(ServedError) as refused:
        store.create(WIDGETS, {"metadata": {"name": "a"}, "spec": {"model": "m"}})
    assert refused.value.code == 400
    with pytest.raises(ServedError) as refused:
        store.create(WIDGETS, {"metadata": {"namespace": "default"}, "spec": {"model": "m"}})
    assert refused.value.code == 422
    assert store.list(WIDGETS) == []
    store.create(WIDGETS, widget("a"))
