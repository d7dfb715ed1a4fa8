"""How an application tells a queue what became of a message."""

from __future__ import annotations

from typing import Any

from pip_services4_commons.errors import BadRequestException
from pip_services4_messaging.queues import MessageEnvelope

from cykafka import Message

from .._context import AnyContext, to_context
from ._sending import Sending


class Finishing(Sending):
    """The part of a KafkaMessageQueue by which messages end."""

    def complete(
        self,
        context: Any = None,
        message: MessageEnvelope | None = None,
        *,
        envelop: MessageEnvelope | None = None,
        correlation_id: AnyContext = None,
    ) -> None:
        """Tell that a message is finished: it does not come again.

        Without autocommit this commits the offset up to which all messages of the partition are
        finished, if it has moved, and waits for that. A message whose partition is another
        member's now is passed over.

        Parameters
        ----------
        context : IContext or str, optional
            May be left out: ``complete(message)``.
        message : MessageEnvelope
            As it was received. Also called ``envelop``.

        Raises
        ------
        ApplicationException
            InvalidStateException NOT_OPENED; ConnectionException and others: the commit failed.
        """
        _, reference = self.__received("complete", context, message or envelop)
        consuming = self._inbox.in_hand()
        if reference is not None and consuming is not None:
            consuming.complete(reference)

    def abandon(
        self,
        context: Any = None,
        message: MessageEnvelope | None = None,
        *,
        envelop: MessageEnvelope | None = None,
        correlation_id: AnyContext = None,
    ) -> None:
        """Give a message back: it alone comes again, next, to this queue.

        So with autocommit too: until it is finished, nothing from it on counts as finished. With
        ``options.max_attempts`` it becomes a dead letter the last time.

        Parameters
        ----------
        context : IContext or str, optional
            May be left out: ``abandon(message)``.
        message : MessageEnvelope
            As it was received. Also called ``envelop``.

        Raises
        ------
        ApplicationException
            InvalidStateException NOT_OPENED; as of :meth:`move_to_dead_letter`.
        """
        envelope, reference = self.__received("abandon", context, message or envelop)
        consuming = self._inbox.in_hand()
        if reference is not None and consuming is not None:
            consuming.abandon(reference, envelope)

    def move_to_dead_letter(
        self,
        context: Any = None,
        message: MessageEnvelope | None = None,
        *,
        envelop: MessageEnvelope | None = None,
        correlation_id: AnyContext = None,
    ) -> None:
        """Send a message to the dead letter topic and complete it.

        Its key, value and headers stay; headers ``dlq_topic``, ``dlq_partition``, ``dlq_offset``,
        ``dlq_error`` and ``dlq_attempts`` are added. With ``options.transactional`` both happen or
        none, if all messages of the partition before it are finished; else it may be sent twice,
        if the process dies in between.

        Parameters
        ----------
        context : IContext or str, optional
            May be left out: ``move_to_dead_letter(message)``.
        message : MessageEnvelope
            As it was received. Also called ``envelop``.

        Raises
        ------
        ApplicationException
            InvalidStateException NOT_OPENED; BadRequestException NO_REFERENCE: it was not received
            by a queue; ConnectionException and others: it could not be sent, and is not completed.
        """
        _, reference = self.__received("move_to_dead_letter", context, message or envelop)
        consuming = self._inbox.in_hand()
        if reference is None or consuming is None:
            raise BadRequestException(
                None,
                "NO_REFERENCE",
                "move_to_dead_letter: the message was not received by this queue",
            )
        consuming.bury(reference, "moved by the application")

    def renew_lock(self, message: MessageEnvelope | None = None, lock_timeout: int = 0) -> None:
        """Do nothing: Kafka has no locks. A message is its receiver's as long as its partition is.

        Parameters
        ----------
        message : MessageEnvelope
        lock_timeout : int
            ms.
        """

    def __received(
        self, call: str, context: Any, message: MessageEnvelope | None
    ) -> tuple[MessageEnvelope, Message | None]:
        envelope = context if message is None else message
        if self._inbox.in_hand() is None:  # close() waits for receivers, which say this now
            self._check_open(None if message is None else to_context(context))
        if not isinstance(envelope, MessageEnvelope):
            raise BadRequestException(None, "NO_MESSAGE", f"{call}: there is no message")
        reference = envelope.get_reference()
        return envelope, reference if isinstance(reference, Message) else None
