"""Protobuf schemas of the registry as classes of messages, without code from protoc."""

from __future__ import annotations

import base64
import importlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from cykafka.schemas.model.cache import keep_results
from cykafka.schemas.model.document import Document, UnfitError, no_descriptor
from cykafka.schemas.model.framing import FIRST_MESSAGE

try:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass
except ImportError as error:
    raise ImportError(f"{error}: pip install 'cykafka[schemas]'", name=error.name) from error

__all__ = ["ProtobufFile", "message_names"]

_GOOGLE = "google/"
_MOST_SCHEMAS = 1000


class ProtobufFile:
    """A schema's file, with the files that it imports.

    Parameters
    ----------
    document : Document

    Attributes
    ----------
    names : dict of tuple of int to str
        The full names of the schema's own messages, by their indexes.

    Raises
    ------
    UnfitError
        The schema is not a FileDescriptorProto.
    """

    def __init__(self, document: Document) -> None:
        self._parts = document.parts
        self._proto = _parsed(document.text)
        self._proto.name = self._proto.name or "schema.proto"
        self.names = dict(_messages(self._proto.message_type, (), self._proto.package))

    def name_of(self, indexes: Sequence[int]) -> str:
        """Return the full name of the message with these indexes, or raise UnfitError."""
        try:
            return self.names[tuple(indexes)]
        except KeyError:
            words = f"the schema has no message with the indexes {list(indexes)}"
            raise UnfitError(words) from None

    def indexes_of(self, name: str) -> tuple[int, ...]:
        """Return the indexes of the message with a full name, or raise UnfitError."""
        for indexes, found in self.names.items():
            if found == name:
                return indexes
        raise UnfitError(f"the schema has no message {name} in its own file")

    @cached_property
    def pool(self) -> DescriptorPool:
        """The descriptors of all files. Raises UnfitError for a file that cannot be used."""
        pool, known = DescriptorPool(), set[str]()
        for name, text in self._parts:
            proto = _parsed(text)
            proto.name = name
            _add(pool, proto, known)
        _add(pool, self._proto, known)
        return pool

    def message(self, name: str = "") -> Any:
        """Return the class of a message, or raise UnfitError.

        An empty name means the first message in the file.
        """
        name = name or self.name_of(FIRST_MESSAGE)
        try:
            return GetMessageClass(self.pool.FindMessageTypeByName(name))
        except KeyError:
            raise UnfitError(f"the schema has no message {name}") from None


@keep_results(_MOST_SCHEMAS)
def message_names(document: Document) -> dict[tuple[int, ...], str]:
    """Return `ProtobufFile.names` of a schema."""
    return ProtobufFile(document).names


def _messages(
    messages: Any, before: tuple[int, ...], within: str
) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield the indexes and the full names of messages and of those in them."""
    for number, message in enumerate(messages):
        name = f"{within}.{message.name}" if within else message.name
        yield (*before, number), name
        yield from _messages(message.nested_type, (*before, number), name)


def _add(pool: DescriptorPool, proto: FileDescriptorProto, known: set[str]) -> None:
    """Add a file after Google's own files that it imports."""
    if proto.name in known:
        return
    known.add(proto.name)
    for name in proto.dependency:
        if name.startswith(_GOOGLE) and name not in known:
            module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
            try:
                google = importlib.import_module(module)
            except ModuleNotFoundError:
                raise UnfitError(f"it imports {name}, which is unknown") from None
            _add(pool, FileDescriptorProto.FromString(google.DESCRIPTOR.serialized_pb), known)
    try:
        pool.AddSerializedFile(proto.SerializeToString())
    except (TypeError, ValueError) as error:
        raise UnfitError(f"it is not a Protobuf schema: {' '.join(str(error).split())}") from None


def _parsed(text: str) -> FileDescriptorProto:
    try:
        return FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (ValueError, DecodeError):
        raise no_descriptor(text) from None
