"""The examples of kafka-python 0.9.5's document, as they stand there.

Only the address, the topics and the keyword `async` differ. An example that never ends is killed
once it has done its work.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

COMMAND = [sys.executable, "-u", "-m", "cykafka.compat.kafka_python"]


@pytest.fixture
def command(cluster: Any, topic: str, tmp_path: Path) -> Callable[..., list[str]]:
    """The command that runs an example on the topic, which its source calls `my-topic`."""

    def command(source: str, **topics: str) -> list[str]:
        names = {"localhost:9092": cluster.bootstrap_servers, "my-topic": topic, **topics}
        for name, ours in names.items():
            source = source.replace(name, ours)
        script = tmp_path / "example.py"
        script.write_text(source)
        return [*COMMAND, str(script)]

    return command


@pytest.fixture
def runs(command: Callable[..., list[str]]) -> Callable[..., list[str]]:
    """Run an example and return its lines."""

    def runs(source: str) -> list[str]:
        done = subprocess.run(
            command(source), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return runs


@pytest.fixture
def lines_of(command: Callable[..., list[str]]) -> Iterator[Callable[..., Iterator[str]]]:
    """Start an example and return its lines; it is killed at the end."""
    started = []

    def lines_of(source: str, **topics: str) -> Iterator[str]:
        process = subprocess.Popen(command(source, **topics), stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        return iter(process.stdout)

    yield lines_of
    for process in started:
        process.kill()
        process.communicate()


def test_simple_producer(
    runs: Callable[..., list[str]], read_records: Callable[[int], list[Any]]
) -> None:
    runs("""
from kafka import SimpleProducer, KafkaClient

# To send messages synchronously
kafka = KafkaClient('localhost:9092')
producer = SimpleProducer(kafka)

# Note that the application is responsible for encoding messages to type bytes
producer.send_messages(b'my-topic', b'some message')
producer.send_messages(b'my-topic', b'this method', b'is variadic')

# Send unicode message
producer.send_messages(b'my-topic', u'?'.encode('utf-8'))
""")
    assert sorted(record.value() for record in read_records(4)) == [
        b"?",
        b"is variadic",
        b"some message",
        b"this method",
    ]


def test_asynchronous_mode(
    runs: Callable[..., list[str]], read_records: Callable[[int], list[Any]]
) -> None:
    lines = runs("""
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format='%(message)s')
from kafka import SimpleProducer, KafkaClient
kafka = KafkaClient('localhost:9092')

# To send messages asynchronously
producer = SimpleProducer(kafka, **{'async': True})
producer.send_messages(b'my-topic', b'async message')

producer = SimpleProducer(kafka, async_=False,
                          req_acks=SimpleProducer.ACK_AFTER_LOCAL_WRITE,
                          ack_timeout=2000,
                          sync_fail_on_error=False)

responses = producer.send_messages(b'my-topic', b'another message')
for r in responses:
    logging.info(r.offset)

producer = SimpleProducer(kafka, is_async=True,
                           batch_send_every_n=20,
                           batch_send_every_t=60)
producer.send_messages(b'my-topic', *[b'batch'] * 20)
""")
    assert lines[0] in ("0", "1")  # the thread may be quicker
    values = [record.value() for record in read_records(22)]
    assert values.count(b"batch") == 20


def test_keyed_messages(
    runs: Callable[..., list[str]], read_records: Callable[[int], list[Any]]
) -> None:
    runs("""
from kafka import (
    KafkaClient, KeyedProducer,
    Murmur2Partitioner, RoundRobinPartitioner)

kafka = KafkaClient('localhost:9092')

# HashedPartitioner is default (currently uses python hash())
producer = KeyedProducer(kafka)
producer.send_messages(b'my-topic', b'key1', b'some message')
producer.send_messages(b'my-topic', b'key2', b'this methode')  # codespell:ignore

# Murmur2Partitioner attempts to mirror the java client hashing
producer = KeyedProducer(kafka, partitioner=Murmur2Partitioner)

# Or just produce round-robin (or just use SimpleProducer)
producer = KeyedProducer(kafka, partitioner=RoundRobinPartitioner)
""")
    assert sorted((record.key(), record.value()) for record in read_records(2)) == [
        (b"key1", b"some message"),
        (b"key2", b"this methode"),  # codespell:ignore
    ]


def test_kafka_consumer(
    lines_of: Callable[..., Iterator[str]], send: Callable[..., list[bytes]], topic: str
) -> None:
    send(0, [7])
    lines = lines_of("""
from kafka import KafkaConsumer

# To consume messages
consumer = KafkaConsumer('my-topic',
                         group_id='my_group',
                         bootstrap_servers=['localhost:9092'])
print("begun")
for message in consumer:
    # message value is raw byte string -- decode if necessary!
    # e.g., for unicode: `message.value.decode('utf-8')`
    print("%s:%d:%d: key=%s value=%s" % (message.topic, message.partition,
                                           message.offset, message.key,
                                           message.value))
""")
    assert next(lines) == "begun\n"
    send(0, [8])
    assert next(lines) == f"{topic}:0:1: key=None value=b'8'\n"


def test_kafka_consumer_of_two_topics(
    lines_of: Callable[..., Iterator[str]],
    send: Callable[..., list[bytes]],
    cluster: Any,
    topic: str,
    group: str,
) -> None:
    other = f"{topic}-2"
    cluster.create_topic(other, 1)
    send(2, range(3))
    lines = lines_of(
        """
