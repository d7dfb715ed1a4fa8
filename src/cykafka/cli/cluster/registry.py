"""Schema Registry: the option with its URL, its client, and schemas in files.

The libraries of the extra ``schemas`` are imported only when a command needs them.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, Self

from cykafka.cli.cluster.connection import GROUP, Settings
from cykafka.cli.cluster.profiles import read_text
from cykafka.cli.terminal.failures import Failed, UsageError
from cykafka.cli.terminal.parameters import plain

if TYPE_CHECKING:
    from cykafka.schemas.model.schema import RegisteredSchema, Schema, SchemaReference
    from cykafka.schemas.registry.client import SchemaRegistryClient

__all__ = [
    "HOW_TO_NAME",
    "Registry",
    "SchemaKind",
    "Url",
    "kind_of_file",
    "parse_version",
    "read_schema",
    "register",
    "using_schemas",
]

SchemaKind = Literal["avro", "protobuf", "json"]

Url = Annotated[
    str | None,
    plain(
        "-r",
        group=GROUP,
        metavar="URL",
        help="the address of Schema Registry (default: the property schema.registry.url, or the "
        "variable CYKAFKA_SCHEMA_REGISTRY_URL)",
    ),
]
"""The option with the address."""

_PREFIX = "schema.registry."
HOW_TO_NAME = (
    f"use --schema-registry URL, the property {_PREFIX}url, or the variable "
    "CYKAFKA_SCHEMA_REGISTRY_URL"
)
_INSTALL = "pip install 'cykafka[schemas]'"
_SUFFIXES: dict[str, SchemaKind] = {
    ".avsc": "avro",
    ".desc": "protobuf",
    ".json": "json",
    ".proto": "protobuf",
}
# Files of Google's, which every library has, so that no schema refers to them.
_KNOWN = ("google/protobuf/", "google/type/")


@contextmanager
def using_schemas(what: str) -> Iterator[None]:
    """Report what goes wrong in a block that uses `cykafka.schemas`.

    Parameters
    ----------
    what : str
        What needs the libraries, such as ``--value-format avro``.

    Raises
    ------
    UsageError
        A library is missing.
    Failed
        The registry does not respond or refuses the request, or a schema cannot be used.
    """
    try:
        from cykafka.schemas.model.document import UnfitError
        from cykafka.schemas.model.error import SchemaNotFoundError, SchemaRegistryError

        yield
    except ImportError as error:
        if error.name is not None and error.name.startswith("cykafka"):
            raise
        words = str(error)
        hint = "" if _INSTALL in words else f": {_INSTALL}"
        raise UsageError(f"{what}: {words}{hint}") from None
    except SchemaNotFoundError as error:
        words = error.error_message.rstrip(".")
        raise Failed(f"{what}: {words}; cykafka schemas list shows the subjects") from error
    except (SchemaRegistryError, UnfitError) as error:
        raise Failed(f"{what}: {error}") from error


class Registry:
    """Schema Registry as the options name it. The first use opens the client.

    Parameters
    ----------
    settings : Settings
    url : str or None
        The option ``--schema-registry``, which takes precedence.

    Raises
    ------
    UsageError
        A file with properties is not valid.
    """

    def __init__(self, settings: Settings, url: str | None) -> None:
        self._options = {"timeout": str(settings.timeout), **settings.registry()}
        if url is not None:
            self._options["url"] = url
        self._client: SchemaRegistryClient | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._client is not None:
            self._client.close()

    @property
    def is_named(self) -> bool:
        """Whether any place has the registry's address."""
        return bool(self._options.get("url"))

    def client(self, what: str) -> SchemaRegistryClient:
        """Return the client.

        Parameters
        ----------
        what : str
            What needs it, for the errors.

        Raises
        ------
        UsageError
            No registry is named, an option is wrong, or a library is missing.
        """
        if self._client is None:
            if not self.is_named:
                raise UsageError(f"{what} needs Schema Registry: {HOW_TO_NAME}")
            from cykafka.schemas.registry.options import mistakes

            if found := mistakes(self._options):
                raise UsageError("; ".join(f"{_PREFIX}{name}: {words}" for name, words in found))
            with using_schemas(what):
                from cykafka.schemas.registry.client import SchemaRegistryClient

                self._client = SchemaRegistryClient(self._options)
        return self._client


