"""Merge patches, JSON patches and strategic merge patches, which have no field manager."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.sim.apiserver.objects import clone
from wva.sim.apiserver.patches import PatchFailedError, json_patch, merge_patch, strategic_merge_patch
from wva.sim.apiserver.shape import Shape

ROOT = Shape()

leaf = st.booleans() | st.integers() | st.text(max_size=2)
documents = st.recursive(
    leaf, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner), max_leaves=8
)
patches = st.recursive(
    leaf | st.none(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner) | st.lists(leaf), max_leaves=8
)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ({"a": "foo"}, "bar", "bar"),
    ],
)
def test_merge_patch_examples(target, patch, result):
    """Merge patches give the results of the examples in RFC 7386."""
    assert merge_patch(target, patch) == result


@given(documents, patches)
def test_merge_patch_settles_and_leaves_its_inputs_alone(target, patch):
    """A second application changes nothing more, and neither the document nor the patch changes."""
    before, patch_before = clone(target), clone(patch)
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once
    assert (target, patch) == (before, patch_before)


@pytest.mark.parametrize(
    ("target", "operations", "result"),
    [
        ({"a": [1, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], {"a": [1, 2, 3]}),
        ({"a": [1]}, [{"op": "add", "path": "/a/-", "value": 2}], {"a": [1, 2]}),
        ({"a": [1, 2]}, [{"op": "remove", "path": "/a/0"}], {"a": [2]}),
        ({"a": [1, 2]}, [{"op": "replace", "path": "/a/0", "value": 9}], {"a": [9, 2]}),
        ({"a": 1}, [{"op": "move", "from": "/a", "path": "/b"}], {"b": 1}),
        ({"a": {"x~/": 1}}, [{"op": "copy", "from": "/a/x~0~1", "path": "/b"}], {"a": {"x~/": 1}, "b": 1}),
        ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
        ({"a": 1}, [{"op": "test", "path": "/a", "value": 1}], {"a": 1}),
    ],
)
def test_json_patch_operations(target, operations, result):
    """Each operation does what RFC 6902 says, to a copy."""
    before = clone(target)
    assert json_patch(target, operations) == result
    assert target == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "test", "path": "/a", "value": 2},
        {"op": "remove", "path": "/x"},
        {"op": "remove", "path": "/l/7"},
        {"op": "add", "path": "/l/7", "value": 1},
        {"op": "add", "path": "/x/y", "value": 1},
        {"op": "add", "path": "/a/y", "value": 1},
        {"op": "replace", "path": "/x", "value": 1},
        {"op": "copy", "from": "/x", "path": "/y"},
        {"op": "frobnicate", "path": "/a"},
        {"op": "add", "path": "a", "value": 1},
        {"op": "add"},
        "add",
    ],
)
def test_json_patch_that_does_not_fit(operation):
    """An operation that does not fit is an error."""
    with pytest.raises(PatchFailedError):
        json_patch({"a": 1, "l": [0]}, [operation])


def test_json_patch_is_a_list():
    """A JSON patch that is not a list is an error."""
    with pytest.raises(PatchFailedError):
        json_patch({}, {"op": "add"})


def test_strategic_merge_by_key():
    """Items with a known key merge, new ones come first or after their predecessor, directives delete and replace."""
    old = {"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b"}]}
    patch = {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}]}, {"name": "c"}]}
    merged = strategic_merge_patch(old, patch, ROOT)
    assert merged["containers"] == [
        {"name": "a", "image": "1", "env": [{"name": "Y", "value": "2"}, {"name": "X", "value": "1"}]},
        {"name": "c"},
        {"name": "b"},
    ]
    removed = strategic_merge_patch(merged, {"containers": [{"name": "b", "$patch": "delete"}]}, ROOT)
    assert [item["name"] for item in removed["containers"]] == ["a", "c"]
    replaced = strategic_merge_patch(merged, {"containers": [{"name": "z"}, {"$patch": "replace"}]}, ROOT)
    assert replaced["containers"] == [{"name": "z"}]


def test_strategic_merge_of_maps_sets_and_plain_lists():
    """Maps merge, null and directives remove, finalizers unite, other lists are replaced; order hints are ignored."""
    old = {"m": {"a": 1, "b": 2}, "n": {"x": 1}, "finalizers": ["a"], "args": ["1"], "z": 1}
    patch = {
        "m": {"b": None, "c": 3},
        "n": {"$patch": "replace", "y": 2},
        "finalizers": ["b"],
        "args": ["2"],
        "z": {"$patch": "delete"},
        "$setElementOrder/args": ["2"],
    }
    assert strategic_merge_patch(old, patch, ROOT) == {
        "m": {"a": 1, "c": 3},
        "n": {"y": 2},
        "finalizers": ["b", "a"],
        "args": ["2"],
    }
    assert strategic_merge_patch(old, {"$deleteFromPrimitiveList/finalizers": ["a"]}, ROOT)["finalizers"] == []
    assert old["finalizers"] == ["a"]


def test_ports_merge_by_what_they_have():
    """Container ports merge by containerPort, and service ports by port."""
    for key in ("containerPort", "port"):
        merged = strategic_merge_patch({"ports": [{key: 80, "name": "w"}]}, {"ports": [{key: 80, "x": 1}]}, ROOT)
        assert merged == {"ports": [{key: 80, "name": "w", "x": 1}]}
