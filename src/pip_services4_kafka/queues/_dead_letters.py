"""The dead letter topic: failed messages, with their origin and their error."""

from __future__ import annotations

from typing import Any

from pip_services4_commons.errors import BadRequestException, NotFoundException

from cykafka import Message

from ..connect.KafkaConnection import KafkaConnection

# The longest reason in a header: the letter must not be larger than a message may be.
_ERROR_MAX = 1000


class DeadLetters:
    """The dead letter topic of a queue.

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
            The reason of the failure; its first 1000 characters are sent.
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
            # The message had nearly the size that the brokers accept. It is still in its topic.
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
            "partition": -1,  # any one; options.write_partition is for the queue's topic
        }
        try:
            self._connection.publish(self._topic, [letter], {"acks": -1})
        except NotFoundException:  # it was deleted meanwhile
            self._exists = False
            raise
