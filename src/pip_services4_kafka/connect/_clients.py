"""The clients that a connection opens: one producer per acks value, an admin client, consumers."""

from __future__ import annotations

import contextlib
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
from cykafka.internal import kafka_error
from pip_services4_kafka._context import get_trace_id
from pip_services4_kafka._errors import config_error, convert, reason
from pip_services4_kafka._log import Log
from pip_services4_kafka.connect._outage import Outage
from pip_services4_kafka.connect._security import token_source, unreadable_file
from pip_services4_kafka.connect._settings import ConnectionSettings

# Errors that explain why brokers are unreachable.
_EXPLAINING = (KafkaError._AUTHENTICATION, KafkaError._SSL, KafkaError._RESOLVE)
# Errors that name a broker and say why its connection failed.
_NAMING = (KafkaError._TRANSPORT, KafkaError._BAD_MSG)


class Clients:
    """Creates clients on demand and closes them. Thread-safe.

    Parameters
    ----------
    settings : Settings
    resolve : callable
        The resolver. Clients calls it again to replace an expired token.
    log : Log
    outage : Outage
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        resolve: Callable[[IContext | None], ConfigParams],
        log: Log,
        outage: Outage,
    ) -> None:
        self._settings = settings
        self._resolved = ConfigParams()
        self._resolve = resolve
        self._log = log
        self._outage = outage
        self._lock = threading.RLock()  # a signal handler may close in the thread that holds it
        self._closed = False
        self._producers: dict[int, Producer] = {}
        self._admin: AdminClient | None = None
        self._errors: list[KafkaError] = []  # reported during open()
        self._opening = True
        self._answered = False
        self._known = threading.Event()  # set when open() has an outcome
        self.producer_properties: dict[str, Any] = {}

    def open(self, context: IContext | None) -> None:
        """Create clients and check that the cluster responds. On failure, closes all clients.

        Raises
        ------
        ConfigException
            The configuration is wrong.
        ConnectionException
            CONNECT_FAILED: the cluster does not respond within connect_timeout, or rejects the
            credentials. The cause is the most specific error that librdkafka reported.
        """
        try:
            self._prepare(context)
            self._connect()
            return
        except BaseException as error:
            self.close(0)
            if not isinstance(error, Exception) or isinstance(error, ConfigException):
                raise
            secrets = self._settings.secrets
            text = f"Connection to Kafka failed: {secrets.scrub(reason(error))}"
            failure = ConnectionException(get_trace_id(context), "CONNECT_FAILED", text)
            secrets.explain(failure, error)
        raise failure  # here, so that the original error is not its context

    def _prepare(self, context: IContext | None) -> None:
        settings = self._settings
        try:
            self._resolved = self._resolve(context)
            self.producer_properties = settings.producer(self._resolved, settings.acks)
        finally:
            for warning in settings.warnings:  # a misspelled key may be the reason
                self._log.warn(f"{settings.name}: {warning}")

    def _connect(self) -> None:
        self.producer(self._settings.acks)  # connects with the first message
        admin = self.admin()
        threading.Thread(
            target=_serve, args=(admin,), name="kafka-connection", daemon=True
        ).start()
        wait = self._settings.connect_timeout / 1e3
        threading.Thread(target=self._request_cluster_id, args=(admin, wait), daemon=True).start()
        self._known.wait(wait)
        if not self._answered:
            raise KafkaException(self._find_error(_EXPLAINING) or self._explain_silence())
        self._opening = False
        brokers = self.producer_properties["bootstrap.servers"]
        self._outage.watch(brokers, self._wait_for_broker)

    def _wait_for_broker(self, timeout: float) -> None:
        """Return when a broker responds. Producers first report their queued errors."""
        if (admin := self._admin) is None:
            raise RuntimeError("the connection is closed")
        admin.list_topics(timeout=timeout)
        for producer in list(self._producers.values()):
            producer.poll(0)

    def _request_cluster_id(self, admin: AdminClient, timeout: float) -> None:
        with contextlib.suppress(KafkaException, RuntimeError):  # no response, or closed
            admin.cluster_id(timeout)
            self._answered = True
        self._known.set()

    def _find_error(self, codes: tuple[int, ...]) -> KafkaError | None:
        """The first error reported during open() that has one of these codes."""
        return next((error for error in self._errors if error.code() in codes), None)

    def _explain_silence(self) -> KafkaError:
        """Explain why no broker responded: slow brokers, or a port that expects TLS or SASL."""
        servers = self.producer_properties["bootstrap.servers"]
        waited = self._settings.connect_timeout
        text = f"no response from {servers} (options.connect_timeout: {waited} ms)"
        error = self._find_error(_NAMING) or KafkaError(KafkaError._TIMED_OUT, text)
        text = error.str()
        protocol = str(self.producer_properties["security.protocol"]).upper()
        if "SSL" not in protocol and "Connect to" not in text:
            text += "; if the port expects TLS or SASL: credential.ssl turns TLS on,"
            text += " credential.username turns SASL on"
        return KafkaError(error.code(), text)

    def producer(self, acks: int) -> Producer:
        """The producer for an acks value, created on first use."""
        producer = self._producers.get(acks)
        if producer is not None:
            return producer
        with self._lock:
            producer = self._producers.get(acks)
            if producer is None:
                properties = self._settings.producer(self._resolved, acks)
                producer = self._producers[acks] = self._make(Producer, properties)
            return producer

    def admin(self) -> AdminClient:
        """The admin client, created on first use."""
        with self._lock:
            if self._admin is None:
                self._admin = self._make(AdminClient, self._settings.admin(self._resolved))
            return self._admin

    def consumer(self, properties: dict[str, Any], callbacks: dict[str, Any]) -> Consumer:
        """Create a consumer that the caller owns. It also calls the callables in `properties`."""

        def both(name: str) -> Callable[..., None]:
            own, given = callbacks[name], properties.get(name)

            def call(*arguments: Any) -> None:
                own(*arguments)
                if given is not None:
                    given(*arguments)

            return call

        consumer: Consumer = self._make(
            Consumer, {**properties, **{name: both(name) for name in callbacks}}
        )
        return consumer

    def consumer_properties(
        self, group_id: str | None, options: dict[str, Any] | None
    ) -> dict[str, Any]:
        """The properties of a subscription's consumers."""
        return self._settings.consumer(self._resolved, group_id, options)

    def close(self, timeout: float) -> int:
        """Close all clients. Wait up to `timeout` seconds in total for unsent messages.

        Returns
        -------
        int
            The number of messages that were never sent.
        """
        self._outage.end()
        with self._lock:
            self._closed = True
            producers = list(self._producers.values())
            self._producers.clear()
            admin, self._admin = self._admin, None
        lost = 0
        deadline = time.monotonic() + timeout
        with contextlib.ExitStack() as stack:  # closes them even after an interrupt
            if admin is not None:
                stack.callback(admin.close)
            for producer in producers:
                stack.callback(producer.close, 0)
            for producer in producers:
                try:
                    lost += producer.flush(max(0, deadline - time.monotonic()))
                except (KafkaException, RuntimeError) as error:  # RuntimeError: in a forked child
                    self._log.rare_error("flush", "Cannot flush a Kafka producer", error)
        return lost

    def _make(self, kind: Callable[[dict[str, Any]], Any], properties: dict[str, Any]) -> Any:
        if self._closed:
            raise not_open_error()
        config = {"error_cb": self._on_error, **properties, "logger": self._log}
        mechanism = config.get("sasl.mechanisms", config.get("sasl.mechanism", ""))
        if str(mechanism).upper() == "OAUTHBEARER" and self._find_token():
            config["oauth_cb"] = token_source(self._find_token)
        try:
            client = kind(config)
        except (KafkaException, ValueError, TypeError) as error:
            failure = self._explain_refusal(error, config)
        else:
            if self._closed:  # while this thread created the client
                client.close()
                raise not_open_error()
            return client
        raise failure  # here, so that the original error is not its context

    def _explain_refusal(self, error: Exception, config: dict[str, Any]) -> ApplicationException:
        secrets = self._settings.secrets
        known = kafka_error(error)
        if known is not None and known.code() != KafkaError._INVALID_ARG:
            return secrets.explain(convert(secrets.clean(error), "Kafka client"), error)
        text = unreadable_file(config) + secrets.scrub(reason(error))
        return secrets.explain(config_error("INVALID_PROPERTY", text), error)

    def _find_token(self) -> str | None:
        token: str | None = self._resolve(None).get_as_nullable_string("token")
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
    """Run the admin client's callbacks until it closes."""
    with contextlib.suppress(RuntimeError):
        while True:
            admin.poll()


def not_open_error() -> InvalidStateException:
    """Return the exception that a closed connection raises."""
    text = "the connection to Kafka is not open: call open() first"
    return InvalidStateException(None, "NOT_OPEN", text)
