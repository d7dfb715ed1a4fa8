"""Builders: a client makes its serializers from them, with the registry's client."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self

from cykafka._steps import Steps, arun, run
from cykafka.schemas.registry.aio import AsyncSchemaRegistryClient
from cykafka.schemas.registry.client import SchemaRegistryClient

__all__ = [
    "AwaitedBuilder",
    "BlockingBuilder",
    "Builder",
    "DeserializerValues",
    "FromDictValue",
    "MessageTypeValue",
    "SchemaValue",
    "SerializerValues",
    "ToDictValue",
]

_log = logging.getLogger("cykafka")


class Builder:
    """The values that the builders of all formats have.

    Each value is an argument of the constructor, an attribute, and has a method that sets it and
    returns the builder. The values are those of the serializer or deserializer.
    """

    schema_registry_config: Mapping[str, Any] | None
    schema_registry_client: Any
    rule_config: Mapping[str, Any] | None
    rule_registry: Any

    _close: ClassVar[str]

    def set_schema_registry_config(self, schema_registry_conf: Mapping[str, Any]) -> Self:
        """Set the configuration of the registry's client, which the serializer will own."""
        self.schema_registry_config = schema_registry_conf
        return self

    def set_schema_registry_client(self, schema_registry_client: Any) -> Self:
        """Set the registry's client, which stays open."""
        self.schema_registry_client = schema_registry_client
        return self

    def set_rule_config(self, rule_conf: Mapping[str, Any]) -> Self:
        """Set the rules' configuration, which is not used."""
        self.rule_config = rule_conf
        return self

    def set_rule_registry(self, rule_registry: Any) -> Self:
        """Set the rules' registry, which is not used."""
        self.rule_registry = rule_registry
        return self

    def _open(self, config: Mapping[str, Any]) -> Any:
        """Return a registry's client."""
        raise NotImplementedError

    def _make(self, client: Any) -> Any:
        """Return the serializer or deserializer."""
        raise NotImplementedError

    def _init(self) -> Callable[[Any], Any] | None:
        """Return the program's function that gets what was built."""
        raise NotImplementedError

    def _steps(self, conf: Mapping[str, Any]) -> Steps[tuple[Any, dict[str, Any]]]:
        client, config = self.schema_registry_client, self.schema_registry_config
        if client is not None and config is not None:
            raise ValueError("give either schema_registry_client or schema_registry_config")
        owned: Any = None
        if config is not None:
            owned = client = self._open(config)
        try:
            owned = serde = yield self._make(client)
            if config is not None:
                serde.own_schema_registry_client()
            init = self._init()
            if init is not None:
                yield init(serde)
        except BaseException:
            if owned is not None:
                try:
                    yield getattr(owned, self._close)()
                except Exception:
                    _log.warning("Failed to close %r", owned, exc_info=True)
            raise
        return serde, dict(conf)


class BlockingBuilder(Builder):
    """A builder for programs without an event loop."""

    _close = "close"

    def _open(self, config: Mapping[str, Any]) -> SchemaRegistryClient:
        return SchemaRegistryClient.new_client(config)

    def build(self, conf: Mapping[str, Any], is_key: bool) -> tuple[Any, dict[str, Any]]:
        """Build the serializer or deserializer.

        Parameters
        ----------
        conf : mapping
            The configuration of the producer or the consumer.
        is_key : bool
            Not used.

        Returns
        -------
        tuple
            The serializer or deserializer, and the whole configuration.
        """
        return run(self._steps(conf))


class AwaitedBuilder(Builder):
    """A builder for asyncio."""

    _close = "aclose"

    def _open(self, config: Mapping[str, Any]) -> AsyncSchemaRegistryClient:
        return AsyncSchemaRegistryClient.new_client(config)

    async def build(self, conf: Mapping[str, Any], is_key: bool) -> tuple[Any, dict[str, Any]]:
        """Build the serializer or deserializer; see :class:`BlockingBuilder`."""
        return await arun(self._steps(conf))


class SerializerValues(Builder):
    """What the builders of serializers have."""

    serializer_config: Mapping[str, Any] | None
    serializer_init: Callable[[Any], Any] | None

    def set_serializer_config(self, serializer_conf: Mapping[str, Any]) -> Self:
        """Set the serializer's configuration."""
        self.serializer_config = serializer_conf
        return self

    def set_serializer_init(self, serializer_init: Callable[[Any], Any]) -> Self:
        """Set a function that gets the serializer; for asyncio it may be a coroutine function."""
        self.serializer_init = serializer_init
        return self

    def _init(self) -> Callable[[Any], Any] | None:
        return self.serializer_init


class DeserializerValues(Builder):
    """What the builders of deserializers have."""

    deserializer_config: Mapping[str, Any] | None
    deserializer_init: Callable[[Any], Any] | None

    def set_deserializer_config(self, deserializer_conf: Mapping[str, Any]) -> Self:
        """Set the deserializer's configuration."""
        self.deserializer_config = deserializer_conf
        return self

    def set_deserializer_init(self, deserializer_init: Callable[[Any], Any]) -> Self:
        """Set a function that gets the deserializer; for asyncio it may be a coroutine
        function."""
        self.deserializer_init = deserializer_init
        return self

    def _init(self) -> Callable[[Any], Any] | None:
        return self.deserializer_init


class SchemaValue(Builder):
    """What the builders of formats with a schema as text have."""

    schema: Any

    def set_schema(self, schema_str: Any) -> Self:
        """Set the schema, a str or a Schema."""
        self.schema = schema_str
        return self


class ToDictValue(Builder):
    """What the builders of serializers of dicts have."""

    to_dict: Callable[..., Any] | None

    def set_to_dict(self, to_dict: Callable[..., Any]) -> Self:
        """Set the function that makes a dict of an object."""
        self.to_dict = to_dict
        return self


class FromDictValue(Builder):
    """What the builders of deserializers of dicts have."""

    from_dict: Callable[..., Any] | None

    def set_from_dict(self, from_dict: Callable[..., Any]) -> Self:
        """Set the function that makes an object of a dict."""
        self.from_dict = from_dict
        return self


class MessageTypeValue(Builder):
    """What the builders for Protobuf have."""

    message_type: Any

    def set_message_type(self, msg_type: Any) -> Self:
        """Set the class of the messages."""
        self.message_type = msg_type
        return self

    def _type(self) -> Any:
        if self.message_type is None:
            raise ValueError("the builder needs a message_type")
        return self.message_type
