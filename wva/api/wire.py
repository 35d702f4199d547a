"""Bytes from other processes into structs: every fault of the bytes is one kind of error.

msgspec raises three unrelated classes for wrong input: its own DecodeError, UnicodeDecodeError for text that is not
UTF-8, and RecursionError for endless nesting. If a caller forgot one of them, a single object would end a watch, and
with it the process. The text of the error is short: msgspec quotes values, and the way to the fault, of any length.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec

V = TypeVar("V")

_MAX_ERROR_CHARACTERS: Final = 300
MAX_SECOND_LOOK_BYTES: Final = 256 * 1024


def decode(decoder: msgspec.json.Decoder[V], data: bytes | msgspec.Raw) -> V:
    """Return what ``decoder`` makes of the data. Raises msgspec.DecodeError for any fault in them."""
    try:
        return decoder.decode(data)
    except msgspec.DecodeError as error:
        text = str(error)
        if len(text) <= _MAX_ERROR_CHARACTERS:
            raise
        raise type(error)(f"{text[:_MAX_ERROR_CHARACTERS]}...") from None
    except UnicodeDecodeError as error:
        raise msgspec.DecodeError("text that is not UTF-8") from error
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deeply") from error


def decode_object(decoder: msgspec.json.Decoder[V], data: bytes | msgspec.Raw) -> V:
    """Decode as ``decode`` does, taking a field that is null for absent: the rule of the Kubernetes API.

    Go writes null for an empty map or list. The structs do not declare it, since almost no object needs this second
    decoding. It takes a hundred times as long as the first, so large objects are not decoded again.
    """
    try:
        return decode(decoder, data)
    except msgspec.ValidationError:
        if memoryview(data).nbytes > MAX_SECOND_LOOK_BYTES:
            raise
    try:
        pruned = msgspec.json.encode(without_nulls(decode(_any, data)))
    except RecursionError as error:
        raise msgspec.DecodeError("nested too deeply") from error
    return decode(decoder, pruned)


_any: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def without_nulls(value: Any) -> Any:
    """Return a JSON or YAML value without the fields that are null; in a list a null is an item and stays."""
    if isinstance(value, dict):
        return {str(name): without_nulls(field) for name, field in value.items() if field is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value
