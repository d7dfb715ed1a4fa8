"""TLS and SASL by the JVM client's options, and what those who may not write are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="the group spark is not installed")

import pyarrow as pa
from pyspark.sql import types as t

from cykafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cykafka.spark import producers
from cykafka.spark.sink import KafkaWriteError, batch_writer
from cykafka.testing import KafkaCluster

WAIT_S = 30.0
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def secured(kafka_cluster_factory: Callable[..., KafkaCluster]) -> KafkaCluster:
    return kafka_cluster_factory(
        listeners=("sasl_plain", "sasl_scram_sha_256_tls", "mtls"),
        users=("alice", "mallory"),
        properties={"auto.create.topics.enable": "false"},
    )


@pytest.fixture
def own(secured: KafkaCluster, unique: Callable[[str], str]) -> str:
    """A topic that only alice may write to."""
    name = unique("own")
    secured.create_topic(name, 1)
    rule = AclBinding(
        ResourceType.TOPIC, name, ResourcePatternType.LITERAL, "User:alice", "*",
        AclOperation.ALL, AclPermissionType.ALLOW,
    )  # fmt: skip
    with AdminClient({"bootstrap.servers": secured.bootstrap_servers}) as admin:
        for future in admin.create_acls([rule]).values():
            future.result(WAIT_S)
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


def jaas(config: Mapping[str, str], module: str) -> dict[str, str]:
    """The options of the JVM client for a user of a listener with SASL."""
    return {
        "kafka.bootstrap.servers": config["bootstrap.servers"],
        "kafka.security.protocol": config["security.protocol"],
        "kafka.sasl.mechanism": config["sasl.mechanism"],
        "kafka.sasl.jaas.config": f"{module} required "
        f'username="{config["sasl.username"]}" password="{config["sasl.password"]}";',
    }


def test_a_user_of_jaas_writes(secured: KafkaCluster, own: str) -> None:
    assert write(jaas(secured.client_config("sasl_plain", "alice"), PLAIN), own) == 2


def test_scram_by_jaas_over_tls_with_pem_files_writes(secured: KafkaCluster, own: str) -> None:
    config = secured.client_config("sasl_scram_sha_256_tls", "alice")
    store = {
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": config["ssl.ca.location"],
    }

    assert write({**jaas(config, SCRAM), **store}, own) == 2


@pytest.mark.parametrize("form", ["files", "texts"])
def test_a_clients_certificate_in_pem_writes(
    secured: KafkaCluster, own: str, form: str, tmp_path: Path
) -> None:
    config = secured.client_config("mtls", "alice")
    ca, chain, key = (
        Path(config[f"ssl.{name}.location"]).read_text() for name in ("ca", "certificate", "key")
    )
    stores = {
        "truststore.certificates": ca,
        "keystore.certificate.chain": chain,
        "keystore.key": key,
    }
    if form == "files":
        (tmp_path / "store.pem").write_text(key + chain)
        stores = {
            "truststore.location": config["ssl.ca.location"],
            "keystore.location": str(tmp_path / "store.pem"),
        }
    options = {
        "kafka.bootstrap.servers": config["bootstrap.servers"],
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.keystore.type": "PEM",
        **{f"kafka.ssl.{name}": value for name, value in stores.items()},
    }

    assert write(options, own) == 2


def test_who_may_not_write_is_told_the_topic(secured: KafkaCluster, own: str) -> None:
    with pytest.raises(KafkaWriteError, match="2 of the last 2 records") as info:
        write(jaas(secured.client_config("sasl_plain", "mallory"), PLAIN), own)

    assert f'topic "{own}"' in str(info.value)
    assert "TOPIC_AUTHORIZATION_FAILED" in str(info.value)


def test_a_wrong_password_is_told_at_once_and_not_printed(secured: KafkaCluster, own: str) -> None:
    config = {**secured.client_config("sasl_plain", "alice"), "sasl.password": "hush-hush"}

    with pytest.raises(KafkaWriteError, match="nothing can be written to Kafka") as info:
        write(jaas(config, PLAIN), own)

    assert "_AUTHENTICATION" in str(info.value)
    assert "hush-hush" not in str(info.value)


def test_a_topic_that_is_not_there_is_told(
    secured: KafkaCluster, unique: Callable[[str], str]
) -> None:
    name = unique("none")
    options = {
        "kafka.bootstrap.servers": secured.bootstrap_servers,
        "kafka.topic.metadata.propagation.max.ms": "500",
    }
    with pytest.raises(KafkaWriteError, match="there is no such topic") as info:
        write(options, name)

    assert f'topic "{name}"' in str(info.value)
