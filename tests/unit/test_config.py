"""Constructors: the forms of a configuration, and the errors for a wrong one.

No broker is needed: statistics, which a client emits about itself, show what was configured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from types import ModuleType
from typing import Any
from uuid import UUID

import numpy
import pytest


@pytest.mark.ours
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"group.id": ""},
        {"group.id": None},
        {"group.id": " \t"},
        {"group.id": b" "},
        {"group.id": "g", "default.topic.config": {"group.id": " "}},
        {"group.id": "g", "default.topic.config": {"group.id": ""}},
    ],
)
def test_consumer_without_a_group_is_refused(kafka: ModuleType, config: dict[str, Any]) -> None:
    """The effective value counts: librdkafka drops white space at the front."""
    with pytest.raises(ValueError, match=r"group\.id must be set$"):
        kafka.Consumer(config)


@pytest.mark.ours
def test_misspelled_group_is_named(kafka: ModuleType) -> None:
    with pytest.raises(kafka.KafkaException, match=r'"goup\.id"; did you mean "group\.id"'):
        kafka.Consumer({"goup.id": "x"})


@pytest.mark.ours
@pytest.mark.parametrize("name", [" ", "\t\n"])
def test_blank_transactional_id_is_refused(kafka: ModuleType, name: str) -> None:
    with pytest.raises(ValueError, match=r"transactional\.id: expected a name or None"):
        kafka.Producer({"transactional.id": name})


@pytest.mark.parametrize(
    "value", [Decimal(7), UUID("00000000-0000-0000-0000-000000000007"), numpy.int64(7)]
)
def test_numbers_of_any_kind_and_ids_are_values(
    client_id: Callable[..., str], value: object
) -> None:
    assert client_id({"client.id": value}) == str(value)


@pytest.fixture
def make(kafka: ModuleType) -> Iterator[Callable[..., Any]]:
    """Make clients that are closed at the end of the test."""
    made = []

    def make(kind: str, *args: Any, **kwargs: Any) -> Any:
        client = getattr(kafka, kind)(*args, **kwargs)
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client_id(make: Callable[..., Any]) -> Callable[..., str]:
    """The client.id in the statistics of a producer made from these arguments."""

    def read(*args: Any, **kwargs: Any) -> str:
        reports: list[str] = []
        extra = {"statistics.interval.ms": 10, "stats_cb": reports.append}
        producer = make("Producer", *args, **{**extra, **kwargs})
        producer.poll(5)
        value: str = json.loads(reports[0])["client_id"]
        return value

    return read


def test_constructor_takes_a_dict(client_id: Callable[..., str]) -> None:
    assert client_id({"client.id": "from-dict"}) == "from-dict"


def test_constructor_takes_keywords(client_id: Callable[..., str]) -> None:
    assert client_id(**{"client.id": "from-keywords"}) == "from-keywords"


def test_constructor_keywords_override_the_dict(client_id: Callable[..., str]) -> None:
    assert client_id({"client.id": "dict"}, **{"client.id": "keywords"}) == "keywords"


def test_constructor_does_not_change_the_dict(client_id: Callable[..., str]) -> None:
    config = {"client.id": "x", "default.topic.config": {"acks": "all"}}
    before = {**config, "default.topic.config": {"acks": "all"}}

    client_id(config)

    assert config == before


@pytest.mark.parametrize("kind", ["Producer", "Consumer"])
@pytest.mark.parametrize("arguments", [(), (3,), ("bootstrap.servers",), ({}, {})], ids=repr)
def test_constructor_rejects_other_types_than_dict(
    kafka: ModuleType, kind: str, arguments: tuple[object, ...]
) -> None:
    with pytest.raises(TypeError, match="dict"):
        getattr(kafka, kind)(*arguments)


def test_consumer_without_a_group_is_rejected(kafka: ModuleType) -> None:
    with pytest.raises(ValueError, match=r"group\.id"):
        kafka.Consumer({"bootstrap.servers": "127.0.0.1:1"})


@pytest.mark.parametrize("key", ["client.id", "transactional.id"])
def test_constructor_refuses_what_no_request_has_room_for(
    make: Callable[..., Any], key: str
) -> None:
    make("Producer", {key: "ü" * 16_383 + "x"})

    from cykafka import Producer

    with pytest.raises(ValueError, match=rf"^{key}: it has 32768 bytes, the limit is 32767"):
        Producer({key: "ü" * 16_384})


LIMIT = 1_048_576


@pytest.mark.ours
@pytest.mark.parametrize(
    "key",
    ["bootstrap.servers", "sasl.username", "sasl.password", "ssl.ca.pem", "topic.blacklist",
     "plugin.library.paths", "partition.assignment.strategy", "client.dns.lookup", "ssl_ca",
     "ssl_key", "ssl_certificate"],
)  # fmt: skip
@pytest.mark.parametrize("size", [LIMIT + 1, 20_000_000], ids=["limit", "stack"])
def test_constructor_refuses_long_values(kafka: ModuleType, key: str, size: int) -> None:
    """librdkafka copies some of them to the stack, or has an int for their size."""
    with pytest.raises(ValueError, match=rf"^{key}: it has {size} bytes, the limit is {LIMIT}$"):
        kafka.Producer({key: "ü" * (size // 2) + "x" * (size % 2)})


@pytest.mark.ours
def test_constructor_takes_long_values(kafka: ModuleType) -> None:
    servers = "127.0.0.1:1".ljust(LIMIT, ",")
    config = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "SCRAM-SHA-256"}
    credentials = {"sasl.username": "x" * LIMIT, "sasl.password": "x" * LIMIT}
    with kafka.Producer({"bootstrap.servers": servers, **config, **credentials}) as producer:
        producer.set_sasl_credentials("x" * LIMIT, "x")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("linger.ms", 5),
        ("linger.ms", 0.5),
        ("linger.ms", "5"),
        ("enable.idempotence", True),
        ("enable.idempotence", False),
        ("enable.idempotence", "true"),
        ("client.rack", None),
        ("ssl.ca.location", None),
        ("topic.metadata.refresh.interval.ms", -1),
    ],
)
def test_constructor_takes_plain_values(
    make: Callable[..., Any], key: str, value: str | float | None
) -> None:
    make("Producer", {key: value})


@pytest.mark.parametrize("switch", [True, "true"])
def test_constructor_bool_reaches_librdkafka(kafka: ModuleType, switch: object) -> None:
    # An idempotent producer requires acks=all, so librdkafka refuses the pair.
    with pytest.raises(kafka.KafkaException, match="acks"):
        kafka.Producer({"enable.idempotence": switch, "acks": 1})


def test_constructor_number_reaches_librdkafka(kafka: ModuleType) -> None:
    with pytest.raises(kafka.KafkaException, match=r"message\.timeout\.ms"):
        kafka.Producer({"message.timeout.ms": -3})


@pytest.mark.parametrize(
    ("key", "value"),
    [("security.protocol", "carrier-pigeon"), ("statistics.interval.ms", "often")],
)
def test_constructor_names_the_key_of_a_wrong_value(
    kafka: ModuleType, key: str, value: str
) -> None:
    with pytest.raises(kafka.KafkaException, match=key) as caught:
        kafka.Producer({key: value})

    assert caught.value.args[0] == kafka.KafkaError._INVALID_ARG


@pytest.mark.parametrize("kind", ["Producer", "Consumer"])
def test_constructor_names_an_unknown_key(kafka: ModuleType, kind: str) -> None:
    with pytest.raises(kafka.KafkaException, match=r"no\.such\.key") as caught:
        getattr(kafka, kind)({"group.id": "g", "no.such.key": 1})

    assert caught.value.args[0] == kafka.KafkaError._INVALID_ARG


def test_constructor_names_an_unknown_topic_key(kafka: ModuleType) -> None:
    with pytest.raises(kafka.KafkaException, match=r"no\.such\.key"):
        kafka.Producer({"default.topic.config": {"no.such.key": 1}})


@pytest.mark.ours
@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("bootstrap.server", "bootstrap.servers"),
        ("bootstrap_servers", "bootstrap.servers"),
        ("group_id", "group.id"),
        ("auto.ofset.reset", "auto.offset.reset"),
        ("Client.Id", "client.id"),
    ],
)
def test_constructor_suggests_the_right_key_for_a_near_miss(
    kafka: ModuleType, typed: str, meant: str
) -> None:
    with pytest.raises(kafka.KafkaException) as caught:
        kafka.Consumer({"group.id": "g", typed: "x"})

    words = caught.value.args[0].str()
    assert typed in words
    assert f'"{meant}"' in words or f"'{meant}'" in words


@pytest.mark.ours
def test_constructor_suggests_nothing_for_an_unfamiliar_key(kafka: ModuleType) -> None:
    with pytest.raises(kafka.KafkaException) as caught:
        kafka.Producer({"zzzzzzzzzzzzzzzz": "x"})

    assert "mean" not in caught.value.args[0].str()


def test_constructor_names_a_key_that_is_not_text(kafka: ModuleType) -> None:
    with pytest.raises((TypeError, kafka.KafkaException), match="12345"):
        kafka.Producer({12345: "x"})


@pytest.mark.ours
@pytest.mark.parametrize("value", [["a", "b"], {"a": 1}, object()], ids=["list", "dict", "object"])
def test_constructor_value_of_a_wrong_type_names_the_key(kafka: ModuleType, value: object) -> None:
    with pytest.raises(TypeError, match=r"bootstrap\.servers"):
        kafka.Producer({"bootstrap.servers": value})


@pytest.mark.ours
def test_constructor_topic_config_of_a_wrong_type_is_named(kafka: ModuleType) -> None:
    with pytest.raises(TypeError, match=r"default\.topic\.config"):
        kafka.Producer({"default.topic.config": 3})


@pytest.mark.parametrize("key", ["error_cb", "stats_cb", "oauth_cb"])
def test_constructor_callback_must_be_callable(kafka: ModuleType, key: str) -> None:
    with pytest.raises(TypeError, match=key):
        kafka.Producer({key: "not callable"})


@pytest.mark.ours
@pytest.mark.parametrize(
    ("kind", "key"),
    [("Producer", "throttle_cb"), ("Producer", "on_delivery"), ("Consumer", "on_commit")],
)
def test_constructor_other_callbacks_must_be_callable_too(
    kafka: ModuleType, kind: str, key: str
) -> None:
    with pytest.raises(TypeError, match=key):
        getattr(kafka, kind)({"group.id": "g", key: "not callable"})


@pytest.mark.parametrize(("kind", "key"), [("Producer", "on_commit"), ("Consumer", "on_delivery")])
def test_constructor_rejects_the_callback_of_the_other_kind(
    kafka: ModuleType, kind: str, key: str
) -> None:
    with pytest.raises(kafka.KafkaException, match=key):
        getattr(kafka, kind)({"group.id": "g", key: print})


def test_constructor_only_error_reports_must_be_a_bool(kafka: ModuleType) -> None:
    with pytest.raises((TypeError, kafka.KafkaException), match=r"delivery\.report\.only\.error"):
        kafka.Producer({"delivery.report.only.error": "maybe"})


def test_constructor_names_a_missing_plugin(kafka: ModuleType) -> None:
    with pytest.raises(kafka.KafkaException, match="no-such-plugin"):
        kafka.Producer({"plugin.library.paths": "no-such-plugin"})


def test_constructor_unsuitable_keys_only_warn(make: Callable[..., Any]) -> None:
    # One dict often serves producer and consumer, so librdkafka only logs a warning.
    make("Consumer", {"group.id": "g", "enable.idempotence": True})
    make("Producer", {"group.id": "g"})


def test_set_sasl_credentials_takes_two_strings(make: Callable[..., Any]) -> None:
    config = {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": "user",
        "sasl.password": "secret",
        "group.id": "g",
    }
    for kind in ("Producer", "Consumer"):
        client = make(kind, config)
        assert client.set_sasl_credentials("user", "new secret") is None
        with pytest.raises(TypeError):
            client.set_sasl_credentials("user", None)


@pytest.mark.ours
@pytest.mark.parametrize("argument", ["username", "password"])
def test_set_sasl_credentials_refuses_long_ones(make: Callable[..., Any], argument: str) -> None:
    credentials = {"username": "user", "password": "secret", argument: "x" * (LIMIT + 1)}
    with pytest.raises(ValueError, match=rf"^{argument}: it has {LIMIT + 1} bytes"):
        make("Producer", {}).set_sasl_credentials(**credentials)


@pytest.mark.ours
@pytest.mark.parametrize("kind", ["Producer", "Consumer"])
def test_unclosed_client_warns_when_it_is_dropped(kafka: ModuleType, kind: str) -> None:
    client = getattr(kafka, kind)({"group.id": "g"})

    with pytest.warns(ResourceWarning, match=kind):
        del client
