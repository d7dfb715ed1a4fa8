"""`kafka.*` options -> librdkafka's properties."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import pytest
import trustme

import cykafka
from cykafka.spark.clients.properties import ClientConfig, client_config

BROKERS = {"kafka.bootstrap.servers": "localhost:9092"}
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def config(
    options: Mapping[str, str] | None = None, role: Any = "source", **defaults: str
) -> ClientConfig:
    return client_config({**BROKERS, **(options or {})}, role=role, defaults=defaults)


def only(options: Mapping[str, str], role: Any = "admin") -> dict[str, str]:
    """The properties of the options, without the brokers."""
    found = dict(config(options, role))
    del found["bootstrap.servers"]
    return found


def refusal(options: Mapping[str, str], role: Any = "source") -> str:
    with pytest.raises(ValueError, match=r"kafka\.") as info:
        config(options, role)
    return str(info.value)


# -- which keys


def test_options_without_the_prefix_belong_to_spark() -> None:
    assert (
        only({"subscribe": "t", "kafkaconsumer.polltimeoutms": "1", "checkpointlocation": "/x"})
        == {}
    )


def test_keys_are_case_insensitive() -> None:
    found = client_config({"Kafka.Bootstrap.Servers": "a:1", "kafka.CLIENT.id": "x"}, role="admin")
    assert found == {"bootstrap.servers": "a:1", "client.id": "x"}


@pytest.mark.parametrize("value", [None, "", "  "])
def test_brokers_are_required(value: Any) -> None:
    options = {"subscribe": "t"} if value is None else {"kafka.bootstrap.servers": value}
    with pytest.raises(ValueError, match=r'option "kafka\.bootstrap\.servers" is missing'):
        client_config(options, role="source")


def test_brokers_may_use_the_librdkafka_key() -> None:
    found = client_config({"kafka.metadata.broker.list": "a:1"}, role="admin")
    assert found == {"bootstrap.servers": "a:1"}


def test_librdkafka_properties_are_passed_on() -> None:
    options = {
        "kafka.queued.min.messages": "7",
        "kafka.debug": "security",
        "kafka.client.rack": "r",
    }
    assert only(options) == {"queued.min.messages": "7", "debug": "security", "client.rack": "r"}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.securty.protocol", "kafka.security.protocol"),
        ("kafka.linger_ms", "kafka.linger.ms"),
        ("kafka.max.poll.record", "kafka.max.poll.records"),
        ("kafka.max.request.sise", "kafka.max.request.size"),
    ],
)
def test_misspelled_key_error_suggests_the_right_one(given: str, meant: str) -> None:
    words = refusal({given: "secret-value"})
    assert given in words
    assert f'did you mean "{meant}"?' in words
    assert "secret-value" not in words


def test_unknown_key_without_a_near_match_has_no_suggestion() -> None:
    assert "did you mean" not in refusal({"kafka.zzzzzzzzzzz": "1"})


@pytest.mark.parametrize("key", ["error_cb", "opaque", "log.queue", "ssl_key", "dr_msg_cb"])
def test_keys_that_are_not_text_are_unknown(key: str) -> None:
    assert "no such property" in refusal({f"kafka.{key}": "x"})


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("auto.offset.reset", "startingOffsets"),
        ("enable.auto.commit", "checkpoint"),
        ("interceptor.classes", "no JVM client"),
        ("key.deserializer", "bytes"),
        ("value.deserializer", "bytes"),
        ("key.serializer", "as they are"),
        ("value.serializer", "as they are"),
        ("partitioner.class", "kafka.partitioner"),
        ("transactional.id", "transactionalIdPrefix"),
        ("config.providers", "the values themselves"),
        ("ssl.engine.factory.class", "kafka.ssl.ca.location"),
        ("sasl.login.callback.handler.class", "oidc"),
        ("enabled_events", "internal"),
    ],
)
@pytest.mark.parametrize("role", ["source", "sink", "admin"])
def test_unsupported_option_error_names_an_alternative(key: str, words: str, role: Any) -> None:
    text = refusal({f"kafka.{key}": "x.y.Z"}, role)
    assert text.startswith(f"option kafka.{key} is not supported: ")
    assert words in text


def test_tuning_options_of_the_jvm_client_are_dropped_with_one_warning() -> None:
    options = {
        "kafka.max.poll.records": "10",
        "kafka.metric.reporters": "x.Y",
        "kafka.sasl.oauthbearer.jwks.endpoint.url": "z",
        "kafka.fetch.min.bytes": "5",
    }
    with pytest.warns(UserWarning, match="only the JVM client") as caught:
        found = only(options)
    assert found == {"fetch.min.bytes": "5"}
    assert [str(each.message) for each in caught] == [
        "only the JVM client has these options, so they are ignored: kafka.max.poll.records, "
        "kafka.metric.reporters, kafka.sasl.oauthbearer.jwks.endpoint.url"
    ]


def test_no_warning_without_tuning_options_of_the_jvm_client() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert only({"kafka.fetch.min.bytes": "5"}) == {"fetch.min.bytes": "5"}


# -- other names, other values


@pytest.mark.parametrize(
    ("key", "value", "name", "expected"),
    [
        ("fetch.max.wait.ms", "9", "fetch.wait.max.ms", "9"),
        ("max.request.size", "2000000", "message.max.bytes", "2000000"),
        ("buffer.memory", "33554432", "queue.buffering.max.kbytes", "32768"),
        ("buffer.memory", "5", "queue.buffering.max.kbytes", "1"),
        ("receive.buffer.bytes", "-1", "socket.receive.buffer.bytes", "0"),
        ("receive.buffer.bytes", "4096", "socket.receive.buffer.bytes", "4096"),
        ("send.buffer.bytes", "-1", "socket.send.buffer.bytes", "0"),
        ("request.timeout.ms", "5000", "socket.timeout.ms", "5000"),
        ("request.timeout.ms", "999999", "socket.timeout.ms", "300000"),
        (
            "ssl.endpoint.identification.algorithm",
            "",
            "ssl.endpoint.identification.algorithm",
            "none",
        ),
    ],
)
def test_java_names_and_values_are_translated(
    key: str, value: str, name: str, expected: str
) -> None:
    assert only({f"kafka.{key}": value}) == {name: expected}


def test_request_timeout_of_a_sink_is_that_of_its_producer() -> None:
    assert config({"kafka.request.timeout.ms": "5000"}, "sink")["request.timeout.ms"] == "5000"


def test_librdkafka_key_overrides_the_translated_one() -> None:
    options = {"kafka.fetch.max.wait.ms": "9", "kafka.fetch.wait.max.ms": "8"}
    assert only(options) == {"fetch.wait.max.ms": "8"}


def test_invalid_number_is_an_error() -> None:
    assert "kafka.buffer.memory: expected a whole number" in refusal(
        {"kafka.buffer.memory": "32m"}
    )


def test_aliases_of_a_property_are_one_property() -> None:
    found = config({"kafka.message.timeout.ms": "7"}, "sink", **{"delivery.timeout.ms": "9"})
    assert found["delivery.timeout.ms"] == "7"
    assert "message.timeout.ms" not in found


# -- roles


def test_a_source_reads_what_the_jvm_connector_reads() -> None:
    assert config(role="source") == {
        "bootstrap.servers": "localhost:9092",
        "isolation.level": "read_uncommitted",
        "reconnect.backoff.ms": "20",
    }
    assert (
        config({"kafka.isolation.level": "read_committed"})["isolation.level"] == "read_committed"
    )


def test_password_in_the_servers_is_refused() -> None:
    with pytest.raises(ValueError, match=r"kafka\.sasl\.password") as info:
        config({"kafka.bootstrap.servers": "SASL_SSL://me:s3cret@host:9093"}, "sink")
    assert "s3cret" not in str(info.value)


def test_sink_partitions_keys_like_the_jvm_connector_and_is_idempotent() -> None:
    assert config(role="sink") == {
        "bootstrap.servers": "localhost:9092",
        "partitioner": "murmur2_random",
        "enable.idempotence": "true",
        "reconnect.backoff.ms": "20",
    }
    assert config({"kafka.partitioner": "random"}, "sink")["partitioner"] == "random"


@pytest.mark.parametrize(
    ("options", "idempotent"),
    [
        ({"kafka.acks": "all"}, True),
        ({"kafka.acks": "-1"}, True),
        ({"kafka.acks": "1"}, False),
        ({"kafka.request.required.acks": "0"}, False),
        ({"kafka.retries": "0"}, False),
        ({"kafka.retries": "3"}, True),
        ({"kafka.max.in.flight.requests.per.connection": "5"}, True),
        ({"kafka.max.in.flight": "6"}, False),
    ],
)
def test_options_that_contradict_idempotence_disable_it(
    options: dict[str, str], idempotent: bool
) -> None:
    found = config(options, "sink")
    assert found.get("enable.idempotence") == ("true" if idempotent else None)
    # The user's options stay. librdkafka reports the contradiction.
    asked = config({**options, "kafka.enable.idempotence": "true"}, "sink")
    assert asked["enable.idempotence"] == "true"
    cykafka.Producer(found).close()


def test_options_override_defaults_and_defaults_override_roles() -> None:
    found = config(
        {"kafka.linger.ms": "1"}, "sink", **{"linger.ms": "50", "partitioner": "random"}
    )
    assert found["linger.ms"] == "1"
    assert found["partitioner"] == "random"


# -- SASL


def jaas(module: str, options: str, flag: str = "required") -> dict[str, str]:
    return {"kafka.sasl.jaas.config": f"{module} {flag} {options};"}


def test_plain_is_translated() -> None:
    given = {
        **jaas(PLAIN, 'username="al ice" password="p=w;\\"x\\""'),
        "kafka.security.protocol": "SASL_SSL",
    }
    assert only(given) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "al ice",
        "sasl.password": 'p=w;"x"',
    }


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_is_translated(mechanism: str) -> None:
    given = {**jaas(SCRAM, "username='al' password=pw"), "kafka.sasl.mechanism": mechanism}
    assert only(given) == {
        "sasl.mechanism": mechanism,
        "sasl.username": "al",
        "sasl.password": "pw",
    }


@pytest.mark.parametrize(
    ("text", "username"),
    [
        (f'{PLAIN} required\n  username="a"\n  password="b" ;\n', "a"),
        (f'// mine\n{PLAIN} /* a\n b */ Optional username="a" password="b";', "a"),
        (f'{PLAIN} required username = "a" password = "b" serviceName="x";', "a"),
        (f'{PLAIN} required username="a\\tb\\101\\\\" password="b";', "a\tbA\\"),
        (f'{PLAIN} required username="" password="b";', ""),
        (f'kafkashaded.{PLAIN} required username="a" password="b";', "a"),
    ],
)
def test_jaas_is_parsed_like_in_java(text: str, username: str) -> None:
    assert only({"kafka.sasl.jaas.config": text})["sasl.username"] == username


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the name of a login module is missing"),
        (f'{PLAIN} required username="hush" password="hush"', 'it ends with ";"'),
        (f'{PLAIN} username="hush" password="hush";', "comes one of required"),
        (f'{PLAIN} required username "hush";', 'name="value"'),
        (f'{PLAIN} required username=;', "the value of username is missing"),
        (f'{PLAIN} required username="hush;', "in quotes that does not end"),
        (f'{PLAIN} required password="hush";', "has no username"),
        (f'{PLAIN} required username="hush";', "has no password"),
        (f'{PLAIN} required username="hush" password="hush"; x', "more than one entry"),
        (f'{PLAIN} required username="hush" password="hush"; {PLAIN} required;', "more than one"),
        (f'{SCRAM} required username="hush" password="hush";', "kafka.sasl.mechanism is missing"),
        (f'{SCRAM} required tokenauth="true" username="hush" password="hush";', "mechanism"),
        ('com.sun.security.auth.module.Krb5LoginModule required;', "kafka.sasl.kerberos"),
        ('a.b.OAuthBearerLoginModule required clientSecret="hush";', "oidc"),
        ('a.b.My required x="hush";', "the login module My is not supported"),
    ],
)  # fmt: skip
def test_invalid_jaas_error_shows_no_secrets(text: str, words: str) -> None:
    error_text = refusal({"kafka.sasl.jaas.config": text})
    assert words in error_text
    assert error_text.startswith("option kafka.sasl.")
    assert "hush" not in error_text


def test_delegation_tokens_are_refused() -> None:
    given = jaas(SCRAM, 'tokenauth="true" username="a" password="b"')
    assert "tokenauth" in refusal({**given, "kafka.sasl.mechanism": "SCRAM-SHA-256"})


def test_mechanism_of_another_login_module_is_refused() -> None:
    given = jaas(PLAIN, 'username="a" password="hush"')
    text = refusal({**given, "kafka.sasl.mechanism": "SCRAM-SHA-256"})
    assert "for PLAIN" in text
    assert "SCRAM-SHA-256" in text


def test_credentials_given_twice_are_refused() -> None:
    given = jaas(PLAIN, 'username="a" password="hush"')
    text = refusal({**given, "kafka.sasl.password": "hush"})
    assert "options kafka.sasl.password and kafka.sasl.jaas.config are both set" in text
    assert "hush" not in text


# -- TLS


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The files and texts of a client certificate."""
    folder = tmp_path_factory.mktemp("pem")
    ca = trustme.CA()
    cert = ca.issue_cert("client")
    chain = b"".join(part.bytes() for part in cert.cert_chain_pems).decode()
    key = cert.private_key_pem.bytes().decode()
    (folder / "ca.pem").write_bytes(ca.cert_pem.bytes())
    (folder / "both.pem").write_text(key + chain)
    return {
        "ca": str(folder / "ca.pem"),
        "both": str(folder / "both.pem"),
        "ca_text": ca.cert_pem.bytes().decode(),
        "chain": chain,
        "key": key,
    }


