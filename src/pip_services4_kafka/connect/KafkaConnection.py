"""A connection to Kafka that message queues can share."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pip_services4_commons.errors import (
    BadRequestException,
    InvalidStateException,
)
from pip_services4_components.config import ConfigParams, IConfigurable
from pip_services4_components.context import IContext
from pip_services4_components.refer import IReferenceable, IReferences
from pip_services4_components.run import IOpenable
from pip_services4_messaging.connect import IMessageQueueConnection
from pip_services4_messaging.queues import MessageEnvelope
from pip_services4_observability.log import CompositeLogger

from cykafka import Producer, TopicPartition
from cykafka.admin import AdminClient
from cykafka.internal import EnvelopeCodec

from .._closing import Closing
from .._context import AnyContext, get_trace_id, to_context
from .._errors import convert, deliver
from .._log import Log
from ._clients import Clients, not_open_error
from ._outage import Outage
from ._security import HiddenParams
from ._session import OneByOne, Session
from ._settings import DEFAULT_GROUP, ConnectionSettings, parse_acks
from ._topics import create_topic, delete_topic, ensure_topic, topic_ends, topic_names
from .IKafkaMessageListener import IKafkaMessageListener
from .KafkaConnectionResolver import KafkaConnectionResolver
from .KafkaSubscription import KafkaSubscription

_COLUMNS = {
    "value": "values",
    "key": "keys",
    "headers": "headers",
    "timestamp": "timestamps",
    "partition": "partitions",
}
_KEYS = frozenset(_COLUMNS)


def _alias(field: str) -> Any:
    return property(
        lambda self: getattr(self, field), lambda self, value: setattr(self, field, value)
    )


def _setting(name: str) -> Any:
    return property(
        lambda self: getattr(self._settings, name),
        lambda self, value: setattr(self._settings, name, value),
    )


class KafkaConnection(IMessageQueueConnection, IReferenceable, IConfigurable, IOpenable):
    """A connection to Kafka: it manages topics, sends messages and subscribes. Thread-safe.

    Configuration parameters (times in ms):

    - ``client_id``: the client's name in broker logs (default: the host name)
    - ``connection(s)``, ``credential(s)``: see :class:`KafkaConnectionResolver`
    - ``options.num_partitions``, ``options.replication_factor``: for new topics (default: 1)
    - ``options.readable_partitions``: partitions to read without group rebalances, separated by
      ``;`` or ``,`` (default: the partitions that the group assigns)
    - ``options.write_partition``: the partition to write to (default: depends on the key)
    - ``options.acks``: how many brokers must store a message: -1 (all), 0 or 1 (default: -1)
    - ``options.log_level``: the lines that librdkafka logs: 0 none, 1 error, 2 warn, 3 info,
      4 debug (default: 1)
    - ``options.connect_timeout``: how long ``open`` waits for the cluster (default: 1000)
    - ``options.max_retries``: how often librdkafka resends a message (default: 5)
    - ``options.retry_timeout``: the longest pause between attempts to reconnect (default: 30000)
    - ``options.request_timeout``: the time limit for sends, administrative requests and
      commits (default: 30000)
    - ``options.kafka.*``: any librdkafka property, such as ``options.kafka.compression.type``

    ``open`` logs one warning per unknown key. Unknown keys below ``options.kafka`` raise
    ConfigException.

    References, all optional: ``*:logger:*:*:1.0``, ``*:discovery:*:*:1.0`` and
    ``*:credential-store:*:*:1.0``.
    """

    def __init__(self) -> None:
        self._logger: CompositeLogger = CompositeLogger()
        self._connection_resolver: KafkaConnectionResolver = KafkaConnectionResolver()
        self._options: ConfigParams = ConfigParams()
        self._client_config: dict[str, Any] = {}
        self._producer: Producer | None = None
        self._admin_client: AdminClient | None = None
        self._connection: Producer | None = None
        self._subscriptions: list[KafkaSubscription] = []

        self._settings = ConnectionSettings()
        self._log = Log(self._settings.secrets.scrub)
        self._outage = Outage(self._log)
        self._clients: Clients | None = None
        self._process = os.getpid()
        # A signal handler may close the connection in the thread that holds the lock.
        self._state_lock = threading.RLock()
        self._closing = Closing()
        self._ending_sessions: list[Session] = []  # close() waits for them

    # The published package's fields. A subclass may set them before open().
    _client_id = _setting("client_id")
    _log_level = _setting("log_level")
    _connect_timeout = _setting("connect_timeout")
    _max_retries = _setting("max_retries")
    _retry_timeout = _setting("retry_timeout")
    _request_timeout = _setting("request_timeout")
    _num_partitions = _setting("num_partitions")
    _replication_factor = _setting("replication_factor")
    _readable_partitions = _setting("readable_partitions")
    _write_partition = _setting("write_partition")

    # The names in the pip-services documentation.
    _connectTimeout = _connect_timeout
    _connectionResolver = _alias("_connection_resolver")
    _maxRetries = _max_retries
    _adminClient = _alias("_admin_client")
    _clientConfig = _alias("_client_config")
    _clientId = _client_id
    _logLevel = _log_level
    _requestTimeout = _request_timeout
    _retryTimeout = _retry_timeout

    def __repr__(self) -> str:
        brokers = self._client_config.get("bootstrap.servers", "")
        state = "open" if self.is_open() else "closed"
        return f"<{type(self).__name__} client_id={self._client_id!r} brokers={brokers!r} {state}>"

    # -- life

    def configure(self, config: ConfigParams) -> None:
        """Apply a configuration. Options missing from `config` keep their values.

        Parameters
        ----------
        config : ConfigParams

        Raises
        ------
        ConfigException
            UNKNOWN_PROPERTY (the message names the key and the most similar known key),
            INVALID_PARTITION or INVALID_ACKS.
        """
        self._settings.configure(config)
        self._connection_resolver.configure(config)
        self._options = HiddenParams(self._options.override(config.get_section("options")))

    def set_references(self, references: IReferences) -> None:
        """Get loggers, discovery services and credential stores from `references`.

        Parameters
        ----------
        references : IReferences
        """
        self._logger.set_references(references)
        self._log.set_references(references)
        self._connection_resolver.set_references(references)

    def is_open(self) -> bool:
        """Return whether the connection is open. False in a forked child of the opening process.

        Returns
        -------
        bool
        """
        return self._connection is not None and self._process == os.getpid()

    def open(self, context: AnyContext = None) -> None:
        """Connect. Does nothing if the connection is open.

        If another thread is closing the connection, this first waits for that thread.

        Parameters
        ----------
        context : IContext or str, optional

        Raises
        ------
        ConnectionException
            CONNECT_FAILED: the cluster did not respond within ``connect_timeout``. The connection
            stays closed.
        ConfigException
            The configuration is wrong. The code is NO_PASSWORD, NO_TOKEN, UNKNOWN_MECHANISM,
            INVALID_PROPERTY or a code that :class:`KafkaConnectionResolver` raises.
        InvalidStateException
            NOT_OPEN: the caller runs inside close(), or is a listener that close() waits for.
        """
        known = to_context(context)
        while not self._open_unless_closing(known):
            if not self._closing.wait(any(session.is_mine() for session in self._ending_sessions)):
                text = (
                    "cannot open the Kafka connection inside its own close(), or in a listener "
                    "that close() waits for"
                )
                raise InvalidStateException(get_trace_id(known), "NOT_OPEN", text)

    def _open_unless_closing(self, known: IContext | None) -> bool:
        """Open the connection; False if close() is running."""
        with self._state_lock:
            if self._closing:
                return False
            if self._connection is not None:
                return True
            try:
                resolve = self._connection_resolver.resolve
                clients = Clients(self._settings, resolve, self._log, self._outage)
                clients.open(known)
            except Exception as failure:  # logged and raised
                self._logger.error(known, failure, "Failed to connect to Kafka")
                raise
            self._client_config = clients.producer_properties
            self._clients, self._process = clients, os.getpid()
            self._producer = self._connection = clients.producer(self._settings.acks)
        brokers = self._client_config["bootstrap.servers"]
        self._logger.debug(known, f"Connected to Kafka at {brokers}")
        return True

    def close(self, context: AnyContext = None) -> None:
        """Close the subscriptions, then send the remaining messages and close the producers.

        Parameters
        ----------
        context : IContext or str, optional

        Notes
        -----
        Waits for running listeners, unless one of them is the caller, and then for unsent
        messages. Both waits last at most ``request_timeout`` and log an error if they time out.
        A second close() does nothing. ``open`` opens a closed connection again.
        """
        known = to_context(context)
        if self._connection is not None and not self.is_open():
            # A forked child: the parent owns the clients, and may hold the lock.
            self._state_lock, self._clients = threading.RLock(), None
            self._connection = self._producer = self._admin_client = None
            self._subscriptions = []
            return
        with self._state_lock:
            if self._connection is None or self._closing:
                return
            self._closing.begin()
            ended = self._ending_sessions = self._take_sessions(lambda _: True)
        try:  # without the lock, because running listeners may call any method
            self._end_sessions(ended)
        finally:  # even if an exception, such as KeyboardInterrupt, ends the wait
            self._close_clients(known)
        self._logger.debug(known, "Disconnected from Kafka")

    def _close_clients(self, context: Any) -> None:
        with self._state_lock:
            clients, self._clients = self._clients, None
            self._connection = self._producer = self._admin_client = None
            self._ending_sessions = []
        try:
            if clients is not None and (lost := clients.close(self.get_request_timeout())):
                text = f"Closed the connection to Kafka with {lost} unsent messages"
                self._logger.error(context, None, text)
        finally:
            self._closing.end()

    def get_connection(self) -> Any:
        """Return the producer or None, like :meth:`get_producer`."""
        return self._connection

    def get_producer(self, acks: int | str | None = None) -> Any:
        """Return the producer for an ``acks`` value. The first call creates it.

        Parameters
        ----------
        acks : int or str, optional
            -1 (all), 0 or 1. Default: the configured value.

        Returns
        -------
        cykafka.Producer or None
            None if the connection is closed.

        Raises
        ------
        ConfigException
            INVALID_ACKS.
        """
        clients = self._clients
        if clients is None:
            return None
        return clients.producer(parse_acks(acks, self._settings.acks))

    getProducer = get_producer  # the spelling in the pip-services documentation

    def get_request_timeout(self) -> float:
        """``options.request_timeout`` in seconds."""
        return self._settings.request_timeout / 1e3

    def _check_open(self) -> None:
        self._open_clients()

    def _open_clients(self) -> Clients:
        clients = self._clients
        if clients is None:
            raise not_open_error()
        return clients

    # -- topics

    def _connect_to_admin(self) -> AdminClient:
        self._admin_client = self._open_clients().admin()
        return self._admin_client

    def read_queue_names(self) -> list[str]:
        """Return the names of all topics.

        Returns
        -------
        list of str

        Raises
        ------
        ApplicationException
            InvalidStateException NOT_OPEN; ConnectionException: the cluster did not respond within
            ``request_timeout``.
        """
        return topic_names(self._connect_to_admin(), self.get_request_timeout())

    def create_queue(self, name: str) -> None:
        """Create a topic with ``num_partitions`` and ``replication_factor``.

        Parameters
        ----------
        name : str

        Raises
        ------
        ApplicationException
            ConflictException TOPIC_ALREADY_EXISTS; BadRequestException: the brokers rejected the
            name or a setting; ConnectionException: no response within ``request_timeout``.
        """
        create_topic(self._connect_to_admin(), name, *self._topic_settings())

    def ensure_queue(self, name: str) -> None:
        """Create a topic unless it exists. Another client may create it at the same time.

        Parameters
        ----------
        name : str

        Raises
        ------
        ApplicationException
            See :meth:`create_queue`.
        """
        ensure_topic(self._connect_to_admin(), name, *self._topic_settings())

    def _topic_settings(self) -> tuple[int, int, float]:
        settings = self._settings
        timeout = self.get_request_timeout()
        return settings.num_partitions, settings.replication_factor, timeout

    def read_ends(self, topic: str) -> dict[int, int]:
        """Read a topic's end offsets: per partition, the offset of the next message.

        Parameters
        ----------
        topic : str

        Raises
        ------
        ApplicationException
            NotFoundException UNKNOWN_TOPIC_OR_PART; ConnectionException: no response within
            ``request_timeout``.
        """
        return topic_ends(self._connect_to_admin(), topic, self.get_request_timeout())

    def delete_queue(self, name: str) -> None:
        """Delete a topic.

        Parameters
        ----------
        name : str

        Raises
        ------
        ApplicationException
            NotFoundException UNKNOWN_TOPIC_OR_PART; ConnectionException: no response within
            ``request_timeout``.
        """
        delete_topic(self._connect_to_admin(), name, self.get_request_timeout())

    # -- sending

    def publish(
        self, topic: str, messages: list[dict[str, Any]], options: dict[str, Any] | None = None
    ) -> None:
        """Send messages and wait until the brokers have stored them.

        Parameters
        ----------
        topic : str
        messages : list of dict
            Any number of messages. Keys, all optional: ``value`` and ``key`` (bytes, str or None),
            ``headers`` (dict or list of pairs with bytes, str or None as values), ``timestamp``
            (ms since the epoch; default: now) and ``partition``.
        options : dict, optional
            ``acks``: -1 (all), 0 or 1, instead of the configured value.

        Raises
        ------
        ApplicationException
            InvalidStateException NOT_OPEN; BadRequestException INVALID_MESSAGE: one message is
            invalid (the text names it), so none was sent. If the brokers did not store some
            messages within
            ``request_timeout``, the first failure sets the type (ConnectionException,
            BadRequestException, ...). The details ``failed`` (a count) and ``indices`` list these
            messages. The brokers stored the others.
        """
        columns = _to_columns(messages, self._settings.write_partition)
        if columns is not None:
            timeout, producer = self.get_request_timeout(), self._producer_for(options)
            publish = partial(producer.publish, topic, timeout=timeout, **columns)
            deliver(publish, topic, timeout)

    def publish_envelopes(
        self,
        topic: str,
        codec: EnvelopeCodec,
        envelopes: Sequence[MessageEnvelope],
        options: dict[str, Any] | None = None,
        context: AnyContext = None,
    ) -> None:
        """Send envelopes like :meth:`publish`. C code converts them to records.

        Parameters
        ----------
        topic : str
        codec : cykafka.internal.EnvelopeCodec
        envelopes : sequence of MessageEnvelope
        options : dict, optional
        context : IContext or str, optional

        Raises
        ------
        ApplicationException
            See :meth:`publish`.
        """
        timeout, producer = self.get_request_timeout(), self._producer_for(options)
        partition = self._settings.write_partition
        publish = partial(
            codec.publish, producer, topic, envelopes, partition=partition, timeout=timeout
        )
        deliver(publish, topic, timeout, context)

    def _producer_for(self, options: dict[str, Any] | None) -> Producer:
        self._check_open()
        producer: Producer = self.get_producer((options or {}).get("acks"))
        return producer

    # -- receiving

    def subscribe(
        self,
        topic: str,
        group_id: str | None,
        options: dict[str, Any] | None,
        listener: IKafkaMessageListener,
    ) -> None:
        """Read a topic in a new thread and call the listener once per message.

        Parameters
        ----------
        topic : str
        group_id : str, optional
            The consumer group; None means ``default``.
        options : dict, optional
            librdkafka properties for the consumer. Defaults: ``session.timeout.ms`` 10000,
            ``auto.commit.interval.ms`` 5000, ``enable.auto.commit`` true, ``auto.offset.reset``
            earliest. The dict stays unchanged.
        listener : IKafkaMessageListener

        Raises
        ------
        ApplicationException
            InvalidStateException NOT_OPEN; ConfigException UNKNOWN_PROPERTY, INVALID_PROPERTY.
        """
        clients = self._open_clients()
        if not isinstance(topic, str) or not topic:
            text = f"subscribe: expected a topic name, got {topic!r}"
            raise BadRequestException(None, "NO_TOPIC", text)
        properties = clients.consumer_properties(group_id, options)
        subscription = KafkaSubscription(topic, group_id, properties, None, listener)
        # A queue handles whole batches. It has its own lock, so do not hold the connection's here.
        handler = getattr(listener, "_session_handler", self._make_handler)(subscription)
        with self._state_lock:
            if self._clients is not clients or self._closing:
                raise InvalidStateException(None, "NOT_OPEN", "the connection is closing")
            session = Session(
                subscription,
                handler,
                partial(clients.consumer, properties),
                self._settings.readable_partitions,
                self._log,
                self._outage,
                self.get_request_timeout(),
            )
            subscription._session = session
            self._subscriptions.append(subscription)
            try:
                session.start()
            except BaseException as error:  # logged, converted and raised
                with contextlib.suppress(ValueError):  # a signal handler has closed it
                    self._subscriptions.remove(subscription)
                if not isinstance(error, Exception):
                    raise
                failure = convert(error, f"topic {topic}: cannot subscribe", topic=topic)
                self._logger.error(None, failure, f"Cannot subscribe to topic {topic}")
                if failure is error:
                    raise
                raise failure from error

    def _make_handler(self, subscription: KafkaSubscription) -> OneByOne:
        def failed(error: BaseException) -> None:
            text = f"Subscription to topic {subscription.topic}: the listener raised"
            self._log.rare_error((subscription.topic, "on_message"), text, error)

        assert subscription.listener is not None
        return OneByOne(subscription.listener, failed)

    def unsubscribe(
        self, topic: str, group_id: str | None, listener: IKafkaMessageListener
    ) -> None:
        """End a subscription. Does nothing if the subscription does not exist.

        Waits up to ``request_timeout`` for the listener to return, unless the listener is the
        caller. With ``enable.auto.commit`` the closing consumer commits its last offsets.

        Parameters
        ----------
        topic : str
        group_id : str, optional
        listener : IKafkaMessageListener
        """
        with self._state_lock:
            found = self._find_subscription(topic, group_id, listener)
            ended = self._take_sessions(lambda subscription: subscription is found)
        self._end_sessions(ended)

    def unsubscribe_all(self, listener: IKafkaMessageListener) -> None:
        """End all subscriptions of one listener, like :meth:`unsubscribe`.

        Parameters
        ----------
        listener : IKafkaMessageListener
        """
        with self._state_lock:
            ended = self._take_sessions(lambda subscription: subscription.listener is listener)
        self._end_sessions(ended)

    def _take_sessions(self, wanted: Callable[[KafkaSubscription], bool]) -> list[Session]:
        """Remove subscriptions and return their sessions."""
        taken = [subscription for subscription in self._subscriptions if wanted(subscription)]
        self._subscriptions[:] = [item for item in self._subscriptions if item not in taken]
        return [item._session for item in taken if item._session is not None]

    def _end_sessions(self, sessions: list[Session]) -> None:
        """Stop sessions, then wait for all of them. The caller must not hold the lock."""
        timeout = self.get_request_timeout()
        deadline = time.monotonic() + timeout
        for session in sessions:
            session.stop(0)
        for session in sessions:
            if not session.stop(max(0, deadline - time.monotonic())) and not session.is_mine():
                text = (
                    f"The subscription to topic {session.topic} did not end within "
                    f"{timeout:g} s: the listener is still running, or brokers do not respond. "
                    "The subscription's thread closes the consumer later"
                )
                self._log.rare_error(("end", session.topic), text, None)

    def _find_subscription(
        self, topic: str, group_id: str | None, listener: IKafkaMessageListener
    ) -> KafkaSubscription | None:
        """The first subscription with these arguments, or None."""
        wanted = topic, group_id or DEFAULT_GROUP
        for item in list(self._subscriptions):
            given = item.topic, item.group_id or DEFAULT_GROUP
            if item.listener is listener and given == wanted:
                return item
        return None

    def _find_session(
        self, topic: str, group_id: str | None, listener: IKafkaMessageListener
    ) -> Session | None:
        self._check_open()
        subscription = self._find_subscription(topic, group_id, listener)
        return subscription._session if subscription is not None else None

    def commit(
        self,
        topic: str,
        group_id: str | None,
        partition: int,
        offset: int,
        listener: IKafkaMessageListener,
    ) -> None:
        """Commit an offset for a subscription and wait for the broker's response.

        Does nothing if the subscription does not exist.

        Parameters
        ----------
        topic : str
        group_id : str, optional
        partition : int
        offset : int
            The offset of the next message to read.
        listener : IKafkaMessageListener

        Raises
        ------
        ApplicationException
            InvalidStateException NOT_OPEN; InvocationException or ConnectionException: the commit
            failed.
        """
        session = self._find_session(topic, group_id, listener)
        if session is not None:
            session.commit([TopicPartition(topic, partition, offset)])

    def seek(
        self,
        topic: str,
        group_id: str | None,
        partition: int,
        offset: int,
        listener: IKafkaMessageListener,
    ) -> None:
        """Continue a subscription at another offset in a partition.

        Does nothing if the subscription does not exist.

        Parameters
        ----------
        topic : str
        group_id : str, optional
        partition : int
            A partition that is assigned to the subscription.
        offset : int
        listener : IKafkaMessageListener

        Raises
        ------
        ApplicationException
            InvalidStateException: NOT_OPEN, or the partition is not assigned. ConnectionException
            TIMED_OUT: the listener did not return within ``request_timeout``.

        Notes
        -----
        Waits up to ``request_timeout`` for a running listener to return, unless the listener is
        the caller. Afterwards the listener never gets a message fetched before the seek.
        """
        session = self._find_session(topic, group_id, listener)
        if session is not None:
            session.seek_between_batches(partition, offset)


def _to_columns(
    messages: list[dict[str, Any]], write_partition: int | None
) -> dict[str, Any] | None:
    """Convert messages to columns for Producer.publish(). Returns None for an empty list.

    Parameters
    ----------
    messages : list of dict
    write_partition : int, optional
        The partition for messages without ``partition``.

    Raises
    ------
    BadRequestException
        INVALID_MESSAGE: an item is not a dict or contains an unknown key.
    """
    if isinstance(messages, (dict, str, bytes)):
        raise _invalid(f"messages: expected a list of dicts, got {type(messages).__name__}")
    given = tuple(messages)
    if not given:
        return None
    for index, message in enumerate(given):
        if not isinstance(message, (dict, Mapping)):
            text = f"messages[{index}]: expected a dict, got {type(message).__name__}"
            raise _invalid(text, index)
        if not message.keys() <= _KEYS:
            known, strange = sorted(_KEYS), sorted(map(str, message.keys() - _KEYS))
            text = f"messages[{index}]: expected the keys {', '.join(known)}, "
            raise _invalid(text + f"got {', '.join(strange)}", index)
    columns = {name: [message.get(key) for message in given] for key, name in _COLUMNS.items()}
    # A field that no message sets needs no column.
    trimmed = {
        name: column
        for name, column in columns.items()
        if name == "values" or any(item is not None for item in column)
    }
    if write_partition is not None:
        partitions = trimmed.get("partitions")
        if partitions is None:
            return {**trimmed, "partitions": write_partition}
        trimmed["partitions"] = [write_partition if item is None else item for item in partitions]
    return trimmed


def _invalid(text: str, index: int | None = None) -> BadRequestException:
    exception = BadRequestException(None, "INVALID_MESSAGE", text)
    return exception if index is None else exception.with_details("indices", str(index))
