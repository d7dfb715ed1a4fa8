"""Every documented option reaches the client, and unknown ones are reported."""

from __future__ import annotations

import socket
import time
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from pip_services4_commons.errors import ConfigException
from pip_services4_components.config import ConfigParams
from pip_services4_components.refer import References
from pip_services_rig import Listener, MakeConnection, Recorder, config

from pip_services4_kafka.connect import KafkaConnection
from pip_services4_kafka.connect._security import DEFAULT_LIFETIME_S, Secret, Secrets, token_source
from pip_services4_kafka.connect._settings import ConnectionSettings, parse_acks

pytestmark = pytest.mark.ours

RESOLVED = {"brokers": "one:9092"}


def settings(values: dict[str, Any] | None = None) -> ConnectionSettings:
    made = ConnectionSettings()
    made.configure(config(values))
    return made


def security(**credential: Any) -> dict[str, Any]:
    """The librdkafka properties for a credential."""
    properties = ConnectionSettings().admin(ConfigParams({**RESOLVED, **credential}))
    return {
        key: value
        for key, value in properties.items()
        if key.startswith(("security.", "sasl.", "ssl."))
    }


# -- options


def test_acks_client_id_retry_timeout_and_log_level_reach_the_client(
    make_connection: MakeConnection, topic: str
) -> None:
    connection = make_connection(
        client_id="me",
        options__acks=1,
        options__log_level=2,
        options__max_retries=7,
        options__retry_timeout=4000,
        options__request_timeout=6000,
    )
    listener = Listener()
    connection.subscribe(topic, "group", {"heartbeat.interval.ms": "500"}, listener)
    sent = connection.get_producer().configuration()
    read = connection._subscriptions[0].handler.configuration()

    assert sent["acks"] == "1"
    assert sent["retries"] == "7"
    assert sent["message.timeout.ms"] == "3500"
    for one in (sent, read):
        assert one["client.id"] == "me"
        assert one["log_level"] == "4"
        assert one["reconnect.backoff.max.ms"] == "4000"
    assert read["heartbeat.interval.ms"] == "500"
    assert read["session.timeout.ms"] == "10000"
    assert read["auto.commit.interval.ms"] == "5000"
    assert read["group.id"] == "group"


def test_heartbeat_interval_and_readable_partitions_take_the_usual_forms() -> None:
    for text in ("0;1", "0,1", " 1 ; 0 ", "0;1;"):
        assert settings({"options.readable_partitions": text}).readable_partitions == [0, 1]
    listed = {"options.readable_partitions.0": "1", "options.readable_partitions.1": "0"}
    assert settings(listed).readable_partitions == [0, 1]
    assert settings({"options.readable_partitions": ""}).readable_partitions == []
    properties = settings().consumer(
        ConfigParams(RESOLVED), None, {"heartbeat.interval.ms": "3000"}
    )
    assert properties["heartbeat.interval.ms"] == "3000"
    assert properties["group.id"] == "default"


@pytest.mark.parametrize("level", range(5))
def test_log_levels_map_to_those_of_librdkafka(level: int) -> None:
    properties = settings({"options.log_level": level}).admin(ConfigParams(RESOLVED))

    assert properties["log_level"] == {0: 0, 1: 3, 2: 4, 3: 6, 4: 7}[level]


def test_defaults_match_the_documentation(new_connection: MakeConnection) -> None:
    connection = new_connection({"client_id": None, "options.write_partition": ""})

    assert connection._client_id == socket.gethostname()
    assert connection._log_level == 1
    assert connection._connect_timeout == 1000
    assert connection._max_retries == 5
    assert connection._retry_timeout == 30000
    assert connection._request_timeout == 30000
    assert connection._num_partitions == 1
    assert connection._replication_factor == 1
    assert connection._readable_partitions == []
    assert connection._write_partition is None
    assert connection._client_config == {}
    assert connection._subscriptions == []


def test_invalid_number_logs_a_warning_and_uses_the_default() -> None:
    made = settings({"options.max_retries": "many", "options.request_timeout": "0"})

    assert (made.max_retries, made.request_timeout) == (5, 30000)
    assert len(made.warnings) == 2
    assert '"many"' in made.warnings[0]


@pytest.mark.parametrize(
    "values",
    [
        {"options.readable_partitions": "0;one"},
        {"options.readable_partitions": "-1"},
        {"options.write_partition": "first"},
        {"options.acks": "2"},
    ],
)
def test_wrong_partition_or_acks_is_an_error_that_names_it(values: dict[str, Any]) -> None:
    [key] = values
    with pytest.raises(ConfigException, match=key):
        settings(values)


def test_acks_have_several_spellings() -> None:
    assert [parse_acks(value) for value in (None, "", "all", "-1", -1, 0, "0", 1)] == [
        -1,
        -1,
        -1,
        -1,
        -1,
        0,
        0,
        1,
    ]


