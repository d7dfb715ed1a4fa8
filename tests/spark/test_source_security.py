"""Reading with TLS and SASL by the JVM client's options, and errors without permission."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the group spark is not installed")

import trustme
from acls import allow
from jvm_options import PLAIN, SCRAM, certificate, login
from machine import WAIT_S
from pyspark.sql.datasource import InputPartition
from spark_consumers import close_consumers

from cykafka import KafkaException, Producer
from cykafka.admin import AclOperation, ResourceType
from cykafka.spark.data_source import CyKafkaDataSource
from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.config.topic_check import check_topics
from cykafka.spark.jobs.problems import ConfigError
from cykafka.spark.source.offsets import PartitionRange
from cykafka.testing import KafkaCluster

# The limit until a failed login raises, s. Its timeout would be a minute.
SOON_S = 25.0


@pytest.fixture
def own(secured: KafkaCluster, unique: Callable[[str], str]) -> str:
    """A topic with two records, which only alice may read."""
    name = unique("own")
    secured.create_topic(name, 1)
    brokers = {"bootstrap.servers": secured.bootstrap_servers}
    with Producer(brokers) as producer:
        for _ in range(2):
            producer.produce(name, b"x")
        assert producer.flush(WAIT_S) == 0
    allow(secured, "alice", ResourceType.TOPIC, name, AclOperation.ALL)
    return name


@pytest.fixture(autouse=True)
def no_consumer_stays() -> Iterator[None]:
    yield
    close_consumers()


def reader_of(options: Mapping[str, str], topic: str) -> Any:
    # Spark makes these calls in the driver and in a worker.
    source = CyKafkaDataSource({"subscribe": topic, **options})
    return source.reader(source.schema())


def read(options: Mapping[str, str], topic: str) -> int:
    """Return the number of rows of a batch."""
    reader = reader_of(options, topic)
    return sum(batch.num_rows for task in reader.partitions() for batch in reader.read(task))


def in_a_task(options: Mapping[str, str], topic: str) -> int:
    """Return the number of rows without the driver, which would fail first."""
    task = InputPartition([PartitionRange(topic, 0, 0, 2)])
    return sum(batch.num_rows for batch in reader_of(options, topic).read(task))


def test_jaas_user_reads(secured: KafkaCluster, own: str) -> None:
    assert read(login(secured.client_config("sasl_plain", "alice"), PLAIN), own) == 2


def test_scram_by_jaas_over_tls_with_pem_files_reads(secured: KafkaCluster, own: str) -> None:
    config = secured.client_config("sasl_scram_sha_256_tls", "alice")
    assert read(login(config, SCRAM), own) == 2


@pytest.mark.parametrize("form", ["files", "texts"])
def test_client_certificate_in_pem_reads(
    secured: KafkaCluster, own: str, form: str, tmp_path: Path
) -> None:
    config = secured.client_config("mtls", "alice")
    assert read(certificate(config, tmp_path if form == "files" else None), own) == 2


@pytest.mark.parametrize("side", [read, in_a_task], ids=["driver", "task"])
def test_missing_read_permission_error_names_the_topic(
    secured: KafkaCluster, own: str, side: Callable[..., int]
) -> None:
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        side(login(secured.client_config("sasl_plain", "mallory"), PLAIN), own)

    assert own in str(caught.value)


@pytest.mark.parametrize("side", [read, in_a_task], ids=["driver", "task"])
def test_wrong_password_fails_soon_and_is_not_printed(
    secured: KafkaCluster, own: str, side: Callable[..., int]
) -> None:
    config = {**secured.client_config("sasl_plain", "alice"), "sasl.password": "hush-hush"}
    began = time.monotonic()

    with pytest.raises(KafkaException, match="_AUTHENTICATION") as caught:
        side(login(config, PLAIN), own)

    assert time.monotonic() - began < SOON_S
    assert "hush-hush" not in str(caught.value)


def test_job_checks_the_login_before_spark_starts(secured: KafkaCluster, own: str) -> None:
    def check(user: str, **more: str) -> None:
        config = {**secured.client_config("sasl_plain", user), **more}
        given = {**login(config, PLAIN), "topics": own}
        check_topics(load(JOBS["profile"], None, given, {}))

    check("alice")
    with pytest.raises(
        ConfigError, match=f"topic '{own}' does not exist, or this user may not see it"
    ):
        check("mallory")
    began = time.monotonic()
    with pytest.raises(RuntimeError, match=r"responds: .*[Aa]uthentication") as caught:
        check("alice", **{"sasl.password": "hush-hush"})

    assert time.monotonic() - began < SOON_S
    assert "hush-hush" not in str(caught.value)


@pytest.mark.parametrize("side", [read, in_a_task], ids=["driver", "task"])
def test_broker_certificate_of_another_authority_fails_soon(
    secured: KafkaCluster, own: str, side: Callable[..., int], tmp_path: Path
) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    config = secured.client_config("sasl_scram_sha_256_tls", "alice")
    began = time.monotonic()

    with pytest.raises(KafkaException, match=r"_SSL.*certificate"):
        side(login({**config, "ssl.ca.location": str(tmp_path / "other.pem")}, SCRAM), own)

    assert time.monotonic() - began < SOON_S
