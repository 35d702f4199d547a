"""Each write has one version, and each subscriber gets each write once and in order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.apiserver.conftest import NOW
from tests.sim.apiserver.widgets import WIDGETS, config_map, widget
from wva.api.kinds import CONFIG_MAPS
from wva.api.meta import Key
from wva.sim.apiserver import ChangeType, ObjectStore, Patch, ServedError, StoreOptions

A = Key("default", "a")


def test_each_write_takes_one_version_and_marks_its_kind(store):
    """Each write raises the global version by one, and the last version of the written kind alone."""
    before, pods = store.version, store.last_version("pods")
    created = store.create("configmaps", config_map("a"))
    assert store.version == before + 1 == store.last_version("configmaps")
    assert created["metadata"]["resourceVersion"] == str(store.version)
    store.patch("configmaps", A, Patch(body={"data": {"key": "2"}}))
    store.delete("configmaps", A)
    assert store.last_version("configmaps") == before + 3
    assert store.last_version("pods") == pods


def test_a_write_without_effect_is_none(store):
    """A write of the same state takes no version and reaches no subscriber."""
    store.create(WIDGETS, widget("a", replicas=1))
    version, changes = store.version, []
    store.subscribe(WIDGETS, changes.append)
    store.patch(WIDGETS, A, Patch(body={"spec": {"replicas": 1}, "metadata": {"labels": {}}}))
    store.patch_scale(WIDGETS, A, 1)
    assert changes == []
    assert store.version == version


def test_a_kind_is_named_by_text_spec_or_resource(store):
    """The store accepts a kind as text, spec or resource."""
    store.create(CONFIG_MAPS, config_map("a"))
    assert store.get("configmaps", A) is store.get(CONFIG_MAPS, A)
    with pytest.raises(LookupError, match="nonsense"):
        store.get("nonsense", A)


def test_subscribers_see_changes_in_order_even_when_they_write(store):
    """If a subscriber writes when it is notified, all subscribers get this write after the first one."""
    first, second = [], []

    def answer(change):
        first.append((change.type, change.version))
        if change.type is ChangeType.ADDED and change.key.name == "a":
            store.create("configmaps", config_map("b"))

    store.subscribe("configmaps", answer)
    store.subscribe("configmaps", lambda change: second.append((change.type, change.version)))
    store.create("configmaps", config_map("a"))
    assert first == second
    assert [version for _, version in first] == sorted(version for _, version in first)
    assert len(first) == 2


def test_an_unsubscribed_callback_is_silent(store):
    """After the end of a subscription the store no longer calls it."""
    changes = []
    end = store.subscribe("configmaps", changes.append)
    store.create("configmaps", config_map("a"))
    end()
    store.create("configmaps", config_map("b"))
    assert [change.key.name for change in changes] == ["a"]


def test_a_deletion_carries_the_last_state_under_its_own_version(store):
    """The change has the deleted object as it was stored, with a new resourceVersion."""
    changes = []
    created = store.create("configmaps", config_map("a"))
    store.subscribe("configmaps", changes.append)
    store.delete("configmaps", A)
    (change,) = changes
    assert change.type is ChangeType.DELETED
    assert change.object["data"] == created["data"]
    assert change.object["metadata"]["resourceVersion"] == str(change.version) == str(store.version)
    assert created["metadata"]["resourceVersion"] != str(store.version)


def test_what_was_handed_out_does_not_change(store):
    """Later writes make new objects, and the store does not change the caller's object."""
    given_object = widget("a", unknown=1)
    created = store.create(WIDGETS, given_object)
    assert given_object == widget("a", unknown=1)
    store.patch(WIDGETS, A, Patch(body={"spec": {"replicas": 3}, "metadata": {"labels": {"x": "y"}}}))
    assert created["spec"] == {"model": "m", "cost": "10.0"}
    assert "labels" not in created["metadata"]


def test_time_comes_from_the_parameter(store):
    """Creation and deletion have the time of the store's clock."""
    created = store.create("configmaps", config_map("a", finalizers=["x.example.com/hold"]))
    assert created["metadata"]["creationTimestamp"] == "2023-11-14T22:13:20Z"
    assert store.delete("configmaps", A)["metadata"]["deletionTimestamp"] == "2023-11-14T22:13:20Z"


@pytest.mark.parametrize("seed", [0, 7])
def test_equal_seeds_give_equal_identities(seed):
    """Stores with the same seed give the same uids and generated names, with another seed other ones."""

    def identities(number):
        store = ObjectStore(now=lambda: NOW, options=StoreOptions(seed=number))
        body = {"metadata": {"generateName": "g-", "namespace": "default"}}
        created = [store.create("configmaps", body)["metadata"] for _ in range(3)]
        return [(metadata["uid"], metadata["name"]) for metadata in created]

    assert identities(seed) == identities(seed)
    assert not set(identities(seed)) & set(identities(seed + 1))
    assert len(set(identities(seed))) == 3


def test_the_history_is_bounded():
    """The store refuses to give changes older than the limit, and gives newer ones."""
    store = ObjectStore(now=lambda: NOW, options=StoreOptions(history_limit=2))
    versions = [int(store.create("configmaps", config_map(name))["metadata"]["resourceVersion"]) for name in "abcd"]
    collection = store.collection("configmaps")
    assert [change.key.name for change in collection.since(versions[1])] == ["c", "d"]
    with pytest.raises(ServedError) as refused:
        collection.since(versions[0])
    assert (refused.value.code, refused.value.reason) == (410, "Expired")


def test_compaction_forgets_up_to_now(store):
    """After a compaction the store knows only changes after the present version."""
    version = store.version
    store.create("configmaps", config_map("a"))
    store.compact()
    collection = store.collection("configmaps")
    assert collection.since(store.version) == []
    with pytest.raises(ServedError):
        collection.since(version)


operations = st.lists(st.tuples(st.sampled_from(["create", "patch", "delete"]), st.sampled_from("abc")), max_size=30)


@given(operations)
def test_the_changes_rebuild_the_state(steps):
    """A client that applies all changes has the same objects as the store. Versions only grow."""
    store = ObjectStore(now=lambda: NOW)
    start, seen, versions = store.version, {}, []

    def follow(change):
        versions.append(change.version)
        if change.type is ChangeType.DELETED:
            del seen[change.key]
        else:
            seen[change.key] = change.object

    store.subscribe("configmaps", follow)
    for number, (verb, name) in enumerate(steps):
        key = Key("default", name)
        exists = store.find("configmaps", key) is not None
        if verb == "create" and not exists:
            store.create("configmaps", config_map(name))
        elif verb == "patch" and exists:
            store.patch("configmaps", key, Patch(body={"data": {"key": str(number)}}))
        elif verb == "delete" and exists:
            store.delete("configmaps", key)
    assert [seen[key] for key in sorted(seen)] == store.list("configmaps")
    assert versions == sorted(set(versions))
    assert [change.version for change in store.collection("configmaps").since(start)] == versions
