"""A message queue that is a Kafka topic."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from pip_services4_commons.errors import BadRequestException
from pip_services4_components.context import IContext
from pip_services4_components.run import ICleanable
from pip_services4_messaging.queues import IMessageReceiver, MessageEnvelope

from cykafka import KafkaException, Message, MessageBatch
from cykafka.internal import EnvelopeError

from .._context import AnyContext, to_context
from .._errors import typed
from ..connect.IKafkaMessageListener import IKafkaMessageListener
from ._consuming import Consuming, Settings
from ._finishing import Finishing
from ._life import is_overridden
from ._listening import Listening
from ._waiting import Waiting

_WAIT_MS = 10_000


class KafkaMessageQueue(Finishing, IKafkaMessageListener, ICleanable):
    """Sends messages to a Kafka topic and receives them as a member of a consumer group.
    Thread-safe.

    Configuration parameters (times in ms; those of :class:`KafkaConnection` too, for a connection
    of its own):

    - ``topic``: the topic, which also becomes the queue's name unless ``name`` says otherwise
      (default: the name)
    - ``group_id``: the consumer group (default: default)
    - ``from_beginning``: where a group begins that has committed nothing: at the first message
      there is, or at the end as it is when the queue is opened (default: false)
    - ``read_partitions``: how many partitions ``listen`` handles at a time (default: 1)
    - ``autocommit``: messages are finished when ``receive`` hands them over or ``listen``'s
      receiver returns; false: when ``complete`` is called (default: true)
    - ``options.autosubscribe``: join the group at ``open``, not at first use (default: false)
    - ``options.acks``: brokers that must have a sent message: -1 (all), 0 or 1 (default: -1)
    - ``options.max_pending``: messages of a partition that may be buffered or unfinished (default:
      10000)
    - ``options.max_attempts``: failed attempts after which a message becomes a dead letter
      (default: 0, never)
    - ``options.dead_letter_topic``: (default: the topic and ``.dlq``)
    - ``options.transactional``: dead letters are sent and committed in one transaction (default:
      false)
    - ``options.envelope``: ``headers``, or ``json``: all of the envelope in the value (default:
      headers)
    - ``options.traceparent``: trace ids travel as W3C traceparent too (default: false)

    References: ``*:logger:*:*:1.0``, ``*:counters:*:*:1.0``, ``*:discovery:*:*:1.0``,
    ``*:credential-store:*:*:1.0``, ``*:connection:kafka:*:1.0``, all optional. The connection is
    shared unless the configuration has ``connection(s)`` of its own; ``dependencies.connection``
    names another one.

    Counters: ``queue.<name>.sent_messages``, ``.received_messages``, ``.failed_messages``,
    ``.dead_letter_messages``; gauges ``queue.<name>.lag``, ``.in_flight`` and ``.errors``.

    Wherever a context is expected, a trace id (str) or None will do; ``correlation_id`` is another
    name for it.

    Parameters
    ----------
    name : str, optional
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        # Hooks that a subclass overrides are called message by message; else whole batches are
        # coded at once.
        self.__reads_itself = is_overridden(self, KafkaMessageQueue, "_to_message")
        self.__hears_itself = is_overridden(self, KafkaMessageQueue, "on_message")

    # -- hooks

    def _subscribe(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """Join the group, unless that was done. For subclasses."""
        if not self._inbox.subscribed():
            self._check_open(to_context(context or correlation_id))
            self._inbox.subscribe(
                self._get_topic(),
                self._group_id,
                {"enable.auto.commit": self._auto_commit, "from_beginning": self._from_beginning},
            )
        self._subscribed = True

    def _new_consuming(self) -> Consuming:
        options = self._extra
        settings = Settings(
            auto_commit=self._auto_commit,
            read_partitions=max(1, self._read_partitions),
            max_pending=options.max_pending,
            max_attempts=options.max_attempts,
            bury_unreadable=bool(options.max_attempts or options.dead_letter_topic),
            transactional=options.transactional,
        )
        return Consuming(
            settings,
            self.get_name,
            self.__read_each if self.__reads_itself else self._codec.decode,
            self.on_message if self.__hears_itself else None,
            self._inbox.dead_letters,
            self._measures,
        )

    def __receiving(self, context: IContext | None) -> Consuming:
        """What receives, subscribed if it is not."""
        self._check_open(context)
        self._subscribe(context)
        return self._inbox.receiving()

    def _to_message(self, msg: Message | bytes | None) -> MessageEnvelope | None:
        """The envelope of a record, or of a body alone. For subclasses."""
        if msg is None:
            return None
        return self._codec.to_envelope(msg if isinstance(msg, Message) else Message(value=msg))

    def __read_each(self, batch: MessageBatch) -> list[Any]:
        """A batch's envelopes as a subclass makes them."""
        envelopes: list[Any] = []
        for message in batch:
            try:
                envelope = self._to_message(message)
                if envelope is None:
                    raise EnvelopeError("_to_message returned None", message)
                if envelope.get_reference() is None:
                    envelope.set_reference(message)
            except Exception as error:  # the subclass's: this message cannot be read
                if type(error) is not EnvelopeError or error.message is None:
                    error = EnvelopeError(f"{type(error).__name__}: {error}", message)
                envelope = error
            envelopes.append(envelope)
        return envelopes

    def on_message(self, topic: str, partition: int, message: Message) -> None:
        """Put a record into the local queue; called by nobody unless a subclass overrides it.

        A record that an overriding method does not put into the local queue is finished, as far as
        the queue is concerned, under autocommit; without, it is to be completed. When the method
        raises, that is logged and counted, and the record becomes a dead letter with
        ``options.max_attempts`` or ``options.dead_letter_topic``, or else is passed over.

        Parameters
        ----------
        topic : str
        partition : int
        message : cykafka.Message
        """
        envelope = self._to_message(message)
        if envelope is None:
            raise EnvelopeError("_to_message returned None", message)
        if envelope.get_reference() is None:
            envelope.set_reference(message)
        self.__put(partition, message.offset(), envelope)

    def __put(self, partition: int, offset: int | None, envelope: MessageEnvelope) -> None:
        self._inbox.receiving().put(partition, offset, envelope)

    # -- receiving

    def receive(
        self,
        context: AnyContext | float = None,
        wait_timeout: float | None = None,
        *,
        waitTimeout: float | None = None,
        correlation_id: AnyContext = None,
    ) -> MessageEnvelope | None:
        """Take the next message, as soon as there is one.

        With autocommit it counts as finished now; else it is to be completed or abandoned.

        Parameters
        ----------
        context : IContext or str, optional
            May be left out: ``receive(250)`` waits 250 ms.
        wait_timeout : float, default 10000
            ms to wait for a message. Also called ``waitTimeout``.

        Returns
        -------
        MessageEnvelope or None
            None: there was none, or the queue was closed meanwhile. Its reference is the record, a
            cykafka.Message; its ``sent_time`` the record's, naive and local.

        Raises
        ------
        InvalidStateException
            NOT_OPENED.
        """
        wait = wait_timeout if wait_timeout is not None else waitTimeout
        if wait is None and isinstance(context, (int, float)) and not isinstance(context, bool):
            context, wait = None, context
        consuming = self.__receiving(to_context(context or correlation_id))
        envelope: MessageEnvelope | None = consuming.take(
            (_WAIT_MS if wait is None else float(wait)) / 1000
        )
        return envelope

    def peek(
        self, context: AnyContext = None, *, correlation_id: AnyContext = None
    ) -> MessageEnvelope | None:
        """Look at the next message. Joins the group if that was not done, and never waits.

        Parameters
        ----------
        context : IContext or str, optional

        Returns
        -------
        MessageEnvelope or None
            None: none is here (yet).

        Raises
        ------
        InvalidStateException
            NOT_OPENED.
        """
        found = self.peek_batch(context or correlation_id, 1)
        return found[0] if found else None

    def peek_batch(
        self,
        context: AnyContext = None,
        message_count: int | None = None,
        *,
        messageCount: int | None = None,
        correlation_id: AnyContext = None,
    ) -> list[MessageEnvelope]:
        """Look at the next messages, in the order of :meth:`receive`. Never waits.

        Parameters
        ----------
        context : IContext or str, optional
        message_count : int
            The most there may be. Also called ``messageCount``.

        Returns
        -------
        list of MessageEnvelope
            Those that are here already.

        Raises
        ------
        InvalidStateException
            NOT_OPENED.
        """
        count = message_count if message_count is not None else messageCount
        if count is None:
            raise BadRequestException(None, "NO_COUNT", "peek_batch: message_count is missing")
        consuming = self.__receiving(to_context(context or correlation_id))
        return consuming.buffer.peek(max(0, int(count)))

    @property
    def _messages(self) -> list[MessageEnvelope]:
        """The messages that wait in the local queue. For subclasses, which may append to it."""
        consuming = self._inbox.consuming()
        return Waiting(consuming.buffer.peek(1 << 40) if consuming is not None else (), self.__put)

    @_messages.setter
    def _messages(self, messages: list[MessageEnvelope]) -> None:
        if messages:
            raise AttributeError("_messages: it can be emptied, but not filled")
        self.clear(None)

    def read_message_count(self) -> int:
        """How many messages are left to be received.

        Over the assigned partitions, the high watermark less the next offset to hand over; until
        the group has assigned any, over all partitions what it has not committed. Offsets without
        a message (of transactions, or compacted) count too.

        Returns
        -------
        int

        Raises
        ------
        ApplicationException
            InvalidStateException NOT_OPENED; ConnectionException: the brokers do not answer.
        """
        consuming = self.__receiving(None)
        try:
            return consuming.count()
        except (KafkaException, RuntimeError) as error:
            topic = self._get_topic()
            raise typed(error, f"topic {topic}: read_message_count", topic=topic) from error

    def clear(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """Drop what waits in the local queue, as finished; what was not fetched yet still comes.

        Parameters
        ----------
        context : IContext or str, optional
        """
        to_context(context or correlation_id)
        consuming = self._inbox.consuming()
        if consuming is not None:
            consuming.clear()

    # -- listening

    def listen(
        self,
        context: AnyContext = None,
        receiver: IMessageReceiver | None = None,
        *,
        correlation_id: AnyContext = None,
    ) -> None:
        """Hand messages to a receiver until :meth:`close` or :meth:`end_listen` is called.

        In this thread; with ``read_partitions`` above 1 in others too, as many partitions at a
        time. Messages of a partition come in order, first those that wait in the local queue. What
        a receiver raises is logged and counted, and the message comes again after 0.1 s, then
        after twice as long, up to 10 s, until it is a dead letter by ``options.max_attempts``;
        others go on. A receiver may call anything of the queue. SystemExit, KeyboardInterrupt and
        the like end listening, and are raised here; the message stays in the local queue.

        Parameters
        ----------
        context : IContext or str, optional
        receiver : IMessageReceiver

        Raises
        ------
        InvalidStateException
            NOT_OPENED.
        """
        self.__begin(to_context(context or correlation_id), receiver).run()

    def begin_listen(
        self,
        context: AnyContext = None,
        receiver: IMessageReceiver | None = None,
        *,
        correlation_id: AnyContext = None,
    ) -> None:
        """As :meth:`listen`, in a thread of its own: returns at once. What ends listening, such as
        a receiver's SystemExit, is logged.

        Parameters
        ----------
        context : IContext or str, optional
        receiver : IMessageReceiver

        Raises
        ------
        InvalidStateException
            NOT_OPENED.
        """
        known = to_context(context or correlation_id)
        name = f"kafka-listener-{self.get_name()}"
        if is_overridden(self, KafkaMessageQueue, "listen"):
            run: Callable[[], object] = partial(self.listen, known, receiver)
            give_up = None
        else:
            listening = self.__begin(known, receiver)
            run, give_up = listening.run, listening.end
        try:
            threading.Thread(
                target=self.__listen_aside, args=(run, known), name=name, daemon=True
            ).start()
        except BaseException:  # there are too many threads
            if give_up is not None:
                give_up()
            raise

    def __listen_aside(self, run: Callable[[], object], context: IContext | None) -> None:
        try:
            run()
        except BaseException as error:  # nobody else would hear of it
            told = f"Queue {self.get_name()} listens no more: {type(error).__name__}: {error}"
            self._measures.fail(context, error, told)

    def __begin(self, context: IContext | None, receiver: IMessageReceiver | None) -> Listening:
        if not callable(getattr(receiver, "receive_message", None)):
            told = f"listen: {receiver!r} has no receive_message(message, queue)"
            raise BadRequestException(None, "NO_RECEIVER", told)
        consuming = self.__receiving(context)
        self._measures.debug(context, "Started listening messages at %s", self.get_name())
        return self._inbox.listening(consuming, receiver)

    def end_listen(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """Have :meth:`listen` return, once the receivers at work have; called by one of them, it
        does not wait.

        Messages that were not handed over stay in the local queue.

        Parameters
        ----------
        context : IContext or str, optional
        """
        to_context(context or correlation_id)
        self._inbox.end_listening()

    endListen = end_listen  # the documents' spelling
