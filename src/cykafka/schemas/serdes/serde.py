"""What serializers and deserializers of all formats have in common.

The rules are generators (`Steps`): the classes for one thread run them with `run`, those for
asyncio with `arun`. A record whose schema is known needs neither. Threads and tasks share no lock,
which they would hold during requests: the client sends one request for what several need, and a
schema that two of them compile at once is compiled twice.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from inspect import iscoroutinefunction
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from cykafka._steps import Steps, arun, run
from cykafka.schemas.model.document import UnfitError
from cykafka.schemas.model.error import SchemaRegistryError
from cykafka.schemas.model.faults import is_fault, shorten_error
from cykafka.schemas.model.framing import (
    GUID_BYTES,
    ID_BYTES,
    SchemaId,
    dual_schema_id_deserializer,
    prefix_schema_id_deserializer,
    prefix_schema_id_serializer,
    schema_header,
)
from cykafka.schemas.model.references import collect_parts, context_of
from cykafka.schemas.model.rules import READING, WRITING, check_rules
from cykafka.schemas.model.schema import Schema
from cykafka.schemas.model.subjects import (
    STRATEGY_TYPE_MAP,
    AssociatedNameStrategy,
    AsyncAssociatedNameStrategy,
    SubjectNameStrategyType,
    strategy_type,
)
from cykafka.serialization import (
    Deserializer,
    SerializationContext,
    SerializationError,
    Serializer,
)

__all__ = [
    "DESERIALIZER_OPTIONS",
    "SERIALIZER_OPTIONS",
    "AsyncBaseDeserializer",
    "AsyncBaseSerializer",
    "BaseDeserializer",
    "BaseSerializer",
    "DeserializerRules",
    "Options",
    "Read",
    "SerializerRules",
    "UnfitValueError",
    "Write",
    "schema_of",
]

# The keys of a configuration: the kind of each value, and its default.
Options: TypeAlias = dict[str, tuple[str, Any]]
# Writes a value without its frame.
Write: TypeAlias = Callable[[Any], bytes]
# Reads a value that begins at an offset in the bytes.
Read: TypeAlias = Callable[[bytes, int], Any]

T = TypeVar("T")

# Without a registry any bytes may name a schema, and a program may use any number of topics.
_MOST_KNOWN = 10_000

_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "bool": (lambda value: isinstance(value, bool), "a boolean value"),
    "int": (lambda value: value is None or isinstance(value, int), "an int value"),
    "dict": (lambda value: value is None or isinstance(value, Mapping), "a dict value"),
    "callable": (callable, "callable"),
    "any": (lambda value: True, ""),
}
_SUBJECTS: Options = {
    "use.latest.version": ("bool", False),
    "use.latest.with.metadata": ("dict", None),
    "subject.name.strategy.type": ("any", None),
    "subject.name.strategy.conf": ("dict", None),
    "subject.name.strategy": ("any", None),
}
SERIALIZER_OPTIONS: Options = {
    **_SUBJECTS,
    "auto.register.schemas": ("bool", True),
    "normalize.schemas": ("bool", False),
    "use.schema.id": ("int", None),
    "schema.id.serializer": ("callable", prefix_schema_id_serializer),
    "validation.rules.execution": ("any", "DISABLED"),
    "validation.rules.fail.fast": ("bool", False),
    "validation.rules.executor": ("any", None),
}
DESERIALIZER_OPTIONS: Options = {
    **_SUBJECTS,
    "schema.id.deserializer": ("callable", dual_schema_id_deserializer),
}

_READ = ("READ", "WRITEREAD")


def schema_of(schema: Any, schema_type: str) -> Any:
    """Return a Schema for a text; a Schema stays as it is. None stays None."""
    if schema is None or hasattr(schema, "schema_str"):
        return schema
    if isinstance(schema, str):
        return Schema(schema, schema_type)
    words = f"expected a schema as str or Schema, got {type(schema).__name__}"
    raise TypeError(words + (": pass json.dumps(schema)" if isinstance(schema, Mapping) else ""))


class _Serde:
    """The configuration, the subject and the registry's schemas."""

    _schema_type: ClassVar[str]
    _parser: ClassVar[Any]
    _text_format: ClassVar[str | None] = None
    _options: ClassVar[Options]
    _associated: ClassVar[type] = AssociatedNameStrategy

    def __init__(self, schema: Any, client: Any, conf: Mapping[str, Any] | None) -> None:
        self._schema = schema
        self._registry = client
        self._owns_registry = False
        self._is_ready = False
        self._unfit: dict[Any, UnfitError] = {}
        unknown = [name for name in conf or () if name not in self._options]
        if unknown:
            raise ValueError(f"Unrecognized properties: {', '.join(unknown)}")
        self._conf = {
            name: (conf or {}).get(name, default) for name, (_, default) in self._options.items()
        }
        for name, (kind, _) in self._options.items():
            fits, words = _KINDS[kind]
            if not fits(self._conf[name]):
                raise ValueError(f"{name} must be {words}")
        self._follows = bool(
            self._conf["use.latest.version"] or self._conf["use.latest.with.metadata"] is not None
        )
        self._set_strategy()

    def _set_strategy(self) -> None:
        given, kind = self._conf["subject.name.strategy"], self._conf["subject.name.strategy.type"]
        if given is not None and not callable(given):
            raise ValueError("subject.name.strategy must be callable")
        if given is None:
            name = "subject.name.strategy.type"
            kind = strategy_type(name, kind or SubjectNameStrategyType.ASSOCIATED)
            if kind is SubjectNameStrategyType.NONE:
                raise ValueError(f"{name} cannot be NONE")
            given = STRATEGY_TYPE_MAP.get(kind) or self._associated()
            self._is_fixed = True
        else:
            self._is_fixed = given in STRATEGY_TYPE_MAP.values()
        self._strategy: Any = given
        # confluent_kafka's class also has one of these methods.
        self._asks = hasattr(given, "set_cluster_id_resolver") or hasattr(
            given, "set_async_cluster_id_resolver"
        )

    def _subject(self, ctx: SerializationContext | None, name: Any) -> Steps[str | None]:
        """Return the subject of a record whose schema has a name."""
        conf = self._conf["subject.name.strategy.conf"]
        found: str | None
        if self._asks:
            found = yield self._strategy(ctx, name, self._registry, conf)
        else:
            found = yield self._strategy(ctx, name)
        if found is not None and not isinstance(found, str):  # a schema's name may be a number
            raise UnfitError(f"expected a text as its subject, got {type(found).__name__}")
        return found

    def _latest(self, subject: str) -> Steps[Any]:
        """Return the registered schema that the configuration asks for, or None."""
        metadata = self._conf["use.latest.with.metadata"]
        number = self._conf.get("use.schema.id")
        if number is not None:
            schema = yield self._registry.get_schema(number, subject, self._text_format)
            return (yield self._registry.lookup_schema(subject, schema, deleted=True))
        if metadata is not None:
            return (
                yield self._registry.get_latest_with_metadata(
                    subject, metadata, deleted=True, fmt=self._text_format
                )
            )
        if self._conf["use.latest.version"]:
            return (yield self._registry.get_latest_version(subject, self._text_format))
        return None

    def _parse(self, schema: Any, subject: str | None = None) -> Steps[Any]:
        """Return what `_parser` makes of a schema and all schemas that it refers to."""
        parts = yield from collect_parts(self._registry, schema, subject)
        return self._parser(schema.schema_str, parts)

    def _made(self, known: dict[Any, Any], key: Any, make: Callable[[], Steps[T]]) -> Steps[T]:
        """Return what was made from schemas, or make it. Keeps also that they are unusable."""
        unfit = self._unfit.get(key)
        if unfit is not None:
            raise copy.copy(unfit)
        found: T | None = known.get(key)
        if found is None:
            try:
                found = yield from make()
            except SchemaRegistryError:
                raise
            except UnfitError as error:
                # A raised error refers to its traceback, and so to the variables of the caller.
                _keep(self._unfit, key, copy.copy(error))
                raise
            _keep(known, key, found)
        return found

    def _prepare(self) -> Steps[None]:
        if self._schema is not None:
            yield from self._read_schema()
        self._is_ready = True

    def _read_schema(self) -> Steps[None]:
        """Read the schema of the configuration."""
        yield from ()

    def own_schema_registry_client(self) -> None:
        """Let `close()` close the registry's client."""
        self._owns_registry = True


