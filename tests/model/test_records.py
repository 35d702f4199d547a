"""Records of both kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from wva.model.memory import Memory, VariantMemory
from wva.model.records import replace
from wva.model.variant import VariantKey

KEY = VariantKey("ns", "a")


@dataclass(frozen=True, slots=True)
class Keeper:
    """A dataclass with a field that has the name of an argument of ``replace``."""

    record: Callable | None = None


def test_a_field_of_either_kind_is_replaced():
    """The record itself stays as it was."""
    entry = VariantMemory(KEY, 2, None, 2)
    assert replace(entry, desired=3) == VariantMemory(KEY, 3, None, 2)
    assert entry.desired == 2
    assert replace(Memory(), variants=(entry,)) == Memory((entry,))


def test_a_field_may_have_any_name():
    """Also that of the argument."""
    assert replace(Keeper(), record=len).record is len


def test_a_struct_is_written_as_a_dataclass_was():
    """So recordings of before are read, and those of now by who reads JSON."""
    written = msgspec.json.encode(VariantMemory(KEY, 2, None, 1))
    assert written == (
        b'{"key":{"namespace":"ns","name":"a"},"desired":2,"settling_since":null,"ready_replicas":1,"decided":true}'
    )
