"""Configuration, opening and closing of a queue."""

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
    """The part of a KafkaMessageQueue that configures, opens and closes it."""

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

        self._extra = Options()
        self._codec = EnvelopeCodec(KafkaMessageEnvelope)
        self._measures = Measures(self.get_name, self._counters, self._logger)
        self._inbox = Inbox(self, self._measures)
        # Protects open(). Never held while receivers run or threads are joined.
        self.__lock = threading.RLock()
        self._active: KafkaConnection | None = None  # the connection since open()
        self.__closing = Closing()
        self.__idle: list[str] = []  # warnings of keys without effect on a shared connection

    # -- configuration

    def configure(self, config: ConfigParams) -> None:
        """Take the configuration. Options that it does not contain keep their values.

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
            if self._local_connection and self._active is None:  # has an earlier configuration
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
        """Drop the reference to the connection. An open queue must still be closed."""
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
            NOT_OPENED: the same thread runs close(), for example if a signal handler calls this.
        """
        known = to_context(context or correlation_id)
        while not self.__open(known):
            if self.__closing.is_mine():
                raise not_opened(self.get_name(), known)
            self.__closing.wait()

    def __open(self, known: IContext | None) -> bool:
        """Open the queue; False if close() is running."""
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
                f"queue {self.get_name()}: the shared connection to Kafka is not open: open it "
                "before its queues; in a container's configuration, put it before them",
            )
        for warning in (*self._extra.warnings, *self.__idle):
            self._measures.warn(context, f"Queue {self.get_name()}: {warning}")
        topic = self._get_topic()
        ensure_topic(connection, topic)
        if not self._from_beginning:
            refused = begin_at_the_end(connection, topic, self._group_id or DEFAULT_GROUP)
            if refused is not None:
                text = (
                    f"cannot commit the start of group {self._group_id}, which may start at the "
                    f"first message: {refused.str()}"
                )
                self._measures.warn(context, f"Queue {self.get_name()}: {text}")
        self._inbox.open(connection, self._extra.dead_letter_topic or f"{topic}.dlq")
        self._active = connection
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
                trace_id_of(known), "NO_CONNECTION", _missing_connection(self.get_name())
            )

    def __close_down(self, context: IContext | None, connection: KafkaConnection | None) -> None:
        """Undo open() and later calls; open() may have failed half-way."""
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
            told = _missing_connection(self.get_name())
            raise InvalidStateException(None, "NO_CONNECTION", told)
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

    # -- called by the connection, in its reader's thread

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
            self._subscribed = False  # another component closed the connection


def _missing_connection(name: str) -> str:
    return f"queue {name} has no connection: its references were unset"


def _says_why(error: Exception) -> bool:
    """Whether open() raises the error unchanged."""
    if isinstance(error, ConnectionException):
        return bool(error.code == "CONNECT_FAILED")
    return isinstance(error, ConfigException)


def _not_opened(context: IContext | None, error: Exception) -> ApplicationException:
    exception = ConnectionException(
        trace_id_of(context), "CONNECT_FAILED", f"cannot open the queue: {error}"
    )
    return with_cause(exception, error)


def is_overridden(queue: object, owner: type, name: str) -> bool:
    """Whether a subclass of `owner`, or the instance itself, overrides a method."""
    method = getattr(queue, name)
    return getattr(method, "__func__", method) is not owner.__dict__[name]