def test_pem_files_are_translated(pem: dict[str, str]) -> None:
    found = only(
        {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": pem["ca"],
            "kafka.ssl.keystore.type": "pem",
            "kafka.ssl.keystore.location": pem["both"],
            "kafka.ssl.key.password": "pw",
        }
    )
    assert found == {
        "security.protocol": "SSL",
        "ssl.ca.location": pem["ca"],
        "ssl.certificate.location": pem["both"],
        "ssl.key.location": pem["both"],
        "ssl.key.password": "pw",
    }
    # librdkafka reads the key and the certificates from one file.
    cykafka.Producer({"bootstrap.servers": "localhost:1", **found}).close()


@pytest.mark.parametrize("named", [True, False], ids=["typed", "untyped"])
def test_pem_texts_are_translated(pem: dict[str, str], named: bool) -> None:
    types = {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.keystore.type": "PEM"}
    found = only(
        {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.certificates": pem["ca_text"],
            "kafka.ssl.keystore.certificate.chain": pem["chain"],
            "kafka.ssl.keystore.key": pem["key"],
            **(types if named else {}),
        }
    )
    assert found == {
        "security.protocol": "SSL",
        "ssl.ca.pem": pem["ca_text"],
        "ssl.certificate.pem": pem["chain"],
        "ssl.key.pem": pem["key"],
    }
    cykafka.Producer({"bootstrap.servers": "localhost:1", **found}).close()


def test_a_pkcs12_keystore_is_read_by_librdkafka() -> None:
    found = only(
        {
            "kafka.ssl.keystore.type": "PKCS12",
            "kafka.ssl.keystore.location": "k.p12",
            "kafka.ssl.keystore.password": "pw",
        }
    )
    assert found == {"ssl.keystore.location": "k.p12", "ssl.keystore.password": "pw"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"truststore.location": "t"}, "without kafka.ssl.truststore.type it is a Java key store"),
        ({"truststore.type": "JKS", "truststore.location": "t"}, "a store of type JKS"),
        ({"truststore.type": "PKCS12", "truststore.location": "t"}, "keytool -exportcert -rfc"),
        ({"keystore.location": "k"}, "kafka.ssl.keystore.type=PKCS12"),
        ({"keystore.type": "JKS", "keystore.location": "k", "keystore.password": "hush"}, "JKS"),
        ({"truststore.type": "PEM", "truststore.location": "t", "truststore.password": "hush"},
         "kafka.ssl.truststore.password: a store of type PEM has no password"),
        ({"keystore.type": "PEM", "keystore.location": "k", "keystore.password": "hush"},
         "kafka.ssl.key.password"),
        ({"truststore.type": "PEM", "truststore.location": "t", "truststore.certificates": "hush"},
         "both set"),
        ({"keystore.key": "hush"}, "kafka.ssl.keystore.certificate.chain is missing"),
        ({"keystore.certificate.chain": "c"}, "kafka.ssl.keystore.key is missing"),
        ({"truststore.type": "PEM", "truststore.location": "t", "ca.location": "u"},
         "option kafka.ssl.ca.location and the JVM client's name"),
    ],
)  # fmt: skip
def test_stores_librdkafka_cannot_read_are_refused(options: dict[str, str], words: str) -> None:
    text = refusal({f"kafka.ssl.{key}": value for key, value in options.items()})
    assert words in text
    assert "hush" not in text


