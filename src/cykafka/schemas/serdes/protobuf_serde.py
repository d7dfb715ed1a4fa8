"""Serializers and deserializers for Protobuf messages."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import Any, ClassVar

from cykafka._steps import Steps
from cykafka.schemas.model.document import Document
from cykafka.schemas.model.framing import SchemaId, split_indexes
from cykafka.schemas.model.protobuf_files import ProtobufFile
from cykafka.schemas.model.references import SERIALIZED
from cykafka.schemas.model.schema import Schema, SchemaReference
from cykafka.schemas.model.subjects import reference_subject_name_strategy
from cykafka.schemas.serdes.builders import (
    AwaitedBuilder,
    BlockingBuilder,
    DeserializerValues,
    MessageTypeValue,
    SerializerValues,
)
from cykafka.schemas.serdes.serde import (
    DESERIALIZER_OPTIONS,
    SERIALIZER_OPTIONS,
    AsyncBaseDeserializer,
    AsyncBaseSerializer,
    BaseDeserializer,
    BaseSerializer,
    DeserializerRules,
    Options,
    Read,
    SerializerRules,
    Write,
)
from cykafka.serialization import (
    DeserializerBuilder,
    SerializationContext,
    SerializerBuilder,
)

try:
    from google.protobuf.message import Message
    from google.protobuf.message_factory import GetMessageClass
except ImportError as error:
    raise ImportError(f"{error}: pip install 'cykafka[schemas]'") from error

__all__ = [
    "AsyncProtobufDeserializer",
    "AsyncProtobufDeserializerBuilder",
    "AsyncProtobufSerializer",
    "AsyncProtobufSerializerBuilder",
    "ProtobufDeserializer",
    "ProtobufDeserializerBuilder",
    "ProtobufSerializer",
    "ProtobufSerializerBuilder",
]

# Files that every library has, so that no schema refers to them.
_KNOWN = ("confluent/", "google/protobuf/", "google/type/")
_OLD = "use.deprecated.format"
# The default of all libraries. The library of Python writes more, until the stack overflows.
_MOST_LEVELS = 100


def _text(file: Any) -> str:
    return base64.b64encode(file.serialized_pb).decode()


def _file(schema: Any) -> ProtobufFile:
    return ProtobufFile(Document("protobuf", schema.schema_str))


def _is_recursive(descriptor: Any) -> bool:
    """Return whether messages may nest without a limit."""
    graph: dict[str, set[str]] = {}
    left = [descriptor]
    while left:
        message = left.pop()
        if message.full_name not in graph:
            inner = [field.message_type for field in message.fields if field.message_type]
            graph[message.full_name] = {each.full_name for each in inner}
            left += inner
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        return True
    return False


def _check_levels(message: Message, most: int = _MOST_LEVELS) -> None:
    """Raise ValueError for a message with more levels than readers accept."""
    if most == 0:
        raise ValueError(f"it has more than {_MOST_LEVELS} levels")
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if isinstance(value, Message):
            value = (value,)
        elif field.message_type.GetOptions().map_entry:
            value = value.values()
        for inner in value:
            if isinstance(inner, Message):
                _check_levels(inner, most - 1)


def _check_old(conf: Mapping[str, Any]) -> None:
    if conf[_OLD]:
        raise ValueError(f"{_OLD} is not supported")


class _Writes(SerializerRules):
    _schema_type = "PROTOBUF"
    _text_format = SERIALIZED
    _options: ClassVar[Options] = {
        **SERIALIZER_OPTIONS,
        "skip.known.types": ("bool", True),
        "reference.subject.name.strategy": ("callable", reference_subject_name_strategy),
        _OLD: ("bool", False),
    }

    def __init__(
        self,
        msg_type: Any,
        schema_registry_client: Any,
        conf: Mapping[str, Any] | None = None,
        rule_conf: Mapping[str, Any] | None = None,
        rule_registry: Any = None,
    ) -> None:
        self._class = msg_type
        self._descriptor = msg_type.DESCRIPTOR
        self._name = self._descriptor.full_name
        schema = Schema(_text(self._descriptor.file), "PROTOBUF")
        super().__init__(schema, schema_registry_client, None, conf)
        _check_old(self._conf)

    def _complete(self, ctx: SerializationContext | None) -> Steps[Any]:
        references = yield from self._references(self._descriptor.file, ctx)
        return Schema(self._schema.schema_str, "PROTOBUF", references)

    def _references(
        self, file: Any, ctx: SerializationContext | None
    ) -> Steps[list[SchemaReference]]:
        """Register the files that a file imports, or find them; return the references."""
        references = []
        for needed in file.dependencies:
            if self._conf["skip.known.types"] and needed.name.startswith(_KNOWN):
                continue
            inner = yield from self._references(needed, ctx)
            subject = yield self._conf["reference.subject.name.strategy"](ctx, needed)
            schema = Schema(_text(needed), "PROTOBUF", inner)
            normalize = self._conf["normalize.schemas"]
            if self._conf["auto.register.schemas"]:
                yield self._registry.register_schema(subject, schema, normalize_schemas=normalize)
            found = yield self._registry.lookup_schema(
                subject, schema, normalize_schemas=normalize
            )
            references.append(SchemaReference(needed.name, subject, found.version))
        return references

    def _compile(self, schema: Any, subject: str) -> Steps[tuple[Write, tuple[int, ...]]]:
        of, name, is_recursive = self._class, self._name, _is_recursive(self._descriptor)
        assert name is not None

        def write(message: Any) -> bytes:
            if not isinstance(message, of):
                raise ValueError(f"expected a message {name}, got {type(message).__name__}")
            if is_recursive:
                _check_levels(message)
            data: bytes = message.SerializeToString()
            return data

        yield from ()
        return write, _file(schema).indexes_of(name)


class ProtobufSerializer(_Writes, BaseSerializer):
    """Serializes Protobuf messages, in the registry's wire format.

    The names, arguments, keys and defaults are those of
    ``confluent_kafka.schema_registry.protobuf.ProtobufSerializer``. It registers the message's
    file, and before it the files that it imports.

    Parameters
    ----------
    msg_type : class of messages
    schema_registry_client : SchemaRegistryClient
    conf : dict, optional
        As for :class:`AvroSerializer`, without ``validate.strict`` and
        ``validate.strict.allow.default``; and ``skip.known.types`` (True): do not register
        Google's and Confluent's own files; and ``reference.subject.name.strategy``
        (reference_subject_name_strategy), a ``callable(SerializationContext, file)`` that returns
        the subject of an imported file.
    rule_conf, rule_registry : object, optional
        Not used: a schema with rules raises SerializationError.

    Raises
    ------
    ValueError
        A key of `conf` is not valid.
    """


class AsyncProtobufSerializer(_Writes, AsyncBaseSerializer):
    """:class:`ProtobufSerializer` for asyncio: ``await AsyncProtobufSerializer(Order, client)``.

    A call awaits the registry only for an unknown schema. The client is an
    AsyncSchemaRegistryClient.
    """


class _Reads(DeserializerRules):
    _schema_type = "PROTOBUF"
    _text_format = SERIALIZED
    _options: ClassVar[Options] = {
        **DESERIALIZER_OPTIONS,
        _OLD: ("bool", False),
    }

    def __init__(
        self,
        message_type: Any,
        conf: Mapping[str, Any] | None = None,
        schema_registry_client: Any = None,
        rule_conf: Mapping[str, Any] | None = None,
        rule_registry: Any = None,
    ) -> None:
        self._class: Callable[[], Any] = GetMessageClass(message_type.DESCRIPTOR)
        super().__init__(None, schema_registry_client, None, conf)
        _check_old(self._conf)

    def _head_size(self, data: bytes) -> int:
        size = super()._head_size(data)
        if data[size : size + 1] == b"\0":  # the first message of the file
            return size + 1
        is_whole = len(data) >= size and data[0] in (0, 1)
        return split_indexes(data, size)[1] if is_whole else size

    def _compile(
        self, writer: Any, reader: Any, schema_id: SchemaId, subject: str | None
    ) -> Steps[Read]:
        if writer is not None:
            self._name_of(writer, schema_id)  # raises UnfitError
        parse = self._class.FromString  # type: ignore[attr-defined]
        yield from ()
        return lambda data, start: parse(data[start:])

    def _name_of(self, writer: Any, schema_id: SchemaId) -> str:
        return _file(writer).name_of(schema_id.message_indexes or ())


class ProtobufDeserializer(_Reads, BaseDeserializer):
    """Deserializes Protobuf messages in the registry's wire format.

    The names, arguments, keys and defaults are those of
    ``confluent_kafka.schema_registry.protobuf.ProtobufDeserializer``.

    Parameters
    ----------
    message_type : class of messages
        What values become; the numbers of the fields match it to the writers' schemas.
    conf : dict, optional
        As for :class:`AvroDeserializer`.
    schema_registry_client : SchemaRegistryClient, optional
        Checks that the registry knows the schema, and that it has no rules. Without one the
        schema's id is ignored.
    rule_conf, rule_registry : object, optional
        Not used: a schema with rules raises SerializationError.

    Raises
    ------
    ValueError
        A key of `conf` is not valid.
    """


class AsyncProtobufDeserializer(_Reads, AsyncBaseDeserializer):
    """:class:`ProtobufDeserializer` for asyncio: ``await AsyncProtobufDeserializer(Order)``.

    A call awaits the registry only for an unknown schema. The client is an
    AsyncSchemaRegistryClient.
    """


# Secrets would be in its repr.
@dataclass(eq=False, repr=False)
class _SerializerBuilder(MessageTypeValue, SerializerValues):
    schema_registry_config: Mapping[str, Any] | None = None
    schema_registry_client: Any = None
    message_type: Any = None
    serializer_config: Mapping[str, Any] | None = None
    rule_config: Mapping[str, Any] | None = None
    rule_registry: Any = None
    serializer_init: Callable[[Any], Any] | None = None

    _serde: ClassVar[type]

    def _make(self, client: Any) -> Any:
        more = self.serializer_config, self.rule_config, self.rule_registry
        return self._serde(self._type(), client, *more)


class ProtobufSerializerBuilder(_SerializerBuilder, BlockingBuilder, SerializerBuilder):
    """Builds an :class:`ProtobufSerializer`, for ``value.serializer.builder``."""

    _serde = ProtobufSerializer


class AsyncProtobufSerializerBuilder(_SerializerBuilder, AwaitedBuilder):
    """Builds an :class:`AsyncProtobufSerializer`, for ``value.serializer.builder``."""

    _serde = AsyncProtobufSerializer


# Secrets would be in its repr.
@dataclass(eq=False, repr=False)
class _DeserializerBuilder(MessageTypeValue, DeserializerValues):
    schema_registry_config: Mapping[str, Any] | None = None
    schema_registry_client: Any = None
    message_type: Any = None
    deserializer_config: Mapping[str, Any] | None = None
    rule_config: Mapping[str, Any] | None = None
    rule_registry: Any = None
    deserializer_init: Callable[[Any], Any] | None = None

    _serde: ClassVar[type]

    def _make(self, client: Any) -> Any:
        config, rules = self.deserializer_config, (self.rule_config, self.rule_registry)
        return self._serde(self._type(), config, client, *rules)


class ProtobufDeserializerBuilder(_DeserializerBuilder, BlockingBuilder, DeserializerBuilder):
    """Builds an :class:`ProtobufDeserializer`, for ``value.deserializer.builder``."""

    _serde = ProtobufDeserializer


class AsyncProtobufDeserializerBuilder(_DeserializerBuilder, AwaitedBuilder):
    """Builds an :class:`AsyncProtobufDeserializer`, for ``value.deserializer.builder``."""

    _serde = AsyncProtobufDeserializer
