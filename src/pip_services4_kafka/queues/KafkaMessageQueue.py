"""A message queue on a Kafka topic."""

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

    Configuration parameters (times in ms). A queue with its own connection also takes those of
    :class:`KafkaConnection`:

    - ``topic``: the topic, which is also the queue's name unless ``name`` is set (default: the
      name)
    - ``group_id``: the consumer group (default: default)
    - ``from_beginning``: where a group without committed offsets starts. True: at the first
      message in the topic. False: at the end of the topic at ``open`` (default: false)
    - ``read_partitions``: how many partitions ``listen`` handles at a time (default: 1)
    - ``autocommit``: true: a message is finished when ``receive`` returns it or the receiver of
      ``listen`` returns; false: when you call ``complete`` (default: true)
    - ``options.autosubscribe``: join the group at ``open``, not at first use (default: false)
    - ``options.acks``: how many brokers must store a message: -1 (all), 0 or 1 (default: -1)
    - ``options.max_pending``: the most buffered or unfinished messages of a partition (default:
      10000)
    - ``options.max_attempts``: after this number of failed attempts, a message becomes a dead
      letter (default: 0, never)
    - ``options.dead_letter_topic``: the topic for dead letters (default: the topic and ``.dlq``)
    - ``options.transactional``: send each dead letter and commit its offset in one transaction
      (default: false)
    - ``options.envelope``: ``headers``, or ``json``: the whole envelope in the value (default:
      headers)
    - ``options.traceparent``: also send trace ids as W3C traceparent (default: false)

    References: ``*:logger:*:*:1.0``, ``*:counters:*:*:1.0``, ``*:discovery:*:*:1.0``,
    ``*:credential-store:*:*:1.0``, ``*:connection:kafka:*:1.0``, all optional. The queue uses the
    referenced connection, unless its configuration has ``connection(s)``.
    ``dependencies.connection`` selects a certain connection.

    Counters: ``queue.<name>.sent_messages``, ``.received_messages``, ``.failed_messages``,
    ``.dead_letter_messages``; gauges ``queue.<name>.lag``, ``.in_flight`` and ``.errors``.

    Every context argument also accepts a trace id (str) or None. ``correlation_id`` is another
    name for the argument.

    Parameters
    ----------
    name : str, optional
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(name)
        # Whole batches are decoded at once, unless a subclass overrides a hook for single
        # messages.
        self.__reads_itself = is_overridden(self, KafkaMessageQueue, "_to_message")
        self.__hears_itself = is_overridden(self, KafkaMessageQueue, "on_message")

    # -- hooks

    def _subscribe(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """Join the group unless already joined. For subclasses."""
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
        """The receiving side, subscribed on first use."""
        self._check_open(context)
        self._subscribe(context)
        return self._inbox.receiving()

    def _to_message(self, msg: Message | bytes | None) -> MessageEnvelope | None:
        """Make the envelope of a record, or of a record's value alone. For subclasses."""
        if msg is None:
            return None
        return self._codec.to_envelope(msg if isinstance(msg, Message) else Message(value=msg))

    def __read_each(self, batch: MessageBatch) -> list[Any]:
        """Make a batch's envelopes with the subclass's _to_message()."""
        envelopes: list[Any] = []
        for message in batch:
            try:
                envelope = self._to_message(message)
                if envelope is None:
                    raise EnvelopeError("_to_message returned None", message)
                if envelope.get_reference() is None:
                    envelope.set_reference(message)
            except Exception as error:  # raised by the subclass: the message is unreadable
                if type(error) is not EnvelopeError or error.message is None:
                    error = EnvelopeError(f"{type(error).__name__}: {error}", message)
                envelope = error
            envelopes.append(envelope)
        return envelopes

    def on_message(self, topic: str, partition: int, message: Message) -> None:
        """Put a record into the local queue. The queue calls this only if a subclass overrides it.

        An overriding method may handle a record itself, without the local queue. With autocommit
        such a record is finished when the method returns; otherwise the application completes it.
        If the method raises, the queue logs and counts the exception. The record then becomes a
        dead letter with ``options.max_attempts`` or ``options.dead_letter_topic``; otherwise the
        queue skips it.

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
        """Take the next message; wait for one if necessary.

        With autocommit the message is finished at the return. Otherwise complete or abandon it.

        Parameters
        ----------
        context : IContext or str, optional
            May be omitted: ``receive(250)`` waits 250 ms.
        wait_timeout : float, default 10000
            The longest wait for a message, ms. Also accepted as ``waitTimeout``.

        Returns
        -------
        MessageEnvelope or None
            None: no message came in time, or the queue was closed meanwhile. The envelope's
            reference is the record, a cykafka.Message. Its ``sent_time`` is the record's
            timestamp, naive and local.

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
        """Return the next message without taking it. Joins the group if necessary; never waits.

        Parameters
        ----------
        context : IContext or str, optional

        Returns
        -------
        MessageEnvelope or None
            None: the local queue is empty.

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
        """Return the next messages without taking them, in the order of :meth:`receive`.

        Joins the group if necessary; never waits.

        Parameters
        ----------
        context : IContext or str, optional
        message_count : int
            The most messages to return. Also accepted as ``messageCount``.

        Returns
        -------
        list of MessageEnvelope
            Messages of the local queue.

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
        """The messages in the local queue. For subclasses, which may append to the list."""
        consuming = self._inbox.consuming()
        return Waiting(consuming.buffer.peek(1 << 40) if consuming is not None else (), self.__put)

    @_messages.setter
    def _messages(self, messages: list[MessageEnvelope]) -> None:
        if messages:
            raise AttributeError("_messages: only an empty list can be set; it clears the queue")
        self.clear(None)

    def read_message_count(self) -> int:
        """The number of messages still to be received.

        For assigned partitions: the high watermarks minus the next offsets to receive. Before the
        first assignment: the high watermarks of all partitions minus the group's committed
        offsets. Offsets without a message (transaction markers, compacted records) count too.

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
            raise typed(error, f"topic {topic}: read_message_count failed", topic=topic) from error

    def clear(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """Drop the messages in the local queue as finished. Messages not fetched yet still come.

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

        The receiver runs in this thread. With ``read_partitions`` above 1 it also runs in other
        threads, one for each partition handled at a time. Messages of a partition come in order,
        those in the local queue first.

        If the receiver raises, the queue logs and counts the exception and continues with other
        messages. The message comes again after 0.1 s, then after twice as long each time, up to
        10 s, until ``options.max_attempts`` makes it a dead letter. SystemExit, KeyboardInterrupt
        and other exceptions that are no Exception end listening and are raised here; the message
        stays in the local queue.

        A receiver may call any method of the queue.

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
        """Start :meth:`listen` in a new thread, and return at once.

        The queue logs an exception that ends listening, such as a receiver's SystemExit.

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
        except BaseException:  # too many threads
            if give_up is not None:
                give_up()
            raise

    def __listen_aside(self, run: Callable[[], object], context: IContext | None) -> None:
        try:
            run()
        except BaseException as error:  # the thread has no caller
            told = f"Queue {self.get_name()} stopped listening: {type(error).__name__}: {error}"
            self._measures.fail(context, error, told)

    def __begin(self, context: IContext | None, receiver: IMessageReceiver | None) -> Listening:
        if not callable(getattr(receiver, "receive_message", None)):
            told = f"listen: {receiver!r} has no receive_message(message, queue)"
            raise BadRequestException(None, "NO_RECEIVER", told)
        consuming = self.__receiving(context)
        self._measures.debug(context, "Started listening messages at %s", self.get_name())
        return self._inbox.listening(consuming, receiver)

    def end_listen(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """End :meth:`listen`, and wait for running receivers. Inside a receiver it does not wait.

        The other messages stay in the local queue.

        Parameters
        ----------
        context : IContext or str, optional
        """
        to_context(context or correlation_id)
        self._inbox.end_listening()

    endListen = end_listen  # the spelling in the documentation of pip-services
