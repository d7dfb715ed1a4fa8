"""A connection to Kafka that message queues can share."""

from __future__ import annotations

import threading
import time
from typing import Any

from pip_services4_commons.errors import BadRequestException, InvalidStateException
from pip_services4_components.config import ConfigParams, IConfigurable
from pip_services4_components.context import IContext
from pip_services4_components.refer import IReferenceable, IReferences
from pip_services4_components.run import IOpenable
from pip_services4_messaging.connect import IMessageQueueConnection
from pip_services4_observability.log import CompositeLogger

from cykafka import Delivery, Producer
from cykafka.admin import AdminClient
from pip_services4_kafka._closing import Closing
from pip_services4_kafka._context import AnyContext, to_context, trace_id_of
from pip_services4_kafka._errors import typed
from pip_services4_kafka.connect._clients import Clients, connect
from pip_services4_kafka.connect._columns import columns_of
from pip_services4_kafka.connect._logs import ClientLog, RareLog
from pip_services4_kafka.connect._reader import Reader, reader_of
from pip_services4_kafka.connect._secrets import HiddenParams
from pip_services4_kafka.connect._sending import send, settle
from pip_services4_kafka.connect._settings import Settings, acks_of
from pip_services4_kafka.connect._subscriptions import Subscriptions
from pip_services4_kafka.connect._topics import create_topic, delete_topic, topic_names
from pip_services4_kafka.connect.IKafkaMessageListener import IKafkaMessageListener
from pip_services4_kafka.connect.KafkaConnectionResolver import KafkaConnectionResolver
from pip_services4_kafka.connect.KafkaSubscription import KafkaSubscription


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

        self.__settings = Settings()
        self.__client_log = ClientLog(self._logger, self.__settings.secrets.scrub)
        self.__rare_log = RareLog(self._logger, self.__client_log)
        self.__readers = Subscriptions(self._subscriptions, self.__rare_log)
        self.__clients: Clients | None = None
        self.__opening = threading.RLock()  # a signal handler may close in the thread that has it
        self.__closing = Closing()
        self.__ending: list[KafkaSubscription] = []  # close() waits for these
        self._show_settings()

    def _show_settings(self) -> None:
        """Copy the settings to the protected fields that pip-services documents."""
        settings = self.__settings
        self._client_id: str = settings.client_id
        self._log_level: int = settings.log_level
        self._connect_timeout: int = settings.connect_timeout
        self._max_retries: int = settings.max_retries
        self._retry_timeout: int = settings.retry_timeout
        self._request_timeout: int = settings.request_timeout
        self._num_partitions: int = settings.num_partitions
        self._replication_factor: int = settings.replication_factor
        self._readable_partitions: list[int] = settings.readable_partitions
        self._write_partition: int | None = settings.write_partition

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
        self.__settings.configure(config)
        self._connection_resolver.configure(config)
        self._options = HiddenParams(self._options.override(config.get_section("options")))
        self._show_settings()

    def set_references(self, references: IReferences) -> None:
        """Take loggers, discovery services and credential stores.

        Parameters
        ----------
        references : IReferences
        """
        self._logger.set_references(references)
        self.__client_log.set_references(references)
        self._connection_resolver.set_references(references)

    def is_open(self) -> bool:
        """Whether the connection is open.

        Returns
        -------
        bool
        """
        return self._connection is not None

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
            readers = map(reader_of, self.__ending)
            mine = any(reader is not None and reader.is_mine() for reader in readers)
            if self.__closing.is_mine() or mine:
                told = (
                    "cannot open the Kafka connection inside its own close(), or in a listener "
                    "that close() waits for"
                )
                raise InvalidStateException(trace_id_of(known), "NOT_OPEN", told)
            self.__closing.wait()

    def __open(self, known: IContext | None) -> bool:
        """Open the connection; False if close() is running."""
        with self.__opening:
            if self.__closing:
                return False
            if self._connection is not None:
                return True
            try:
                logs = self.__client_log, self.__rare_log
                clients = connect(self.__settings, self._connection_resolver.resolve, known, *logs)
            except Exception as failure:  # logged and raised
                self._logger.error(known, failure, "Failed to connect to Kafka")
                raise
            self._client_config = clients.producer_properties
            self.__clients = clients
            self._producer = self._connection = clients.producer(self.__settings.acks)
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
        with self.__opening:
            if self._connection is None or self.__closing:
                return
            self.__closing.begin()
            ended = self.__ending = self.__readers.take()
        try:  # without the lock: running listeners may call any method
            self.__readers.end(ended, self._timeout())
        finally:  # an exception, such as KeyboardInterrupt, may end the wait
            self.__close_clients(known)
        self._logger.debug(known, "Disconnected from Kafka")

    def __close_clients(self, context: Any) -> None:
        with self.__opening:
            clients, self.__clients = self.__clients, None
            self._connection = self._producer = self._admin_client = None
            self.__ending = []
            self.__closing.end()
        if clients is not None and (lost := clients.close(self._timeout())):
            told = f"Closed the connection to Kafka with {lost} unsent messages"
            self._logger.error(context, None, told)

    def get_connection(self) -> Any:
        """The producer or None, like :meth:`get_producer`."""
        return self._connection

    def get_producer(self) -> Any:
        """The producer with the configured ``acks``.

        Returns
        -------
        cykafka.Producer or None
            None if the connection is closed.
        """
        return self._producer

    getProducer = get_producer  # the spelling in the documentation of pip-services

    def _timeout(self) -> float:
        """request_timeout in s."""
        return self.__settings.request_timeout / 1e3

    def _check_open(self) -> None:
        self._open_clients()

    def _open_clients(self) -> Clients:
        clients = self.__clients
        if clients is None:
            told = "the connection to Kafka is not open: call open() first"
            raise InvalidStateException(None, "NOT_OPEN", told)
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
        return topic_names(self._connect_to_admin(), self._timeout())

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
        create_topic(
            self._connect_to_admin(),
            name,
            self.__settings.num_partitions,
            self.__settings.replication_factor,
            self._timeout(),
        )

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
        delete_topic(self._connect_to_admin(), name, self._timeout())

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
        producer = self._publisher((options or {}).get("acks"))
        columns = columns_of(messages, self.__settings.write_partition)
        if columns is None:
            return
        began = time.monotonic()
        delivery = send(producer, topic, columns, self._timeout())
        self._settle(delivery, topic, began)

    def _publisher(self, acks: int | str | None = None) -> Producer:
        """The producer for a value of acks (None: the configured one), created on first use."""
        clients = self._open_clients()
        if acks is None:
            return self._producer or clients.producer(self.__settings.acks)
        return clients.producer(acks_of(acks, self.__settings.acks))

    def _make_transactional(self, name: str) -> Producer:
        """A new transactional producer; the caller closes it."""
        return self._open_clients().make_transactional(name)

    def _settle(
        self, sent: Delivery, topic: str, began: float, context: AnyContext = None
    ) -> None:
        """Wait for the outcome of every message, at most ``request_timeout`` after `began` (s)."""
        settle(sent, topic, began, self._timeout(), context)

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
        self._subscribe(topic, group_id, options, listener)

    def _subscribe(
        self,
        topic: str,
        group_id: str | None,
        options: dict[str, Any] | None,
        listener: IKafkaMessageListener,
    ) -> Reader:
        """Like :meth:`subscribe`; returns the reader."""
        clients = self._open_clients()
        if not isinstance(topic, str) or not topic:
            told = f"subscribe: expected the name of a topic, got {topic!r}"
            raise BadRequestException(None, "NO_TOPIC", told)
        properties = clients.consumer_properties(group_id, options)
        subscription = KafkaSubscription(topic, group_id, properties, None, listener)
        with self.__opening:
            if self.__clients is not clients or self.__closing:
                raise InvalidStateException(None, "NOT_OPEN", "the connection is being closed")
            try:
                return self.__readers.begin(
                    subscription,
                    lambda on_error: clients.consumer(properties, on_error),
                    self.__settings.readable_partitions,
                    self._timeout(),
                )
            except Exception as error:  # any error: logged, converted and raised
                failure = typed(error, f"topic {topic}: subscribe failed", topic=topic)
                self._logger.error(None, failure, f"Subscribing to topic {topic} failed")
                if failure is error:
                    raise
                raise failure from error

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
            ended = self.__readers.take(topic, group_id, listener)
        self.__readers.end(ended, self._timeout())

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
        reader = self.__reader_of(topic, group_id, listener)
        if reader is not None:
            reader.commit({partition: offset})

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
        reader = self.__reader_of(topic, group_id, listener)
        if reader is not None:
            reader.seek_and_tell(partition, offset, self._timeout())

    def __reader_of(
        self, topic: str, group_id: str | None, listener: IKafkaMessageListener
    ) -> Reader | None:
        self._check_open()
        subscription = self.__readers.find(topic, group_id, listener)
        return reader_of(subscription) if subscription is not None else None
