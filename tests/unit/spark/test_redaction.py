"""The secret options of Kafka clients and of other parts of a Spark program."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Mapping

import pytest

from cykafka.internal import known_properties
from cykafka.spark.clients.properties import REDACTED, ClientConfig, client_config, is_secret


@pytest.mark.parametrize(
    "name",
    [
        "sasl.jaas.config",
        "SASL.JAAS.CONFIG",
        "kafka.sasl.password",
        "source.kafka.sasl.jaas.config",
        "ssl.truststore.password",
        "ssl.keystore.key",
        "kafka.ssl.key.pem",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "kafka.sasl.oauthbearer.config",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.s3a.session.token",
        "spark.hadoop.fs.azure.account.key.a.blob.core.windows.net",
        "spark.hadoop.fs.azure.sas.container.a.blob.core.windows.net",
        "spark.hadoop.fs.azure.sas.fixed.token",
        "spark.hadoop.fs.gs.auth.service.account.private.key",
        "fs.cosn.userinfo.accessKey",
        "aws_access_key_id",
        "credentials",
    ],
)
def test_secrets_are_recognized_by_name(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "kafka.bootstrap.servers",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.pem",
        "ssl.key.location",
        "sasl.mechanism",
        "key",
        "partitioner",
        "topic",
        "spark.sql.session.timeZone",
        "sas",
        "path",
    ],
)
def test_other_options_are_shown(name: str) -> None:
    assert not is_secret(name)


def test_every_librdkafka_property_with_a_password_is_a_secret() -> None:
    # A new property with a secret must be hidden.
    words = re.compile(r"password|secret|passphrase|\bpem$")
    shown = {name for name in known_properties() if words.search(name) and not is_secret(name)}
    assert shown == {"https.ca.pem", "ssl.ca.pem", "ssl.certificate.pem"}


def test_java_and_python_match_the_expression_alike() -> None:
    # The expression uses no syntax that only one of the two knows; its flag comes first.
    assert REDACTED.startswith("(?i)")
    assert not re.search(r"\(\?(?!i\)$)", REDACTED[4:])
    assert not re.search(r"\\[AZzQE]|\[\[|&&|(?<!\\)\{", REDACTED)


# -- configurations


def config(options: Mapping[str, str]) -> ClientConfig:
    return client_config({"kafka.bootstrap.servers": "localhost:9092", **options}, role="source")


def test_a_configuration_does_not_print_its_secrets() -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    found = config(
        {
            "kafka.sasl.jaas.config": f'{module} required username="hush" password="hush";',
            "kafka.ssl.key.password": "hush",
            "kafka.ssl.key.pem": "hush",
            "kafka.sasl.oauthbearer.client.secret": "hush",
            "kafka.client.id": "me",
        }
    )
    assert "hush" not in f"{found} {found!r} {[found]}"
    assert "me" in repr(found)
    assert list(found.values()).count("hush") == 5
    again = pickle.loads(pickle.dumps(found))
    assert again == found
    assert "hush" not in repr(again)


def test_copies_of_a_configuration_do_not_print_its_secrets() -> None:
    found = config({"kafka.sasl.password": "hush", "kafka.sasl.username": "who"})
    changed = found.copy()
    changed |= {"client.id": "me"}
    more = [
        found.copy(),
        copy.copy(found),
        copy.deepcopy(found),
        found | {"client.id": "me"},
        {"client.id": "me"} | found,
        changed,
    ]
    assert "hush" not in f"{more}"
    assert "who" not in f"{more}"
    assert [each["sasl.password"] for each in more] == ["hush"] * len(more)
    assert all(each.get("client.id") == "me" for each in more[3:])
    assert "client.id" not in found
    with pytest.raises(TypeError):
        found | [("client.id", "me")]  # type: ignore[operator]
