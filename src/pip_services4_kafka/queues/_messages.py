"""The type of a queue's ``_messages``, for subclasses written for pip-services4-kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from pip_services4_messaging.queues import MessageEnvelope

from cykafka import Message


class Messages(list[MessageEnvelope]):
    """A snapshot of the messages that wait in the local queue.

    Appending puts an envelope into the local queue. Its reference must be the record, as
    ``_to_message`` sets it. Methods that remove messages raise AttributeError, because removed
    messages would not count as handed over.

    Parameters
    ----------
    envelopes : iterable of MessageEnvelope
    put : callable
        Puts an envelope into the local queue: ``put(partition, offset, envelope)``.
    """

    def __init__(
        self,
        envelopes: Iterable[MessageEnvelope],
        put: Callable[[int, int | None, MessageEnvelope], None],
    ) -> None:
        super().__init__(envelopes)
        self._put = put

    def append(self, envelope: MessageEnvelope) -> None:
        """Put an envelope into the local queue."""
        record = envelope.get_reference()
        if not isinstance(record, Message) or record.partition() is None:
            raise AttributeError(
                "_messages.append: the envelope's reference is not a received record; append "
                "envelopes that _to_message() returned"
            )
        self._put(int(record.partition() or 0), record.offset(), envelope)
        super().append(envelope)

    def extend(self, envelopes: Iterable[MessageEnvelope]) -> None:
        """Put envelopes into the local queue."""
        for envelope in envelopes:
            self.append(envelope)

    def __iadd__(self, envelopes: Iterable[MessageEnvelope]) -> Messages:  # type: ignore[misc]
        self.extend(envelopes)
        return self

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise AttributeError(
            "_messages is a view of the local queue: take messages with receive(), drop them "
            "with clear()"
        )

    pop = remove = insert = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = _refuse
