"""The effective configuration that a client returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

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


def test_closed_client_has_no_configuration(make: Callable[..., Any]) -> None:
    producer = make("Producer", {})
    producer.close()

    with pytest.raises(RuntimeError, match=r"^Producer has been closed"):
        producer.configuration()
