"""Credentials as pip-services configures them, against brokers that check them."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import Unique
from pip_services4_commons.errors import ConnectionException, UnauthorizedException
from pip_services4_config.auth import CredentialParams, ICredentialStore
from pip_services_rig import Listener, MakeConnection, MakeReferences, Recorder, eventually

import cykafka
from cykafka.testing import KafkaCluster

pytestmark = pytest.mark.ours

NAMED = (
    "tls",
    "mtls",
    "sasl_plain",
    "sasl_scram_sha_256",
    "sasl_scram_sha_512_tls",
    "sasl_oauthbearer",
)
# A broker that has just started is slow.
PATIENT = {"options.connect_timeout": 20_000}


def token_of(user: str, lifetime: float = 600) -> str:
    """An unsigned JSON Web Token."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now, "exp": int(now + lifetime)})
    encoded = [urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in parts]
    return b".".join([*encoded, b""]).decode()


@pytest.fixture
def parameters(secured: KafkaCluster) -> Callable[..., dict[str, Any]]:
    """The pip-services configuration for a listener and a user."""

    def parameters(listener: str, user: str = "alice") -> dict[str, Any]:
        given = secured.client_config(listener, user)
        found: dict[str, Any] = {**PATIENT}
        for number, server in enumerate(given["bootstrap.servers"].split(",")):
            host, port = server.rsplit(":", 1)
            found |= {f"connections.{number}.host": host, f"connections.{number}.port": port}
        for key, name in (
            ("ssl_ca_file", "ssl.ca.location"),
            ("ssl_crt_file", "ssl.certificate.location"),
            ("ssl_key_file", "ssl.key.location"),
            ("username", "sasl.username"),
            ("password", "sasl.password"),
        ):
            if name in given:
                found[f"credential.{key}"] = given[name]
        if "SSL" in given["security.protocol"].split("_"):
            found["credential.ssl"] = "true"
        mechanism = given.get("sasl.mechanism")
        if mechanism is not None:
            found["credential.mechanism"] = mechanism.lower()
        if mechanism == "OAUTHBEARER":
            found["credential.token"] = token_of(user)
        return found

    return parameters


@pytest.mark.parametrize("listener", NAMED)
def test_credential_is_enough_to_send_read_and_administer(
    new_connection: MakeConnection,
    parameters: Callable[..., dict[str, Any]],
    unique: Unique,
    listener: str,
) -> None:
    connection, topic, found = new_connection(parameters(listener)), unique("t"), Listener()
    connection.open(None)
    connection.create_queue(topic)
    connection.subscribe(topic, unique("group"), {}, found)
    connection.publish(topic, [{"value": listener}])

    assert found.wait(1) == [listener.encode()]
    assert topic in connection.read_queue_names()


def test_ssl_in_the_connection_enables_tls(
    new_connection: MakeConnection, parameters: Callable[..., dict[str, Any]]
) -> None:
    given = parameters("tls")
    del given["credential.ssl"]
    connection = new_connection({**given, "connections.0.ssl": "true"})
    connection.open(None)

    assert connection.get_producer().configuration()["security.protocol"] == "ssl"


@pytest.mark.parametrize("listener", ["sasl_plain", "sasl_scram_sha_256"])
def test_wrong_password_raises_the_brokers_error_without_the_password(
    new_connection: MakeConnection,
    parameters: Callable[..., dict[str, Any]],
    logger: Recorder,
    listener: str,
) -> None:
    given = {**parameters(listener), "credential.password": "wrong-4711"}
    connection = new_connection({**given, "options.connect_timeout": 20_000})
    begun = time.monotonic()
    with pytest.raises(ConnectionException) as caught:
        connection.open(None)

    assert time.monotonic() - begun < 10  # the wait ends with the broker's answer
    assert caught.value.code == "CONNECT_FAILED"
    assert isinstance(caught.value.cause, cykafka.KafkaException)
    assert caught.value.cause.args[0].name() == "_AUTHENTICATION"
    assert "4711" not in f"{caught.value} {caught.value.cause!r} {logger.all()}"


@pytest.mark.parametrize("listener", ["tls", "sasl_plain"])
def test_error_suggests_a_missing_credential(
    new_connection: MakeConnection, parameters: Callable[..., dict[str, Any]], listener: str
) -> None:
    given = parameters(listener)
    open_ = {key: value for key, value in given.items() if not key.startswith("credential.")}
    connection = new_connection({**open_, "options.connect_timeout": 3000})
    with pytest.raises(ConnectionException, match=r"credential\.ssl turns TLS on") as caught:
        connection.open(None)

    assert given["connections.0.port"] in caught.value.message


def test_open_with_a_wrong_token_fails_without_showing_it(
    new_connection: MakeConnection, parameters: Callable[..., dict[str, Any]], logger: Recorder
) -> None:
    given = {**parameters("sasl_oauthbearer"), "credential.token": "no.real.token-4711"}
    connection = new_connection({**given, "options.connect_timeout": 3000})
    with pytest.raises(ConnectionException) as caught:
        connection.open(None)

    assert caught.value.code == "CONNECT_FAILED"
    assert "4711" not in f"{caught.value} {caught.value.cause!r} {logger.all()}"


def test_expired_token_fails_to_open(
    new_connection: MakeConnection, parameters: Callable[..., dict[str, Any]]
) -> None:
    given = {**parameters("sasl_oauthbearer"), "credential.token": token_of("alice", -10)}
    with pytest.raises(ConnectionException, match="expired"):
        new_connection(given).open(None)


def test_expiring_token_is_read_from_the_store_again(
    new_connection: MakeConnection,
    parameters: Callable[..., dict[str, Any]],
    make_references: MakeReferences,
) -> None:
    class Store(ICredentialStore):  # type: ignore[misc]
        asked: int = 0

        def store(self, context: Any, key: str, credential: Any) -> None: ...

        def lookup(self, context: Any, key: str) -> Any:
            assert key == "kafka"
            self.asked += 1
            return CredentialParams.from_tuples("token", token_of("alice", lifetime))

    # librdkafka checks once per second whether 80 % of the lifetime have passed. The last 20 %
    # must be longer: a client that authenticates again with an expired token fails its requests.
    lifetime = 20

    store = Store()
    given = parameters("sasl_oauthbearer")
    del given["credential.token"]
    connection = new_connection(
        {**given, "credential.store_key": "kafka"},
        references=make_references(credential_store=store),
    )
    connection.open(None)
    opened = store.asked

    eventually(lambda: store.asked > opened)
    assert connection.read_queue_names() is not None


def test_missing_permission_raises_unauthorized(
    new_connection: MakeConnection,
    parameters: Callable[..., dict[str, Any]],
    secured: KafkaCluster,
    unique: Unique,
) -> None:
    topic = unique("alice-only")
    secured.create_topic(topic, 1)
    secured.tool(
        "kafka-acls", "--add", "--allow-principal", "User:alice", "--producer", "--topic", topic
    )
    connection = new_connection(parameters("sasl_plain", "bob"))
    connection.open(None)
    with pytest.raises(UnauthorizedException) as caught:
        connection.publish(topic, [{"value": "x"}])

    assert caught.value.code == "TOPIC_AUTHORIZATION_FAILED"
    assert caught.value.details.get("topic") == topic
