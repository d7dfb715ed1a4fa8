"""The schemas of produced keys and values: from files, or from subjects of the registry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

from cyclopts import Group

from cykafka.cli.cluster.connection import Settings
from cykafka.cli.cluster.registry import (
    SchemaKind,
    open_registry,
    parse_version,
    read_schema,
    register,
    using_schemas,
)
from cykafka.cli.records.json_record import Writers
from cykafka.cli.records.value_formats import Part, ValueFormat, writer
from cykafka.cli.terminal.failures import UsageError
from cykafka.cli.terminal.parameters import option

if TYPE_CHECKING:
    from cykafka.schemas.client import SchemaRegistryClient
    from cykafka.schemas.document import Document

__all__ = ["SchemaOptions", "open_writers"]

_GROUP = Group("Schemas", sort_key=4)


@dataclass(frozen=True, kw_only=True)
class SchemaOptions:
    """The options of ``cykafka produce`` for schemas, with their help."""

    schema: Annotated[str | None, option("--schema", group=_GROUP, metavar="FILE")] = None
    """register this schema of the values; FILE#MESSAGE chooses a message of Protobuf"""
    subject: Annotated[str | None, option("--subject", group=_GROUP, metavar="SUBJECT")] = None
    """the subject of the values' schema, or SUBJECT:VERSION (default: TOPIC-value, its latest)"""
    key_schema: Annotated[str | None, option("--key-schema", group=_GROUP, metavar="FILE")] = None
    """register this schema of the keys"""
    key_subject: Annotated[
        str | None, option("--key-subject", group=_GROUP, metavar="SUBJECT")
    ] = None
    """the subject of the keys' schema (default: TOPIC-key)"""

    def of(self, part: Part) -> tuple[str | None, str | None]:
        """Return the schema's file and its subject, each None if it is missing."""
        if part == "key":
            return self.key_schema, self.key_subject
        return self.schema, self.subject


def open_writers(
    topic: str,
    forms: Iterable[ValueFormat | None],
    options: SchemaOptions,
    settings: Settings,
    url: str | None,
) -> Writers | None:
    """Return what encodes keys and values; None if all bytes are sent as they are.

    This registers the schemas that the options name.

    Raises
    ------
    UsageError
        The options do not fit each other.
    Failed
        The registry does not respond or refuses a schema.
    """
    key, value = forms
    _check("key", key, options)
    _check("value", value, options)
    needing = [form for form in (key, value) if form is not None and _needs_schema(form, options)]
    if not needing:
        if url is not None:
            raise UsageError(
                "--schema-registry needs --value-format avro or protobuf, or json with --schema "
                "or --subject"
            )
        made = [form and writer(form, None, None) for form in (key, value)]
        return Writers(*made) if any(made) else None
    client = open_registry(settings, url, needing[0].option)
    made = []
    for form in (key, value):
        if form is None or form not in needing:
            made.append(form and writer(form, client, None))
            continue
        document, message = _document(client, topic, form, options)
        made.append(writer(form, client, document, message))
    return Writers(*made)


def _needs_schema(form: ValueFormat, options: SchemaOptions) -> bool:
    return form.needs_registry or options.of(form.part) != (None, None)


def _check(part: Part, form: ValueFormat | None, options: SchemaOptions) -> None:
    if options.of(part) != (None, None) and (
        form is None or form.name not in ("avro", "protobuf", "json")
    ):
        flag = (
            "--schema and --subject need"
            if part == "value"
            else ("--key-schema and --key-subject need")
        )
        raise UsageError(f"{flag} --{part}-format avro, protobuf or json")


def _document(
    client: SchemaRegistryClient, topic: str, form: ValueFormat, options: SchemaOptions
) -> tuple[Document, str]:
    """Return the schema with its id, and the Protobuf message's name or an empty text."""
    kind = cast(SchemaKind, form.name)
    file, subject = options.of(form.part)
    message = ""
    if kind == "protobuf":
        file, subject, message = _without_message(file, subject)
    name, version = parse_version(subject or f"{topic}-{form.part}")
    with using_schemas(form.option):
        if file is None:
            document = client.document_by_version(name, version or "latest")
        else:
            if version is not None:
                raise UsageError("a schema in a file has no version: remove :VERSION")
            path = Path(file)
            found = register(client, name, path, read_schema(path, kind))
            document = client.document(found.schema, found.schema_id, name)
    if document.form != kind:
        raise UsageError(f"{form.option}: the schema of subject {name} is {document.form}")
    return document, message


def _without_message(file: str | None, subject: str | None) -> tuple[str | None, str | None, str]:
    if file is not None:
        file, _, message = file.partition("#")
    elif subject is not None:
        subject, _, message = subject.partition("#")
    else:
        message = ""
    return file, subject, message
