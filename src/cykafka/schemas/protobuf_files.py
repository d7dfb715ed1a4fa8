"""Protobuf schemas of the registry as classes of messages, without code from protoc."""

from __future__ import annotations

import base64
import binascii
import importlib
from collections.abc import Sequence
from typing import Any

from cykafka.schemas.document import Document, UnfitError, no_descriptor

try:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass
except ImportError as error:
    raise ImportError(f'{error}: pip install "cykafka[schemas]"', name=error.name) from error

__all__ = ["ProtobufFile"]

_GOOGLE = "google/"


class ProtobufFile:
    """A schema's file, with the files that it imports.

    Parameters
    ----------
    document : Document

    Attributes
    ----------
    pool : DescriptorPool
        The descriptors of all files.

    Raises
    ------
    UnfitError
        It is not a Protobuf schema.
    """

    def __init__(self, document: Document) -> None:
        self.pool = DescriptorPool()
        self._known: set[str] = set()
        for name, text in document.parts:
            self._add(_parsed(text, name))
        own = _parsed(document.text, "")
        own.name = own.name or "schema.proto"
        self._add(own)
        self._file = self.pool.FindFileByName(own.name)
        # By name, the messages are not in the order of the file.
        self._names = [message.name for message in own.message_type]

    def message(self, name: str = "") -> Any:
        """Return the class of a message. An empty name means the first message in the file.

        Raises
        ------
        UnfitError
            The schema has no such message.
        """
        if not name:
            return self.message_at((0,))
        try:
            return GetMessageClass(self.pool.FindMessageTypeByName(name))
        except KeyError:
            raise UnfitError(f"the schema has no message {name}") from None

    def message_at(self, indexes: Sequence[int]) -> Any:
        """Return the class of the message with these indexes in the file. Raises as above."""
        first, *rest = indexes
        try:
            found = self._file.message_types_by_name[self._names[first]]
            for index in rest:
                found = found.nested_types[index]
        except IndexError:
            raise UnfitError(
                f"the schema has no message with the indexes {list(indexes)}"
            ) from None
        return GetMessageClass(found)

    def indexes_of(self, message: Any) -> list[int]:
        """Return the indexes of a message's class in the file. Raises as above."""
        at, indexes = message.DESCRIPTOR, []
        if at.file.name != self._file.name:
            raise UnfitError(f"the message {at.full_name} is not of the schema's own file")
        while at.containing_type is not None:
            nested = [each.full_name for each in at.containing_type.nested_types]
            indexes.append(nested.index(at.full_name))
            at = at.containing_type
        return [self._names.index(at.name), *reversed(indexes)]

    def _add(self, proto: FileDescriptorProto) -> None:
        """Add a file after Google's own files that it imports."""
        if proto.name in self._known:
            return
        self._known.add(proto.name)
        for name in proto.dependency:
            if name.startswith(_GOOGLE) and name not in self._known:
                module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
                try:
                    known = importlib.import_module(module)
                except ModuleNotFoundError:
                    raise UnfitError(f"it imports {name}, which is unknown") from None
                self._add(FileDescriptorProto.FromString(known.DESCRIPTOR.serialized_pb))
        try:
            self.pool.AddSerializedFile(proto.SerializeToString())
        except (TypeError, ValueError) as error:
            words = " ".join(str(error).split())
            raise UnfitError(f"it is not a Protobuf schema: {words}") from None


def _parsed(text: str, name: str) -> FileDescriptorProto:
    try:
        proto = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
    except (binascii.Error, DecodeError):
        raise no_descriptor(text) from None
    proto.name = name or proto.name
    return proto