@pytest.mark.parametrize(
    "text",
    ["hush", "principal=", "principal=hush hush=x", "lifeSeconds=hush", "lifeSeconds=0",
     "extension_=hush", 'principal="hush"'],
)  # fmt: skip
def test_unsecured_token_errors_do_not_show_its_parts(text: str) -> None:
    error_text = refusal({"kafka.sasl.oauthbearer.config": text})
    assert "kafka.sasl.oauthbearer.config: part" in error_text
    assert "hush" not in error_text


def test_unsecured_token_is_parsed_like_in_librdkafka() -> None:
    text = " principalClaimName=sub principal=me  scope=a,b lifeSeconds=60 extension_x=y=z"
    key = "kafka.sasl.oauthbearer.config"
    assert config({key: text})["sasl.oauthbearer.config"] == text
    other = {key: "query=x", "kafka.sasl.oauthbearer.method": "oidc"}
    assert config(other)["sasl.oauthbearer.config"] == "query=x"


# -- other clients


def test_second_client_gets_all_login_properties() -> None:
    # If librdkafka adds a property of TLS or SASL, this test fails.
    from cykafka.internal import known_properties
    from cykafka.spark.clients.properties import _properties
    from cykafka.spark.sink.transactions import _shared

    names = {name for name in _properties() if any(w in name for w in ("ssl", "sasl", "https"))}
    assert len(names) > 30
    assert names < set(known_properties())
    found = _shared(dict.fromkeys([*names, "linger.ms", "transactional.id", "acks"], "x"))
    assert found.keys() == names
