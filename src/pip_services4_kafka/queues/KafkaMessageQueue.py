"""A message queue on a Kafka topic."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from pip_services4_commons.errors import (
    BadRequestException,
    ConfigException,
    ConnectionException,
    InvalidStateException,
)
from pip_services4_components.config import ConfigParams
from pip_services4_components.context import IContext
from pip_services4_components.refer import (
    DependencyResolver,
    Descriptor,
    IReferences,
    IUnreferenceable,
)
from pip_services4_components.run import ICleanable, IOpenable
from pip_services4_messaging.queues import (
    IMessageReceiver,
    MessageEnvelope,
    MessageQueue,
    MessagingCapabilities,
)

from cykafka import Message, MessageBatch
from cykafka.internal import EnvelopeCodec, EnvelopeError

from .._closing import Closing
from .._context import AnyContext, to_context, trace_id_of
from .._errors import described, misconfigured, with_cause
from .._log import Log
from ..connect._session import Handler
from ..connect._settings import DEFAULT_GROUP, acks_of, flag_of, keys_for_shared, number_of
from ..connect.IKafkaMessageListener import IKafkaMessageListener
from ..connect.KafkaConnection import KafkaConnection
from ..connect.KafkaSubscription import KafkaSubscription
from ._dead_letters import DeadLetters
from ._listener import Listener
from ._local_queue import Backoff
from ._measures import Measures
from ._messages import Messages
from ._receiver import Receiver, Settings
from ._sender import Sender
from .KafkaMessageEnvelope import KafkaMessageEnvelope

_WAIT_MS = 10_000
_SHARED_CONNECTION = Descriptor("*", "connection", "kafka", "*", "1.0")
# Each partition that listen() handles at a time costs a thread.
_MOST_WORKERS = 1000
# How long listen() blocks before it says so in the log, s.
_BLOCKS_S = 1.0


class KafkaMessageQueue(
    MessageQueue, IKafkaMessageListener, IUnreferenceable, IOpenable, ICleanable
):
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
      letter; 0: never (default: 10)
    - ``options.retry_backoff``, ``options.retry_backoff_max``: a message whose receiver raised, or
      that was abandoned, comes again after this time, then after twice as long each time, up to
      the second value (default: 200, 10000)
    - ``options.dead_letter_topic``: the topic for dead letters (default: the topic and ``.dlq``)

    References: ``*:logger:*:*:1.0``, ``*:counters:*:*:1.0``, ``*:discovery:*:*:1.0``,
    ``*:credential-store:*:*:1.0``, ``*:connection:kafka:*:1.0``, all optional. The queue uses the
    referenced connection, unless its configuration has ``connection(s)``.
    ``dependencies.connection`` selects a certain connection.

    Counters: ``queue.<name>.sent_messages``, ``.received_messages``, ``.failed_messages``,
    ``.dead_letter_messages``; gauges ``queue.<name>.lag`` (messages behind the committed offsets),
    ``.in_flight``, ``.errors``, ``.oldest_unfinished_age`` (s) and ``.oldest_unfinished_offset``.

    Every context argument also accepts a trace id (str) or None. ``correlation_id`` is another
    name for the argument.

    Parameters
    ----------
    name : str, optional
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(
            name, MessagingCapabilities(True, True, True, True, True, False, True, True, True)
        )
        # CompositeCounters shares one list between all instances.
        self._counters._counters = []
        self._name: str | None = name
        self._config: ConfigParams | None = None
        self._references: IReferences | None = None
        self._opened = False
        self._local_connection = False
        self._dependency_resolver = DependencyResolver()
        self._dependency_resolver.put("connection", _SHARED_CONNECTION)
        self._connection: KafkaConnection | None = None
        self._topic = ""
        self._group_id = DEFAULT_GROUP
        self._from_beginning = False
        self._auto_commit = True
        self._read_partitions = 1
        self._acks = -1
        self._auto_subscribe = False
        self._subscribed = False
        self._receiver: IMessageReceiver | None = None

        self.__max_pending, self.__max_attempts = 10_000, 10
        self.__backoff_ms = (200, 10_000)
        self.__dead_letter_topic = ""
        self.__warnings: list[str] = []  # of the configuration; logged at open()
        self.__log = Log()
        self.__measures = Measures(self.get_name, self._counters, self.__log)
        self.__codec = EnvelopeCodec(KafkaMessageEnvelope)
        # Protects what follows. Held while a consumer is created, never while receivers run or
        # threads are joined. A signal handler may close the queue in the thread that has it.
        self.__lock = threading.RLock()
        self.__process = os.getpid()
        self.__closing = Closing()
        self.__active: KafkaConnection | None = None  # the connection between open() and close()
        self.__sender: Sender | None = None
        self.__receiver: Receiver | None = None  # also while close() waits
        self.__listeners: list[Listener] = []
        self.__ends: dict[int, int] = {}  # of the topic at open()

    def __repr__(self) -> str:
        state = "open" if self.is_open() else "closed"
        group = self._group_id or DEFAULT_GROUP
        return (
            f"<{type(self).__name__} {self._name!r} topic={self._topic or self._name!r} "
            f"group={group!r} {state}>"
        )

    # -- configuration

    def configure(self, config: ConfigParams) -> None:
        """Take the configuration. Options that it does not contain keep their values.

        Parameters
        ----------
        config : ConfigParams

        Raises
        ------
        ConfigException
            INVALID_ACKS.
        """
        self._config = config
        self._dependency_resolver.configure(config)
        warnings = self.__warnings = []
        number = partial(number_of, config, warnings=warnings)
        flag = partial(flag_of, config, warnings=warnings)
        self._topic = config.get_as_string_with_default("topic", self._topic)
        self._group_id = config.get_as_string_with_default("group_id", self._group_id)
        self._from_beginning = flag("from_beginning", self._from_beginning)
        self._read_partitions = number("read_partitions", self._read_partitions, 1, _MOST_WORKERS)
        self._auto_commit = flag("autocommit", self._auto_commit)
        self._auto_subscribe = flag("options.autosubscribe", self._auto_subscribe)
        self._acks = acks_of(config.get_as_nullable_string("options.acks"), self._acks)
        self.__max_pending = number("options.max_pending", self.__max_pending, 1)
        self.__max_attempts = number("options.max_attempts", self.__max_attempts, 0)
        first, longest = self.__backoff_ms
        self.__backoff_ms = (
            number("options.retry_backoff", first, 0),
            number("options.retry_backoff_max", longest, 0),
        )
        self.__dead_letter_topic = config.get_as_string_with_default(
            "options.dead_letter_topic", self.__dead_letter_topic
        )
        self._name = _name_in(config, self._name)
        with self.__lock:
            if self._local_connection and self.__active is None:  # has an earlier configuration
                self._connection = None

    def set_references(self, references: IReferences) -> None:
        """Take loggers, counters and a shared connection.

        Parameters
        ----------
        references : IReferences
        """
        if references is not self._references:
            self._references = references
            self._logger.set_references(references)
            self.__log.set_references(references)
            self._counters._counters = []
            self._counters.set_references(references)
        self._dependency_resolver.set_references(references)
        with self.__lock:
            self._connection = self.__active or self.__find_connection()

    def __find_connection(self) -> KafkaConnection:
        config = self._config or ConfigParams()
        own = config.get_section("connection") or config.get_section("connections")
        if self._references is not None and (
            config.get_as_nullable_string("dependencies.connection") or not own
        ):
            shared: KafkaConnection | None = self._dependency_resolver.get_one_optional(
                "connection"
            )
            if shared is not None:
                self._local_connection = False
                return shared
        connection = KafkaConnection()
        # The connection's warnings name the queue.
        connection.configure(
            config.override(ConfigParams.from_tuples("name", str(self.__measures)))
        )
        if self._references is not None:
            connection.set_references(self._references)
        self._local_connection = True
        return connection

    def unset_references(self) -> None:
        """Drop the reference to the connection. An open queue must still be closed."""
        self._connection = None

    def _get_topic(self) -> str:
        """The topic. For subclasses."""
        if not self._topic and not self._name:
            text = "the queue has neither a topic nor a name: set topic"
            raise misconfigured("NO_TOPIC", text, keys=["topic", "name"])
        return self._topic or str(self._name)

    # -- opening and closing

    def is_open(self) -> bool:
        """Whether the queue is open. False in a forked child of the process that opened it.

        Returns
        -------
        bool
        """
        return self._opened and self.__process == os.getpid()

    def _check_open(self, context: IContext | None = None) -> None:
        if not self.is_open():
            raise self.__not_opened(context)

    def __not_opened(self, context: IContext | None) -> InvalidStateException:
        text = f"Queue {self.get_name()} is not opened: call open() first"
        if self._opened:
            text = (
                f"Queue {self.get_name()} was opened before this process was forked: a child must "
                "open a queue of its own"
            )
        return InvalidStateException(trace_id_of(context), "NOT_OPENED", text)

    def __no_connection(self, context: IContext | None) -> InvalidStateException:
        text = f"queue {self.get_name()} has no connection: its references were unset"
        return InvalidStateException(trace_id_of(context), "NO_CONNECTION", text)

    def open(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """Connect, and create the topic if it is missing. Does nothing if the queue is open.

        If another thread is closing the queue, this waits for the end of that close().

        Parameters
        ----------
        context : IContext or str, optional

        Raises
        ------
        ConnectionException
            CONNECT_FAILED, with its cause. The queue stays closed.
        ConfigException
            The configuration of the connection is wrong; NO_TOPIC: the queue has neither topic nor
            name.
        InvalidStateException
            NOT_OPENED: the same thread runs close(), for example if a signal handler calls this;
            or close() waits for this thread's receiver; or this is a forked child of the process
            that has opened the queue.
        """
        known = to_context(context or correlation_id)
        while not self.__open(known):
            # close() may wait for this thread.
            if self.__closing.is_mine() or any(each.is_mine() for each in self.__listeners):
                raise self.__not_opened(known)
            self.__closing.wait()

    def __open(self, known: IContext | None) -> bool:
        """Open the queue; False if close() is running."""
        with self.__lock:
            if self._opened:
                self._check_open(known)
                return True
            if self.__closing:
                return False
            connection = self._connection = self._connection or self.__find_connection()
            try:
                if self._local_connection:
                    connection.open(known)
                self.__prepare(known, connection)
            except BaseException as error:
                self.__close_down(known, connection)
                if not isinstance(error, Exception) or _says_why(error):
                    raise
                failure = ConnectionException(
                    trace_id_of(known), "CONNECT_FAILED", f"cannot open the queue: {error}"
                )
                raise with_cause(failure, error) from error
            return True

    def __prepare(self, context: IContext | None, connection: KafkaConnection) -> None:
        if not connection.is_open():
            raise ConnectionException(
                trace_id_of(context),
                "CONNECT_FAILED",
                f"queue {self.get_name()}: the shared connection to Kafka is not open: open it "
                "before its queues; in a container's configuration, put it before them",
            )
        idle = [] if self._local_connection else keys_for_shared(self._config or ConfigParams())
        for warning in (*self.__warnings, *idle):
            self.__log.warn(f"Queue {self.get_name()}: {warning}", context)
        topic = self._get_topic()
        if topic == self.__dead_letter_topic:
            text = (
                f"options.dead_letter_topic: expected another topic than {topic}, the queue's own"
            )
            raise misconfigured("INVALID_TOPIC", text, keys=["options.dead_letter_topic"])
        connection.ensure_queue(topic)
        each = self._from_message if self.__overrides("_from_message") else None
        self.__sender = Sender(connection, topic, self._acks, self.__codec, each, self.__measures)
        self.__ends = {} if self._from_beginning else connection.read_ends(topic)
        self.__active = connection
        self.__process = os.getpid()
        self._opened = True
        if self._auto_subscribe:
            self._subscribe(context)

    def close(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """End listening and receiving, and commit finished messages. Idempotent.

        Waits up to ``request_timeout`` for running receivers, unless one of them is the caller.

        Parameters
        ----------
        context : IContext or str, optional

        Raises
        ------
        InvalidStateException
            NO_CONNECTION: ``unset_references()`` was called before. The queue is closed
            nevertheless.
        """
        known = to_context(context or correlation_id)
        if self._opened and not self.is_open():
            # A forked child: the threads and the brokers' connections are the parent's. A thread
            # that does not exist here may have the locks.
            self._opened = self._subscribed = False
            self.__receiver = self.__sender = self.__active = self._connection = None
            self.__lock, self.__listeners = threading.RLock(), []
            return
        with self.__lock:
            if not self._opened:
                return
            self._opened = False
            self.__closing.begin()
            connection, missing = self.__active, self._connection is None
        try:
            self.__close_down(known, connection)
        finally:
            self.__closing.end()
        if missing:
            raise self.__no_connection(known)

    def __close_down(self, context: IContext | None, connection: KafkaConnection | None) -> None:
        """Undo open() and later calls; open() may have failed half-way."""
        self._opened = self._subscribed = False
        with self.__lock:
            listeners, receiver = tuple(self.__listeners), self.__receiver
        if receiver is not None:
            # First of all: messages that the local queue refuses now count as not fetched.
            receiver.local.close()
        try:
            if connection is not None:
                self.__await(listeners, connection)
        finally:  # even if the wait was interrupted: a running session would keep its partitions
            try:
                if connection is not None:
                    connection.unsubscribe_all(self)
            finally:
                self.__receiver = self.__sender = self.__active = None
                self.__listeners = [each for each in self.__listeners if each.is_running()]
                if connection is not None and self._local_connection:
                    connection.close(context)

    def __await(self, listeners: tuple[Listener, ...], connection: KafkaConnection) -> None:
        timeout = connection.get_request_timeout()
        deadline = time.monotonic() + timeout
        for listener in listeners:
            if not listener.wait(max(0, deadline - time.monotonic())):
                text = (
                    f"Queue {self.get_name()}: did not wait longer than {timeout:g} s for "
                    "a receiver, which is still running"
                )
                self.__log.warn(text)

    # -- sending

    def _from_message(self, message: MessageEnvelope | None) -> dict[str, Any] | None:
        """Convert an envelope to a dict for KafkaConnection.publish(). For subclasses."""
        return None if message is None else self.__codec.to_record(message)

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
            message was not stored within ``request_timeout``, or its outcome is unknown, as the
            text then says.
        """
        envelope = envelop if envelop is not None else message
        if envelope is None:
            text = f"send of queue {self.get_name()}: expected a MessageEnvelope, got None"
            raise BadRequestException(None, "NO_MESSAGE", text)
        self.send_batch(context or correlation_id, (envelope,))

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
            that were not stored, or perhaps not; the others are stored.
        """
        known = to_context(context or correlation_id)
        try:
            given = tuple(envelopes)
        except TypeError as error:
            text = (
                f"send_batch of queue {self.get_name()}: expected a sequence of envelopes, got "
                f"{type(envelopes).__name__}"
            )
            refused = BadRequestException(trace_id_of(known), "INVALID_MESSAGE", text)
            raise with_cause(refused, error) from error
        sender = self.__sender
        if sender is None or not self.is_open():
            raise self.__not_opened(known)
        if self._connection is None:
            raise self.__no_connection(known)
        sender.send(known, given)

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

    # -- hooks of the receiving side

    def _subscribe(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """Join the group unless already joined. For subclasses."""
        with self.__lock:
            self._check_open(to_context(context or correlation_id))
            if self.__receiving().session is None and self.__active is not None:
                # The receiver commits, so librdkafka does not.
                options = {"enable.auto.commit": False}
                self.__active.subscribe(self._get_topic(), self._group_id, options, self)
        self._subscribed = True

    def __receiving(self) -> Receiver:
        """The current Receiver; a new one if there is none or its session has ended."""
        with self.__lock:
            self._check_open()
            assert self.__active is not None
            receiver = self.__receiver
            if receiver is None or receiver.local.is_closed():
                first, longest = self.__backoff_ms
                settings = Settings(
                    self._auto_commit,
                    self._from_beginning,
                    self.__max_pending,
                    self.__max_attempts,
                    Backoff(first / 1000, longest / 1000),
                )
                letters = self.__dead_letter_topic or f"{self._get_topic()}.dlq"
                receiver = self.__receiver = Receiver(
                    settings,
                    self.__ends,
                    self.__read_each if self.__overrides("_to_message") else self.__codec.decode,
                    self.on_message if self.__overrides("on_message") else None,
                    DeadLetters(self.__active, letters),
                    self.__measures,
                )
            return receiver

    def _session_handler(self, subscription: KafkaSubscription) -> Handler:
        """The handler of a new session. Called by the connection."""
        receiver = self.__receiving()
        if receiver.session is not None:
            text = f"Queue {self.get_name()} is subscribed already, to {receiver.session.topic}"
            raise InvalidStateException(None, "SUBSCRIBED", text)
        return receiver

    def __overrides(self, hook: str) -> bool:
        """Whether a subclass, or the instance itself, overrides a hook for single messages."""
        method = getattr(self, hook)
        return getattr(method, "__func__", method) is not KafkaMessageQueue.__dict__[hook]

    def _to_message(self, msg: Message | bytes | None) -> MessageEnvelope | None:
        """Make the envelope of a record, or of a record's value alone. For subclasses."""
        if msg is None:
            return None
        return self.__codec.to_envelope(msg if isinstance(msg, Message) else Message(value=msg))

    def __envelope(self, message: Message) -> MessageEnvelope:
        envelope = self._to_message(message)
        if envelope is None:
            raise EnvelopeError("_to_message returned None", message)
        if not isinstance(envelope.get_reference(), Message):  # complete() needs the record
            envelope.set_reference(message)
        return envelope

    def __read_each(self, batch: MessageBatch) -> list[Any]:
        """Make a batch's envelopes with the subclass's _to_message()."""
        envelopes: list[Any] = []
        for message in batch:
            try:
                envelopes.append(self.__envelope(message))
            except BaseException as error:  # raised by the subclass: the message is unreadable
                envelopes.append(EnvelopeError(described(error), message))
        return envelopes

    def on_message(
        self,
        topic: str,
        partition: int,
        message: Message | None = None,
        *,
        msg: Message | None = None,
    ) -> None:
        """Put a record into the local queue. The queue calls this only if a subclass overrides it.

        An overriding method may handle a record itself, without the local queue. With autocommit
        such a record is finished when the method returns; otherwise the application completes it.
        If the method raises, the queue logs and counts the exception. The record then becomes a
        dead letter; with ``options.max_attempts`` 0 the queue skips it.

        Parameters
        ----------
        topic : str
        partition : int
        message : cykafka.Message
            Also accepted as ``msg``.
        """
        given = message if message is not None else msg
        if given is None:
            raise BadRequestException(None, "NO_MESSAGE", "on_message: message is missing")
        offset = given.offset()
        if offset is None:
            raise BadRequestException(
                None, "NO_REFERENCE", "on_message: the message has no offset"
            )
        self.__receiving().put(partition, offset, self.__envelope(given))

    @property
    def _messages(self) -> list[MessageEnvelope]:
        """The messages in the local queue. For subclasses, which may append to the list."""
        receiver = self.__receiver
        peeked = receiver.local.peek(1 << 40) if receiver is not None else ()
        return Messages(peeked, lambda *message: self.__receiving().put(*message))

    @_messages.setter
    def _messages(self, messages: list[MessageEnvelope]) -> None:
        if messages:
            raise AttributeError("_messages: only an empty list can be set; it clears the queue")
        self.clear(None)

    @property
    def _read_rartitions(self) -> int:
        """``_read_partitions``, as the documentation of pip-services spells it."""
        return self._read_partitions

    @_read_rartitions.setter
    def _read_rartitions(self, count: int) -> None:
        self._read_partitions = count

    # -- receiving

    def __joined(self, context: AnyContext) -> Receiver:
        """The current Receiver, subscribed on first use."""
        self._check_open(to_context(context))
        receiver = self.__receiver
        if receiver is None or receiver.session is None:
            with self.__lock:  # several threads subscribe once
                receiver = self.__receiving()
                if receiver.session is None:
                    self._subscribe(context)
                    receiver = self.__receiving()
        return receiver

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
        ApplicationException
            InvalidStateException NOT_OPENED; BadRequestException INVALID_TIMEOUT.
        """
        wait = wait_timeout if wait_timeout is not None else waitTimeout
        if wait is None and isinstance(context, (int, float)) and not isinstance(context, bool):
            context, wait = None, context
        if wait is None:
            wait = _WAIT_MS
        elif not isinstance(wait, (int, float)) or wait != wait:
            given = wait if isinstance(wait, float) else type(wait).__name__
            text = f"receive: wait_timeout: expected a number of ms, got {given}"
            raise BadRequestException(None, "INVALID_TIMEOUT", text)
        envelope: MessageEnvelope | None
        envelope = self.__joined(context or correlation_id).local.take(wait / 1000)
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
        """Return the next messages without taking them. The first is the one of :meth:`receive`.

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
        return self.__joined(context or correlation_id).local.peek(max(0, int(count)))

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
        return self.__joined(None).count()

    def clear(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """Drop the messages in the local queue as finished. Messages not fetched yet still come.

        Parameters
        ----------
        context : IContext or str, optional
        """
        known = to_context(context or correlation_id)
        if self._opened:  # tells a forked child
            self._check_open(known)
        receiver = self.__receiver
        if receiver is not None:
            receiver.clear()

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
        messages. The message comes again after ``options.retry_backoff``, until
        ``options.max_attempts`` makes it a dead letter. SystemExit, KeyboardInterrupt
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
        known = to_context(context or correlation_id)
        note = threading.Timer(_BLOCKS_S, self.__log_that_it_blocks, (known,))
        note.daemon = True
        note.start()
        listener = None
        try:
            listener = self.__begin(known, receiver)
            listener.run(max(1, self._read_partitions))
        finally:
            note.cancel()
            if listener is not None:
                listener.end()

    def __log_that_it_blocks(self, context: IContext | None) -> None:
        text = (
            f"Queue {self.get_name()}: listen() blocks its thread until end_listen() or close(); "
            "begin_listen() returns at once"
        )
        self.__log.write(logging.INFO, text, None, context)

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
        if not self.__overrides("listen"):
            self.__begin(known, receiver, aside=True).start(max(1, self._read_partitions))
            return
        name = f"kafka-listener-{self.get_name()}"
        arguments = known, receiver
        threading.Thread(
            target=self.__listen_aside, args=arguments, name=name, daemon=True
        ).start()

    def __listen_aside(self, context: IContext | None, receiver: IMessageReceiver | None) -> None:
        """Run a subclass's listen()."""
        try:
            self.listen(context, receiver)
        except BaseException as error:  # the thread has no caller
            self.__log_end(context, error)

    def __log_end(self, context: IContext | None, error: BaseException) -> None:
        text = f"Queue {self.get_name()} stopped listening: {type(error).__name__}: {error}"
        self.__log.error(text, error, context)

    def __begin(
        self, context: IContext | None, receiver: IMessageReceiver | None, aside: bool = False
    ) -> Listener:
        if not callable(getattr(receiver, "receive_message", None)):
            text = f"listen: {receiver!r} has no receive_message(message, queue)"
            raise BadRequestException(None, "NO_RECEIVER", text)

        def ended(listener: Listener) -> None:
            if aside and listener.raised is not None:  # its threads have no caller
                self.__log_end(context, listener.raised)
            with self.__lock:
                if listener in self.__listeners:
                    self.__listeners.remove(listener)
                if not self.__listeners:
                    self._receiver = None

        joined = self.__joined(context)
        listener = Listener(joined.local, self, receiver, joined.receiver_failed, ended)
        with self.__lock:
            self.__listeners.append(listener)
            self._receiver = receiver
        self.__log.debug("Started listening messages at %s", self.get_name(), context=context)
        return listener

    def end_listen(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """End :meth:`listen`, and wait for running receivers. Inside a receiver it does not wait.

        It waits up to ``request_timeout``. The other messages stay in the local queue.

        Parameters
        ----------
        context : IContext or str, optional
        """
        known = to_context(context or correlation_id)
        if self._opened:  # tells a forked child
            self._check_open(known)
        with self.__lock:
            listeners = tuple(self.__listeners)
        for listener in listeners:
            listener.stop()
        # Two receivers that waited for each other would never return.
        if self.__active is not None and not any(each.is_mine() for each in listeners):
            self.__await(listeners, self.__active)

    endListen = end_listen  # the spelling in the documentation of pip-services

    # -- outcomes

    def complete(
        self,
        context: Any = None,
        message: MessageEnvelope | None = None,
        *,
        envelop: MessageEnvelope | None = None,
        correlation_id: AnyContext = None,
    ) -> None:
        """Mark a message as finished, so that it does not come again.

        Without autocommit this commits the partition's first unfinished offset, if it has moved or
        the group has no offset yet, and waits for the commit. Does nothing if another member owns
        the partition now.

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
        receiver, _, record = self.__received(
            "complete", context or correlation_id, message or envelop
        )
        if receiver is not None and record is not None:
            receiver.complete(record)

    def abandon(
        self,
        context: Any = None,
        message: MessageEnvelope | None = None,
        *,
        envelop: MessageEnvelope | None = None,
        correlation_id: AnyContext = None,
    ) -> None:
        """Return a message to this queue, which hands it over again after a delay.

        The delay is ``options.retry_backoff``, and twice as long after each further attempt.
        Later messages do not come again. Until the message is finished, the queue commits no
        offset after it, with autocommit too. The last of ``options.max_attempts`` makes it a dead
        letter; if that cannot be sent, the queue logs it and tries again.

        Parameters
        ----------
        context : IContext or str, optional
            May be omitted: ``abandon(message)``.
        message : MessageEnvelope
            A received message. Also accepted as ``envelop``.

        Raises
        ------
        InvalidStateException
            NOT_OPENED.
        """
        receiver, envelope, record = self.__received(
            "abandon", context or correlation_id, message or envelop
        )
        if receiver is not None and record is not None:
            receiver.abandon(record, envelope)

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
        ``dlq_partition``, ``dlq_offset``, ``dlq_error`` and ``dlq_attempts``. It may be sent twice
        if the process dies before the message is completed.

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
        receiver, _, record = self.__received(
            "move_to_dead_letter", context or correlation_id, message or envelop
        )
        if receiver is None or record is None:
            raise BadRequestException(
                None,
                "NO_REFERENCE",
                f"move_to_dead_letter: queue {self.get_name()} did not receive this message",
            )
        receiver.move_to_dead_letter(record)

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
    ) -> tuple[Receiver | None, MessageEnvelope, Message | None]:
        envelope = context if message is None else message
        receiver = self.__receiver
        if receiver is None or self._opened:  # receivers may finish messages during close()
            self._check_open(None if message is None else to_context(context))
        if not isinstance(envelope, MessageEnvelope):
            text = f"{call}: expected a MessageEnvelope, got {type(envelope).__name__}"
            raise BadRequestException(None, "NO_MESSAGE", text)
        reference = envelope.get_reference()
        return receiver, envelope, reference if isinstance(reference, Message) else None


def _says_why(error: Exception) -> bool:
    """Whether open() raises the error unchanged."""
    if isinstance(error, ConnectionException):
        return bool(error.code == "CONNECT_FAILED")
    return isinstance(error, ConfigException)


def _name_in(config: ConfigParams, given: str | None) -> str | None:
    """The name: the key ``name``, ``id`` or ``topic``, else `given`, else the descriptor's name.

    The descriptor comes last, because a factory's queues get the factory's configuration.
    """
    for key in ("name", "id", "topic"):
        name: str | None = config.get_as_nullable_string(key)
        if name:
            return name
    if given:
        return given
    descriptor = Descriptor.from_string(config.get_as_nullable_string("descriptor"))
    name = descriptor.get_name() if descriptor is not None else None
    return None if name == "*" else name
