"""Structural schemas decide which fields are dropped, filled in and refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wva.sim.apiserver.objects import clone
from wva.sim.apiserver.validation import apply_defaults, prune, validate

TEXT = {"type": "string"}


def problems(value, schema):
    """Return path and reason of each problem with a field ``f`` of this schema."""
    found = validate({"f": value}, {"type": "object", "properties": {"f": schema}})
    return [(problem.field, problem.reason) for problem in found]


@pytest.mark.parametrize(
    ("value", "schema"),
    [
        ("a", {"type": "string", "enum": ["a", "b"]}),
        (3, {"type": "integer", "minimum": 3, "maximum": 3}),
        (3, {"type": "number"}),
        (3.0, {"type": "integer"}),
        (0.3, {"type": "number", "multipleOf": 0.1}),
        (True, {"type": "boolean"}),
        (None, {"type": "string", "nullable": True}),
        ("12", {"x-kubernetes-int-or-string": True}),
        (12, {"x-kubernetes-int-or-string": True}),
        ("2026-01-01T00:00:00.25+02:00", {"type": "string", "format": "date-time"}),
        ("xay", {"type": "string", "pattern": "a"}),
        ({"k": "v"}, {"type": "object", "additionalProperties": TEXT, "maxProperties": 1}),
        (["a"], {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 1}),
        ("a", {"anyOf": [{"enum": ["a"]}, {"enum": ["b"]}], "type": "string"}),
        ("a", {"oneOf": [{"enum": ["a"]}, {"enum": ["b"]}], "type": "string"}),
        ("a", {"not": {"enum": ["b"]}, "allOf": [{"minLength": 1}], "type": "string"}),
    ],
)
def test_what_fits_has_no_problems(value, schema):
    """A value that keeps all rules has no problems."""
    assert problems(value, schema) == []


@pytest.mark.parametrize(
    ("value", "schema", "reason"),
    [
        (True, {"type": "integer"}, "FieldValueTypeInvalid"),
        (None, TEXT, "FieldValueTypeInvalid"),
        (1, TEXT, "FieldValueTypeInvalid"),
        ([], {"type": "object"}, "FieldValueTypeInvalid"),
        (True, {"x-kubernetes-int-or-string": True}, "FieldValueTypeInvalid"),
        ("2026-13-01T00:00:00Z", {"type": "string", "format": "date-time"}, "FieldValueTypeInvalid"),
        ("2026-01-01 00:00:00", {"type": "string", "format": "date-time"}, "FieldValueTypeInvalid"),
        ("c", {"type": "string", "enum": ["a", "b"]}, "FieldValueNotSupported"),
        (2, {"type": "integer", "minimum": 3}, "FieldValueInvalid"),
        (3, {"type": "integer", "minimum": 3, "exclusiveMinimum": True}, "FieldValueInvalid"),
        (4, {"type": "integer", "maximum": 3}, "FieldValueInvalid"),
        (3, {"type": "integer", "maximum": 3, "exclusiveMaximum": True}, "FieldValueInvalid"),
        (7, {"type": "integer", "multipleOf": 5}, "FieldValueInvalid"),
        ("", {"type": "string", "minLength": 1}, "FieldValueInvalid"),
        ("ab", {"type": "string", "maxLength": 1}, "FieldValueTooLong"),
        ("b", {"type": "string", "pattern": "^a"}, "FieldValueInvalid"),
        ([], {"type": "array", "minItems": 1}, "FieldValueInvalid"),
        ([1, 2], {"type": "array", "maxItems": 1}, "FieldValueTooMany"),
        ({}, {"type": "object", "minProperties": 1}, "FieldValueInvalid"),
        ("c", {"anyOf": [{"enum": ["a"]}, {"enum": ["b"]}], "type": "string"}, "FieldValueInvalid"),
        ("ab", {"oneOf": [{"pattern": "a"}, {"pattern": "b"}], "type": "string"}, "FieldValueInvalid"),
        ("b", {"not": {"enum": ["b"]}, "type": "string"}, "FieldValueInvalid"),
        ("", {"allOf": [{"minLength": 1}], "type": "string"}, "FieldValueInvalid"),
    ],
)
def test_what_does_not_fit_is_named(value, schema, reason):
    """A broken rule gives one problem with the field and the reason that the API server gives."""
    assert problems(value, schema) == [("f", reason)]


def test_paths_lead_into_lists_and_maps():
    """A problem inside lists and maps has the path to it."""
    schema = {
        "type": "object",
        "additionalProperties": {
            "type": "array",
            "items": {"type": "object", "required": ["n"], "properties": {"n": TEXT}},
        },
    }
    assert problems({"k": [{"n": "x"}, {}, {"n": 1}]}, schema) == [
        ("f.k[1].n", "FieldValueRequired"),
        ("f.k[2].n", "FieldValueTypeInvalid"),
    ]


def test_pruning_drops_unknown_fields_only():
    """Known, additional and preserved fields stay at any depth. The server's own fields stay, too."""
    schema = {
        "type": "object",
        "properties": {
            "known": {"type": "object", "properties": {"a": TEXT}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": TEXT}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"tight": {}}},
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": TEXT}}},
            "inside": {"type": "object", "x-kubernetes-embedded-resource": True, "properties": {}},
        },
    }
    value = {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"x": 1},
        "known": {"a": "1", "b": 1},
        "map": {"k": {"a": "1", "b": 1}},
        "free": {"any": {"thing": 1}, "tight": {"b": 1}},
        "list": [{"a": "1", "b": 1}],
        "inside": {"kind": "X", "b": 1},
        "b": 1,
    }
    assert prune(value, schema) == ["b", "free.tight.b", "inside.b", "known.b", "list[0].b", "map.k.b"]
    assert value == {
        "apiVersion": "v1",
        "kind": "K",
        "metadata": {"x": 1},
        "known": {"a": "1"},
        "map": {"k": {"a": "1"}},
        "free": {"any": {"thing": 1}, "tight": {}},
        "list": [{"a": "1"}],
        "inside": {"kind": "X"},
    }


