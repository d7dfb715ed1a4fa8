"""Protobuf schemas of tests, made without protoc."""

from __future__ import annotations

import base64
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

FIELD = descriptor_pb2.FieldDescriptorProto
TYPES = {
    "int32": FIELD.TYPE_INT32,
    "int64": FIELD.TYPE_INT64,
    "uint64": FIELD.TYPE_UINT64,
    "string": FIELD.TYPE_STRING,
    "double": FIELD.TYPE_DOUBLE,
    "bytes": FIELD.TYPE_BYTES,
    "bool": FIELD.TYPE_BOOL,
}


def proto(
    name: str, package: str, messages: dict[str, dict[str, tuple[int, str]]], *imports: str
) -> descriptor_pb2.FileDescriptorProto:
    """A file with messages: their fields by name, each a number and a type.

    A type is a plain one, ``.package.Message``, or either after ``repeated``. A message may be
    called ``Outer.Inner``.
    """
    file = descriptor_pb2.FileDescriptorProto(
        name=name, package=package, syntax="proto3", dependency=imports
    )
    made: dict[str, Any] = {}
    for full, fields in messages.items():
        outer, _, own = full.rpartition(".")
        place = made[outer].nested_type if outer else file.message_type
        made[full] = message = place.add(name=own)
        for field, (number, kind) in fields.items():
            plain = kind.removeprefix("repeated ")
            label = FIELD.LABEL_OPTIONAL if plain == kind else FIELD.LABEL_REPEATED
            added = message.field.add(name=field, number=number, label=label)
            if plain in TYPES:
                added.type = TYPES[plain]
            else:
                is_enum = plain.startswith("enum ")
                added.type = FIELD.TYPE_ENUM if is_enum else FIELD.TYPE_MESSAGE
                added.type_name = plain.removeprefix("enum ")
    return file


def text(file: descriptor_pb2.FileDescriptorProto) -> str:
    """The file as the registry answers to format=serialized."""
    return base64.b64encode(file.SerializeToString()).decode()


def message(name: str, *files: descriptor_pb2.FileDescriptorProto) -> Any:
    """The class of a message, by its full name; each file follows those that it imports."""
    pool = descriptor_pool.DescriptorPool()
    for file in files:
        pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
