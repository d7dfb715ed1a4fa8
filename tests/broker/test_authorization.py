"""The error that each call returns without permission (ACLs, KIP-11)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from acls import allow
from fixture_types import MakeConsumer, MakeProducer, Unique
from machine import WAIT_S

from cykafka.admin import AclBindingFilter, AclOperation, AdminClient, NewTopic, ResourceType
from cykafka.cli.main import main
from cykafka.testing import KafkaCluster

pytestmark = pytest.mark.ours


@pytest.fixture
def own(secured: KafkaCluster, unique: Unique) -> str:
    """A name that only alice may use, as a topic, a group and a transactional id."""
    name = unique("own")
    secured.create_topic(name, 1)
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
        allow(secured, "alice", kind, name, AclOperation.ALL)
    return name


@pytest.fixture
def config_of(secured: KafkaCluster) -> Callable[[str], dict[str, Any]]:
    def config_of(user: str) -> dict[str, Any]:
        return {**secured.client_config("sasl_plain", user)}

    return config_of


def write(producer: Any, topic: str) -> Any:
    """Write a record, and return the error of its report, or None."""
    outcomes: list[Any] = []
    producer.produce(topic, b"x", on_delivery=lambda error, message: outcomes.append(error))
    assert producer.flush(WAIT_S) == 0
    (outcome,) = outcomes
    return outcome


def test_missing_write_permission_fails_the_delivery_report(
    kafka: Any, make_producer: MakeProducer, own: str, config_of: Any
) -> None:
    assert write(make_producer(config_of("alice")), own) is None

    error = write(make_producer(config_of("mallory")), own)

    assert error.code() == kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert "authorization failed" in error.str().lower()


def test_missing_read_permission_is_an_error_message(
    kafka: Any, make_producer: MakeProducer, make_consumer: MakeConsumer, own: str, config_of: Any
) -> None:
    assert write(make_producer(config_of("alice")), own) is None
    allowed = make_consumer({**config_of("alice"), "group.id": own})
    allowed.assign([kafka.TopicPartition(own, 0, 0)])
    assert allowed.poll(WAIT_S).value() == b"x"
    refused = make_consumer(config_of("mallory"))
    refused.subscribe([own])

    error = refused.poll(WAIT_S).error()

    assert error.code() == kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert own in error.str()


def test_missing_group_permission_is_an_error_message(
    kafka: Any, make_consumer: MakeConsumer, own: str, config_of: Any
) -> None:
    refused = make_consumer({**config_of("mallory"), "group.id": own})
    refused.subscribe([own])

    assert refused.poll(WAIT_S).error().code() in (
        kafka.KafkaError.GROUP_AUTHORIZATION_FAILED,
        kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED,
    )


def test_transactional_id_of_another_user_is_refused(
    kafka: Any, make_producer: MakeProducer, own: str, config_of: Any
) -> None:
    make_producer({**config_of("alice"), "transactional.id": own}).init_transactions(WAIT_S)
    producer = make_producer({**config_of("mallory"), "transactional.id": own})

    with pytest.raises(kafka.KafkaException) as caught:
        producer.init_transactions(WAIT_S)

    assert caught.value.args[0].code() == kafka.KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert caught.value.args[0].fatal()


def test_command_reads_partitions_without_a_group_permission(
    secured: KafkaCluster, make_producer: MakeProducer, own: str, config_of: Any,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    assert write(make_producer(config_of("alice")), own) is None
    allow(secured, "mallory", ResourceType.TOPIC, own, AclOperation.READ)
    config = {**config_of("mallory"), "group.id": own}
    options = [item for pair in config.items() for item in ("-X", "=".join(pair))]

    assert main(["consume", own, "-e", *options]) == 0, capfd.readouterr().err

    assert capfd.readouterr().out == "x\n"


@pytest.mark.usefixtures("alice_alone_administers")
def test_administration_is_refused_item_by_item(
    kafka: Any, secured: KafkaCluster, own: str, unique: Unique, config_of: Any
) -> None:
    fresh = unique("fresh")
    allow(secured, "mallory", ResourceType.TOPIC, fresh, AclOperation.CREATE, prefix=True)
    with AdminClient(config_of("mallory")) as admin:
        allowed = admin.create_topics([NewTopic(f"{fresh}-1", 1)])
        (refused,) = admin.delete_topics([own]).values()

        assert allowed[f"{fresh}-1"].result(WAIT_S) is None
        failure = refused.exception(WAIT_S)
    assert failure.args[0].code() == kafka.KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.usefixtures("alice_alone_administers")
def test_missing_permission_to_list_acls_is_an_error(kafka: Any, config_of: Any) -> None:
    everything = AclBindingFilter("any", None, "any", None, None, "any", "any")
    with AdminClient(config_of("mallory")) as admin:
        failure = admin.describe_acls(everything).exception(WAIT_S)
    assert isinstance(failure, kafka.KafkaException)
    assert failure.args[0].code() == kafka.KafkaError.CLUSTER_AUTHORIZATION_FAILED
