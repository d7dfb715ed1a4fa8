"""TLS and SASL by the JVM client's options, and errors without write permission."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the group spark is not installed")

import pyarrow as pa
from acls import allow
from jvm_options import PLAIN, SCRAM, certificate, login
from machine import WAIT_S
from pyspark.sql import types as t
from spark_tasks import rows, write_task

import cykafka
from cykafka.admin import AclOperation, ResourceType
from cykafka.spark.clients import producers
from cykafka.spark.sink.writers import batch_writer
from cykafka.spark.sink.writing import KafkaWriteError
from cykafka.testing import KafkaCluster


@pytest.fixture
def own(secured: KafkaCluster, unique: Callable[[str], str]) -> str:
    """A topic that only alice may write to."""
    name = unique("own")
    secured.create_topic(name, 1)
    allow(secured, "alice", ResourceType.TOPIC, name, AclOperation.ALL)
    return name


@pytest.fixture(autouse=True)
def close_producers() -> Iterator[None]:
    yield
    producers._pool.close()


def write(options: Mapping[str, str], topic: str) -> int:
    columns = t.StructType([t.StructField("value", t.StringType())])
    writer = batch_writer({"topic": topic, **options}, columns, False)
    written = writer.write(iter([pa.record_batch({"value": ["x", "y"]})]))
    return int(written.records)  # type: ignore[attr-defined]


def test_jaas_user_writes(secured: KafkaCluster, own: str) -> None:
    assert write(login(secured.client_config("sasl_plain", "alice"), PLAIN), own) == 2


def test_scram_by_jaas_over_tls_with_pem_files_writes(secured: KafkaCluster, own: str) -> None:
    config = secured.client_config("sasl_scram_sha_256_tls", "alice")
    assert write(login(config, SCRAM), own) == 2


@pytest.mark.parametrize("form", ["files", "texts"])
def test_client_certificate_in_pem_writes(
    secured: KafkaCluster, own: str, form: str, tmp_path: Path
) -> None:
    config = secured.client_config("mtls", "alice")
    folder = tmp_path if form == "files" else None
    assert write(certificate(config, folder), own) == 2


def test_missing_write_permission_error_names_the_topic(secured: KafkaCluster, own: str) -> None:
    with pytest.raises(KafkaWriteError, match="2 of the last 2 records") as info:
        write(login(secured.client_config("sasl_plain", "mallory"), PLAIN), own)

    assert f'topic "{own}"' in str(info.value)
    assert "TOPIC_AUTHORIZATION_FAILED" in str(info.value)


def test_wrong_password_fails_at_once_and_is_not_printed(secured: KafkaCluster, own: str) -> None:
    config = {**secured.client_config("sasl_plain", "alice"), "sasl.password": "hush-hush"}

    with pytest.raises(KafkaWriteError, match="cannot write to Kafka") as info:
        write(login(config, PLAIN), own)

    assert "_AUTHENTICATION" in str(info.value)
    assert "hush-hush" not in str(info.value)


def test_missing_topic_is_an_error(secured: KafkaCluster, unique: Callable[[str], str]) -> None:
    name = unique("none")
    options = {
        "kafka.bootstrap.servers": secured.bootstrap_servers,
        "kafka.topic.metadata.propagation.max.ms": "500",
    }
    with pytest.raises(KafkaWriteError, match="the topic does not exist") as info:
        write(options, name)

    assert f'topic "{name}"' in str(info.value)


# -- single permissions

READ, WRITE, DESCRIBE = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE


def test_idempotent_producer_needs_only_write_permission(
    secured: KafkaCluster, unique: Callable[[str], str]
) -> None:
    name = unique("own")
    secured.create_topic(name, 1)
    allow(secured, "wanda", ResourceType.TOPIC, name, WRITE)

    assert write(login(secured.client_config("sasl_plain", "wanda"), PLAIN), name) == 2


@pytest.mark.parametrize(
    ("missing", "code", "words"),
    [
        (None, "", ""),
        ("read", "TOPIC_AUTHORIZATION_FAILED", "needs Read and Write on the topics"),
        ("groups", "GROUP_AUTHORIZATION_FAILED", "needs Read on the groups whose names begin"),
        ("ids", "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "needs Write and Describe on the trans"),
    ],
)
def test_transactions_need_their_own_permissions(
    secured: KafkaCluster,
    unique: Callable[[str], str],
    missing: str | None,
    code: str,
    words: str,
) -> None:
    name = unique("own")
    prefix = unique("tx") + "."  # the dot ends the prefix, so no other name has it
    secured.create_topic(name, 1)
    allow(
        secured, "wanda", ResourceType.TOPIC, name, WRITE, *([READ] if missing != "read" else [])
    )
    # These brokers allow every user to use resources without ACLs.
    reader = "wanda" if missing != "groups" else "alice"
    allow(secured, reader, ResourceType.GROUP, prefix, READ, prefix=True)
    writer = "wanda" if missing != "ids" else "alice"
    allow(secured, writer, ResourceType.TRANSACTIONAL_ID, prefix, WRITE, DESCRIBE, prefix=True)
    options = {
        **login(secured.client_config("sasl_plain", "wanda"), PLAIN),
        "topic": name,
        "transactional": "true",
        "transactionalIdPrefix": prefix,
    }

    if missing is None:
        assert write_task(options, [rows(["x", "y"])]).records == 2
        producers._pool.close()
        assert write_task(options, [rows(["x", "y"])]).skipped is True
        assert write_task(options, [rows(["z"])], batch=1).records == 1
        return
    with pytest.raises(KafkaWriteError) as info:
        write_task(options, [rows(["x", "y"])])
    assert code in str(info.value)
    assert words in str(info.value)


def test_task_longer_than_its_transaction_timeout_is_an_error(
    secured: KafkaCluster, unique: Callable[[str], str], make_consumer: Callable[..., Any]
) -> None:
    name, prefix = unique("long"), unique("tx")
    secured.create_topic(name, 1)
    options = {
        "kafka.bootstrap.servers": secured.bootstrap_servers,
        "kafka.transaction.timeout.ms": "1000",
        "topic": name,
        "transactional": "true",
        "transactionalIdPrefix": prefix,
    }
    config = {
        "bootstrap.servers": secured.bootstrap_servers,
        "isolation.level": "read_uncommitted",
    }
    arrived = make_consumer(config)
    ends = make_consumer(
        {**config, "isolation.level": "read_committed", "enable.partition.eof": True}
    )
    for consumer in (arrived, ends):
        consumer.assign([cykafka.TopicPartition(name, 0, 0)])

    def slow() -> Iterator[Any]:
        yield rows(["a"])
        message = arrived.poll(WAIT_S)
        assert message is not None
        assert message.value() == b"a"
        # Once the brokers abort, the read_committed end moves past the record.
        while True:
            end = ends.poll(WAIT_S)
            assert end is not None
            assert end.error() is not None
            assert end.error().code() == cykafka.KafkaError._PARTITION_EOF
            if end.offset() > 0:
                break
        yield rows(["b"])

    with pytest.raises(KafkaWriteError, match=r"the task took \d+ s") as info:
        write_task(options, slow())
    assert "kafka.transaction.timeout.ms (1 s)" in str(info.value)
    assert "has taken over" not in str(info.value)
    assert write_task(options, [rows(["a", "b"])], attempt=1).skipped is False