class _Blocking(_Serde):
    """A serde for programs without an event loop."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if iscoroutinefunction(getattr(self._registry, "get_schema", None)):
            name = type(self).__name__
            raise TypeError(
                f"{name} needs a SchemaRegistryClient, got {type(self._registry).__name__}, which "
                f"is for asyncio: use Async{name}"
            )
        run(self._prepare())

    def set_cluster_id_resolver(self, resolver: Callable[[], str]) -> None:
        """Accept a function that returns the Kafka cluster's id, for the associated strategy."""
        if hasattr(self._strategy, "set_cluster_id_resolver"):
            self._strategy.set_cluster_id_resolver(resolver)

    def close(self) -> None:
        """Close the registry's client, if this object owns it."""
        if self._owns_registry:
            self._owns_registry = False
            self._registry.close()


class _Awaited(_Serde):
    """A serde for asyncio. It awaits only for schemas that it does not know."""

    _associated = AsyncAssociatedNameStrategy

    def __await__(self) -> Generator[Any, Any, Self]:
        return self._open().__await__()

    async def _open(self) -> Self:
        if not self._is_ready:
            await arun(self._prepare())
        return self

    def set_async_cluster_id_resolver(self, resolver: Callable[[], Any]) -> None:
        """Accept a coroutine function that returns the Kafka cluster's id."""
        if hasattr(self._strategy, "set_async_cluster_id_resolver"):
            self._strategy.set_async_cluster_id_resolver(resolver)

    async def aclose(self) -> None:
        """Close the registry's client, if this object owns it."""
        if self._owns_registry:
            self._owns_registry = False
            await self._registry.aclose()


