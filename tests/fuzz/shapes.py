"""Strategies that draw documents with the shape of a struct, and with some wrong parts.

A field may be absent, null, of another type or extreme. Most parts are right, because a decoder stops at the first
wrong part.
"""

from __future__ import annotations

from functools import cache

import msgspec
from hypothesis import strategies as st

from tests.fuzz.mutation import EXTREMES

WORDS = st.sampled_from(
    ["", "m", "ns", "p", "True", "False", "Ready", "Deployment", "apps/v1", "2026-01-02T03:04:05Z", "1", "0.5", "500m"]
)
ANYTHING = st.recursive(
    st.sampled_from(EXTREMES) | WORDS | st.text(max_size=5) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
TEXT = st.one_of(WORDS, WORDS, st.text(max_size=8))
WHOLE = st.one_of(st.integers(0, 9), st.integers(-(2**70), 2**70))
NUMBER = st.one_of(st.integers(0, 9), st.floats(allow_nan=False, allow_infinity=False))
_WRONG = 12
"""One in this many parts is anything."""


def shaped(kind):
    """Return a strategy for documents in the shape of a type."""
    return _of(msgspec.inspect.type_info(kind))


@st.composite
def _perhaps(draw, right):
    """Draw from ``right`` most of the time, and otherwise anything."""
    return draw(ANYTHING if draw(st.integers(1, _WRONG)) == 1 else right)


def _of(info):
    return _perhaps(_right(info))


@cache
def _struct(cls):
    fields = {field.encode_name: _of(field.type) for field in msgspec.inspect.type_info(cls).fields}
    return st.fixed_dictionaries({}, optional=fields)


_SCALARS = {
    msgspec.inspect.IntType: WHOLE,
    msgspec.inspect.FloatType: NUMBER,
    msgspec.inspect.BoolType: st.booleans(),
    msgspec.inspect.NoneType: st.none(),
    msgspec.inspect.StrType: TEXT,
}


def _right(info):
    match info:
        case msgspec.inspect.StructType():
            return _struct(info.cls)
        case msgspec.inspect.UnionType():
            return st.one_of([_right(inner) for inner in info.types])
        case msgspec.inspect.DictType():
            return st.dictionaries(TEXT, _of(info.value_type), max_size=3)
        case msgspec.inspect.ListType() | msgspec.inspect.VarTupleType():
            return st.lists(_of(info.item_type), max_size=3)
        case msgspec.inspect.TupleType():
            return st.tuples(*map(_of, info.item_types)).map(list)
    return _SCALARS.get(type(info), ANYTHING)
