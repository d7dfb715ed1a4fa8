"""``cykafka schemas``: subjects and schemas of Schema Registry."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from cykafka.cli.cluster.administration import Json, Outcomes, select
from cykafka.cli.cluster.connection import Settings
from cykafka.cli.cluster.registry import (
    Registry,
    SchemaKind,
    Url,
    kind_of_file,
    parse_version,
    read_schema,
    using_schemas,
)
from cykafka.cli.cluster.registry import register as register_file
from cykafka.cli.terminal.failures import EXIT_STATUS_HELP, Failed, Status, UsageError
from cykafka.cli.terminal.output import json_line, show
from cykafka.cli.terminal.parameters import Flag, plain
from cykafka.cli.terminal.texts import printable_text
from cykafka.internal.command_lines import pairs

if TYPE_CHECKING:
    from cykafka.schemas.model.schema import Schema, SchemaReference
    from cykafka.schemas.registry.client import SchemaRegistryClient

__all__ = ["schemas"]

schemas = App(
    name="schemas",
    help="Show, register and check the schemas of Schema Registry.",
    help_epilogue="examples:\n\n"
    "* ``cykafka schemas list -r http://localhost:8081``\n"
    "* ``cykafka schemas show orders-value > order.avsc``\n"
    "* ``cykafka schemas check orders-value order.avsc``\n"
    "* ``cykafka schemas register orders-value order.avsc``\n\n" + EXIT_STATUS_HELP,
)

SettingsOptions = Annotated[Settings | None, Parameter(name="*")]
Type = Annotated[
    SchemaKind | None,
    plain(help="avro, protobuf or json (default: by the name: .avsc, .proto, .json)"),
]
References = Annotated[
    tuple[str, ...],
    plain(
        metavar="NAME=SUBJECT:VERSION",
        help="a registered schema that the file refers to by a name; repeatable",
    ),
]
Normalize = Annotated[
    Flag, Parameter(help="let the registry treat schemas that mean the same as equal")
]


@schemas.command(name="list")
def list_(
    *patterns: str,
    json: Json = False,
    schema_registry: Url = None,
    settings: SettingsOptions = None,
) -> int:
    """List the subjects and their versions.

    Parameters
    ----------
    patterns : str
        names of subjects, or patterns with \\*, ? and [...] (default: all)
    """
    outcomes = Outcomes()
    rows = []
    with _client("schemas", settings, schema_registry) as client:
        from cykafka.schemas.model.error import SchemaNotFoundError

        for subject in select(patterns, sorted(client.get_subjects()), "subject"):
            try:
                versions = client.get_versions(subject)
            except SchemaNotFoundError:
                continue  # deleted since
            rows.append((subject, versions if json else ", ".join(map(str, versions))))
    return outcomes.show(("subject", "versions"), rows, as_json=json)


@schemas.command(name="show")
def show_(
    schema: str,
    /,
    *,
    json: Json = False,
    schema_registry: Url = None,
    settings: SettingsOptions = None,
) -> int:
    """Print a schema as the registry has it.

    With --json, the line also has its id, type, references and the subjects with their versions.

    Parameters
    ----------
    schema : str
        SUBJECT (its latest version), SUBJECT:VERSION, or the number of an id
    """
    with _client(f"schema {schema}", settings, schema_registry) as client:
        if schema.isascii() and schema.isdigit():
            number: int | None = int(schema)
            found = client.get_schema(int(schema))
        else:
            subject, version = parse_version(schema)
            registered = client.get_version(subject, version or "latest")
            number, found = registered.schema_id, registered.schema
        if not json:
            print(_shown(found.schema_str))
            return Status.OK
        versions = [] if number is None else client.get_schema_versions(number)
    places = [{"subject": each.subject, "version": each.version} for each in versions]
    print(json_line({"id": number, "versions": places, **found.to_dict()}))
    return Status.OK


@schemas.command
def register(
    subject: str,
    file: Path,
    /,
    *,
    type_: Type = None,
    reference: References = (),
    normalize: Normalize = False,
    json: Json = False,
    schema_registry: Url = None,
    settings: SettingsOptions = None,
) -> int:
    """Register the schema in a file as the next version of a subject.

    A schema that the subject has already keeps its version and its id.

    Parameters
    ----------
    subject : str
        such as orders-value; it need not exist
    file : Path
        for Protobuf also a set of descriptors: protoc --include_imports --descriptor_set_out=FILE
    """
    schema = _read(file, type_, reference)
    with _client(f"cannot register {file}", settings, schema_registry) as client:
        found = register_file(client, subject, file, schema, normalize=normalize)
        version = found.version
        if version is None:  # older registries respond with the id alone
            version = client.lookup_schema(subject, found.schema, normalize).version
    row = (subject, version, found.schema_id)
    show(("subject", "version", "id"), [row], as_json=json)
    return Status.OK


@schemas.command
def check(
    subject: str,
    file: Path,
    /,
    *,
    type_: Type = None,
    reference: References = (),
    normalize: Normalize = False,
    json: Json = False,
    schema_registry: Url = None,
    settings: SettingsOptions = None,
) -> int:
    """Check whether a subject would accept the schema in a file, without registering it.

    The exit status is 0 if the schema is compatible, 1 if it is not.

    Parameters
    ----------
    subject : str
        SUBJECT (the versions that its compatibility level names), or SUBJECT:VERSION
    file : Path
        the schema
    """
    schema = _read(file, type_, reference)
    name, version = parse_version(subject)
    with _client(f"cannot check {file}", settings, schema_registry) as client:
        reasons = client.find_incompatibilities(name, schema, version, normalize)
    if json:
        print(json_line({"subject": subject, "compatible": not reasons, "reasons": reasons}))
    elif not reasons:
        print(f"{subject}: compatible")
    else:
        failure = Failed(f"{file} is not compatible with {subject}")
        for reason in reasons:
            failure.add_note(reason)
        raise failure
    return Status.FAILED if reasons else Status.OK


@contextmanager
def _client(
    what: str, settings: Settings | None, url: str | None
) -> Iterator[SchemaRegistryClient]:
    """Open the registry's client. Errors begin with `what`."""
    with using_schemas(what), Registry(settings or Settings(), url) as registry:
        yield registry.client("cykafka schemas")


def _read(file: Path, kind: SchemaKind | None, references: Sequence[str]) -> Schema:
    try:
        named = list(pairs(references))
    except ValueError:
        raise UsageError("--reference: expected NAME=SUBJECT:VERSION") from None
    with using_schemas("schemas"):
        found = [_reference(name, place) for name, place in named]
        return read_schema(file, kind or kind_of_file(file), found)


def _reference(name: str, place: str) -> SchemaReference:
    from cykafka.schemas.model.schema import SchemaReference

    subject, version = parse_version(place)
    if not isinstance(version, int):
        raise UsageError(
            f"--reference {name}: expected SUBJECT:VERSION with a number, got {place!r}"
        )
    return SchemaReference(name, subject, version)


def _shown(text: str) -> str:
    return printable_text(text.encode()).decode() if sys.stdout.isatty() else text
