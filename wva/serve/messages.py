"""Makes the message types of a gRPC service from their field numbers, so nothing has to be generated from its file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD: Final = descriptor_pb2.FieldDescriptorProto
TEXT: Final[int] = _FIELD.TYPE_STRING
DATA: Final[int] = _FIELD.TYPE_BYTES
FLAG: Final[int] = _FIELD.TYPE_BOOL
WHOLE: Final[int] = _FIELD.TYPE_INT64
REAL: Final[int] = _FIELD.TYPE_DOUBLE


def message_types(
    package: str, messages: Mapping[str, Mapping[int, tuple[str, int | str]]]
) -> Callable[[str], type[Any]]:
    """Return the message types of a package by name.

    Each message has its fields by number: the name, and one of the kinds above or the name of another message, with
    ``[`` before it for any number of them. ``OUTER.NAME`` is the entry of a map of ``OUTER``. Fields that are left out
    are skipped when a message is read.
    """
    file = descriptor_pb2.FileDescriptorProto(name=f"{package}.proto", package=package, syntax="proto3")
    descriptors = {name: descriptor_pb2.DescriptorProto(name=name.rpartition(".")[2]) for name in messages}
    for name, fields in messages.items():
        for number, (field_name, kind) in fields.items():
            entry = descriptors[name].field.add(name=field_name, number=number, label=_FIELD.LABEL_OPTIONAL)
            if isinstance(kind, int):
                entry.type = kind
                continue
            entry.type, entry.type_name = _FIELD.TYPE_MESSAGE, f".{package}.{kind.removeprefix('[')}"
            if kind.startswith("["):
                entry.label = _FIELD.LABEL_REPEATED
    for name, message in descriptors.items():
        outer = name.rpartition(".")[0]
        if outer:
            message.options.map_entry = True
            descriptors[outer].nested_type.append(message)
        else:
            file.message_type.append(message)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.{name}"))
