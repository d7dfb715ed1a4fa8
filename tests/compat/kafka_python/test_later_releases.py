"""Programs for later releases of kafka-python end with errors that say which interface this is."""

from __future__ import annotations

import importlib
import re
from typing import Any

import pytest
from fixture_types import RunScript

from cykafka.compat.kafka_python import KafkaConsumer
from cykafka.compat.kafka_python.common import KafkaConfigurationError

pytestmark = pytest.mark.ours

HINT = "cykafka.compat.kafka_python has the interface of kafka-python 0.9.5"

PROGRAMS = """
from kafka import KafkaProducer                          ; SimpleProducer, cykafka.Producer
from kafka import KafkaAdminClient                       ; cykafka.admin.AdminClient
from kafka import TopicPartition                         ; TopicAndPartition
from kafka import OffsetAndMetadata                      ; cykafka.TopicPartition
from kafka import KafkaClient, KafkaConsumer, errors     ; kafka.common, cykafka.error
from kafka import structs                                ; kafka.common
from kafka.common import OffsetAndMetadata               ; OffsetCommitRequest
from kafka.common import NoBrokersAvailable              ; KafkaUnavailableError
from kafka.conn import BrokerConnection                  ; kafka.KafkaConnection
from kafka.producer import KafkaProducer                 ; SimpleProducer, cykafka.Producer
from kafka.producer.kafka import KafkaProducer           ; kafka-python 0.9.5
from kafka.partitioner import DefaultPartitioner         ; Murmur2Partitioner
from kafka.partitioner.default import DefaultPartitioner ; kafka-python 0.9.5
from kafka.admin import KafkaAdminClient, NewTopic       ; cykafka.admin.AdminClient
from kafka.admin.client import KafkaAdminClient          ; cykafka.admin.AdminClient
from kafka.client_async import KafkaClient               ; kafka.KafkaClient
from kafka.consumer.group import KafkaConsumer           ; kafka-python 0.9.5
from kafka.consumer.fetcher import ConsumerRecord        ; kafka-python 0.9.5
from kafka.coordinator.assignors.range import RangePartitionAssignor ; KafkaConsumer
from kafka.errors import KafkaError                      ; kafka.common, cykafka.error
from kafka.serializer import Serializer                  ; cykafka.serialization
from kafka.structs import TopicPartition                 ; kafka.common
import kafka.errors                                      ; kafka.common
import kafka; kafka.KafkaProducer                        ; cykafka.Producer
"""


def test_imports_say_which_interface_this_is(run_script: RunScript) -> None:
    programs = [line.rpartition(" ; ")[::2] for line in PROGRAMS.strip().splitlines()]
    done = run_script(
        f"""
        from cykafka.compat import kafka_python
        kafka_python.install()
        for program in {[program.strip() for program, _ in programs]!r}:
            try:
                exec(program)
            except ImportError as error:
                print(error)
        """
    )
    said = done.stdout.splitlines()
    assert len(said) == len(programs), (done.stdout, done.stderr)
    for (program, expected), text in zip(programs, said, strict=True):
        assert "is not part of kafka-python 0.9.5" in text, program
        assert HINT in text, program
        for part in expected.split(", "):
            assert part in text, program


def test_names_that_no_release_has_are_attribute_errors() -> None:
    for name in ("", ".common", ".conn", ".partitioner", ".producer"):
        module = importlib.import_module(f"cykafka.compat.kafka_python{name}")
        with pytest.raises(AttributeError, match=f"'kafka{name}' has no attribute 'foo'"):
            module.foo  # noqa: B018


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"enable_auto_commit": True}, "enable_auto_commit is auto_commit_enable here"),
        ({"value_deserializer": bytes.decode}, "value_deserializer is deserializer_class here"),
        ({"security_protocol": "SSL"}, "Unknown configuration key.*'security_protocol'"),
        ({"auto_comit_enable": True}, "Unknown configuration key.*'auto_comit_enable'"),
        ({"auto_offset_reset": "earliest"}, "auto_offset_reset: earliest is smallest here"),
    ],
)
def test_keys_of_the_consumer_say_which_interface_this_is(
    config: dict[str, Any], text: str
) -> None:
    with pytest.raises(KafkaConfigurationError, match=text) as caught:
        KafkaConsumer("topic", bootstrap_servers="127.0.0.1:1", **config)
    assert HINT in str(caught.value)


def test_names_to_use_instead_exist() -> None:
    _later = importlib.import_module("cykafka.compat.kafka_python._later")
    assert set(_later._KEYS.values()) <= KafkaConsumer.DEFAULT_CONFIG.keys()
    assert not _later._KEYS.keys() & KafkaConsumer.DEFAULT_CONFIG.keys()
    assert not [name for name in _later._METHODS if hasattr(KafkaConsumer, name)]
    for text in (*_later._NAMES.values(), *_later._METHODS.values()):
        for name in re.findall(r"(?:cykafka|kafka)\.[\w.]+", text):
            top, *rest = name.split(".")
            here = "cykafka.compat.kafka_python" if top == "kafka" else top
            found: Any = importlib.import_module(here)
            for part in rest:
                if not hasattr(found, part):
                    importlib.import_module(f"{found.__name__}.{part}")
                found = getattr(found, part)


def test_methods_of_the_consumer_say_which_interface_this_is(cluster: Any) -> None:
    consumer = KafkaConsumer(bootstrap_servers=[cluster.bootstrap_servers])
    with pytest.raises(AttributeError, match=r"set_topic_partitions\(\)") as caught:
        consumer.subscribe(["topic"])  # type: ignore[attr-defined]
    assert HINT in str(caught.value)
    with pytest.raises(AttributeError, match=r"no attribute 'foo'$"):
        consumer.foo  # type: ignore[attr-defined]  # noqa: B018
    consumer.close()