def parse_version(text: str) -> tuple[str, int | Literal["latest"] | None]:
    """Return the subject and the version of ``SUBJECT:VERSION``; None without a version."""
    subject, separator, version = text.rpartition(":")
    if separator and subject and version == "latest":
        return subject, "latest"
    if separator and subject and version.isascii() and version.isdigit():
        return subject, int(version)
    return text, None


# -- schemas in files


def kind_of_file(path: Path) -> SchemaKind:
    """Return the kind of schema that a file's name says.

    Raises
    ------
    UsageError
        The name does not say it.
    """
    kind = _SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise UsageError(
            f"{path}: --type says what it is; names that end in "
            f"{', '.join(_SUFFIXES)} need no --type"
        )
    return kind


def read_schema(
    path: Path, kind: SchemaKind, references: Sequence[SchemaReference] = ()
) -> Schema:
    """Return the schema in a file. Protobuf: a .proto file's text, or a FileDescriptorProto.

    Raises
    ------
    UsageError
        The file is not readable, or not a schema of this kind.
    """
    from cykafka.schemas.model.document import SCHEMA_TYPES
    from cykafka.schemas.model.schema import Schema

    if kind == "protobuf" and not _is_text(path):
        return Schema(_descriptors(path)[-1][1], SCHEMA_TYPES[kind], references)
    text = read_text(path)
    if kind != "protobuf":
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path} is not JSON: {error}") from None
    return Schema(text, SCHEMA_TYPES[kind], references)


def register(
    client: SchemaRegistryClient,
    subject: str,
    path: Path,
    schema: Schema,
    *,
    normalize: bool = False,
) -> RegisteredSchema:
    """Register a schema that `read_schema` returned.

    The files that a set of descriptors contains are registered first, each in the subject with its
    name, as Protobuf serializers do.
    """
    from cykafka.schemas.model.document import SCHEMA_TYPES
    from cykafka.schemas.model.schema import Schema, SchemaReference

    if schema.schema_type == SCHEMA_TYPES["protobuf"] and not _is_text(path):
        from google.protobuf.descriptor_pb2 import FileDescriptorProto

        known: dict[str, SchemaReference] = {}

        def complete(text: str) -> Schema:
            needed = FileDescriptorProto.FromString(base64.b64decode(text)).dependency
            return Schema(
                text, schema.schema_type, [known[name] for name in needed if name in known]
            )

        *parts, (_, text) = _descriptors(path)
        for name, part in parts:
            if not name.startswith(_KNOWN):
                whole = complete(part)
                client.register_schema(name, whole, normalize_schemas=normalize)
                found = client.lookup_schema(name, whole, normalize_schemas=normalize)
                known[name] = SchemaReference(name, name, found.version or 1)
        own = complete(text)
        schema = Schema(text, schema.schema_type, [*own.references, *schema.references])
    return client.register_schema_full_response(subject, schema, normalize_schemas=normalize)


def _is_text(path: Path) -> bool:
    """Whether a Protobuf schema is a .proto file, and not a set of descriptors."""
    return path.suffix.lower() == ".proto"


def _descriptors(path: Path) -> list[tuple[str, str]]:
    """Return the names of the files in a FileDescriptorSet, and their descriptors in base64."""
    with using_schemas(f"the Protobuf schema {path}"):
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.message import DecodeError
    try:
        files = FileDescriptorSet.FromString(path.read_bytes()).file
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except DecodeError:
        files = []
    if not files:
        raise UsageError(
            f"{path}: expected a .proto file, or the output of protoc --include_imports "
            "--descriptor_set_out=FILE"
        )
    return [(file.name, base64.b64encode(file.SerializeToString()).decode()) for file in files]
