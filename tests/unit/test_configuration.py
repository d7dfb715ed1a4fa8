"""The effective configuration that a client returns."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from machine import WAIT_S

import cykafka

pytestmark = pytest.mark.ours


@pytest.fixture
def make() -> Iterator[Callable[..., Any]]:
    """Make clients that are closed at the end of the test."""
    made = []

    def make(kind: str, config: dict[str, Any]) -> Any:
        client = getattr(cykafka, kind)(config)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


def test_configuration_returns_given_values_and_defaults(make: Callable[..., Any]) -> None:
    values = make("Producer", {"linger.ms": 7.5, "acks": "all"}).configuration()

    assert (values["linger.ms"], values["queue.buffering.max.ms"]) == ("7.5", "7.5")
    assert (values["acks"], values["request.required.acks"]) == ("-1", "-1")
    assert values["message.max.bytes"] == "1000000"
    assert values["ssl.ca.location"] is None
    assert all(value is None or isinstance(value, str) for value in values.values())


def test_configuration_returns_values_that_librdkafka_adjusted(make: Callable[..., Any]) -> None:
    values = make("Producer", {"enable.idempotence": True}).configuration()

    assert (values["acks"], values["retries"]) == ("-1", "2147483647")


@pytest.mark.parametrize("stores", [True, False])
def test_configuration_returns_the_users_offset_store_setting(
    make: Callable[..., Any], stores: bool
) -> None:
    consumer = make("Consumer", {"group.id": "g", "enable.auto.offset.store": stores})

    assert consumer.configuration()["enable.auto.offset.store"] == str(stores).lower()
    assert consumer.configuration()["group.id"] == "g"
    assert consumer.configuration()["auto.offset.reset"] == "largest"


def test_configuration_hides_secrets(make: Callable[..., Any]) -> None:
    producer = make(
        "Producer",
        {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "who",
            "sasl.password": "hush",
            "sasl.oauthbearer.config": "secret=hush",
            "sasl.oauthbearer.client.secret": "hush",
        },
    )
    producer.set_sasl_credentials("who", "hush")

    values = producer.configuration()

    assert not [key for key, value in values.items() if value and "hush" in value]
    found = {
        key
        for key, value in values.items()
        if any(word in key for word in ("password", "secret", "passphrase", "key.pem"))
        and value != "[redacted]"
    }
    assert found == set()
    assert values["sasl.mechanism"] == "PLAIN"


@pytest.mark.parametrize("way", ["stderr", "logger"])
@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("http://who:hu@s/hush@127.0.0.1:1/token", "http://127.0.0.1:1/token"),
        ("http://who:hu\u00a0sh@127.0.0.1:1/token", "http://127.0.0.1:1/token"),
        ("http://127.0.0.1:1/token?secret=hush", "http://127.0.0.1:1/token?"),
        ("http://who:hush@127.0.0.1:1/token?secret=hush", "http://127.0.0.1:1/token?"),
        # Of these the password or the query has the "?" and the "@".
        ("http://who:hu@s/h?hush@127.0.0.1:1/token", "http://"),
        ("http://127.0.0.1:1/token?secret=hu@hush", "http://"),
    ],
)
def test_secret_in_a_url_shows_nowhere(
    make: Callable[..., Any], capfd: pytest.CaptureFixture[str], way: str, url: str, text: str
) -> None:
    """Also if it has the characters that end the host in a URL."""
    lines: list[str] = []
    errors: list[str] = []
    log = logging.Logger("test")
    log.addHandler(handler := logging.Handler())
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    producer = make(
        "Producer",
        {
            "security.protocol": "sasl_plaintext",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": "who",
            "sasl.oauthbearer.client.secret": "hush",
            "sasl.oauthbearer.token.endpoint.url": url,
            "error_cb": lambda error: errors.append(error.str()),
            "debug": "conf,security",
            **({"logger": log} if way == "logger" else {}),
        },
    )

    deadline = time.monotonic() + WAIT_S
    while not errors and time.monotonic() < deadline:
        producer.poll(0.1)

    producer.flush(1)
    shown = "\n".join([*lines, *errors, capfd.readouterr().err, str(producer.configuration())])
    assert errors
    assert shown.count(text) >= 3
    assert not [word for word in ("hush", "hu@s", "hu\u00a0s") if word in shown]


@pytest.mark.parametrize("mark", [" ", "\t", "\n", "'", '"'])
def test_url_with_a_mark_that_ends_it_is_refused(make: Callable[..., Any], mark: str) -> None:
    """The log would show what is behind the mark."""
    url = f"http://who:h{mark}ush@127.0.0.1:1/token"
    with pytest.raises(cykafka.KafkaException, match="percent-encoded") as raised:
        make("Producer", {"sasl.oauthbearer.token.endpoint.url": url})

    assert raised.value.args[0].code() == cykafka.KafkaError._INVALID_ARG
    assert "ush" not in str(raised.value)


@pytest.mark.parametrize("key", ["bootstrap.servers", "metadata.broker.list"])
@pytest.mark.parametrize("scheme", ["", "sasl_ssl://"])
def test_address_of_a_broker_has_no_password(
    make: Callable[..., Any], capfd: pytest.CaptureFixture[str], key: str, scheme: str
) -> None:
    with pytest.raises(cykafka.KafkaException, match="give user and password") as raised:
        make("Producer", {key: f"{scheme}who:hush@127.0.0.1:1", "debug": "conf"})

    assert raised.value.args[0].code() == cykafka.KafkaError._INVALID_ARG
    assert "hush" not in str(raised.value) + capfd.readouterr().err


def test_configuration_of_thousands_of_addresses_takes_no_time(make: Callable[..., Any]) -> None:
    servers = ",".join(["plaintext://127.0.0.1:1"] * 5_000)  # one broker, and so one thread
    producer = make("Producer", {"bootstrap.servers": servers})
    begun = time.monotonic()

    values = producer.configuration()

    assert time.monotonic() - begun < 5
    assert values["bootstrap.servers"] == servers


def test_closed_client_has_no_configuration(make: Callable[..., Any]) -> None:
    producer = make("Producer", {})
    producer.close()

    with pytest.raises(RuntimeError, match=r"^Producer has been closed"):
        producer.configuration()
