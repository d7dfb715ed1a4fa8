"""A schema as the registry has it, with the names of confluent_kafka.schema_registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["RegisteredSchema", "Schema", "SchemaReference"]


@dataclass(frozen=True)
class SchemaReference:
    """A schema that another schema refers to.

    Parameters
    ----------
    name : str
        The name by which the other schema refers to it: an Avro full name, a Protobuf import, or
        a JSON Schema URL.
    subject : str
        Its subject in the registry.
    version : int
        Its version in the subject.
    """

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Schema:
    """A schema without its subject.

    Parameters
    ----------
    schema_str : str
        The schema. For Protobuf it is the text of a .proto file, or a FileDescriptorProto in
        base64.
    schema_type : str, default "AVRO"
        ``AVRO``, ``PROTOBUF`` or ``JSON``.
    references : sequence of SchemaReference, optional
        The schemas that it refers to.
    metadata, rule_set : mapping, optional
        The registry's own, as in its JSON. cykafka applies no rules: see `docs/schemas.md`.
    """

    schema_str: str
    schema_type: str = "AVRO"
    references: Sequence[SchemaReference] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "references", tuple(self.references or ()))

    def __hash__(self) -> int:
        return hash((self.schema_str, self.schema_type, self.references))


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as a version of a subject.

    Parameters
    ----------
    subject : str or None
    version : int or None
    schema_id : int or None
        The schema's number in the registry.
    guid : str or None
        The schema's globally unique id; None if the registry has none.
    schema : Schema
    """

    subject: str | None
    version: int | None
    schema_id: int | None
    guid: str | None
    schema: Schema
