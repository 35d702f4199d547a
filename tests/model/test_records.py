"""``replace`` works on dataclasses and on structs."""

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
    """``replace`` does not change the original record."""
    entry = VariantMemory(KEY, 2, None, 2)
    assert replace(entry, desired=3) == VariantMemory(KEY, 3, None, 2)
    assert entry.desired == 2
    assert replace(Memory(), variants=(entry,)) == Memory((entry,))


def test_a_field_may_have_any_name():
    """A field may have the name of the argument of ``replace``."""
    assert replace(Keeper(), record=len).record is len


def test_a_struct_is_written_as_a_dataclass_was():
    """WVA reads old recordings, and other programs read new ones as JSON."""
    written = msgspec.json.encode(VariantMemory(KEY, 2, None, 1))
    assert written == (
        b'{"key":{"namespace":"ns","name":"a"},"desired":2,"settling_since":null,"ready_replicas":1,"decided":true}'
    )
