"""Spans by OpenTelemetry's semantic conventions for Kafka (version 1.44, in development)."""

from __future__ import annotations

from typing import Any, TypeAlias

from opentelemetry import trace
from opentelemetry.trace import Span, Status, StatusCode, Tracer, TracerProvider
from opentelemetry.util.types import AttributeValue

from cykafka._core.client.handle import Handle
from cykafka._core.common.errors import KafkaError, KafkaException
from cykafka._core.common.library import __version__
from cykafka._core.common.message import Message

__all__ = ["Attributes", "Spans", "cause", "fail", "fail_with", "key_text", "name_of"]

Attributes: TypeAlias = dict[str, AttributeValue]

_SCHEMA = "https://opentelemetry.io/schemas/1.44.0"


class Spans:
    """The tracer of a client, and the attributes that all its spans have.

    Raises
    ------
    TypeError
        The client is none of this class; clients of :mod:`cykafka.aio` cannot be traced.
    """

    def __init__(
        self, client: Handle, expected: type[Handle], tracer_provider: TracerProvider | None
    ) -> None:
        if not isinstance(client, expected):
            raise TypeError(
                f"expected a {expected.__name__}, got {type(client).__name__}; "
                "asynchronous and wrapped clients cannot be traced"
            )
        self.tracer: Tracer = trace.get_tracer(
            "cykafka", __version__, tracer_provider, schema_url=_SCHEMA
        )
        config = client.configuration()
        self._base: Attributes = {"messaging.system": "kafka"}
        if config["client.id"]:
            self._base["messaging.client.id"] = config["client.id"]
        self._base |= _server(config["bootstrap.servers"] or "")
        if config["group.id"]:
            self._base["messaging.consumer.group.name"] = config["group.id"]

    def attributes(self, name: str, kind: str, topic: str | None, **more: Any) -> Attributes:
        """The attributes of an operation; those that are None are left out.

        Parameters
        ----------
        name, kind : str
            The operation's name and type, such as ``poll`` and ``receive``.
        topic : str or None
            None if there are several.
        **more
            Further attributes without the prefix ``messaging.``; ``__`` stands for a dot.
        """
        chosen: dict[str, Any] = {
            "operation.name": name,
            "operation.type": kind,
            "destination.name": topic,
            **{key.replace("__", "."): value for key, value in more.items()},
        }
        return self._base | {
            f"messaging.{key}": value for key, value in chosen.items() if value is not None
        }

    def of_message(self, name: str, kind: str, message: Message) -> Attributes:
        """The attributes of an operation on one message that was read."""
        partition, offset = message.partition(), message.offset()
        return self.attributes(
            name,
            kind,
            message.topic(),
            destination__partition__id=None if partition is None else str(partition),
            kafka__offset=offset if offset is not None and offset >= 0 else None,
            kafka__message__key=key_text(message.key()),
            kafka__message__tombstone=True if message.value() is None else None,
        )


def _server(bootstrap_servers: str) -> Attributes:
    """The address of the broker, if only one is configured."""
    server = bootstrap_servers.strip().rpartition("://")[2]
    host, separator, port = server.rpartition(":")
    if not server or "," in server:
        return {}
    if not separator or not port.isdecimal():
        return {"server.address": server.strip("[]")}
    return {"server.address": host.strip("[]"), "server.port": int(port)}


def name_of(operation: str, topic: str | None) -> str:
    """The name of a span."""
    return operation if topic is None else f"{operation} {topic}"


def key_text(key: Any) -> str | None:
    """The key as text; None if there is none, or if it is no text."""
    if isinstance(key, str):
        return key
    try:
        return bytes(key).decode() if isinstance(key, (bytes, bytearray, memoryview)) else None
    except UnicodeDecodeError:
        return None


def cause(error: BaseException) -> KafkaError | None:
    """The KafkaError of a KafkaException."""
    first = error.args[0] if isinstance(error, KafkaException) and error.args else None
    return first if isinstance(first, KafkaError) else None


def fail(span: Span, error: KafkaError, description: str | None = None) -> None:
    """Set the status of the span, and ``error.type`` to the name of Kafka's error."""
    span.set_attribute("error.type", error.name())
    span.set_status(Status(StatusCode.ERROR, description or error.str()))


def fail_with(span: Span, error: BaseException) -> None:
    """Set the status of the span to an exception."""
    kafka_error = cause(error)
    if kafka_error is not None:
        fail(span, kafka_error)
    else:
        kind = type(error)
        module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
        span.set_attribute("error.type", f"{module}{kind.__qualname__}")
        span.set_status(Status(StatusCode.ERROR, str(error)))
    span.record_exception(error)
