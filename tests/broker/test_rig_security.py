"""Secured listeners: right credentials get in under their user, wrong ones get the reason."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fixture_types import MakeProducer, Unique, WaitUntil
from machine import WAIT_S

from cykafka.testing import KafkaCluster

pytestmark = pytest.mark.ours

NAMED = (
    "mtls",
    "sasl_plain",
    "sasl_scram_sha_256",
    "sasl_scram_sha_512",
    "sasl_oauthbearer",
    "sasl_gssapi",
    "sasl_scram_sha_512_tls",
    "sasl_gssapi_tls",
)
PASSWORDS = [name for name in NAMED if "plain" in name or "scram" in name]


@pytest.fixture(scope="module")
def alice_only(secured: KafkaCluster, unique: Unique) -> str:
    """A topic that only alice may write to."""
    topic = unique("alice-only")
    secured.create_topic(topic, 1)
    added = secured.tool(
        "kafka-acls", "--add", "--allow-principal", "User:alice", "--producer", "--topic", topic
    )
    assert "User:alice" in added
    return topic


@pytest.fixture
def write(make_producer: MakeProducer) -> Callable[..., Any]:
    """Write a record with a configuration; return the error of its report, or None."""

    def write(config: dict[str, str], topic: str) -> Any:
        outcomes: list[Any] = []
        producer = make_producer(config)
        producer.produce(topic, b"x", on_delivery=lambda err, msg: outcomes.append(err))
        assert producer.flush(WAIT_S) == 0
        [outcome] = outcomes
        return outcome

    return write


@pytest.fixture
def refusal(make_producer: MakeProducer, wait_until: WaitUntil) -> Callable[..., str]:
    """Return the text that the error callback of a refused client gets."""

    def refusal(config: dict[str, Any], **kwargs: Any) -> str:
        errors: list[Any] = []
        producer = make_producer({**config, "error_cb": errors.append}, **kwargs)
        wait_until(lambda: errors, lambda: producer.poll(0.1), timeout=WAIT_S)
        return str(errors[0])

    return refusal


@pytest.mark.parametrize("listener", NAMED)
def test_user_is_authorized_by_name(
    secured: KafkaCluster, alice_only: str, write: Callable[..., Any], listener: str, kafka: Any
) -> None:
    assert write(secured.client_config(listener), alice_only) is None
    refused = write(secured.client_config(listener, "bob"), alice_only)

    assert refused.code() == kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_tls_without_a_client_certificate_needs_no_user(
    secured: KafkaCluster, write: Callable[..., Any], unique: Unique
) -> None:
    topic = unique("tls")
    secured.create_topic(topic, 1)

    assert write(secured.client_config("tls"), topic) is None


def test_unknown_authority_is_refused(secured: KafkaCluster, refusal: Callable[..., str]) -> None:
    config = secured.client_config("tls")
    del config["ssl.ca.location"]

    assert "certificate verify failed" in refusal(config)


def test_missing_certificate_is_refused(
    secured: KafkaCluster, refusal: Callable[..., str]
) -> None:
    config = secured.client_config("mtls")
    del config["ssl.certificate.location"], config["ssl.key.location"]

    assert "certificate" in refusal(config)


@pytest.mark.parametrize("listener", PASSWORDS)
def test_wrong_password_fails_with_the_brokers_message_alone(
    secured: KafkaCluster,
    refusal: Callable[..., str],
    listener: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    wrong = "wrong-4711"
    config = {**secured.client_config(listener), "sasl.password": wrong}

    error_text = refusal(config)

    assert "_AUTHENTICATION" in error_text
    assert "nvalid" in error_text  # Invalid username or password; ... due to invalid credentials
    for text in (error_text, *capfd.readouterr(), log_of(secured)):
        assert wrong not in text


def test_wrong_token_fails_with_the_broker_s_message_without_the_token(
    secured: KafkaCluster, refusal: Callable[..., str], capfd: pytest.CaptureFixture[str]
) -> None:
    config: dict[str, Any] = secured.client_config("sasl_oauthbearer")
    del config["enable.sasl.oauthbearer.unsecure.jwt"], config["sasl.oauthbearer.config"]
    config["oauth_cb"] = lambda _: ("no.real.token", time.time() + 3600)

    error_text = refusal(config)

    assert "invalid_token" in error_text
    for text in (error_text, *capfd.readouterr(), log_of(secured)):
        assert "no.real.token" not in text


def test_unknown_service_fails_with_the_message_of_kerberos(
    secured: KafkaCluster, refusal: Callable[..., str]
) -> None:
    config = secured.client_config("sasl_gssapi")
    config["sasl.kerberos.service.name"] = "nobody"

    assert "not found in Kerberos database" in refusal(config)


def test_unknown_principal_fails_with_the_message_of_kerberos(
    secured: KafkaCluster,
    make_producer: MakeProducer,
    wait_until: WaitUntil,
    capfd: pytest.CaptureFixture[str],
) -> None:
    config = secured.client_config("sasl_gssapi")
    config["sasl.kerberos.principal"] = "mallory@CYKAFKA.TEST"
    said = ""

    def listen() -> None:  # librdkafka writes this only to its log
        nonlocal said
        producer.poll(0.1)
        said += capfd.readouterr().err

    producer = make_producer(config)
    wait_until(lambda: "Kerberos ticket refresh failed" in said, listen, timeout=WAIT_S)

    assert "no suitable keys for mallory@CYKAFKA.TEST" in said


def test_no_credential_is_logged(secured: KafkaCluster, alice_only: str) -> None:
    log = log_of(secured)

    assert "Kafka Server started" in log
    for user in ("alice", "bob"):
        assert secured.client_config("sasl_plain", user)["sasl.password"] not in log
    assert "PRIVATE KEY" not in log


def test_only_the_owner_can_read_credential_files(secured: KafkaCluster) -> None:
    folder = secured.nodes[0].log_path.parent

    assert folder.stat().st_mode & 0o077 == 0
    for path in (folder / "node-1.properties", folder / "alice.pem"):
        assert path.stat().st_mode & 0o077 == 0


def test_unknown_listener_is_refused(secured: KafkaCluster) -> None:
    with pytest.raises(ValueError, match="sasl_ntlm"):
        secured.client_config("sasl_ntlm")
    with pytest.raises(ValueError, match="sasl_ntlm"):
        KafkaCluster(listeners=("sasl_ntlm",))
    with pytest.raises(ValueError, match="carol"):
        secured.client_config("sasl_plain", "carol")


def test_plain_listener_needs_no_credentials(secured: KafkaCluster) -> None:
    assert secured.client_config() == {"bootstrap.servers": secured.bootstrap_servers}


def test_kdc_ends_with_the_cluster(kafka_cluster_factory: Callable[..., KafkaCluster]) -> None:
    cluster = kafka_cluster_factory(listeners=("sasl_gssapi",))
    folder = str(cluster.nodes[0].log_path.parent)
    assert any("krb5kdc" in command for command in working_in(folder))

    cluster.close()

    assert working_in(folder) == []


def log_of(cluster: KafkaCluster) -> str:
    return cluster.nodes[0].log_path.read_text()


def working_in(folder: str) -> list[str]:
    """The command lines of the processes that have this working folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "cwd").startswith(folder):
                found.append((process / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:  # the process has ended, or belongs to another user
            continue
    return found
