"""What a queue's ``_messages`` is: for subclasses that were written for the published package."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from pip_services4_messaging.queues import MessageEnvelope

from cykafka import Message


class Waiting(list[MessageEnvelope]):
    """The messages that wait in the local queue, as they were a moment ago.

    What is appended goes into the local queue; its reference must be the record, as
    ``_to_message`` makes it. Whatever takes messages out raises: they would not count as handed
    over.

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
                "_messages.append: the envelope's reference is no record that was received; use "
                "what _to_message() gives"
            )
        self._put(int(record.partition() or 0), record.offset(), envelope)
        super().append(envelope)

    def extend(self, envelopes: Iterable[MessageEnvelope]) -> None:
        """Put envelopes into the local queue."""
        for envelope in envelopes:
            self.append(envelope)

    def __iadd__(self, envelopes: Iterable[MessageEnvelope]) -> Waiting:  # type: ignore[misc]
        self.extend(envelopes)
        return self

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise AttributeError(
            "_messages shows the local queue: take messages by receive(), drop them by clear()"
        )

    pop = remove = insert = clear = sort = reverse = _refuse
    __setitem__ = __delitem__ = _refuse
