"""The configuration of a queue, and how it is opened and closed."""

from __future__ import annotations

import threading

from pip_services4_commons.errors import (
    ApplicationException,
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
from pip_services4_components.run import IOpenable
from pip_services4_messaging.queues import (
    IMessageReceiver,
    MessageQueue,
    MessagingCapabilities,
)

from cykafka import MessageBatch
from cykafka.internal import EnvelopeCodec

from .._closing import Closing
from .._context import AnyContext, to_context, trace_id_of
from .._errors import misconfigured, not_opened, with_cause
from ..connect._settings import acks_of, keys_for_shared
from ..connect.KafkaConnection import KafkaConnection
from ..connect.KafkaSubscription import KafkaSubscription
from ._beginning import begin_at_the_end, ensure_topic
from ._inbox import Inbox
from ._measures import Measures
from ._options import MOST_WORKERS, Options, name_in
from .KafkaMessageEnvelope import KafkaMessageEnvelope

_SHARED_CONNECTION = Descriptor("*", "connection", "kafka", "*", "1.0")
DEFAULT_GROUP = "default"


class QueueLife(MessageQueue, IUnreferenceable, IOpenable):
    """What a KafkaMessageQueue is before it sends or receives anything."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(
            name, MessagingCapabilities(True, True, True, True, True, False, True, True, True)
        )
        # CompositeCounters has one list for all instances.
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

        self._extra = Options()
        self._codec = EnvelopeCodec(KafkaMessageEnvelope)
        self._measures = Measures(self.get_name, self._counters, self._logger)
        self._inbox = Inbox(self, self._measures)
        # Guards opening; held neither while receivers run nor while threads are joined.
        self.__lock = threading.RLock()
        self._active: KafkaConnection | None = None  # the connection since open()
        self.__closing = Closing()
        self.__idle: list[str] = []  # warnings of keys that have no effect on a shared connection

    # -- configuration

    def configure(self, config: ConfigParams) -> None:
        """Take the configuration; what it does not mention stays as it is.

        Parameters
        ----------
        config : ConfigParams

        Raises
        ------
        ConfigException
            INVALID_ACKS; INVALID_ENVELOPE: ``options.envelope`` is neither headers nor json.
        """
        self._config = config
        self._dependency_resolver.configure(config)
        self._topic = config.get_as_string_with_default("topic", self._topic)
        self._group_id = config.get_as_string_with_default("group_id", self._group_id)
        self._from_beginning = config.get_as_boolean_with_default(
            "from_beginning", self._from_beginning
        )
        self._extra.warnings.clear()
        self._read_partitions = self._extra.number(
            config, "read_partitions", self._read_partitions, 1, MOST_WORKERS
        )
        self._auto_commit = config.get_as_boolean_with_default("autocommit", self._auto_commit)
        options = config.get_section("options")
        self._auto_subscribe = options.get_as_boolean_with_default(
            "autosubscribe", self._auto_subscribe
        )
        self._acks = acks_of(options.get_as_nullable_string("acks"), self._acks)
        self._extra.configure(config)
        self._codec = EnvelopeCodec(
            KafkaMessageEnvelope, self._extra.envelope, traceparent=self._extra.traceparent
        )
        self._name = name_in(config, self._name)
        with self.__lock:
            if self._local_connection and self._active is None:  # made by an earlier configuration
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
            self._measures.set_references(references)
            self._counters._counters = []
            self._counters.set_references(references)
        self._dependency_resolver.set_references(references)
        with self.__lock:
            self._connection = self._active or self.__find_connection()

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
                self.__idle = keys_for_shared(config)
                return shared
        self.__idle = []
        connection = KafkaConnection()
        connection.configure(config)
        if self._references is not None:
            connection.set_references(self._references)
        self._local_connection = True
        return connection

    def unset_references(self) -> None:
        """Let go of the connection; an open queue is still to be closed."""
        self._connection = None

    # -- life

    def is_open(self) -> bool:
        """Whether the queue is open.

        Returns
        -------
        bool
        """
        return self._opened

    def open(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """Connect, and create the topic if it is missing. Opening again does nothing.

        Parameters
        ----------
        context : IContext or str, optional

        Raises
        ------
        ConnectionException
            CONNECT_FAILED, with its cause; nothing stays open.
        ConfigException
            The connection is not configured rightly; NO_TOPIC: the queue has neither topic nor
            name.
        InvalidStateException
            NOT_OPENED: this thread is closing it at this moment, as when a signal handler calls.

        Notes
        -----
        Called while another thread closes the queue, it waits for that first.
        """
        known = to_context(context or correlation_id)
        while not self.__open(known):
            if self.__closing.is_mine():
                raise not_opened(self.get_name(), known)
            self.__closing.wait()

    def __open(self, known: IContext | None) -> bool:
        """Open the queue, unless it is being closed."""
        with self.__lock:
            if self._opened:
                return True
            if self.__closing:
                return False
            connection = self._connection
            if connection is None:
                connection = self._connection = self.__find_connection()
            try:
                if self._local_connection:
                    connection.open(known)
                self.__prepare(known, connection)
            except BaseException as error:
                self.__close_down(known, connection)
                if not isinstance(error, Exception) or _says_why(error):
                    raise
                raise _not_opened(known, error) from error
            return True

    def __prepare(self, context: IContext | None, connection: KafkaConnection) -> None:
        if not connection.is_open():
            raise ConnectionException(
                trace_id_of(context),
                "CONNECT_FAILED",
                "the shared connection to Kafka is not open: open it before its queues; in a "
                "container's configuration it stands before them",
            )
        for warning in (*self._extra.warnings, *self.__idle):
            self._measures.warn(context, f"Queue {self.get_name()}: {warning}")
        topic = self._get_topic()
        ensure_topic(connection, topic)
        if not self._from_beginning:
            refused = begin_at_the_end(connection, topic, self._group_id or DEFAULT_GROUP)
            if refused is not None:
                text = f"group {self._group_id} may begin at the beginning: {refused.str()}"
                self._measures.warn(context, f"Queue {self.get_name()}: {text}")
        self._inbox.open(connection, self._extra.dead_letter_topic or f"{topic}.dlq")
        self._active = connection
        self._opened = True
        if self._auto_subscribe:
            self._subscribe(context)

    def close(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        """End listening and receiving, and commit what is finished. Closing again does nothing.

        Waits for receivers at work, up to ``request_timeout``, unless one of them calls it.

        Parameters
        ----------
        context : IContext or str, optional

        Raises
        ------
        InvalidStateException
            NO_CONNECTION: its references were unset before; the queue is closed all the same.
        """
        known = to_context(context or correlation_id)
        with self.__lock:
            if not self._opened:
                return
            self._opened = False
            self.__closing.begin()
            connection, missing = self._active, self._connection is None
            self._active = None
        try:
            self.__close_down(known, connection)
        finally:
            self.__closing.end()
        if missing:
            raise InvalidStateException(
                trace_id_of(known), "NO_CONNECTION", "Kafka connection is missing"
            )

    def __close_down(self, context: IContext | None, connection: KafkaConnection | None) -> None:
        """Undo what open() and later calls did, as far as it was done."""
        self._opened = self._subscribed = False
        self._active = None
        try:
            self._inbox.close()
        finally:
            if connection is not None and self._local_connection:
                connection.close(context)

    def _open_connection(self) -> KafkaConnection:
        connection = self._connection
        if connection is None:
            raise InvalidStateException(None, "NO_CONNECTION", "Kafka connection is missing")
        return connection

    # -- for the class that sends and receives

    def _check_open(self, context: IContext | None) -> None:
        if not self.is_open():
            raise not_opened(self.get_name(), context)

    def _get_topic(self) -> str:
        if not self._topic and not self._name:
            told = "the queue has neither a topic nor a name: set topic"
            raise misconfigured("NO_TOPIC", told, keys=["topic", "name"])
        return self._topic or str(self._name)

    def _subscribe(self, context: AnyContext = None, *, correlation_id: AnyContext = None) -> None:
        raise NotImplementedError

    # -- the connection calls these, in its reader's thread

    def _on_batch(self, subscription: KafkaSubscription, batch: MessageBatch) -> None:
        consuming = self._inbox.of(subscription)
        if consuming is not None:
            consuming.batch(subscription, batch)

    def _on_poll(self, subscription: KafkaSubscription) -> None:
        consuming = self._inbox.of(subscription)
        if consuming is not None:
            consuming.poll(subscription)

    def _on_assigned(self, subscription: KafkaSubscription, partitions: list[int]) -> None:
        self._inbox.begun(subscription)
        consuming = self._inbox.of(subscription)
        if consuming is not None:
            consuming.assigned(subscription, partitions)

    def _on_revoked(self, subscription: KafkaSubscription, partitions: list[int]) -> None:
        consuming = self._inbox.of(subscription)
        if consuming is not None:
            consuming.revoked(subscription, partitions)

    def _on_lost(self, subscription: KafkaSubscription, partitions: list[int]) -> None:
        consuming = self._inbox.of(subscription)
        if consuming is not None:
            consuming.lost(subscription, partitions)

    def _on_seek(self, subscription: KafkaSubscription, partition: int, offset: int) -> None:
        consuming = self._inbox.of(subscription)
        if consuming is not None:
            consuming.seek(subscription, partition)

    def _on_error(self, subscription: KafkaSubscription, error: object) -> None:
        self._measures.error()

    def _on_closed(self, subscription: KafkaSubscription) -> None:
        if self._inbox.ended(subscription):
            self._subscribed = False  # somebody else closed the connection


def _says_why(error: Exception) -> bool:
    """Whether open() may raise it as it is."""
    if isinstance(error, ConnectionException):
        return bool(error.code == "CONNECT_FAILED")
    return isinstance(error, ConfigException)


def _not_opened(context: IContext | None, error: Exception) -> ApplicationException:
    exception = ConnectionException(
        trace_id_of(context), "CONNECT_FAILED", f"the queue could not be opened: {error}"
    )
    return with_cause(exception, error)


def is_overridden(queue: object, owner: type, name: str) -> bool:
    """Whether a subclass of `owner`, or the object itself, has a method of its own."""
    method = getattr(queue, name)
    return getattr(method, "__func__", method) is not owner.__dict__[name]
