"""The clients of an open connection: a producer per acks, an admin client, consumers."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from pip_services4_commons.errors import (
    ApplicationException,
    ConfigException,
    ConnectionException,
    InvalidStateException,
)
from pip_services4_components.config import ConfigParams
from pip_services4_components.context import IContext

from cykafka import Consumer, KafkaError, KafkaException, Producer
from cykafka.admin import AdminClient
from pip_services4_kafka._context import trace_id_of
from pip_services4_kafka._errors import kafka_error, misconfigured, typed, with_cause
from pip_services4_kafka.connect._logs import ClientLog, RareLog
from pip_services4_kafka.connect._security import token_source, unreadable_file
from pip_services4_kafka.connect._settings import Settings

# Errors that give the reason why brokers cannot be reached.
_TELLING = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE)
# Errors that name a broker and the failure of its connection.
_NAMING = (KafkaError._TRANSPORT, KafkaError._BAD_MSG)
# Errors that only mean that no broker answered.
_SILENCE = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._UNSUPPORTED_FEATURE)
_MOST_EVENTS = 100
# The brokers' default for transaction.max.timeout.ms.
_LONGEST_TRANSACTION_MS = 900_000


class Clients:
    """Creates clients on demand and closes them. Thread-safe.

    Parameters
    ----------
    settings : Settings
    resolved : ConfigParams
        The resolver's result.
    resolve : callable
        Resolves again, to replace an expired token.
    client_log : ClientLog
    rare_log : RareLog
    """

    def __init__(
        self,
        settings: Settings,
        resolved: ConfigParams,
        resolve: Callable[[], ConfigParams],
        client_log: ClientLog,
        rare_log: RareLog,
    ) -> None:
        self._settings = settings
        self._resolved = resolved
        self._resolve = resolve
        self._client_log = client_log
        self._rare_log = rare_log
        self._lock = threading.RLock()  # a signal handler may close in the thread that has it
        self._closed = False
        self._producers: dict[int, Producer] = {}
        self._admin: AdminClient | None = None
        self._errors: list[KafkaError] = []  # met during open()
        self._opening = True
        self.producer_properties = settings.producer(resolved, settings.acks)

    def open(self) -> None:
        """Create the producer and check that the cluster answers within connect_timeout.

        Raises
        ------
        ConfigException
            A property has a wrong value.
        KafkaException
            The cluster does not answer. The exception has the most specific error that
            librdkafka reported.
        """
        producer = self.producer(self._settings.acks)
        try:
            producer.list_topics(timeout=self._settings.connect_timeout / 1e3)
        except KafkaException as error:
            for _ in range(_MOST_EVENTS):  # collect the errors reported meanwhile
                if self._told(_TELLING) or not producer.poll(0):
                    break
            told = self._told(_TELLING) or self._told(_NAMING) or self._guess(error.args[0])
            raise KafkaException(told) from None
        finally:
            self._opening = False

    def _told(self, codes: tuple[int, ...]) -> KafkaError | None:
        """The first error met during open() that has one of these codes."""
        return next((error for error in self._errors if error.code() in codes), None)

    def _guess(self, error: KafkaError) -> KafkaError:
        """Explain silence: the brokers are slow, or the port expects TLS or SASL."""
        if error.code() not in _SILENCE:
            return error
        known, waited = self.producer_properties, self._settings.connect_timeout
        told = (
            f"no answer from {known['bootstrap.servers']} (options.connect_timeout: {waited} ms)"
        )
        if str(known["security.protocol"]).upper() == "PLAINTEXT":
            told += "; if the port expects TLS or SASL: credential.ssl turns TLS on,"
            told += " credential.username turns SASL on"
        return KafkaError(error.code(), f"{told}: {error.str()}")

    def producer(self, acks: int) -> Producer:
        """The producer for a value of acks, created on first use."""
        producer = self._producers.get(acks)
        if producer is not None:
            return producer
        with self._lock:
            self._check_open()
            producer = self._producers.get(acks)
            if producer is None:
                properties = self._settings.producer(self._resolved, acks)
                producer = self._make(Producer, properties)
                self._check_open(producer)
                self._producers[acks] = producer
            return producer

    def make_transactional(self, name: str) -> Producer:
        """Create a transactional producer that the caller owns. `name` is its transactional.id."""
        self._check_open()
        config = {**self._settings.producer(self._resolved, -1), "transactional.id": name}
        # If the process dies, its open transaction blocks the readers of the topic and the next
        # owner of the partition for this long. So it is short: one send and one commit.
        longest = min(max(1000, 2 * self._settings.request_timeout), _LONGEST_TRANSACTION_MS)
        longest = int(config.setdefault("transaction.timeout.ms", longest))
        # librdkafka refuses a longer message timeout, and retries = 0.
        config["message.timeout.ms"] = min(int(config["message.timeout.ms"]), longest)
        config["retries"] = max(1, int(config["retries"]))
        producer: Producer = self._make(Producer, config)
        return producer

    def admin(self) -> AdminClient:
        """The admin client, created on first use."""
        with self._lock:
            self._check_open()
            if self._admin is None:
                admin = self._make(AdminClient, self._settings.admin(self._resolved))
                self._check_open(admin)
                self._admin = admin
            return self._admin

    def consumer(
        self, properties: dict[str, Any], on_error: Callable[[KafkaError], object]
    ) -> Consumer:
        """Create a consumer that the caller owns."""
        theirs = properties.get("error_cb")

        def error_cb(error: KafkaError) -> None:
            on_error(error)
            if theirs is not None:
                theirs(error)

        consumer: Consumer = self._make(Consumer, {**properties, "error_cb": error_cb})
        self._check_open(consumer)
        return consumer

    def consumer_properties(
        self, group_id: str | None, options: dict[str, Any] | None
    ) -> dict[str, Any]:
        """The properties of a subscription's consumers."""
        return self._settings.consumer(self._resolved, group_id, options)

    def close(self, timeout: float) -> int:
        """Close all clients. Wait at most `timeout` s in all for unsent messages.

        Returns
        -------
        int
            How many messages were dropped.
        """
        with self._lock:
            self._closed = True
            producers = list(self._producers.values())
            self._producers.clear()
            admin, self._admin = self._admin, None
        lost = 0
        deadline = time.monotonic() + timeout
        for producer in producers:
            try:
                left = producer.flush(max(0, deadline - time.monotonic()))
                if left:
                    lost += left
                    producer.purge()
            except (KafkaException, RuntimeError) as error:  # RuntimeError: in a forked child
                self._rare_log.error("flush", error, "Flushing a Kafka producer failed")
            finally:
                producer.close()
        if admin is not None:
            admin.close()
        return lost

    def _check_open(self, made: Producer | AdminClient | Consumer | None = None) -> None:
        if self._closed:
            if made is not None:
                made.close()
            told = "the connection to Kafka is not open: call open() first"
            raise InvalidStateException(None, "NOT_OPEN", told)

    def _make(self, kind: Callable[[dict[str, Any]], Any], properties: dict[str, Any]) -> Any:
        config = {"error_cb": self._on_error, **properties, "logger": self._client_log}
        mechanism = config.get("sasl.mechanisms", config.get("sasl.mechanism", ""))
        if str(mechanism).upper() == "OAUTHBEARER" and self._find_token():
            config["oauth_cb"] = token_source(self._find_token)
        try:
            return kind(config)
        except (KafkaException, ValueError, TypeError) as error:
            secrets = self._settings.secrets
            clean = secrets.clean(error)
            known = kafka_error(error)
            if known is None or known.code() == KafkaError._INVALID_ARG:
                words = secrets.scrub(known.str()) if known is not None else str(clean)
                path = unreadable_file(config)
                words = f"{path}: {words}" if path is not None else words
                failure = with_cause(misconfigured("INVALID_PROPERTY", words), clean)
            else:
                failure = typed(clean, "Kafka client")
            raise secrets.clean_trace(failure) from clean

    def _find_token(self) -> str | None:
        token: str | None = self._resolve().get_as_nullable_string("token")
        if token:
            self._settings.secrets.add([token])
        return token or None

    def _on_error(self, error: KafkaError) -> None:
        if self._opening:
            self._errors.append(error)
        else:
            told = "A Kafka client reported an error"
            self._rare_log.error(error.code(), typed(error, "Kafka"), told)


