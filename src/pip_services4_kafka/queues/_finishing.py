"""The calls by which an application finishes a message: complete, abandon, dead letter."""

from __future__ import annotations

from typing import Any

from pip_services4_commons.errors import BadRequestException
from pip_services4_messaging.queues import MessageEnvelope

from cykafka import Message

from .._context import AnyContext, to_context
from ._sending import Sending


class Finishing(Sending):
    """The part of a KafkaMessageQueue that finishes messages."""

    def complete(
        self,
        context: Any = None,
        message: MessageEnvelope | None = None,
        *,
        envelop: MessageEnvelope | None = None,
        correlation_id: AnyContext = None,
    ) -> None:
        """Mark a message as finished, so that it does not come again.

        Without autocommit this commits the partition's first unfinished offset, if it has moved,
        and waits for the commit. Does nothing if another member owns the partition now.

        Parameters
        ----------
        context : IContext or str, optional
            May be omitted: ``complete(message)``.
        message : MessageEnvelope
            A received message. Also accepted as ``envelop``.

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
        """Return a message to this queue, which hands it over again next.

        Later messages do not come again. Until the message is finished, the queue commits no
        offset after it, with autocommit too. With ``options.max_attempts`` the last attempt makes
        it a dead letter.

        Parameters
        ----------
        context : IContext or str, optional
            May be omitted: ``abandon(message)``.
        message : MessageEnvelope
            A received message. Also accepted as ``envelop``.

        Raises
        ------
        ApplicationException
            InvalidStateException NOT_OPENED; the exceptions of :meth:`move_to_dead_letter`.
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

        The dead letter keeps key, value and headers, and gets the headers ``dlq_topic``,
        ``dlq_partition``, ``dlq_offset``, ``dlq_error`` and ``dlq_attempts``. With
        ``options.transactional``, and if all earlier messages of the partition are finished, one
        transaction contains both steps. Otherwise the message may be sent twice if the process
        dies between them.

        Parameters
        ----------
        context : IContext or str, optional
            May be omitted: ``move_to_dead_letter(message)``.
        message : MessageEnvelope
            A received message. Also accepted as ``envelop``.

        Raises
        ------
        ApplicationException
            InvalidStateException NOT_OPENED; BadRequestException NO_REFERENCE: this queue did not
            receive the message; ConnectionException and others: sending failed, and the message is
            not completed.
        """
        _, reference = self.__received("move_to_dead_letter", context, message or envelop)
        consuming = self._inbox.in_hand()
        if reference is None or consuming is None:
            raise BadRequestException(
                None,
                "NO_REFERENCE",
                f"move_to_dead_letter: queue {self.get_name()} did not receive this message",
            )
        consuming.bury(reference, "moved by the application")

    def renew_lock(self, message: MessageEnvelope | None = None, lock_timeout: int = 0) -> None:
        """Do nothing, because Kafka has no locks on messages.

        A receiver owns its message while its queue owns the partition.

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
        if self._inbox.in_hand() is None:  # receivers may finish messages during close()
            self._check_open(None if message is None else to_context(context))
        if not isinstance(envelope, MessageEnvelope):
            told = f"{call}: expected a MessageEnvelope, got {type(envelope).__name__}"
            raise BadRequestException(None, "NO_MESSAGE", told)
        reference = envelope.get_reference()
        return envelope, reference if isinstance(reference, Message) else None
