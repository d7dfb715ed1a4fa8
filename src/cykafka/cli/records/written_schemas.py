"""The schemas of produced keys and values: from files, or from subjects of the registry."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

from cyclopts import Group

from cykafka.cli.cluster.registry import (
    Registry,
    SchemaKind,
    parse_version,
    read_schema,
    register,
    using_schemas,
)
from cykafka.cli.records.json_record import Writers
from cykafka.cli.records.value_formats import Part, ValueFormat, Writer, writer
from cykafka.cli.terminal.failures import Failed, UsageError
from cykafka.cli.terminal.parameters import option

if TYPE_CHECKING:
    from cykafka.schemas.model.document import Document
    from cykafka.schemas.registry.client import SchemaRegistryClient

__all__ = ["SchemaOptions", "check_schemas", "open_writers"]

_GROUP = Group("Schemas", sort_key=4)
_PARTS: tuple[Part, Part] = ("key", "value")


@dataclass(frozen=True, kw_only=True)
class SchemaOptions:
    """The options of ``cykafka produce`` for schemas, with their help."""

    schema: Annotated[str | None, option(group=_GROUP, metavar="FILE")] = None
    """register this schema of the values; FILE#MESSAGE chooses a message of Protobuf"""
    subject: Annotated[str | None, option(group=_GROUP, metavar="SUBJECT")] = None
    """the subject of the values' schema, or SUBJECT:VERSION (default: TOPIC-value, its latest)"""
    key_schema: Annotated[str | None, option(group=_GROUP, metavar="FILE")] = None
    """register this schema of the keys"""
    key_subject: Annotated[str | None, option(group=_GROUP, metavar="SUBJECT")] = None
    """the subject of the keys' schema (default: TOPIC-key)"""

    def of(self, part: Part) -> tuple[str | None, str | None]:
        """Return the schema's file and its subject, each None if it is missing."""
        if part == "key":
            return self.key_schema, self.key_subject
        return self.schema, self.subject

    def needs_registry(self, form: ValueFormat) -> bool:
        """Whether keys or values with a format get a schema from the registry."""
        return form.needs_registry or self.of(form.part) != (None, None)


def check_schemas(
    forms: tuple[ValueFormat | None, ValueFormat | None],
    options: SchemaOptions,
    registry: Registry,
) -> None:
    """Check the options without a request to the registry.

    Parameters
    ----------
    forms : pair of ValueFormat or None
        The formats of keys and of values.
    options : SchemaOptions
    registry : Registry

    Raises
    ------
    UsageError
        The options do not fit each other, no registry is named, or a library is missing.
    """
    for part, form in zip(_PARTS, forms, strict=True):
        has_schema = form is not None and form.name in ("avro", "protobuf", "json")
        if options.of(part) != (None, None) and not has_schema:
            names = "--schema and --subject"
            if part == "key":
                names = "--key-schema and --key-subject"
            raise UsageError(f"{names} need --{part}-format avro, protobuf or json")
        if form is not None and options.needs_registry(form):
            registry.client(form.option)


def open_writers(
    topic: str,
    forms: tuple[ValueFormat | None, ValueFormat | None],
    options: SchemaOptions,
    registry: Registry,
) -> Writers | None:
    """Return what encodes keys and values; None if all bytes are sent as they are.

    This registers the schemas that the options name. The parameters are as above.

    Raises
    ------
    Failed
        The registry does not respond or refuses a schema.
    """
    made: list[Writer | None] = []
    for form in forms:
        if form is None:
            made.append(None)
        elif options.needs_registry(form):
            client = registry.client(form.option)
            made.append(writer(form, client, *_document(client, topic, form, options)))
        else:
            made.append(writer(form))
    return Writers(*made) if any(made) else None


def _document(
    client: SchemaRegistryClient, topic: str, form: ValueFormat, options: SchemaOptions
) -> tuple[Document, str]:
    """Return the schema with its id, and the Protobuf message's name or an empty text."""
    from cykafka.schemas.model.rules import WRITING

    kind = cast(SchemaKind, form.name)
    file, subject = options.of(form.part)
    message = ""
    if kind == "protobuf" and file is not None:
        file, _, message = file.partition("#")
    elif kind == "protobuf" and subject is not None:
        subject, _, message = subject.partition("#")
    name, version = parse_version(subject or f"{topic}-{form.part}")
    with using_schemas(form.option):
        if file is None:
            document = _registered(client, form, name, version or "latest")
        else:
            if version is not None:
                raise UsageError("a schema in a file has no version: remove :VERSION")
            path = Path(file)
            found = register(client, name, path, read_schema(path, kind))
            document = client.document(found.schema, found.schema_id, name, modes=WRITING)
    if document.format != kind:
        raise UsageError(f"{form.option}: the schema of subject {name} is {document.format}")
    return document, message


def _registered(
    client: SchemaRegistryClient, form: ValueFormat, name: str, version: int | Literal["latest"]
) -> Document:
    from cykafka.schemas.model.error import SchemaNotFoundError
    from cykafka.schemas.model.rules import WRITING

    try:
        return client.document_by_version(name, version, modes=WRITING)
    except SchemaNotFoundError as error:
        dash = "--" if form.part == "value" else "--key-"
        words = error.error_message.rstrip(".")
        raise Failed(
            f"{form.option}: {words}; {dash}schema FILE registers a schema, {dash}subject names "
            "another subject"
        ) from error
