"""The sending side of a queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pip_services4_commons.errors import BadRequestException
from pip_services4_components.context import IContext
from pip_services4_messaging.queues import MessageEnvelope

from cykafka.internal import EnvelopeCodec

from .._context import trace_id_of
from ..connect.KafkaConnection import KafkaConnection
from ._measures import Measures

_Record = dict[str, Any]


class Sender:
    """Sends envelopes to a topic.

    Parameters
    ----------
    connection : KafkaConnection
    topic : str
    acks : int
    codec : EnvelopeCodec
    each : callable or None
        A subclass's _from_message(envelope), which makes a dict for KafkaConnection.publish().
        Without it, whole batches are encoded at once.
    measures : Measures
    """

    def __init__(
        self,
        connection: KafkaConnection,
        topic: str,
        acks: int,
        codec: EnvelopeCodec,
        each: Callable[[MessageEnvelope], _Record | None] | None,
        measures: Measures,
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._options = {"acks": acks}
        self._codec = codec
        self._each = each
        self._measures = measures

    def send(self, context: IContext | None, envelopes: Sequence[MessageEnvelope]) -> None:
        """Send messages and wait until the brokers have stored all of them.

        Raises
        ------
        ApplicationException
        """
        if not envelopes:
            return
        if self._each is None:
            self._connection.publish_envelopes(
                self._topic, self._codec, envelopes, self._options, context
            )
        else:
            records = [self._record(*each, context) for each in enumerate(envelopes)]
            self._connection.publish(self._topic, records, self._options)
        self._measures.count("sent_messages", len(envelopes))
        self._measures.each("Sent", envelopes)

    def _record(self, index: int, envelope: MessageEnvelope, context: IContext | None) -> _Record:
        assert self._each is not None
        record = self._each(envelope)
        if isinstance(record, dict):
            return record
        owner = type(getattr(self._each, "__self__", self._each)).__name__
        text = (
            f"{self._measures}, message {index}: {owner}._from_message returned "
            f"{type(record).__name__}, expected a dict with value, key and headers"
        )
        raise BadRequestException(trace_id_of(context), "INVALID_MESSAGE", text)