def test_defaults_do_not_share_and_do_not_invent_parents():
    """A default is a fresh copy, an absent parent stays absent, and null is absent unless the field is nullable."""
    inner = {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}}
    schema = {
        "type": "object",
        "properties": {
            "absent": inner,
            "present": inner,
            "made": {**inner, "default": {}},
            "null": {"type": "string", "default": "d"},
            "dropped": TEXT,
            "nullable": {"type": "string", "nullable": True, "default": "d"},
            "items": {"type": "array", "items": inner},
            "map": {"type": "object", "additionalProperties": inner},
        },
    }
    value = {"present": {}, "null": None, "dropped": None, "nullable": None, "items": [{}], "map": {"k": {}}}
    apply_defaults(value, schema)
    assert value == {
        "present": {"n": 1},
        "made": {"n": 1},
        "null": "d",
        "nullable": None,
        "items": [{"n": 1}],
        "map": {"k": {"n": 1}},
    }
    value["made"]["n"] = 2
    again = {}
    apply_defaults(again, schema)
    assert again == {"made": {"n": 1}, "null": "d", "nullable": "d"}


schemas = st.recursive(
    st.sampled_from([TEXT, {"type": "integer", "default": 3}, {"type": "boolean"}]),
    lambda inner: st.one_of(
        st.fixed_dictionaries({"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("ab"), inner)}),
        st.fixed_dictionaries({"type": st.just("object"), "additionalProperties": inner}),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
    ),
    max_leaves=6,
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from("abc"), values), st.dictionaries(st.sampled_from("ab"), schemas))
def test_conforming_twice_is_conforming_once(value, properties):
    """A second pruning and defaulting changes nothing more."""
    schema = {"type": "object", "properties": properties}
    prune(value, schema)
    apply_defaults(value, schema)
    once = clone(value)
    assert prune(value, schema) == []
    apply_defaults(value, schema)
    assert value == once