def test_consumer_of_the_newer_protocol_has_no_session_timeout(
    make_connection: MakeConnection, topic: str
) -> None:
    connection = make_connection({"options.kafka.group.protocol": "consumer"})
    listener = Listener()

    connection.subscribe(topic, "newer", None, listener)
    connection.publish(topic, [{"value": "x"}])

    assert listener.wait(1) == [b"x"]


def test_retry_timeout_below_the_first_pause_is_possible(make_connection: MakeConnection) -> None:
    assert make_connection(options__retry_timeout=50).is_open()


# -- librdkafka's own properties


def test_every_librdkafka_property_is_passed_on(make_connection: MakeConnection) -> None:
    connection = make_connection({"options.kafka.compression.type": "lz4"})

    assert connection.get_producer().configuration()["compression.type"] == "lz4"


def test_producer_only_property_logs_no_warning(
    make_connection: MakeConnection, topic: str, logger: Recorder
) -> None:
    connection = make_connection(
        {
            "options.kafka.linger.ms": "1",
            "options.kafka.fetch.min.bytes": 1,
            "options.log_level": 4,
        }
    )
    listener = Listener()
    connection.subscribe(topic, "warned", {}, listener)
    connection.publish(topic, [{"value": "x"}])
    listener.wait(1)

    assert "will be ignored" not in logger.all()


def test_misspelled_property_is_an_error_that_names_it(new_connection: MakeConnection) -> None:
    with pytest.raises(ConfigException) as caught:
        new_connection({"options.kafka.compresion.type": "lz4"})

    assert caught.value.code == "UNKNOWN_PROPERTY"
    assert '"compresion.type"' in str(caught.value)
    assert '"options.kafka.compression.type"' in str(caught.value)


def test_wrong_value_of_a_property_is_an_error_that_names_it(
    make_connection: MakeConnection,
) -> None:
    with pytest.raises(ConfigException, match=r"linger\.ms") as caught:
        make_connection({"options.kafka.linger.ms": "soon"})

    assert caught.value.code == "INVALID_PROPERTY"


def test_misspelled_property_of_a_subscription_is_an_error_that_names_it(
    connection: KafkaConnection, topic: str
) -> None:
    with pytest.raises(ConfigException, match=r'did you mean "session\.timeout\.ms"'):
        connection.subscribe(topic, None, {"sesion.timeout.ms": 1}, Listener())

    assert connection._subscriptions == []


def test_other_unknown_keys_log_a_warning_with_a_suggestion(
    make_connection: MakeConnection, logger: Recorder
) -> None:
    connection = make_connection(
        {
            "options.request_timout": "1",
            "credential.mechanims": "plain",
            "cliend_id": "x",
            "stray": "value-4711",
            "topic": "known",
            "dependencies.connection": "*:connection:kafka:*:1.0",
        }
    )

    found = [text for level, text, _ in logger.lines if "is not a key" in text]
    assert connection.is_open()
    assert len(found) == 4
    for meant in ("options.request_timeout", "credential.mechanism", "client_id"):
        assert any(f'did you mean "{meant}"' in text for text in found)
    assert "4711" not in logger.all()


def test_without_pip_services_loggers_warnings_go_to_logging(
    new_connection: MakeConnection, cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    connection = new_connection(
        connection__uri=cluster.bootstrap_servers,
        options__request_timout=1,
        references=References(),
    )
    connection.open(None)

    (found,) = [record for record in caplog.records if "is not a key" in record.message]
    assert (found.name, found.levelname) == ("cykafka", "WARNING")
    assert 'did you mean "options.request_timeout"' in found.message


# -- TLS and SASL


def test_file_that_is_missing_is_named(new_connection: MakeConnection) -> None:
    connection = new_connection(connection__host="localhost", credential__ssl_ca_file="/no.pem")
    with pytest.raises(ConfigException) as caught:
        connection.open(None)

    assert caught.value.code == "INVALID_PROPERTY"
    assert 'credential.ssl_ca_file: "/no.pem" cannot be read' in caught.value.message


def test_ssl_without_a_password_is_tls() -> None:
    assert security(ssl="true") == {"security.protocol": "SSL"}
    assert security(ssl_ca_file="/ca.pem") == {
        "security.protocol": "SSL",
        "ssl.ca.location": "/ca.pem",
    }


def test_files_of_tls_and_a_password() -> None:
    found = security(
        ssl="true",
        ssl_ca_file="ca",
        ssl_crt_file="crt",
        ssl_key_file="key",
        mechanism="scram_sha_512",
        username="u",
        password="p-4711",
    )

    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": "p-4711",
        "ssl.ca.location": "ca",
        "ssl.certificate.location": "crt",
        "ssl.key.location": "key",
    }
    assert "4711" not in repr(found)