count = 0
def do_some_work(m):
    global count
    count += 1
    if count == 4:
        raise StopIteration
def process_message(m):
    print(m.value)

from kafka import KafkaConsumer

# more advanced consumer -- multiple topics w/ auto commit offset
# management
consumer = KafkaConsumer('topic1', 'topic2',
                         bootstrap_servers=['localhost:9092'],
                         group_id='my_consumer_group',
                         auto_commit_enable=True,
                         auto_commit_interval_ms=30 * 1000,
                         auto_offset_reset='smallest')
from kafka import SimpleProducer, KafkaClient
SimpleProducer(KafkaClient('localhost:9092')).send_messages('topic2', b'last')

try:
    # Infinite iteration
    for m in consumer:
        do_some_work(m)

        # Mark this message as fully consumed
        # so it can be included in the next commit
        #
        # **messages that are not marked w/ task_done currently do not commit!
        consumer.task_done(m)
except StopIteration:
    pass

# If auto_commit_enable is False, remember to commit() periodically
print(consumer.commit())

kafka = KafkaConsumer('topic1', 'topic2',
                      bootstrap_servers=['localhost:9092'],
                      group_id='my_consumer_group', auto_offset_reset='smallest')

# Batch process interface
while True:
    for m in kafka.fetch_messages():
        process_message(m)
        consumer.task_done(m)
""",
        topic1=topic,
        topic2=other,
        my_consumer_group=group,
    )
    assert next(lines) == "True\n"
    # The message that was not done comes again.
    assert next(lines) in ("b'last'\n", "b'2'\n")


def test_multiprocess_consumer(
    runs: Callable[..., list[str]], send: Callable[..., list[bytes]], group: str
) -> None:
    send(0, range(5))
    send(3, range(5, 10))
    lines = runs(f"""
from kafka import KafkaClient, MultiProcessConsumer

kafka = KafkaClient('localhost:9092')

# This will split the number of partitions among two processes
consumer = MultiProcessConsumer(kafka, b'{group}', b'my-topic', num_procs=2)

# This will spawn processes such that each handles 2 partitions max
consumer = MultiProcessConsumer(kafka, b'{group}', b'my-topic',
                                 partitions_per_proc=2)

for message in consumer:
    print(message)

for message in consumer.get_messages(count=5, block=True, timeout=4):
    print(message)
""")
    assert len(lines) == 10
    assert all(line.startswith("OffsetAndMessage(offset=") for line in lines)


def test_low_level(runs: Callable[..., list[str]], topic: str) -> None:
    lines = runs("""
from kafka import KafkaClient, create_message
from kafka.protocol import KafkaProtocol
from kafka.common import ProduceRequest

kafka = KafkaClient('localhost:9092')

req = ProduceRequest(topic=b'my-topic', partition=1,
                      messages=[create_message(b'some message')])
resps = kafka.send_produce_request(payloads=[req], fail_on_error=True)
kafka.close()

print(resps[0].topic)      # b'my-topic'
print(resps[0].partition)  # 1
print(resps[0].error)      # 0 (hopefully)
print(resps[0].offset)      # offset of the first message sent in this request
""")
    assert lines == [f"b'{topic}'", "1", "0", "0"]


def test_offset_commit_context(
    runs: Callable[..., list[str]], send: Callable[..., list[bytes]], group: str
) -> None:
    send(0, range(10))
    lines = runs(f"""
from kafka import KafkaClient, SimpleConsumer
from kafka.context import OffsetCommitContext
from time import sleep
client = KafkaClient('localhost:9092')
group, topic, count, delay = '{group}', 'my-topic', 4, 0.01
refused = [b'6', b'6']
some_condition = 5
def can_process(message):
    print(message.message.value)
    return message.message.value not in refused or not refused.pop()

consumer = SimpleConsumer(client, group, topic, auto_commit=False)
consumer.provide_partition_info()
consumer.fetch_last_known_offsets()

while some_condition:
    some_condition -= 1
    with OffsetCommitContext(consumer) as context:
        messages = consumer.get_messages(count, block=False)

        for partition, message in messages:
            if can_process(message):
                context.mark(partition, message.offset)
            else:
                break

        if not context:
            sleep(delay)
""")
    read = [int(line[2:-1]) for line in lines]
    assert read == [0, 1, 2, 3, 4, 5, 6, 6, 6, 7, 8, 9]


def test_topic_partitions(runs: Callable[..., list[str]], cluster: Any, topic: str) -> None:
    for name, count in (("1", 1), ("2", 3), ("3", 1)):
        cluster.create_topic(f"{topic}-{name}", count)
    lines = runs("""
from kafka import KafkaConsumer
kafka = KafkaConsumer(bootstrap_servers='localhost:9092')

# Consume topic1-all; topic2-partition2; topic3-partition0
kafka.set_topic_partitions("my-topic-1", ("my-topic-2", 2), {"my-topic-3": 0})
print(len(kafka.offsets("fetch")))

# Consume topic1-0 starting at offset 12, and topic2-1 at offset 45
# using tuples --
kafka.set_topic_partitions(("my-topic-1", 0, 12), ("my-topic-2", 1, 45))
print(sorted(kafka.offsets("fetch").values()))

# using dict --
kafka.set_topic_partitions({ ("my-topic-1", 0): 12, ("my-topic-2", 1): 45 })
print(sorted(kafka.offsets("fetch").values()))
""")
    assert lines == ["3", "[12, 45]", "[12, 45]"]
