"""The sending side of a queue: messages and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pip_services4_commons.errors import BadRequestException, NotFoundException
from pip_services4_components.context import IContext
from pip_services4_messaging.queues import MessageEnvelope

from cykafka import Message
from cykafka.internal import EnvelopeCodec

from .._context import get_trace_id
from ..connect.KafkaConnection import KafkaConnection
from ._measures import Measures

_Record = dict[str, Any]

# The longest reason in a header. A dead letter must not exceed the brokers' size limit.
_ERROR_MAX = 1000


class Sender:
    """Sends envelopes to a topic.

    Parameters
    ----------
    connection : KafkaConnection
    topic : str
    acks : int
    codec : EnvelopeCodec
    from_message : callable or None
        A subclass's _from_message(envelope), which returns a dict for KafkaConnection.publish().
        If None, the codec encodes whole batches.
    measures : Measures
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        acks: int,
        codec: EnvelopeCodec,
        from_message: Callable[[MessageEnvelope], _Record | None] | None,
        measures: Measures,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._options = {"acks": acks}
        self._codec = codec
        self._from_message = from_message
        self._measures = measures

    def send(self, context: IContext | None, envelopes: Sequence[MessageEnvelope]) -> None:
        """Send messages and wait until the brokers have stored all of them.

        Raises
        ------
        ApplicationException
        """
        if not envelopes:
            return
        if self._from_message is None:
            self._connection.publish_envelopes(
                self._topic, self._codec, envelopes, self._options, context
            )
        else:
            records = [self._record(*item, context) for item in enumerate(envelopes)]
            self._connection.publish(self._topic, records, self._options)
        self._measures.count("sent_messages", len(envelopes))
        self._measures.log_messages("Sent", envelopes)

    def _record(self, index: int, envelope: MessageEnvelope, context: IContext | None) -> _Record:
        assert self._from_message is not None
        record = self._from_message(envelope)
        if isinstance(record, dict):
            return record
        owner = type(getattr(self._from_message, "__self__", self._from_message)).__name__
        text = (
            f"{self._measures}, message {index}: {owner}._from_message returned "
            f"{type(record).__name__}, expected a dict with value, key and headers"
        )
        raise BadRequestException(get_trace_id(context), "INVALID_MESSAGE", text)


class DeadLetters:
    """The dead letter topic of a queue: failed messages, with their origin and their error.

    Parameters
    ----------
    connection : KafkaConnection
    topic : str
        Created with the first dead letter if it is missing.
    """

    def __init__(self, connection: KafkaConnection, topic: str) -> None:
        self._connection = connection
        self._topic = topic
        self._exists = False

    def __str__(self) -> str:
        return self._topic

    def send(self, message: Message, error: str, attempts: int) -> None:
        """Send a message, and return when all in-sync replicas have stored it.

        Parameters
        ----------
        message : Message
            The consumed message. Its key, value and headers are sent unchanged.
        error : str
            Why the message failed. Only the first 1000 characters are sent.
        attempts : int
            The number of failed attempts.
        """
        headers = [
            *(message.headers() or []),
            ("dlq_topic", str(message.topic()).encode()),
            ("dlq_partition", str(message.partition()).encode()),
            ("dlq_offset", str(message.offset()).encode()),
            ("dlq_timestamp", str(message.timestamp()[1]).encode()),
            ("dlq_error", error[:_ERROR_MAX].encode(errors="replace")),
            ("dlq_attempts", str(attempts).encode()),
        ]
        try:
            self._publish(message.value(), message.key(), headers)
        except BadRequestException as refused:
            if refused.code != "MSG_SIZE_TOO_LARGE":
                raise
            # The headers exceed the brokers' size limit. The value is still in its topic.
            self._publish(None, message.key(), [*headers, ("dlq_without_value", b"true")])

    def _publish(
        self, value: bytes | None, key: bytes | None, headers: list[tuple[str, Any]]
    ) -> None:
        if not self._exists:
            self._connection.ensure_queue(self._topic)
            self._exists = True
        letter = {
            "value": value,
            "key": key,
            "headers": headers,
            "partition": -1,  # any; options.write_partition is for the queue's topic
        }
        try:
            self._connection.publish(self._topic, [letter], {"acks": -1})
        except NotFoundException:  # somebody deleted the topic
            self._exists = False
            raise
