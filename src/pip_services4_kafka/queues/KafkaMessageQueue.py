"""A message queue on a Kafka topic."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
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
from .._context import AnyContext, get_trace_id, to_context
from .._errors import config_error, describe, set_cause
from .._log import Log
from ..connect._session import Handler
from ..connect._settings import DEFAULT_GROUP, find_idle_keys, parse_acks, read_flag, read_number
from ..connect.IKafkaMessageListener import IKafkaMessageListener
from ..connect.KafkaConnection import KafkaConnection
from ..connect.KafkaSubscription import KafkaSubscription
from ._listener import Listener
from ._local_queue import Backoff, WaitingMessages
from ._measures import Measures
from ._receiver import DeadLetters, Receiver, ReceiverSettings
from .KafkaMessageEnvelope import KafkaMessageEnvelope

_WAIT_MS = 10_000
_SHARED_CONNECTION = Descriptor("*", "connection", "kafka", "*", "1.0")
# listen() uses one thread per partition that it handles at a time.
_MOST_WORKERS = 1000

_Send = Callable[[IContext | None, Sequence[MessageEnvelope]], None]


class KafkaMessageQueue(
    MessageQueue, IKafkaMessageListener, IUnreferenceable, IOpenable, ICleanable
):
    """Sends messages to a Kafka topic and receives them as a member of a consumer group.
    Thread-safe.

    Configuration parameters (times in ms). A queue with its own connection also accepts the
    parameters of :class:`KafkaConnection`:

    - ``topic``: the topic (default: the queue's ``name``). Without ``name``, the topic also
      becomes the queue's name
    - ``group_id``: the consumer group (default: ``default``)
    - ``from_beginning``: where a group without committed offsets starts. True: at the first
      message in the topic. False: at the end that the topic had at ``open`` (default: false)
    - ``read_partitions``: how many partitions ``listen`` handles at a time (default: 1)
    - ``autocommit``: true: a message is finished when ``receive`` returns it or ``listen``'s
      receiver returns; false: when you call ``complete`` (default: true)
    - ``options.autosubscribe``: join the group at ``open``, not at first use (default: false)
    - ``options.acks``: how many brokers must store a message: -1 (all), 0 or 1 (default: -1)
    - ``options.max_pending``: the most buffered or unfinished messages per partition (default:
      10000)
    - ``options.max_attempts``: after this number of failed attempts, a message becomes a dead
      letter; 0: never (default: 10)
    - ``options.retry_backoff``, ``options.retry_backoff_max``: how long the queue waits before it
      redelivers a message that was abandoned or whose receiver raised. The wait doubles from the
      first value to the second (default: 200, 10000)
    - ``options.dead_letter_topic``: the topic for dead letters (default: ``<topic>.dlq``)

    References: ``*:logger:*:*:1.0``, ``*:counters:*:*:1.0``, ``*:discovery:*:*:1.0``,
    ``*:credential-store:*:*:1.0``, ``*:connection:kafka:*:1.0``, all optional. The queue uses the
    referenced connection, unless its configuration contains ``connection(s)``.
    ``dependencies.connection`` selects a specific connection.

    Counters: ``queue.<name>.sent_messages``, ``.received_messages``, ``.failed_messages``,
    ``.dead_letter_messages``; gauges ``queue.<name>.lag`` (messages behind the committed offsets),
    ``.in_flight``, ``.errors``, ``.oldest_unfinished_age`` (s) and ``.oldest_unfinished_offset``.

    Every context argument also accepts a trace id (str) or None, and the keyword
    ``correlation_id``.

    Parameters
    ----------
    name : str, optional
    """

    def __init__(self, name: str | None = None) -> None:
        super().__init__(
            name, MessagingCapabilities(True, True, True, True, True, False, True, True, True)
        )
        # All CompositeCounters would share one list.
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

        self._max_pending, self._max_attempts = 10_000, 10
        self._retry_backoff = (200, 10_000)
        self._dead_letter_topic = ""
        self._warnings: list[str] = []  # about the configuration; open() logs them
        self._log = Log()
        self._measures = Measures(self.get_name, self._counters, self._log)
        self._codec = EnvelopeCodec(KafkaMessageEnvelope)
        # Protects the next fields. Held while a consumer is created, but never while receivers run
        # or threads are joined. A signal handler may close the queue in the thread that holds it.
        self._state_lock = threading.RLock()
        self._process = os.getpid()
        self._closing = Closing()
        self._active: KafkaConnection | None = None  # between open() and close()
        self._sender: _Send | None = None
        self._session_receiver: Receiver | None = None  # even while close() waits
        self._listeners: list[Listener] = []
        self._ends_at_open: dict[int, int] = {}  # the topic's end offsets

    def __repr__(self) -> str:
        state = "open" if self.is_open() else "closed"
        group = self._group_id or DEFAULT_GROUP
        return (
            f"<{type(self).__name__} {self._name!r} topic={self._topic or self._name!r} "
            f"group={group!r} {state}>"
        )

    # -- configuration

    def configure(self, config: ConfigParams) -> None:
        """Apply a configuration. Options missing from `config` keep their values.

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
        warnings = self._warnings = []
        number = partial(read_number, config, warnings=warnings)
        flag = partial(read_flag, config, warnings=warnings)
        self._topic = config.get_as_string_with_default("topic", self._topic)
        self._group_id = config.get_as_string_with_default("group_id", self._group_id)
        self._from_beginning = flag("from_beginning", self._from_beginning)
        self._read_partitions = number("read_partitions", self._read_partitions, 1, _MOST_WORKERS)
        self._auto_commit = flag("autocommit", self._auto_commit)
        self._auto_subscribe = flag("options.autosubscribe", self._auto_subscribe)
        self._acks = parse_acks(config.get_as_nullable_string("options.acks"), self._acks)
        self._max_pending = number("options.max_pending", self._max_pending, 1)
        self._max_attempts = number("options.max_attempts", self._max_attempts, 0)
        first, longest = self._retry_backoff
        self._retry_backoff = (
            number("options.retry_backoff", first, 0),
            number("options.retry_backoff_max", longest, 0),
        )
        self._dead_letter_topic = config.get_as_string_with_default(
            "options.dead_letter_topic", self._dead_letter_topic
        )
        self._name = _choose_name(config, self._name)
        with self._state_lock:
            if self._local_connection and self._active is None:  # it uses an earlier configuration
                self._connection = None

    def set_references(self, references: IReferences) -> None:
        """Get the loggers, the counters and a shared connection from `references`.

        Parameters
        ----------
        references : IReferences
        """
        if references is not self._references:
            self._references = references
            self._logger.set_references(references)
            self._log.set_references(references)
            self._counters._counters = []
            self._counters.set_references(references)
        self._dependency_resolver.set_references(references)
        with self._state_lock:
            self._connection = self._active or self._find_connection()

    def _find_connection(self) -> KafkaConnection:
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
        # So the connection's warnings name the queue.
        connection.configure(
            config.override(ConfigParams.from_tuples("name", str(self._measures)))
        )
        if self._references is not None:
            connection.set_references(self._references)
        self._local_connection = True
        return connection

    def unset_references(self) -> None:
        """Drop the reference to the connection. If the queue is open, call :meth:`close` next."""
        self._connection = None

    def _get_topic(self) -> str:
        """Return the topic. Subclasses may override this."""
        if not self._topic and not self._name:
            text = "the queue has neither a topic nor a name: set topic"
            raise config_error("NO_TOPIC", text, keys=["topic", "name"])
        return self._topic or str(self._name)

    # -- opening and closing

    def is_open(self) -> bool:
        """Return whether the queue is open. False in a forked child of the opening process.

        Returns
        -------
        bool
        """
        return self._opened and self._process == os.getpid()

    def _check_open(self, context: IContext | None = None) -> None:
        if not self.is_open():
            raise self._not_opened(context)

    def _not_opened(self, context: IContext | None) -> InvalidStateException:
        text = f"Queue {self.get_name()} is not opened: call open() first"
        if self._opened:
            text = (
                f"Queue {self.get_name()} was opened before this process was forked: a child must "
                "open its own queue"
            )
        return InvalidStateException(get_trace_id(context), "NOT_OPENED", text)

    def _no_connection(self, context: IContext | None) -> InvalidStateException:
        text = f"queue {self.get_name()} has no connection: its references were unset"
        return InvalidStateException(get_trace_id(context), "NO_CONNECTION", text)

    def open(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """Connect, and create the topic if it is missing. Does nothing if the queue is open.

        If another thread is closing the queue, this first waits for that thread.

        Parameters
        ----------
        context : IContext or str, optional

        Raises
        ------
        ConnectionException
            CONNECT_FAILED, with its cause. The queue stays closed.
        ConfigException
            The connection's configuration is wrong; NO_TOPIC: the queue has neither a topic nor a
            name.
        InvalidStateException
            NOT_OPENED, in three cases. This thread runs close(), for example because a signal
            handler calls open(). Or close() waits for the receiver in this thread. Or this
            process is a forked child of the process that opened the queue.
        """
        known = to_context(context or correlation_id)
        while not self._open_unless_closing(known):
            if not self._closing.wait(any(listener.is_mine() for listener in self._listeners)):
                raise self._not_opened(known)

    def _open_unless_closing(self, known: IContext | None) -> bool:
        """Open the queue. Returns False if close() is running."""
        with self._state_lock:
            if self._opened:
                self._check_open(known)
                return True
            if self._closing:
                return False
            connection = self._connection = self._connection or self._find_connection()
            try:
                if self._local_connection:
                    connection.open(known)
                self._prepare(known, connection)
            except BaseException as error:
                self._close_down(known, connection)
                if not isinstance(error, Exception) or _explains_failure(error):
                    raise
                failure = ConnectionException(
                    get_trace_id(known), "CONNECT_FAILED", f"cannot open the queue: {error}"
                )
                raise set_cause(failure, error) from error
            return True

    def _prepare(self, context: IContext | None, connection: KafkaConnection) -> None:
        if not connection.is_open():
            raise ConnectionException(
                get_trace_id(context),
                "CONNECT_FAILED",
                f"queue {self.get_name()}: the shared connection to Kafka is not open: open it "
                "before its queues; in a container's configuration, put it before them",
            )
        idle = [] if self._local_connection else find_idle_keys(self._config or ConfigParams())
        for warning in (*self._warnings, *idle):
            self._log.warn(f"Queue {self.get_name()}: {warning}", context)
        topic = self._get_topic()
        if topic == self._dead_letter_topic:
            text = (
                f"options.dead_letter_topic: expected another topic than the queue's own, {topic}"
            )
            raise config_error("INVALID_TOPIC", text, keys=["options.dead_letter_topic"])
        connection.ensure_queue(topic)
        self._sender = self._make_sender(connection, topic)
        self._ends_at_open = {} if self._from_beginning else connection.read_ends(topic)
        self._active = connection
        self._process = os.getpid()
        self._opened = True
        if self._auto_subscribe:
            self._subscribe(context)

    def close(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """Stop listening and receiving, and commit finished messages. Idempotent.

        Waits up to ``request_timeout`` for running receivers, unless one of them is the caller.

        Parameters
        ----------
        context : IContext or str, optional

        Raises
        ------
        InvalidStateException
            NO_CONNECTION: ``unset_references()`` was called before. The queue still closes.
        """
        known = to_context(context or correlation_id)
        if self._opened and not self.is_open():
            # A forked child: the parent owns the threads and the connections. A thread that does
            # not exist here may hold the locks.
            self._opened = self._subscribed = False
            self._session_receiver = self._sender = self._active = self._connection = None
            self._state_lock, self._listeners = threading.RLock(), []
            return
        with self._state_lock:
            if not self._opened:
                return
            self._opened = False
            self._closing.begin()
            connection, missing = self._active, self._connection is None
        try:
            self._close_down(known, connection)
        finally:
            self._closing.end()
        if missing:
            raise self._no_connection(known)

    def _close_down(self, context: IContext | None, connection: KafkaConnection | None) -> None:
        """Undo open() and later calls. open() may have failed half-way."""
        self._opened = self._subscribed = False
        with self._state_lock:
            listeners, receiver = tuple(self._listeners), self._session_receiver
        if receiver is not None:
            # First: the local queue then treats new messages as not fetched.
            receiver.local.close()
        try:
            if connection is not None:
                self._wait_for(listeners, connection)
        finally:  # even after an interrupt: a running session would keep its partitions
            try:
                if connection is not None:
                    connection.unsubscribe_all(self)
            finally:
                self._session_receiver = self._sender = self._active = None
                self._listeners = [item for item in self._listeners if item.is_running()]
                if connection is not None and self._local_connection:
                    connection.close(context)

    def _wait_for(self, listeners: tuple[Listener, ...], connection: KafkaConnection) -> None:
        timeout = connection.get_request_timeout()
        deadline = time.monotonic() + timeout
        for listener in listeners:
            if not listener.wait(max(0, deadline - time.monotonic())):
                text = (
                    f"Queue {self.get_name()}: a receiver is still running after {timeout:g} s; "
                    "no longer waiting for it"
                )
                self._log.warn(text)

    # -- sending

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

        With ``acks`` 0, wait only until librdkafka has written the message to the socket.

        Parameters
        ----------
        context : IContext or str, optional
        envelop : MessageEnvelope
            Also accepted as ``message``.

        Raises
        ------
        ApplicationException
            InvalidStateException NOT_OPENED; BadRequestException: the message cannot be sent, or
            a subclass's ``_from_message`` did not return a dict; ConnectionException and others:
            the brokers did not store the message within ``request_timeout``, or the outcome is
            unknown, as the exception's text then says.
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
            that the brokers did not store, or may not have stored. The others are stored.
        """
        known = to_context(context or correlation_id)
        try:
            given = tuple(envelopes)
        except TypeError as error:
            text = (
                f"send_batch of queue {self.get_name()}: expected a sequence of envelopes, got "
                f"{type(envelopes).__name__}"
            )
            refused = BadRequestException(get_trace_id(known), "INVALID_MESSAGE", text)
            raise set_cause(refused, error) from error
        sender = self._sender
        if sender is None or not self.is_open():
            raise self._not_opened(known)
        if self._connection is None:
            raise self._no_connection(known)
        if given:
            sender(known, given)
            self._measures.count("sent_messages", len(given))
            self._measures.log_messages("Sent", given)

    def _make_sender(self, connection: KafkaConnection, topic: str) -> _Send:
        """The function that sends envelopes and waits until the brokers have stored them."""
        options = {"acks": self._acks}
        convert = self._from_message if self._overrides("_from_message") else None

        def send(context: IContext | None, envelopes: Sequence[MessageEnvelope]) -> None:
            if convert is None:
                connection.publish_envelopes(topic, self._codec, envelopes, options, context)
                return
            records = []
            for index, envelope in enumerate(envelopes):
                record = convert(envelope)
                if not isinstance(record, dict):
                    owner = type(getattr(convert, "__self__", convert)).__name__
                    text = (
                        f"{self._measures}, message {index}: {owner}._from_message returned "
                        f"{type(record).__name__}, expected a dict with value, key and headers"
                    )
                    raise BadRequestException(get_trace_id(context), "INVALID_MESSAGE", text)
                records.append(record)
            connection.publish(topic, records, options)

        return send

    def send_as_object(
        self,
        context: AnyContext = None,
        message_type: str | None = None,
        message: Any = None,
        *,
        correlation_id: AnyContext = None,
    ) -> None:
        """Send an object as JSON, bytes unchanged or a str as UTF-8.

        Parameters
        ----------
        context : IContext or str, optional
            The message gets this context's trace id.
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
        """Join the group unless the queue has joined it. For subclasses."""
        with self._state_lock:
            self._check_open(to_context(context or correlation_id))
            if self._ensure_session_receiver().session is None and self._active is not None:
                # The receiver commits, so librdkafka does not.
                options = {"enable.auto.commit": False}
                self._active.subscribe(self._get_topic(), self._group_id, options, self)
        self._subscribed = True

    def _ensure_session_receiver(self) -> Receiver:
        """The current Receiver. Creates one if there is none or its session has ended."""
        with self._state_lock:
            self._check_open()
            assert self._active is not None
            receiver = self._session_receiver
            if receiver is None or receiver.local.is_closed():
                first, longest = self._retry_backoff
                settings = ReceiverSettings(
                    self._auto_commit,
                    self._from_beginning,
                    self._max_pending,
                    self._max_attempts,
                    Backoff(first / 1000, longest / 1000),
                )
                letters = self._dead_letter_topic or f"{self._get_topic()}.dlq"
                receiver = self._session_receiver = Receiver(
                    settings,
                    self._ends_at_open,
                    self._read_batch if self._overrides("_to_message") else self._codec.decode,
                    self.on_message if self._overrides("on_message") else None,
                    DeadLetters(self._active, letters),
                    self._measures,
                )
            return receiver

    def _session_handler(self, subscription: KafkaSubscription) -> Handler:
        """The handler for a new session. The connection calls this."""
        receiver = self._ensure_session_receiver()
        if receiver.session is not None:
            text = f"Queue {self.get_name()} is already subscribed to {receiver.session.topic}"
            raise InvalidStateException(None, "SUBSCRIBED", text)
        return receiver

    def _overrides(self, hook: str) -> bool:
        """Whether a subclass, or the instance itself, overrides a hook."""
        method = getattr(self, hook)
        return getattr(method, "__func__", method) is not KafkaMessageQueue.__dict__[hook]

    def _to_message(self, msg: Message | bytes | None) -> MessageEnvelope | None:
        """Convert a record, or a record's value alone, to an envelope. For subclasses."""
        if msg is None:
            return None
        return self._codec.to_envelope(msg if isinstance(msg, Message) else Message(value=msg))

    def _make_envelope(self, message: Message) -> MessageEnvelope:
        envelope = self._to_message(message)
        if envelope is None:
            raise EnvelopeError("_to_message returned None", message)
        if not isinstance(envelope.get_reference(), Message):  # complete() needs the record
            envelope.set_reference(message)
        return envelope

    def _read_batch(self, batch: MessageBatch) -> list[Any]:
        """Convert a batch with the subclass's _to_message()."""
        envelopes: list[Any] = []
        for message in batch:
            try:
                envelopes.append(self._make_envelope(message))
            except BaseException as error:  # raised by the subclass
                envelopes.append(EnvelopeError(describe(error), message))
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
        If the method raises, the queue logs and counts the exception and sends a dead letter. With
        ``options.max_attempts`` 0 it skips the record instead.

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
        self._ensure_session_receiver().local.put(partition, offset, self._make_envelope(given))

    @property
    def _messages(self) -> list[MessageEnvelope]:
        """The messages in the local queue. Subclasses may append to the list."""
        receiver = self._session_receiver
        peeked = receiver.local.peek(1 << 40) if receiver is not None else ()
        return WaitingMessages(
            peeked, lambda *message: self._ensure_session_receiver().local.put(*message)
        )

    @_messages.setter
    def _messages(self, messages: list[MessageEnvelope]) -> None:
        if messages:
            raise AttributeError("_messages: only an empty list can be set; it clears the queue")
        self.clear(None)

    @property
    def _read_rartitions(self) -> int:
        """``_read_partitions``, as the pip-services documentation spells it."""
        return self._read_partitions

    @_read_rartitions.setter
    def _read_rartitions(self, count: int) -> None:
        self._read_partitions = count

    # -- receiving

    def _join(self, context: AnyContext) -> Receiver:
        """Subscribe on first use. Returns the current Receiver."""
        self._check_open(to_context(context))
        receiver = self._session_receiver
        if receiver is None or receiver.session is None:
            with self._state_lock:  # several threads subscribe once
                receiver = self._ensure_session_receiver()
                if receiver.session is None:
                    self._subscribe(context)
                    receiver = self._ensure_session_receiver()
        return receiver

    def receive(
        self,
        context: AnyContext | float = None,
        wait_timeout: float | None = None,
        *,
        waitTimeout: float | None = None,
        correlation_id: AnyContext = None,
    ) -> MessageEnvelope | None:
        """Take the next message. Waits if the local queue is empty.

        With autocommit this finishes the message. Otherwise call :meth:`complete` or
        :meth:`abandon`.

        Parameters
        ----------
        context : IContext or str, optional
            May be omitted: ``receive(250)`` waits 250 ms.
        wait_timeout : float, default 10000
            The longest wait in ms. Also accepted as ``waitTimeout``.

        Returns
        -------
        MessageEnvelope or None
            None: no message arrived in time, perhaps because no broker responds, or the queue was
            closed. The envelope's reference is the record, a cykafka.Message. Its ``sent_time`` is
            the record's timestamp, naive and local.

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
        envelope = self._join(context or correlation_id).local.take(wait / 1000)
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
        """Return the next messages without taking them. :meth:`receive` returns the first next.

        Joins the group if necessary; never waits.

        Parameters
        ----------
        context : IContext or str, optional
        message_count : int
            The most messages to return. Also accepted as ``messageCount``.

        Returns
        -------
        list of MessageEnvelope
            Messages in the local queue.

        Raises
        ------
        InvalidStateException
            NOT_OPENED.
        """
        count = message_count if message_count is not None else messageCount
        if count is None:
            raise BadRequestException(None, "NO_COUNT", "peek_batch: message_count is missing")
        return self._join(context or correlation_id).local.peek(max(0, int(count)))

    def read_message_count(self) -> int:
        """Return how many messages the queue still has to receive.

        For assigned partitions: the high watermarks minus the next offsets to receive. Before the
        first assignment: the high watermarks of all partitions minus the group's committed
        offsets. This includes offsets without a message (transaction markers, compacted records).

        Returns
        -------
        int

        Raises
        ------
        ApplicationException
            InvalidStateException NOT_OPENED; ConnectionException: the brokers do not respond.
        """
        return self._join(None).count()

    def clear(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """Finish and drop the messages in the local queue. Messages not fetched yet still arrive.

        Parameters
        ----------
        context : IContext or str, optional
        """
        known = to_context(context or correlation_id)
        if self._opened:  # tells a forked child
            self._check_open(known)
        receiver = self._session_receiver
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
        """Pass messages to a receiver until :meth:`close` or :meth:`end_listen` is called.

        The receiver runs in this thread. With ``read_partitions`` above 1 it also runs in other
        threads, one per partition that the queue handles at a time. Each partition's messages
        arrive in order, starting with the local queue.

        If the receiver raises, the queue logs and counts the exception and continues with other
        messages. It redelivers the message after ``options.retry_backoff``; after
        ``options.max_attempts`` the message becomes a dead letter. SystemExit, KeyboardInterrupt
        and other exceptions outside Exception end listening and propagate from here; the message
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
        listener = self._begin_listening(known, receiver)
        try:
            text = (
                f"Queue {self.get_name()}: listen() blocks its thread until end_listen() or "
                "close(); begin_listen() returns at once"
            )
            self._log.write(logging.INFO, text, None, known)
            listener.run(max(1, self._read_partitions))
        finally:
            listener.end()

    def begin_listen(
        self,
        context: AnyContext = None,
        receiver: IMessageReceiver | None = None,
        *,
        correlation_id: AnyContext = None,
    ) -> None:
        """Start :meth:`listen` in a new thread and return at once.

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
        if not self._overrides("listen"):
            self._begin_listening(known, receiver, aside=True).start(max(1, self._read_partitions))
            return
        name = f"kafka-listener-{self.get_name()}"
        arguments = known, receiver
        threading.Thread(target=self._run_listen, args=arguments, name=name, daemon=True).start()

    def _run_listen(self, context: IContext | None, receiver: IMessageReceiver | None) -> None:
        """Run a subclass's listen()."""
        try:
            self.listen(context, receiver)
        except BaseException as error:  # the thread has no caller
            self._log_end(context, error)

    def _log_end(self, context: IContext | None, error: BaseException) -> None:
        text = f"Queue {self.get_name()} stopped listening: {type(error).__name__}: {error}"
        self._log.error(text, error, context)

    def _begin_listening(
        self, context: IContext | None, receiver: IMessageReceiver | None, aside: bool = False
    ) -> Listener:
        if not callable(getattr(receiver, "receive_message", None)):
            text = f"listen: expected a receiver with receive_message(), got {receiver!r}"
            raise BadRequestException(None, "NO_RECEIVER", text)

        def ended(listener: Listener) -> None:
            if aside and listener.raised is not None:  # no caller gets the exception
                self._log_end(context, listener.raised)
            with self._state_lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)
                if not self._listeners:
                    self._receiver = None

        joined = self._join(context)
        listener = Listener(joined.local, self, receiver, joined.receiver_failed, ended)
        with self._state_lock:
            self._listeners.append(listener)
            self._receiver = receiver
        self._log.debug("Started listening messages at %s", self.get_name(), context=context)
        return listener

    def end_listen(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """End :meth:`listen` and wait up to ``request_timeout`` for running receivers.

        Inside a receiver this does not wait. Other messages stay in the local queue.

        Parameters
        ----------
        context : IContext or str, optional
        """
        known = to_context(context or correlation_id)
        if self._opened:  # tells a forked child
            self._check_open(known)
        with self._state_lock:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener.stop()
        # Otherwise two receivers could wait for each other forever.
        if self._active is not None and not any(item.is_mine() for item in listeners):
            self._wait_for(listeners, self._active)

    endListen = end_listen  # the spelling in the pip-services documentation

    # -- outcomes

    def complete(
        self,
        context: Any = None,
        message: MessageEnvelope | None = None,
        *,
        envelop: MessageEnvelope | None = None,
        correlation_id: AnyContext = None,
    ) -> None:
        """Finish a message, so that the queue never redelivers it.

        Without autocommit this commits the partition's first unfinished offset and waits. It skips
        the commit if that offset has not moved and the group already has a committed offset. Does
        nothing if another member now owns the partition.

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
        receiver, _, record = self._find_record(
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
        """Return a message to this queue, which redelivers it after a delay.

        The delay is ``options.retry_backoff`` and doubles with every attempt. The queue does not
        redeliver later messages. Even with autocommit, it commits no later offset until the
        message is finished. After ``options.max_attempts`` the message becomes a dead letter; if
        sending the dead letter fails, the queue logs the error and retries.

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
        receiver, envelope, record = self._find_record(
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
        ``dlq_partition``, ``dlq_offset``, ``dlq_error`` and ``dlq_attempts``. If the process dies
        before it completes the message, the queue may send the dead letter again.

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
            receive the message; ConnectionException and others: the dead letter was not sent, and
            the message is not completed.
        """
        receiver, _, record = self._find_record(
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
        """Do nothing, because Kafka does not lock messages.

        A receiver keeps a message as long as the queue owns the partition.

        Parameters
        ----------
        message : MessageEnvelope
        lock_timeout : int
            ms.
        """

    def _find_record(
        self, call: str, context: Any, message: MessageEnvelope | None
    ) -> tuple[Receiver | None, MessageEnvelope, Message | None]:
        envelope = context if message is None else message
        receiver = self._session_receiver
        if receiver is None or self._opened:  # receivers may finish messages during close()
            self._check_open(None if message is None else to_context(context))
        if not isinstance(envelope, MessageEnvelope):
            text = f"{call}: expected a MessageEnvelope, got {type(envelope).__name__}"
            raise BadRequestException(None, "NO_MESSAGE", text)
        reference = envelope.get_reference()
        return receiver, envelope, reference if isinstance(reference, Message) else None


def _explains_failure(error: Exception) -> bool:
    """Whether open() raises an error unchanged."""
    if isinstance(error, ConnectionException):
        return bool(error.code == "CONNECT_FAILED")
    return isinstance(error, ConfigException)


def _choose_name(config: ConfigParams, given: str | None) -> str | None:
    """Return the queue's name: ``name``, ``id`` or ``topic``, else `given`, else the descriptor's.

    The descriptor comes last, because a factory passes its own configuration to its queues.
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
