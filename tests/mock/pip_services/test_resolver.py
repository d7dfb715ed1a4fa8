"""The addresses and credentials of a connection: parameters, URIs, discovery, stores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pip_services4_commons.errors import ConfigException
from pip_services4_config.auth import CredentialParams, MemoryCredentialStore
from pip_services4_config.connect import ConnectionParams, MemoryDiscovery
from pip_services_rig import MakeReferences, Recorder, config

from pip_services4_kafka.connect import KafkaConnectionResolver

pytestmark = pytest.mark.ours

Resolver = Callable[..., KafkaConnectionResolver]
Resolve = Callable[..., dict[str, Any]]
Refusal = Callable[..., ConfigException]


@pytest.fixture
def resolver(make_references: MakeReferences) -> Resolver:
    def resolver(values: dict[str, Any], **components: object) -> KafkaConnectionResolver:
        made = KafkaConnectionResolver()
        made.configure(config(values))
        made.set_references(make_references(**components))
        return made

    return resolver


@pytest.fixture
def resolve(resolver: Resolver) -> Resolve:
    """Resolve a configuration, and return the parameters that are set."""

    def resolve(values: dict[str, Any], **components: object) -> dict[str, Any]:
        found = resolver(values, **components).resolve(None)
        return {key: value for key, value in found.items() if value is not None}

    return resolve


@pytest.fixture
def refusal(resolver: Resolver) -> Refusal:
    def refusal(values: dict[str, Any], **components: object) -> ConfigException:
        with pytest.raises(ConfigException) as caught:
            resolver(values, **components).resolve("trace-1")
        assert caught.value.trace_id == "trace-1"
        return caught.value

    return refusal


def test_single_connection_without_a_credential(resolver: Resolver) -> None:
    found = resolver({"connection.protocol": "tcp", "connection.host": "one"}).resolve(None)

    assert found.get_as_string("brokers") == "one:9092"
    for key in ("username", "password", "token", "mechanism"):
        assert found.get_as_string(key) == ""


def test_several_connections_with_a_credential(resolve: Resolve) -> None:
    found = resolve(
        {
            "connections.0.host": "one",
            "connections.0.port": 9093,
            "connections.1.host": "two",
            "connections.2.host": "one",
            "connections.2.port": 9093,
            "credential.mechanism": "plain",
            "credential.username": "test",
            "credential.password": "pass123",
        }
    )

    assert found == {
        "brokers": "one:9093,two:9092",
        "mechanism": "plain",
        "username": "test",
        "password": "pass123",
    }


@pytest.mark.parametrize(
    ("uri", "brokers", "user", "password"),
    [
        ("tcp://one:1,two:2,three?param=2,3", "one:1,two:2,three:9092", None, None),
        ("tcp://test:pass123@one:9092,two:9092?param=234", "one:9092,two:9092", "test", "pass123"),
        ("kafka://a%40b:p%3Aq%2Fr%2Cs%25@one", "one:9092", "a@b", "p:q/r,s%"),
        ("tcp://u:with+plus@one/", "one:9092", "u", "with+plus"),
        ("tcp://u:p@one?x=1, tcp://u:p@two:2?y=2", "one:9092,two:2", "u", "p"),
        ("[::1]:9093,[fe80::1]", "[::1]:9093,[fe80::1]:9092", None, None),
        ("one", "one:9092", None, None),
    ],
)
def test_uri_passwords_are_percent_decoded_and_queries_ignored(
    resolve: Resolve,
    uri: str,
    brokers: str,
    user: str | None,
    password: str | None,
) -> None:
    found = resolve({"connection.uri": uri})

    assert found["brokers"] == brokers
    assert (found.get("username"), found.get("password")) == (user, password)


def test_user_in_the_uri_takes_the_password_of_the_credential(
    resolve: Resolve,
) -> None:
    found = resolve({"connection.uri": "tcp://me@one", "credential.password": "p"})

    assert (found["username"], found["password"]) == ("me", "p")


def test_servers_given_beside_a_uri_are_kept(resolve: Resolve) -> None:
    found = resolve({"connections.0.host": "one", "connections.1.uri": "tcp://two:2"})

    assert found["brokers"] == "one:9092,two:2"


@pytest.mark.parametrize("where", ["connection", "credential"])
def test_ssl_in_the_connection_or_the_credential_counts(resolve: Resolve, where: str) -> None:
    assert resolve({"connection.host": "one", f"{where}.ssl": "true"})["ssl"] == "true"


@pytest.mark.parametrize(
    ("code", "values"),
    [
        ("NO_CONNECTION", {}),
        ("NO_HOST", {"connection.protocol": "tcp"}),
        ("NO_HOST", {"connection.host": " ", "connection.port": 9092}),
        ("NO_HOST", {"connection.uri": "tcp://:9092"}),
        ("NO_PORT", {"connection.host": "one", "connection.port": 0}),
        ("NO_PORT", {"connection.host": "one", "connection.port": "http"}),
        ("NO_PORT", {"connection.uri": "tcp://u:secret@one:99999"}),
        ("NO_PORT", {"connection.uri": "tcp://u:secret?really@one:9092"}),
        ("NO_PROTOCOL", {"connection.protocol": "", "connection.host": "one"}),
        ("CANNOT_RESOLVE", {"connection.discovery_key": "kafka"}),
        ("CANNOT_RESOLVE", {"connection.host": "one", "credential.store_key": "kafka"}),
    ],
)
def test_missing_parameters_are_named(refusal: Refusal, code: str, values: dict[str, Any]) -> None:
    exception = refusal(values)

    assert exception.code == code
    assert "secret" not in str(exception)


def test_password_that_contains_a_scheme_is_not_logged_as_a_protocol(
    resolve: Resolve, logger: Recorder
) -> None:
    for scheme in ("tcp://", ""):
        found = resolve({"connection.uri": f"{scheme}me:sec4711://x@one:9092"})
        assert (found["brokers"], found["username"]) == ("one:9092", "me")
        assert found["password"] == "sec4711://x"
    assert logger.lines == []


def test_unknown_protocol_only_warns(resolve: Resolve, logger: Recorder) -> None:
    assert resolve({"connection.protocol": "amqp", "connection.host": "one"})["brokers"]
    assert '"amqp"' in logger.all()


def test_connection_comes_from_discovery(resolve: Resolve, refusal: Refusal) -> None:
    discovery = MemoryDiscovery(config({"kafka.host": "found", "kafka.port": 1234}))

    found = resolve(
        {"connection.discovery_key": "kafka", "connection.ssl": 1}, discovery=discovery
    )
    unknown = refusal({"connection.discovery_key": "kafak"}, discovery=discovery)

    assert found["brokers"] == "found:1234"
    assert found["ssl"] == "true"
    assert '"kafak"' in str(unknown)


def test_credential_comes_from_a_store(resolve: Resolve, refusal: Refusal) -> None:
    store = MemoryCredentialStore(config({"kafka.username": "u", "kafka.password": "p"}))
    given = {"connection.host": "one", "credential.mechanism": "scram-sha-256"}

    found = resolve({**given, "credential.store_key": "kafka"}, credential_store=store)
    unknown = refusal({**given, "credential.store_key": "kafak"}, credential_store=store)

    assert (found["username"], found["password"]) == ("u", "p")
    assert found["mechanism"] == "scram-sha-256"
    assert unknown.code == "CANNOT_RESOLVE"


def test_compose_takes_connection_and_credential_params() -> None:
    found = KafkaConnectionResolver().compose(
        None,
        [ConnectionParams.from_tuples("host", "one", "port", 1)],
        CredentialParams.from_tuples("user", "u", "pass", "p"),
    )

    assert found.get_as_string("brokers") == "one:1"
    assert found.get_as_string("username") == "u"
    assert found.get_as_string("password") == "p"
    with pytest.raises(ConfigException) as caught:
        KafkaConnectionResolver().compose(None, [], None)
    assert caught.value.code == "NO_CONNECTION"


def test_second_configure_replaces_only_the_given_keys() -> None:
    resolver = KafkaConnectionResolver()
    resolver.configure(config({"connection.host": "one", "credential.username": "u"}))
    resolver.configure(config({"connection.host": "two"}))

    found = resolver.resolve(None)

    assert found.get_as_string("brokers") == "two:9092"
    assert found.get_as_string("username") == "u"


def test_secrets_are_not_printed(resolver: Resolver) -> None:
    found = resolver(
        {
            "connection.uri": "tcp://me:uri-4711@one",
            "credential.password": "plain-4711",
            "credential.token": "token-4711",
        }
    ).resolve(None)

    assert found.get_as_string("password") == "uri-4711"
    for text in (repr(found), str(found), f"{found}"):
        assert "4711" not in text
        assert "one:9092" in text
