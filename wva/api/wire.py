"""Decodes bytes of other processes. Every fault of the bytes becomes one kind of error, with a short text.

msgspec raises three unrelated classes for wrong input: its own DecodeError, UnicodeDecodeError for text that is not
UTF-8, and RecursionError for endless nesting. If a caller forgot one of them, a single object would end a watch, and
with it the process. The text is cut, because msgspec quotes values and paths of any length.
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
    """Decode as ``decode`` does, but take a null field as absent, as the Kubernetes API does.

    Go writes null for an empty map or list. Almost no object has one, so the structs do not declare nulls. An object
    that does not fit is decoded again without them. That takes a hundred times as long, so it is not done for large
    objects.
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
