"""The clients of an open connection: a producer per acks, an admin client, consumers."""

from __future__ import annotations

import contextlib
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
from pip_services4_kafka.connect._outage import Outage
from pip_services4_kafka.connect._security import token_source, unreadable_file
from pip_services4_kafka.connect._settings import Settings

# Errors that give the reason why brokers cannot be reached.
_EXPLAINING = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE)
# Errors that name a broker and the failure of its connection.
_NAMING = (KafkaError._TRANSPORT, KafkaError._BAD_MSG)


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
    outage : Outage
    """

    def __init__(
        self,
        settings: Settings,
        resolved: ConfigParams,
        resolve: Callable[[], ConfigParams],
        client_log: ClientLog,
        rare_log: RareLog,
        outage: Outage,
    ) -> None:
        self._settings = settings
        self._resolved = resolved
        self._resolve = resolve
        self._client_log = client_log
        self._rare_log = rare_log
        self._outage = outage
        self._lock = threading.RLock()  # a signal handler may close in the thread that has it
        self._closed = False
        self._producers: dict[int, Producer] = {}
        self._admin: AdminClient | None = None
        self._errors: list[KafkaError] = []  # met during open()
        self._opening = True
        self._answered = False
        self._known = threading.Event()  # the outcome of open()
        self.producer_properties = settings.producer(resolved, settings.acks)

    def open(self) -> None:
        """Check that the cluster answers within connect_timeout.

        Raises
        ------
        ConfigException
            A property has a wrong value.
        KafkaException
            The cluster does not answer, or refuses the credentials. The exception has the most
            specific error that librdkafka reported.
        """
        self.producer(self._settings.acks)  # it connects with the first message
        admin = self.admin()
        threading.Thread(
            target=_serve, args=(admin,), name="kafka-connection", daemon=True
        ).start()
        wait = self._settings.connect_timeout / 1e3
        threading.Thread(target=self._ask, args=(admin, wait), daemon=True).start()
        self._known.wait(wait)
        if not self._answered:
            raise KafkaException(self._told(_EXPLAINING) or self._guess(self._told(_NAMING)))
        self._opening = False
        brokers = self.producer_properties["bootstrap.servers"]
        self._outage.watch(brokers, self._ask_cluster)

    def _ask_cluster(self, timeout: float) -> None:
        """Return when a broker has answered. Errors that producers met before are reported."""
        self.admin().list_topics(timeout=timeout)
        for producer in list(self._producers.values()):
            producer.poll(0)

    def _ask(self, admin: AdminClient, timeout: float) -> None:
        with contextlib.suppress(KafkaException, RuntimeError):  # no answer, or closed
            admin.cluster_id(timeout)
            self._answered = True
        self._known.set()

    def _told(self, codes: tuple[int, ...]) -> KafkaError | None:
        """The first error met during open() that has one of these codes."""
        return next((error for error in self._errors if error.code() in codes), None)

    def _guess(self, met: KafkaError | None) -> KafkaError:
        """Explain silence: the brokers are slow, or the port expects TLS or SASL."""
        known, waited = self.producer_properties, self._settings.connect_timeout
        text = (
            f"no answer from {known['bootstrap.servers']} (options.connect_timeout: {waited} ms)"
        )
        if met is not None:
            text = met.str()
        protocol = str(known["security.protocol"]).upper()
        if "SSL" not in protocol and "Connect to" not in text:
            text += "; if the port expects TLS or SASL: credential.ssl turns TLS on,"
            text += " credential.username turns SASL on"
        return KafkaError(KafkaError._TIMED_OUT if met is None else met.code(), text)

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

    def admin(self) -> AdminClient:
        """The admin client, created on first use."""
        with self._lock:
            self._check_open()
            if self._admin is None:
                admin = self._make(AdminClient, self._settings.admin(self._resolved))
                self._check_open(admin)
                self._admin = admin
            return self._admin

    def consumer(self, properties: dict[str, Any], callbacks: dict[str, Any]) -> Consumer:
        """Create a consumer that the caller owns. Callables in `properties` are called as well."""

        def both(ours: Callable[..., object], theirs: Callable[..., object]) -> Any:
            def call(*arguments: Any) -> None:
                ours(*arguments)
                theirs(*arguments)

            return call

        given = {
            name: both(call, properties[name]) if properties.get(name) is not None else call
            for name, call in callbacks.items()
        }
        consumer: Consumer = self._make(Consumer, {**properties, **given})
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
        self._outage.end()
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
            text = "the connection to Kafka is not open: call open() first"
            raise InvalidStateException(None, "NOT_OPEN", text)

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
        if not self._opening:
            self._outage.report(error, "A Kafka client reported an error")
            return
        self._errors.append(error)
        if error.code() == KafkaError._AUTHENTICATION:  # other errors may pass
            self._known.set()


def _serve(admin: AdminClient) -> None:
    """Run the admin client's callbacks, until it is closed."""
    with contextlib.suppress(RuntimeError):
        while True:
            admin.poll()


def connect(
    settings: Settings,
    resolve: Callable[[IContext | None], ConfigParams],
    context: IContext | None,
    client_log: ClientLog,
    rare_log: RareLog,
    outage: Outage,
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
        for warning in settings.warnings:  # a misspelled key may be why it cannot resolve
            client_log.log(logging.WARNING, "%s: %s", settings.name, warning)
        logged = len(settings.warnings)
        clients = Clients(
            settings, resolve(context), lambda: resolve(None), client_log, rare_log, outage
        )
        for warning in settings.warnings[logged:]:
            client_log.log(logging.WARNING, "%s: %s", settings.name, warning)
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
    text = f"Connection to Kafka failed: {words}"
    exception = ConnectionException(trace_id_of(context), "CONNECT_FAILED", text)
    return settings.secrets.clean_trace(with_cause(exception, clean))