class UnfitValueError(SerializationError, ValueError):
    """A value that does not fit its schema. confluent_kafka raises ValueError."""


@dataclass(slots=True, frozen=True)
class _Target:
    """How to write values for a subject."""

    write: Write
    schema_id: SchemaId
    prefix: bytes


class SerializerRules(_Serde):
    """The rules of a serializer.

    A class for a format adds `_compile`, and `_name`, the name of its schema's record.
    """

    _options = SERIALIZER_OPTIONS
    _name: str | None = None

    def __init__(
        self,
        schema: Any,
        client: Any,
        to_dict: Callable[..., Any] | None,
        conf: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(schema, client, conf)
        if self._conf["use.latest.version"] and self._conf["auto.register.schemas"]:
            raise ValueError("cannot enable both use.latest.version and auto.register.schemas")
        execution = self._conf["validation.rules.execution"]
        if str(getattr(execution, "value", execution)) != "DISABLED":
            raise ValueError(
                "validation.rules.execution: cykafka does not apply the rules confluent:rules; "
                "expected DISABLED"
            )
        if to_dict is not None and not callable(to_dict):
            raise ValueError("to_dict must be callable: to_dict(object, SerializationContext)")
        self._to_dict = to_dict
        self._encode = self._conf["schema.id.serializer"]
        self._has_prefix = self._encode is prefix_schema_id_serializer
        # By topic and field; by subject, if the strategy or the latest version may change.
        self._known: dict[tuple[str, str], _Target] = {}
        self._targets: dict[str, _Target] = {}
        self._writers: dict[Any, Any] = {}

    def _compile(self, schema: Any, subject: str) -> Steps[Any]:
        """Return the function that writes values, and the message's indexes or None."""
        raise NotImplementedError

    def _find(self, ctx: SerializationContext | None) -> Steps[_Target]:
        if not self._is_ready:
            yield from self._prepare()
        subject = yield from self._subject(ctx, self._name)
        if subject is None:
            raise SerializationError(
                "the schema has no subject: the strategy needs the name of a record"
            )
        target = None if self._follows else self._targets.get(subject)
        if target is None:
            target = yield from self._target(subject, ctx)
            _keep(self._targets, subject, target)
        if self._is_fixed and not self._follows and ctx is not None:
            _keep(self._known, (ctx.topic, ctx.field), target)
        return target

    def _target(self, subject: str, ctx: SerializationContext | None) -> Steps[_Target]:
        if self._registry is None:
            raise SerializationError("a serializer needs a registry's client")
        registered = yield from self._latest(subject)
        schema = self._schema
        if registered is not None:
            schema = registered.schema
        elif schema is None:
            raise SerializationError(
                "the serializer has no schema: pass one, or set use.latest.version or "
                "use.schema.id"
            )
        else:
            schema = yield from self._complete(ctx)
            register = (
                self._registry.register_schema_full_response
                if self._conf["auto.register.schemas"]
                else self._registry.lookup_schema
            )
            registered = yield register(
                subject, schema, normalize_schemas=self._conf["normalize.schemas"]
            )
        check_rules(schema, WRITING)
        key = schema, context_of(subject)
        write, indexes = yield from self._made(
            self._writers, key, lambda: self._compile(schema, subject)
        )
        schema_id = SchemaId(self._schema_type, registered.schema_id, registered.guid, indexes)
        return _Target(write, schema_id, schema_id.id_to_bytes())

    def _complete(self, ctx: SerializationContext | None) -> Steps[Any]:
        """Return the schema to register, after registering what it refers to."""
        yield from ()
        return self._schema

    def _bytes(self, target: _Target, obj: Any, ctx: SerializationContext | None) -> bytes:
        value = obj if self._to_dict is None else self._to_dict(obj, ctx)
        try:
            payload = target.write(value)
        except BaseException as error:
            if not is_fault(error):
                raise
            raise UnfitValueError(
                f"the value does not fit the schema {target.schema_id.id}: {_words(error)}"
            ) from error
        if self._has_prefix:
            return target.prefix + payload
        framed: bytes = self._encode(payload, ctx, target.schema_id)
        return framed


class BaseSerializer(_Blocking, SerializerRules, Serializer):
    """The base of the serializers."""

    def __call__(self, obj: Any, ctx: SerializationContext | None = None) -> bytes | None:
        """Serialize an object. None stays None, Kafka's null.

        Raises
        ------
        UnfitValueError
            The object does not fit the schema. It is a SerializationError and a ValueError.
        SerializationError
            The schema has rules.
        SchemaRegistryError
            The registry refuses the schema, or fails.
        """
        if obj is None:
            return None
        target = None if ctx is None else self._known.get((ctx.topic, ctx.field))
        if target is None:
            target = run(_named(self._find(ctx)))
        return self._bytes(target, obj, ctx)


class AsyncBaseSerializer(_Awaited, SerializerRules, Serializer):
    """The base of the serializers for asyncio."""

    async def __call__(  # type: ignore[override]
        self, obj: Any, ctx: SerializationContext | None = None
    ) -> bytes | None:
        """Serialize an object; see :class:`BaseSerializer`."""
        if obj is None:
            return None
        target = None if ctx is None else self._known.get((ctx.topic, ctx.field))
        if target is None:
            target = await arun(_named(self._find(ctx)))
        return self._bytes(target, obj, ctx)


class DeserializerRules(_Serde):
    """The rules of a deserializer.

    A class for a format adds `_compile` and `_name_of`.
    """

    _options = DESERIALIZER_OPTIONS

    def __init__(
        self,
        schema: Any,
        client: Any,
        from_dict: Callable[..., Any] | None,
        conf: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(schema, client, conf)
        if from_dict is not None and not callable(from_dict):
            raise ValueError("from_dict must be callable: from_dict(dict, SerializationContext)")
        self._from_dict = from_dict
        self._decode = self._conf["schema.id.deserializer"]
        self._takes_header = self._decode is dual_schema_id_deserializer
        self._is_custom = not self._takes_header and (
            self._decode is not prefix_schema_id_deserializer
        )
        # By topic, field and the bytes that name the schema, as long as nothing can change.
        self._known: dict[tuple[str, str, bytes], Read] = {}
        self._readers: dict[Any, Read] = {}

    def _compile(
        self, writer: Any, reader: Any, schema_id: SchemaId, subject: str | None
    ) -> Steps[Read]:
        """Return the function that reads values. `reader` is the latest schema, or None."""
        raise NotImplementedError

    def _name_of(self, writer: Any, schema_id: SchemaId) -> str | None:
        """Return the name of a schema's record, for a strategy that needs it."""
        raise NotImplementedError

    def _head_size(self, data: bytes) -> int:
        """Return the number of bytes that name the schema."""
        return GUID_BYTES if data[:1] == b"\1" else ID_BYTES

    def _split(self, data: bytes, ctx: SerializationContext | None) -> tuple[Any, bytes, int]:
        """Return what names the schema (bytes or a SchemaId), the data and the value's offset."""
        if not isinstance(data, bytes):
            data = memoryview(data).tobytes()
        if self._is_custom:
            schema_id = SchemaId(self._schema_type)
            rest = self._decode(data, ctx, schema_id)
            return schema_id, rest.read() if hasattr(rest, "read") else rest, 0
        if self._takes_header and ctx is not None and ctx.headers:
            header = schema_header(ctx)
            if header is not None:
                if not isinstance(header, bytes):
                    raise SerializationError(
                        f"the header of the schema's id is of type {type(header).__name__}, "
                        "expected bytes"
                    )
                return header, data, 0
        size = self._head_size(data)
        return data[:size], data, size

    def _find(self, head: Any, ctx: SerializationContext | None) -> Steps[Read]:
        if not self._is_ready:
            yield from self._prepare()
        schema_id = head
        if isinstance(head, bytes):
            schema_id = SchemaId(self._schema_type)
            schema_id.read(head)
        subject = latest = writer = None
        if ctx is not None:
            subject = yield from self._subject(ctx, None)
        if self._registry is not None:
            if subject is not None:
                latest = yield from self._latest(subject)
            if schema_id.id is not None:
                writer = yield self._registry.get_schema(schema_id.id, subject, self._text_format)
            elif schema_id.guid is not None:
                writer = yield self._registry.get_schema_by_guid(
                    str(schema_id.guid), self._text_format
                )
            else:
                raise SerializationError("the value has no schema id")
            if subject is None and ctx is not None and self._follows:
                try:
                    name = self._name_of(writer, schema_id)
                except (TypeError, ValueError) as error:
                    raise UnfitError(shorten_error(error)) from None
                subject = yield from self._subject(ctx, name)
                if subject is not None:
                    latest = yield from self._latest(subject)
        reader = None if latest is None else latest.schema
        key = writer, reader, tuple(schema_id.message_indexes or ()), context_of(subject)

        def compile_() -> Steps[Read]:
            migrates = reader is not None and reader != writer
            for schema in (writer, reader or self._schema):
                if schema is not None:
                    check_rules(schema, READING if migrates else _READ)
            return (yield from self._compile(writer, reader, schema_id, subject))

        read = yield from self._made(self._readers, key, compile_)
        if self._is_fixed and not self._follows and ctx is not None and isinstance(head, bytes):
            _keep(self._known, (ctx.topic, ctx.field, head), read)
        return read

    def _object(
        self, read: Read, data: bytes, start: int, ctx: SerializationContext | None
    ) -> Any:
        try:
            value = read(data, start)
        except BaseException as error:
            if not is_fault(error):
                raise
            raise SerializationError(f"cannot read the value: {_words(error)}") from error
        return value if self._from_dict is None else self._from_dict(value, ctx)


class BaseDeserializer(_Blocking, DeserializerRules, Deserializer):
    """The base of the deserializers."""

    def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Deserialize a value. None, Kafka's null, stays None.

        Raises
        ------
        SerializationError
            The value or its schema is not valid, or the schema has rules.
        SchemaRegistryError
            The registry does not know the schema, or fails.
        """
        if value is None:
            return None
        head, data, start = self._split(value, ctx)
        read = None if ctx is None else self._known.get((ctx.topic, ctx.field, head))
        if read is None:
            read = run(_named(self._find(head, ctx)))
        return self._object(read, data, start, ctx)


class AsyncBaseDeserializer(_Awaited, DeserializerRules, Deserializer):
    """The base of the deserializers for asyncio."""

    async def __call__(self, value: bytes | None, ctx: SerializationContext | None = None) -> Any:
        """Deserialize a value; see :class:`BaseDeserializer`."""
        if value is None:
            return None
        head, data, start = self._split(value, ctx)
        read = None if ctx is None else self._known.get((ctx.topic, ctx.field, head))
        if read is None:
            read = await arun(_named(self._find(head, ctx)))
        return self._object(read, data, start, ctx)


def _keep(known: dict[Any, Any], key: Any, value: Any) -> None:
    if len(known) >= _MOST_KNOWN:
        known.clear()
    known[key] = value


def _named(steps: Steps[T]) -> Steps[T]:
    """Raise SerializationError for a schema that cannot be used."""
    try:
        return (yield from steps)
    except SchemaRegistryError:
        raise
    except (UnfitError, RecursionError) as error:
        raise SerializationError(f"the schema cannot be used: {_words(error)}") from error


def _words(error: BaseException) -> str:
    words = shorten_error(error)
    # The text of a KeyError, an IndexError or an EOFError alone says little.
    return words if isinstance(error, ValueError) else f"{type(error).__name__}: {words}"
