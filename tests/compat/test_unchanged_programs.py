"""Programs for confluent_kafka that run unchanged on cykafka, against a cluster."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from fixture_types import Unique

pytestmark = pytest.mark.ours

COMMAND = [sys.executable, "-m", "cykafka.compat.confluent"]

# A typical producer, with each common way to import.
PRODUCER = """
import sys
import confluent_kafka
from confluent_kafka import KafkaException, Producer

def acked(err, msg):
    if err is not None:
        raise KafkaException(err)
    print("acked", msg.topic(), msg.partition(), msg.offset())

conf = {"bootstrap.servers": sys.argv[1]}
p = Producer(**conf)
for line in ["a", "b", "c"]:
    try:
        p.produce(sys.argv[2], line.rstrip(), partition=0, callback=acked)
    except BufferError:
        p.poll(1)
    p.poll(0)
p.flush()
assert isinstance(p, confluent_kafka.Producer)
"""

# A typical consumer loop that ends at the end of the partition.
CONSUMER = """
import logging, sys
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException
from confluent_kafka.cimpl import TopicPartition

logger = logging.getLogger("consumer")
c = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[3],
              "auto.offset.reset": "earliest", "enable.partition.eof": True}, logger=logger)

def on_assign(consumer, partitions):
    for p in partitions:
        p.offset = OFFSET_BEGINNING
    consumer.assign(partitions)

c.subscribe([sys.argv[2]], on_assign=on_assign)
seen = ends = 0
try:
    while ends < 4:
        msg = c.poll(timeout=1.0)
        if msg is None:
            continue
        if msg.error():
            if msg.error().code() != KafkaError._PARTITION_EOF:
                raise KafkaException(msg.error())
            ends += 1
            continue
        seen += 1
        print("%d:%d %s" % (msg.partition(), msg.offset(), msg.value().decode("utf-8")))
finally:
    c.close()
assert isinstance(TopicPartition("t", 1), TopicPartition)
"""

# A typical serializing pair, with the modules that programs import.
SERIALIZING = """
import sys
from confluent_kafka.deserializing_consumer import DeserializingConsumer
from confluent_kafka.error import ConsumeError, KeySerializationError
from confluent_kafka.serialization import StringDeserializer, StringSerializer
from confluent_kafka.serializing_producer import SerializingProducer

producer = SerializingProducer({"bootstrap.servers": sys.argv[1],
                                "key.serializer": StringSerializer("utf_8"),
                                "value.serializer": StringSerializer("utf_8")})
producer.produce(topic=sys.argv[2], key="k", value="v")
try:
    producer.produce(topic=sys.argv[2], key=5, value="v")
except KeySerializationError as e:
    print("refused", type(e.exception).__name__)
producer.flush()
consumer = DeserializingConsumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[3],
                                  "auto.offset.reset": "earliest",
                                  "key.deserializer": StringDeserializer("utf_8"),
                                  "value.deserializer": StringDeserializer("utf_8")})
consumer.subscribe([sys.argv[2]])
while True:
    try:
        msg = consumer.poll(1.0)
    except ConsumeError as e:
        raise SystemExit(str(e))
    if msg is not None:
        print(msg.key(), msg.value())
        break
consumer.close()
producer.close()
"""

# A transaction that copies from one topic to another.
TRANSACTION = """
import sys
from confluent_kafka import Consumer, Producer, TopicPartition

c = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[3],
              "auto.offset.reset": "earliest", "enable.auto.commit": False})
p = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": sys.argv[3]})
c.assign([TopicPartition(sys.argv[2], 0, 0)])
p.init_transactions()
p.begin_transaction()
for msg in c.consume(3, timeout=10):
    p.produce(sys.argv[2], value=msg.value() + b"-copy", partition=1)
p.send_offsets_to_transaction(c.position(c.assignment()), c.consumer_group_metadata())
p.commit_transaction()
c.assign([TopicPartition(sys.argv[2], 1, 0)])
print([msg.value() for msg in c.consume(3, timeout=10)])
c.close()
"""

# A consumer that goes back to the committed offsets after a failure, also before the first commit.
RECOVERY = """
import sys
from confluent_kafka import Consumer, KafkaException, Producer

p = Producer({"bootstrap.servers": sys.argv[1]})
for number in range(15):
    p.produce(sys.argv[2], str(number), partition=0)
p.flush()
c = Consumer({"bootstrap.servers": sys.argv[1], "group.id": sys.argv[3],
              "auto.offset.reset": "earliest", "enable.auto.commit": False})
c.subscribe([sys.argv[2]])
processed = []
failing = {0, 1, 7}
while len(processed) < 15:
    msg = c.poll(1.0)
    if msg is None:
        continue
    if msg.error():
        raise KafkaException(msg.error())
    if msg.offset() in failing:
        failing.remove(msg.offset())
        for tp in c.committed(c.assignment()):
            c.seek(tp)
        continue
    processed.append(msg.offset())
    c.commit(msg, asynchronous=False)
c.close()
print(processed)
"""


@pytest.fixture
def runs(tmp_path: Path, cluster: Any, topic: str, unique: Unique) -> Callable[..., list[str]]:
    """Run a program on the cluster and a topic; return the lines of its output."""

    def runs(source: str, command: Sequence[str] = COMMAND) -> list[str]:
        script = tmp_path / "program.py"
        script.write_text(textwrap.dedent(source))
        done = subprocess.run(
            [*command, str(script), cluster.bootstrap_servers, topic, unique("group")],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.splitlines()

    return runs


def test_producer_and_consumer_run_unchanged(runs: Callable[[str], list[str]], topic: str) -> None:
    assert runs(PRODUCER) == [f"acked {topic} 0 {offset}" for offset in range(3)]
    assert runs(CONSUMER) == ["0:0 a", "0:1 b", "0:2 c"]


def test_serializing_clients_run_unchanged(runs: Callable[[str], list[str]]) -> None:
    assert runs(SERIALIZING) == ["refused AttributeError", "k v"]


def test_transaction_runs_unchanged(runs: Callable[[str], list[str]]) -> None:
    runs(PRODUCER)

    assert runs(TRANSACTION) == ["[b'a-copy', b'b-copy', b'c-copy']"]


@pytest.mark.parametrize("command", [COMMAND, [sys.executable]], ids=["cykafka", "peer"])
def test_recovery_from_committed_offsets_runs_unchanged(
    runs: Callable[..., list[str]], command: list[str]
) -> None:
    assert runs(RECOVERY, command) == [str(list(range(15)))]
