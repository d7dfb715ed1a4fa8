"""A connection to Kafka that message queues can share."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
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
from .._context import AnyContext, to_context, trace_id_of
from .._errors import deliver, typed
from .._log import Log
from ._clients import Clients, not_open
from ._columns import columns_of
from ._one_by_one import OneByOne
from ._outage import Outage
from ._secrets import HiddenParams
from ._session import Session
from ._settings import DEFAULT_GROUP, Settings, acks_of
from ._topics import create_topic, delete_topic, ensure_topic, topic_ends, topic_names
from .IKafkaMessageListener import IKafkaMessageListener
from .KafkaConnectionResolver import KafkaConnectionResolver
from .KafkaSubscription import KafkaSubscription


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

    - ``client_id``: the client's name in the brokers' logs (default: the host name)
    - ``connection(s)``, ``credential(s)``: see :class:`KafkaConnectionResolver`
    - ``options.num_partitions``, ``options.replication_factor``: for new topics (default: 1)
    - ``options.readable_partitions``: partitions to read without group rebalances, separated by
      ``;`` or ``,`` (default: the partitions that the group assigns)
    - ``options.write_partition``: the partition to write to (default: chosen by the message's key)
    - ``options.acks``: how many brokers must store a message: -1 (all), 0 or 1 (default: -1)
    - ``options.log_level``: level of librdkafka's log lines: 0 none, 1 error, 2 warn, 3 info,
      4 debug (default: 1)
    - ``options.connect_timeout``: how long ``open`` waits for the cluster's answer (default: 1000)
    - ``options.max_retries``: how often a message is sent again (default: 5)
    - ``options.retry_timeout``: the longest pause between attempts to reconnect (default: 30000)
    - ``options.request_timeout``: the time limit for sending a message, for administrative
      requests and for commits (default: 30000)
    - ``options.kafka.*``: any property of librdkafka, such as ``options.kafka.compression.type``

    ``open`` logs a warning for each unknown key. Unknown keys below ``options.kafka`` raise
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

        self._settings = Settings()
        self.__log = Log(self._settings.secrets.scrub)
        self.__outage = Outage(self.__log)
        self.__clients: Clients | None = None
        self.__process = os.getpid()
        self.__opening = threading.RLock()  # a signal handler may close in the thread that has it
        self.__closing = Closing()
        self.__ending: list[Session] = []  # close() waits for these

    # The fields of the published package; a subclass may set them before open().
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

    # The names in the documentation of pip-services.
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
        """Take the configuration. Options that it does not contain keep their values.

        Parameters
        ----------
        config : ConfigParams

        Raises
        ------
        ConfigException
            UNKNOWN_PROPERTY (names the key and the most similar known key), INVALID_PARTITION,
            INVALID_ACKS.
        """
        self._settings.configure(config)
        self._connection_resolver.configure(config)
        self._options = HiddenParams(self._options.override(config.get_section("options")))

    def set_references(self, references: IReferences) -> None:
        """Take loggers, discovery services and credential stores.

        Parameters
        ----------
        references : IReferences
        """
        self._logger.set_references(references)
        self.__log.set_references(references)
        self._connection_resolver.set_references(references)

    def is_open(self) -> bool:
        """Whether the connection is open. False in a forked child of the process that opened it.

        Returns
        -------
        bool
        """
        return self._connection is not None and self.__process == os.getpid()

    def open(self, context: AnyContext = None) -> None:
        """Connect. Does nothing if the connection is open.

        If another thread is closing the connection, this waits for the end of that close().

        Parameters
        ----------
        context : IContext or str, optional

        Raises
        ------
        ConnectionException
            CONNECT_FAILED: the cluster did not answer within ``connect_timeout``. The connection
            stays closed.
        ConfigException
            The configuration is wrong: the codes of :class:`KafkaConnectionResolver`, NO_PASSWORD,
            NO_TOKEN, UNKNOWN_MECHANISM or INVALID_PROPERTY.
        InvalidStateException
            NOT_OPEN: the caller runs inside close(), or is a listener that close() waits for.
        """
        known = to_context(context)
        while not self.__open(known):
            if self.__closing.is_mine() or any(each.is_mine() for each in self.__ending):
                text = (
                    "cannot open the Kafka connection inside its own close(), or in a listener "
                    "that close() waits for"
                )
                raise InvalidStateException(trace_id_of(known), "NOT_OPEN", text)
            self.__closing.wait()

    def __open(self, known: IContext | None) -> bool:
        """Open the connection; False if close() is running."""
        with self.__opening:
            if self.__closing:
                return False
            if self._connection is not None:
                return True
            try:
                resolve = self._connection_resolver.resolve
                clients = Clients(self._settings, resolve, self.__log, self.__outage)
                clients.open(known)
            except Exception as failure:  # logged and raised
                self._logger.error(known, failure, "Failed to connect to Kafka")
                raise
            self._client_config = clients.producer_properties
            self.__clients, self.__process = clients, os.getpid()
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
        messages. Each wait lasts at most ``request_timeout``; an error is logged if it times out.
        A second close() does nothing. A closed connection can be opened again.
        """
        known = to_context(context)
        if self._connection is not None and not self.is_open():
            # A forked child: the clients are the parent's, and so may be a lock.
            self.__opening, self.__clients = threading.RLock(), None
            self._connection = self._producer = self._admin_client = None
            self._subscriptions = []
            return
        with self.__opening:
            if self._connection is None or self.__closing:
                return
            self.__closing.begin()
            ended = self.__ending = self.__take(lambda _: True)
        try:  # without the lock: running listeners may call any method
            self.__end(ended)
        finally:  # an exception, such as KeyboardInterrupt, may end the wait
            self.__close_clients(known)
        self._logger.debug(known, "Disconnected from Kafka")

    def __close_clients(self, context: Any) -> None:
        with self.__opening:
            clients, self.__clients = self.__clients, None
            self._connection = self._producer = self._admin_client = None
            self.__ending = []
        try:
            if clients is not None and (lost := clients.close(self.get_request_timeout())):
                text = f"Closed the connection to Kafka with {lost} unsent messages"
                self._logger.error(context, None, text)
        finally:
            self.__closing.end()

    def get_connection(self) -> Any:
        """The producer or None, like :meth:`get_producer`."""
        return self._connection

    def get_producer(self, acks: int | str | None = None) -> Any:
        """The producer for a value of ``acks``, created on first use.

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
        clients = self.__clients
        if clients is None:
            return None
        return clients.producer(acks_of(acks, self._settings.acks))

    getProducer = get_producer  # the spelling in the documentation of pip-services

    def get_request_timeout(self) -> float:
        """``options.request_timeout``, in s."""
        return self._settings.request_timeout / 1e3

    def _check_open(self) -> None:
        self._open_clients()

    def _open_clients(self) -> Clients:
        clients = self.__clients
        if clients is None:
            raise not_open()
        return clients

    # -- topics

    def _connect_to_admin(self) -> AdminClient:
        self._admin_client = self._open_clients().admin()
        return self._admin_client

    def read_queue_names(self) -> list[str]:
        """The names of all topics.

        Returns
        -------
        list of str

        Raises
        ------
        ApplicationException
            InvalidStateException NOT_OPEN; ConnectionException: the cluster did not answer within
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
            ConflictException TOPIC_ALREADY_EXISTS; BadRequestException: the brokers refused the
            name or a setting; ConnectionException: no answer within ``request_timeout``.
        """
        create_topic(self._connect_to_admin(), name, *self.__topic_settings())

    def ensure_queue(self, name: str) -> None:
        """Create a topic unless it exists, or another client creates it at the same time.

        Parameters
        ----------
        name : str

        Raises
        ------
        ApplicationException
            See :meth:`create_queue`.
        """
        ensure_topic(self._connect_to_admin(), name, *self.__topic_settings())

    def __topic_settings(self) -> tuple[int, int, float]:
        settings = self._settings
        timeout = self.get_request_timeout()
        return settings.num_partitions, settings.replication_factor, timeout

    def read_ends(self, topic: str) -> dict[int, int]:
        """The end of each partition of a topic: the offset of its next message.

        Parameters
        ----------
        topic : str

        Raises
        ------
        ApplicationException
            NotFoundException UNKNOWN_TOPIC_OR_PART; ConnectionException: no answer within
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
            NotFoundException UNKNOWN_TOPIC_OR_PART; ConnectionException: no answer within
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
            InvalidStateException NOT_OPEN; BadRequestException INVALID_MESSAGE: names the invalid
            message, and no message was sent. If some messages were not stored within
            ``request_timeout``, the first failure sets the type (ConnectionException,
            BadRequestException, ...). The details ``failed`` (a count) and ``indices`` list these
            messages; the others are stored.
        """
        columns = columns_of(messages, self._settings.write_partition)
        if columns is not None:
            timeout, producer = self.get_request_timeout(), self.__producer_for(options)
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
        """Send envelopes like :meth:`publish`; C code makes their records.

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
        timeout, producer = self.get_request_timeout(), self.__producer_for(options)
        partition = self._settings.write_partition
        publish = partial(
            codec.publish, producer, topic, envelopes, partition=partition, timeout=timeout
        )
        deliver(publish, topic, timeout, context)

    def __producer_for(self, options: dict[str, Any] | None) -> Producer:
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
        """Read a topic in a new thread and call the listener for each message.

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
            text = f"subscribe: expected the name of a topic, got {topic!r}"
            raise BadRequestException(None, "NO_TOPIC", text)
        properties = clients.consumer_properties(group_id, options)
        subscription = KafkaSubscription(topic, group_id, properties, None, listener)
        # A queue takes whole batches. It has a lock of its own, so it is asked without ours.
        handler = getattr(listener, "_session_handler", self.__one_by_one)(subscription)
        with self.__opening:
            if self.__clients is not clients or self.__closing:
                raise InvalidStateException(None, "NOT_OPEN", "the connection is being closed")
            session = Session(
                subscription,
                handler,
                partial(clients.consumer, properties),
                self._settings.readable_partitions,
                self.__log,
                self.__outage,
                self.get_request_timeout(),
            )
            try:
                session.start()
            except Exception as error:  # any error: logged, converted and raised
                failure = typed(error, f"topic {topic}: subscribe failed", topic=topic)
                self._logger.error(None, failure, f"Subscribing to topic {topic} failed")
                if failure is error:
                    raise
                raise failure from error
            subscription._session = session
            self._subscriptions.append(subscription)

    def __one_by_one(self, subscription: KafkaSubscription) -> OneByOne:
        def failed(error: BaseException) -> None:
            text = f"Subscription to topic {subscription.topic}: its listener failed"
            self.__log.rare_error((subscription.topic, "on_message"), text, error)

        assert subscription.listener is not None
        return OneByOne(subscription.listener, failed)

    def unsubscribe(
        self, topic: str, group_id: str | None, listener: IKafkaMessageListener
    ) -> None:
        """End a subscription. Does nothing if there is no such subscription.

        Waits up to ``request_timeout`` for the listener to return, unless the listener is the
        caller. With ``enable.auto.commit`` the consumer commits its last offsets when it closes.

        Parameters
        ----------
        topic : str
        group_id : str, optional
        listener : IKafkaMessageListener
        """
        with self.__opening:
            found = self.__find(topic, group_id, listener)
            ended = self.__take(lambda subscription: subscription is found)
        self.__end(ended)

    def unsubscribe_all(self, listener: IKafkaMessageListener) -> None:
        """End all subscriptions of a listener, like :meth:`unsubscribe`.

        Parameters
        ----------
        listener : IKafkaMessageListener
        """
        with self.__opening:
            ended = self.__take(lambda subscription: subscription.listener is listener)
        self.__end(ended)

    def __take(self, wanted: Callable[[KafkaSubscription], bool]) -> list[Session]:
        """Remove subscriptions and return their sessions."""
        taken = [subscription for subscription in self._subscriptions if wanted(subscription)]
        self._subscriptions[:] = [each for each in self._subscriptions if each not in taken]
        return [each._session for each in taken if each._session is not None]

    def __end(self, sessions: list[Session]) -> None:
        """Stop sessions and wait for all of them together. Call without the lock."""
        timeout = self.get_request_timeout()
        deadline = time.monotonic() + timeout
        for session in sessions:
            session.stop(0)
        for session in sessions:
            if not session.stop(max(0, deadline - time.monotonic())) and session.is_busy():
                text = (
                    f"The subscription to topic {session.topic} does not end within "
                    f"{timeout:g} s: its listener is still running, or brokers do not answer. "
                    "Its thread will close its consumer"
                )
                self.__log.rare_error(("end", session.topic), text, None)

    def __find(
        self, topic: str, group_id: str | None, listener: IKafkaMessageListener
    ) -> KafkaSubscription | None:
        """The first subscription with these arguments, or None."""
        wanted = topic, group_id or DEFAULT_GROUP
        for each in list(self._subscriptions):
            given = each.topic, each.group_id or DEFAULT_GROUP
            if each.listener is listener and given == wanted:
                return each
        return None

    def __session(
        self, topic: str, group_id: str | None, listener: IKafkaMessageListener
    ) -> Session | None:
        self._check_open()
        subscription = self.__find(topic, group_id, listener)
        return subscription._session if subscription is not None else None

    def commit(
        self,
        topic: str,
        group_id: str | None,
        partition: int,
        offset: int,
        listener: IKafkaMessageListener,
    ) -> None:
        """Commit an offset of a subscription, and wait for the broker's answer.

        Does nothing if there is no such subscription.

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
        session = self.__session(topic, group_id, listener)
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
        """Continue reading a partition of a subscription at another offset.

        Does nothing if there is no such subscription.

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
        the caller. After the return, the listener gets no message fetched before the seek.
        """
        session = self.__session(topic, group_id, listener)
        if session is not None:
            session.seek_between_batches(partition, offset)
