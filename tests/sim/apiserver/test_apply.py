"""Laws of server-side apply that hold for any objects. The contract tests have the requests and answers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.sim.apiserver.widgets import config_map
from wva.api.meta import Key
from wva.sim.apiserver import ObjectStore, Patch, PatchType, ServedError, WriteOptions
from wva.sim.apiserver.apply import Writer, apply
from wva.sim.apiserver.builtin import CONFIG_MAPS, DEPLOYMENTS

A = Key("default", "a")
TIME = "2026-01-01T00:00:00Z"
data = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from(["1", "2"]))


def config(values, **metadata):
    """Return the body that a manager applies to a ConfigMap."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", **metadata}}
    return {**body, "data": values} if values else body


def applied(live, values, manager, *, force=True):
    """Apply values as a manager."""
    return apply(CONFIG_MAPS, live, config(values), Writer(manager, TIME, force=force))


@given(data, data)
def test_the_last_to_force_gets_its_way(first, second):
    """A forced apply sets all its values. Values that only the other manager applied stay."""
    live = applied(applied(None, first, "one"), second, "two")
    assert live.get("data", {}) == {**first, **second}


@given(data)
def test_applying_twice_is_applying_once(values):
    """The second apply changes nothing, not even the owners of fields."""
    live = applied(None, values, "one")
    assert apply(CONFIG_MAPS, live, config(values), Writer("one", "2027-01-01T00:00:00Z")) == live


@given(data, data)
def test_giving_up_leaves_what_others_own(first, second):
    """If a manager applies an empty object, exactly the values that no other manager owns go."""
    shared = {**first, **second}
    live = applied(applied(None, first, "one"), second, "two")
    left = applied(live, {}, "one")
    assert left.get("data", {}) == {key: shared[key] for key in second}
    assert applied(left, {}, "two").get("data", {}) == {}


@given(data, data)
def test_a_conflict_is_a_different_value_of_another_manager(first, second):
    """Without force, the server refuses exactly the values that differ from another manager's."""
    live = applied(None, first, "one")
    disagreed = {key for key in first.keys() & second.keys() if first[key] != second[key]}
    if not disagreed:
        assert applied(live, second, "two", force=False)["data" if {**first, **second} else "metadata"]
        return
    with pytest.raises(ServedError) as refused:
        applied(live, second, "two", force=False)
    assert {cause["field"] for cause in refused.value.details["causes"]} == {f".data.{key}" for key in disagreed}


def test_items_of_keyed_lists_are_owned_one_by_one():
    """An item goes when its last owner gives it up. Until then it keeps the fields of the other owners."""

    def containers(*items):
        spec = {"spec": {"template": {"spec": {"containers": list(items)}}}} if items else {}
        return {"metadata": {"name": "a"}, **spec}

    def names(value):
        listed = value.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
        return {item["name"]: item for item in listed}

    one, two = Writer("one", TIME), Writer("two", TIME)
    live = apply(DEPLOYMENTS, None, containers({"name": "x", "image": "1"}, {"name": "y", "image": "1"}), one)
    live = apply(DEPLOYMENTS, live, containers({"name": "x", "tty": True}), two)
    live = apply(DEPLOYMENTS, live, containers(), one)
    assert names(live) == {"x": {"name": "x", "tty": True}}
    live = apply(DEPLOYMENTS, live, containers(), two)
    assert names(live) == {}


def test_an_item_given_up_takes_what_nobody_owns_along():
    """Defaults that the server set in an item do not keep the item."""
    item = {"name": "x", "image": "1"}
    spec = {"template": {"spec": {"containers": [item]}}}
    one = Writer("one", TIME)
    live = apply(DEPLOYMENTS, None, {"metadata": {"name": "a"}, "spec": spec}, one)
    live["spec"] = {"replicas": 1, "template": {"spec": {"containers": [{**item, "imagePullPolicy": "Always"}]}}}
    assert apply(DEPLOYMENTS, live, {"metadata": {"name": "a"}}, one)["spec"] == {"replicas": 1}


def test_finalizers_are_a_set():
    """Each manager owns its own finalizers."""
    one, two = Writer("one", TIME), Writer("two", TIME)
    live = apply(CONFIG_MAPS, None, config({}, finalizers=["x/a"]), one)
    live = apply(CONFIG_MAPS, live, config({}, finalizers=["x/b"]), two)
    assert live["metadata"]["finalizers"] == ["x/a", "x/b"]
    assert apply(CONFIG_MAPS, live, config({}), one)["metadata"]["finalizers"] == ["x/b"]


def test_ordinary_writes_move_ownership_of_what_they_change(store):
    """A patched field changes hands, an untouched one does not, a removed one has no owner."""
    options = WriteOptions(manager="one")
    store.patch(
        "configmaps", A, Patch(body=config({"x": "1", "y": "1", "z": "1"}), type=PatchType.APPLY, options=options)
    )
    editor = WriteOptions(manager="editor")
    store.patch("configmaps", A, Patch(body={"data": {"x": "2", "z": None}}, options=editor))
    entries = store.get("configmaps", A)["metadata"]["managedFields"]
    owned = {entry["manager"]: sorted(entry["fieldsV1"]["f:data"]) for entry in entries}
    assert owned == {"one": ["f:y"], "editor": ["f:x"]}
    assert {entry["manager"]: entry["operation"] for entry in entries} == {"one": "Apply", "editor": "Update"}


def test_what_stood_before_the_first_apply_is_defended():
    """Fields set before the first apply belong to ``before-first-apply``. A change without force is a conflict."""
    store = ObjectStore(now=lambda: 0.0)
    store.create("configmaps", config_map("a", data={"x": "1"}))
    patch = Patch(body=config({"x": "2"}), type=PatchType.APPLY, options=WriteOptions(manager="one"))
    with pytest.raises(ServedError, match="before-first-apply"):
        store.patch("configmaps", A, patch)
    forced = WriteOptions(manager="one", force=True)
    assert store.patch("configmaps", A, Patch(body=config({"x": "2"}), type=PatchType.APPLY, options=forced))[
        "data"
    ] == {"x": "2"}
