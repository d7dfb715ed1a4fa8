"""The sending side of a queue."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from pip_services4_commons.errors import BadRequestException
from pip_services4_components.context import IContext
from pip_services4_messaging.queues import MessageEnvelope

from cykafka import KafkaException

from .._context import AnyContext, to_context, trace_id_of
from .._errors import typed, with_cause
from ._life import QueueLife, is_overridden
from .KafkaMessageEnvelope import KafkaMessageEnvelope


class Sending(QueueLife):
    """The part of a KafkaMessageQueue that sends."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        # Whole batches are encoded at once, unless a subclass overrides the hook for single
        # messages.
        self.__sends_itself = is_overridden(self, Sending, "_from_message")

    def _from_message(self, message: MessageEnvelope | None) -> dict[str, Any] | None:
        """Convert an envelope to a dict for KafkaConnection.publish(). For subclasses."""
        return None if message is None else self._codec.to_record(message)

    def send(
        self,
        context: AnyContext = None,
        envelop: MessageEnvelope | None = None,
        *,
        message: MessageEnvelope | None = None,
        correlation_id: AnyContext = None,
    ) -> None:
        """Send a message and wait until the brokers have stored it.

        With ``acks`` 0, wait only until it is written to the socket.

        Parameters
        ----------
        context : IContext or str, optional
        envelop : MessageEnvelope
            Also accepted as ``message``.

        Raises
        ------
        ApplicationException
            InvalidStateException NOT_OPENED; BadRequestException: the message cannot be sent, or
            a subclass's ``_from_message`` returned no dict; ConnectionException and others: the
            message was not stored within ``request_timeout``.
        """
        envelope = envelop if envelop is not None else message
        if envelope is None:
            told = f"send of queue {self.get_name()}: expected a MessageEnvelope, got None"
            raise BadRequestException(None, "NO_MESSAGE", told)
        self.__send(to_context(context or correlation_id), (envelope,))

    def send_batch(
        self,
        context: AnyContext = None,
        envelopes: Sequence[MessageEnvelope] = (),
        *,
        correlation_id: AnyContext = None,
    ) -> None:
        """Send messages as one batch and wait until the brokers have stored all of them.

        Parameters
        ----------
        context : IContext or str, optional
        envelopes : sequence of MessageEnvelope
            Any number of envelopes.

        Raises
        ------
        ApplicationException
            See :meth:`send`. The details ``failed`` (a count) and ``indices`` list the messages
            that were not stored; the others are stored.
        """
        known = to_context(context or correlation_id)
        try:
            given = tuple(envelopes)
        except TypeError as error:
            told = (
                f"send_batch of queue {self.get_name()}: expected a sequence of envelopes, got "
                f"{type(envelopes).__name__}"
            )
            refused = BadRequestException(trace_id_of(known), "INVALID_MESSAGE", told)
            raise with_cause(refused, error) from error
        self.__send(known, given)

    def __send(self, context: IContext | None, envelopes: tuple[MessageEnvelope, ...]) -> None:
        self._check_open(context)
        if not envelopes:
            return
        connection = self._open_connection()
        topic = self._get_topic()
        if self.__sends_itself:
            messages = [
                self.__record(index, envelope, context) for index, envelope in enumerate(envelopes)
            ]
            connection.publish(topic, messages, {"acks": self._acks})
        else:
            began = time.monotonic()
            try:
                delivery = self._codec.publish(
                    connection._publisher(self._acks),
                    topic,
                    envelopes,
                    partition=connection._write_partition,
                    timeout=connection._request_timeout / 1000,
                )
            except (KafkaException, RuntimeError, TypeError, ValueError) as error:
                raise typed(error, f"topic {topic}: send failed", context, topic=topic) from error
            connection._settle(delivery, topic, began, context)
        self._measures.sent(len(envelopes))
        self._measures.debug(context, "Sent %s messages via %s", len(envelopes), self)

    def __record(
        self, index: int, envelope: MessageEnvelope, context: IContext | None
    ) -> dict[str, Any]:
        record = self._from_message(envelope)
        if isinstance(record, dict):
            return record
        told = (
            f"queue {self.get_name()}, message {index}: {type(self).__name__}._from_message "
            f"returned {type(record).__name__}, expected a dict with value, key and headers"
        )
        raise BadRequestException(trace_id_of(context), "INVALID_MESSAGE", told)

    def send_as_object(
        self,
        context: AnyContext = None,
        message_type: str | None = None,
        message: Any = None,
        *,
        correlation_id: AnyContext = None,
    ) -> None:
        """Send an object as JSON, bytes unchanged, or a str as UTF-8.

        Parameters
        ----------
        context : IContext or str, optional
            Its trace id becomes the message's.
        message_type : str, optional
        message : object

        Raises
        ------
        ApplicationException
            See :meth:`send`.
        """
        known = to_context(context or correlation_id)
        self.send(known, KafkaMessageEnvelope(known, message_type, message))