def connect(
    settings: Settings,
    resolve: Callable[[IContext | None], ConfigParams],
    context: IContext | None,
    client_log: ClientLog,
    rare_log: RareLog,
) -> Clients:
    """Create the clients of a connection and check that the cluster answers.

    On failure, no client stays open.

    Raises
    ------
    ApplicationException
        ConfigException, or ConnectionException CONNECT_FAILED, without secrets.
    """
    clients: Clients | None = None
    try:
        clients = Clients(settings, resolve(context), lambda: resolve(None), client_log, rare_log)
        for warning in settings.warnings:
            client_log.log(logging.WARNING, "%s", warning)
        clients.open()
        return clients
    except BaseException as error:
        if clients is not None:
            clients.close(0)
        if not isinstance(error, Exception):
            raise
        failure = _not_connected(error, settings, context)
        if failure is error:
            raise
        raise failure from failure.__cause__


def _not_connected(
    error: Exception, settings: Settings, context: IContext | None
) -> ApplicationException:
    """The exception for open(): a ConfigException, or CONNECT_FAILED without secrets."""
    if isinstance(error, ConfigException):
        return error
    clean = settings.secrets.clean(error)
    known = kafka_error(error)
    words = settings.secrets.scrub(known.str() if known is not None else str(error))
    told = f"Connection to Kafka failed: {words}"
    exception = ConnectionException(trace_id_of(context), "CONNECT_FAILED", told)
    return settings.secrets.clean_trace(with_cause(exception, clean))
