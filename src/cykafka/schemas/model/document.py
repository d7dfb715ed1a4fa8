"""Schemas from the registry and from files, and how a configuration names them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cykafka.schemas.model.schema import Schema, SchemaReference

__all__ = [
    "MOST_SCHEMA_LEVELS",
    "SCHEMA_TYPES",
    "Document",
    "SchemaSource",
    "UnfitError",
    "is_proto_text",
    "is_shallow",
    "is_subject",
    "no_descriptor",
    "read_source",
]

# The formats, and the registry's names for their schemas.
SCHEMA_TYPES = {"avro": "AVRO", "protobuf": "PROTOBUF", "json": "JSON"}
# The libraries compile schemas in C and Rust, where many levels overflow the stack.
MOST_SCHEMA_LEVELS = 500
_SUBJECT = re.compile(r"(?P<subject>\S+):(?P<version>latest|[1-9][0-9]*)")
_MESSAGE = re.compile(r"(?P<rest>.+)#(?P<message>[A-Za-z_][\w.]*)", re.DOTALL)


class UnfitError(ValueError):
    """An unusable schema, or records whose schema does not fit the reader's."""


def is_shallow(value: Any, most: int) -> bool:
    """Return whether a value has at most `most` levels."""
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return True
    return most > 0 and all(is_shallow(item, most - 1) for item in value)


def is_proto_text(text: str) -> bool:
    """Whether a Protobuf schema is the text of a .proto file, and not a descriptor in base64."""
    return "{" in text


def no_descriptor(text: str) -> UnfitError:
    """Return the error for a Protobuf schema that is not a descriptor."""
    if is_proto_text(text):
        return UnfitError(
            "it is the text of a .proto file, which cykafka does not compile. Use a registry that "
            "returns descriptors (format=serialized), as Confluent's does, and name the schema as "
            "SUBJECT:VERSION; or pass a FileDescriptorProto in base64"
        )
    return UnfitError(
        "expected a FileDescriptorProto in base64, which Schema Registry returns for "
        "format=serialized"
    )


@dataclass(frozen=True)
class Document:
    """A schema with all schemas that it refers to. Its hash depends on its content.

    Parameters
    ----------
    format : str
        A key of `SCHEMA_TYPES`.
    text : str
        The schema. For Protobuf it is a FileDescriptorProto in base64.
    parts : tuple of (str, str)
        The names and texts of directly and indirectly referenced schemas. Each schema follows the
        schemas that it refers to.
    references : tuple of SchemaReference
        The directly referenced schemas.
    id : int, optional
        The registry's id.
    """

    format: str
    text: str
    parts: tuple[tuple[str, str], ...] = ()
    references: tuple[SchemaReference, ...] = ()
    id: int | None = field(default=None, compare=False)

    def schema(self) -> Schema:
        """Return the schema as the registry has it."""
        return Schema(self.text, SCHEMA_TYPES[self.format], self.references)

    def check_format(self, format: str, name: str) -> None:
        """Raise UnfitError, which begins with a name, if the schema is of another format."""
        if self.format != format:
            found, expected = SCHEMA_TYPES[self.format], SCHEMA_TYPES[format]
            raise UnfitError(f"{name} is of {found}, expected {expected}")


@dataclass(frozen=True)
class SchemaSource:
    """Where a schema comes from: a document, or a subject with its version.

    Parameters
    ----------
    document : Document, optional
    subject : str, optional
    version : str, optional
        A number or ``latest``.
    message : str, optional
        Protobuf: the full name of the message; by default the file's first message.
    """

    document: Document | None = None
    subject: str = ""
    version: str = "latest"
    message: str = ""


def is_subject(value: Any) -> bool:
    """Whether a text names a schema in the registry: ``SUBJECT:VERSION``."""
    return isinstance(value, str) and _SUBJECT.fullmatch(value.strip()) is not None


def read_source(value: Any, format: str) -> SchemaSource:
    """Read a schema that a configuration names.

    Parameters
    ----------
    value : mapping or str
        ``SUBJECT:VERSION``, a schema (a table or a text), or the name of a schema file. For
        Protobuf the file is a FileDescriptorSet, and ``#MESSAGE`` may follow.
    format : str
        A key of `SCHEMA_TYPES`.

    Raises
    ------
    ValueError
        `value` is none of these.
    """
    message = ""
    if isinstance(value, str):
        value = value.strip()
        match = _MESSAGE.fullmatch(value) if format == "protobuf" else None
        if match is not None:
            value, message = match["rest"], match["message"]
        match = _SUBJECT.fullmatch(value)
        if match is not None:
            return SchemaSource(None, match["subject"], match["version"], message)
    if format == "protobuf":
        return SchemaSource(_descriptors(value), message=message)
    if isinstance(value, Mapping):
        try:
            return SchemaSource(Document(format, json.dumps(value)))
        except TypeError as error:  # TOML may contain dates
            raise ValueError(f"it is not an Avro schema: {error}") from None
    if not isinstance(value, str) or not value:
        raise ValueError(
            "expected an Avro schema, the name of a file with one, or SUBJECT:VERSION"
        )
    if not value.startswith(("{", "[", '"')):
        value = _read(value).decode(errors="replace")
    try:
        json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not a schema, because it is not JSON: {error}") from None
    return SchemaSource(Document(format, value))


def _read(name: str) -> bytes:
    try:
        return Path(name).expanduser().read_bytes()
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: no such user
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{name!r} is neither SUBJECT:VERSION nor a file: {reason}") from None


def _descriptors(value: Any) -> Document:
    """Return the last file in a FileDescriptorSet, for which protoc was called."""
    if not isinstance(value, str) or not value:
        raise ValueError("expected a file of protoc --descriptor_set_out, or SUBJECT:VERSION")
    raw = _read(value)
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.message import DecodeError
    except ModuleNotFoundError:  # the job reports this later
        return Document("protobuf", base64.b64encode(raw).decode())
    words = "expected a file of protoc --include_imports --descriptor_set_out=FILE"
    try:
        files = FileDescriptorSet.FromString(raw).file
    except DecodeError:
        raise ValueError(f"{value!r} is not a descriptor set: {words}") from None
    if not files:
        raise ValueError(f"{value!r} has no descriptors: {words}")
    parts = [(file.name, base64.b64encode(file.SerializeToString()).decode()) for file in files]
    return Document("protobuf", parts[-1][1], tuple(parts[:-1]))