def test_without_a_user_the_protocol_is_plaintext_with_any_mechanism() -> None:
    assert security() == {"security.protocol": "PLAINTEXT"}
    assert security(mechanism="plain", username=None, password=None) == security()


def test_user_without_a_password_is_an_error(
    make_connection: MakeConnection, cluster: Any
) -> None:
    with pytest.raises(ConfigException) as caught:
        make_connection(credential__username="me")

    assert caught.value.code == "NO_PASSWORD"
    assert "credential.password" in str(caught.value)


def test_unknown_mechanism_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigException, match="scram-sha-256"):
        security(mechanism="sha1", username="u", password="p")


def test_token_alone_means_oauthbearer() -> None:
    assert security(token="t")["sasl.mechanism"] == "OAUTHBEARER"
    with pytest.raises(ConfigException, match=r"credential\.token"):
        security(mechanism="oauthbearer")


def jwt(claims: str) -> str:
    return ".".join(
        urlsafe_b64encode(part.encode()).rstrip(b"=").decode()
        for part in ('{"alg":"none"}', claims, "")
    )


def test_token_source_reads_expiry_and_subject_from_the_token() -> None:
    until = int(time.time()) + 300
    token = jwt(f'{{"sub":"alice","exp":{until}}}')

    assert token_source(lambda: token)("") == (token, float(until), "alice")


@pytest.mark.parametrize("token", ["opaque", "a.b.c", jwt("[1]"), jwt("nonsense"), jwt("{}")])
def test_token_without_claims_gets_a_default_expiry(token: str) -> None:
    given, until, whose = token_source(lambda: token)("")

    assert (given, whose) == (token, "")
    assert 0 < until - time.time() <= DEFAULT_LIFETIME_S


def test_expired_token_is_refused_without_being_shown() -> None:
    token = jwt('{"exp":1}')
    with pytest.raises(ValueError, match="expired") as caught:
        token_source(lambda: token)("")

    assert token not in str(caught.value)


# -- secrets


def test_secrets_appear_in_no_log_repr_or_exception(
    new_connection: MakeConnection, logger: Recorder, capfd: pytest.CaptureFixture[str]
) -> None:
    connection = new_connection(
        {
            "connection.uri": "tcp://me:uri-4711@127.0.0.1:1",
            "credential.mechanism": "plain",
            "options.kafka.ssl.key.password": "key-4711",
            "options.log_level": 4,
            "options.kafka.debug": "security,broker,conf",
            "options.connect_timeout": 200,
        }
    )
    with pytest.raises(Exception, match="Kafka") as caught:
        connection.open("trace")

    exception: Any = caught.value
    shown = [logger.all(), repr(connection), str(connection), *capfd.readouterr()]
    while exception is not None:
        shown += [str(exception), repr(exception)]
        shown += [
            str(getattr(exception, name, "")) for name in ("details", "stack_trace", "cause")
        ]
        exception = exception.__cause__
    assert len(logger.lines) > 3
    assert "4711" not in "\n".join(shown)


def test_error_of_a_client_does_not_show_secrets(new_connection: MakeConnection) -> None:
    connection = new_connection(
        {
            "connection.host": "one",
            "options.kafka.sasl.mechanism": "OAUTHBEARER",
            "options.kafka.security.protocol": "SASL_PLAINTEXT",
            "options.kafka.enable.sasl.oauthbearer.unsecure.jwt": "true",
            "options.kafka.sasl.oauthbearer.config": "nonsense-4711",
            "options.connect_timeout": 300,
        }
    )
    with pytest.raises(Exception, match="Kafka") as caught:
        connection.open(None)

    exceptions: list[Any] = [caught.value]
    for exception in exceptions:
        assert "4711" not in f"{exception} {exception!r} {getattr(exception, 'stack_trace', '')}"
        exceptions += filter(None, (exception.__cause__, exception.__context__))
    assert len(exceptions) > 1


def test_secret_is_hidden_in_repr_and_str(make_connection: MakeConnection) -> None:
    connection = make_connection({"options.kafka.ssl.key.password": "key-4711"})
    secret = connection._client_config["ssl.key.password"]

    assert secret == "key-4711"
    for text in (repr(connection._client_config), str(secret), f"{secret}", f"{secret!r:>10}"):
        assert "4711" not in text
    assert "4711" not in repr(Secret("4711"))


def test_secrets_are_scrubbed_from_foreign_texts() -> None:
    secrets = Secrets()
    secrets.add([None, "", "ab", "4711", "4711-long"])
    secrets.add([Secret("later")])

    assert secrets.scrub("ab 4711-long 4711 later") == "ab [hidden] [hidden] [hidden]"
    assert str(secrets.clean(ValueError("4711"))) == "[hidden]"
    found = ValueError("nothing")
    assert secrets.clean(found) is found
