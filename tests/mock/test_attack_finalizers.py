"""The program's code that runs inside a call, in finalizers and special methods: each case once
read freed memory or sent a record to another topic."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
from fixture_types import RunScript

pytestmark = pytest.mark.ours

PREAMBLE = """
import gc, sys, warnings
warnings.simplefilter("ignore")
import cykafka
from cykafka import Consumer, Producer, TopicPartition
servers, topic = sys.argv[1:3]
config = {"bootstrap.servers": servers, "log_level": 0}
reading = {**config, "group.id": topic, "enable.auto.commit": False}
with Producer(config) as producer:
    producer.publish(topic, [b"%d" % i for i in range(2000)], partitions=0).wait(20)
"""
# The collector frees `garbage` during poll(), which has messages left over from consume().
KEPT = """
    class Stop(Exception):
        pass
    class Garbage:
        def __init__(self):
            self.itself = self
        def __del__(self):
            run()
    def stop(_):
        if stopping:
            stopping.pop()
            raise Stop
    stopping = []
    gc.disable()
    consumer = Consumer({**reading, "statistics.interval.ms": 100, "stats_cb": stop})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(20).offset() == 0
    stopping.append(True)
    try:
        while True:
            consumer.consume(100_000, 5)
    except Stop:
        pass
    seen = []
    used_up = [[] for _ in range(300)]  # so that a new list may start the collector
    Garbage()
    gc.set_threshold(1)
    gc.enable()
    message = consumer.poll(0)
    gc.set_threshold(700)
"""
CHILDREN = {
    "finalizer closes the consumer": f"""
    run = lambda: consumer.close()
    {KEPT.strip()}
    assert message.value() == b"%d" % message.offset()
    """,
    "finalizer reads": f"""
    run = lambda: seen.extend(consumer.consume(1, 0))
    {KEPT.strip()}
    seen.append(message)
    gc.collect()
    offsets = sorted(message.offset() for message in seen)
    assert len(offsets) == 2 and offsets[1] == offsets[0] + 1, offsets
    consumer.close()
    """,
    "topic's __eq__ closes the consumer": """
    class Name(str):
        __hash__ = str.__hash__
        def __eq__(self, other):
            if closing:
                consumer.close()
            return str.__eq__(self, other)
    class Partition(TopicPartition):
        @property
        def topic(self):
            return Name(sys.argv[2])
    closing = []
    consumer = Consumer(reading)
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(20).offset() == 0
    consumer.seek(Partition(topic, 0, 5))
    closing.append(True)
    assert [message.offset() for message in consumer.consume(3, 20)] == [5, 6, 7]
    """,
    "name's finalizer produces": """
    class Name(str):
        def __del__(self):
            producer.produce(other, b"x")
    other = topic + "-b"
    producer = Producer(config)
    producer.produce(Name(topic + "-c"), b"x")
    producer.produce(topic, b"x")
    producer.produce(other, b"x")
    assert producer.flush(20) == 0
    with Consumer(reading) as consumer:
        for name, count in ((topic, 2000 + 1), (other, 2), (topic + "-c", 1)):
            partitions = consumer.list_topics(name, 20).topics[name].partitions
            ends = [consumer.get_watermark_offsets(TopicPartition(name, number), 20)[1]
                    for number in partitions]
            assert sum(ends) == count, (name, ends)
    """,
    "name's finalizer closes the producer": """
    class Name(str):
        def __del__(self):
            producer.close(0)
    for values in (None, [b"x"]):
        producer = Producer(config)
        producer.produce(Name(topic), b"x")
        try:
            producer.publish(topic + "-b", values) if values else producer.produce(topic + "-b")
        except RuntimeError:
            continue
        raise AssertionError("accepted")
    """,
    "headers that create the producer again": """
    import asyncio
    from cykafka.aio import AsyncProducer
    class Headers(dict):
        def items(self):
            producer.__init__(config)
            gc.collect()
            return [("a", b"1")]
    async def main():
        global producer
        producer = AsyncProducer(config)
        try:
            await producer.produce(topic, b"x", headers=Headers(a=b"1"))
        except cykafka.KafkaException as error:
            assert error.args[0].name() == "_PURGE_QUEUE"
        await producer.produce(topic, b"y")
        await producer.close()
    asyncio.run(main())
    """,
}


@pytest.mark.parametrize("child", CHILDREN)
def test_code_inside_a_call_does_no_harm(
    run_script: RunScript, cluster: Any, topic: str, child: str
) -> None:
    source = PREAMBLE + textwrap.dedent(CHILDREN[child])

    done = run_script(source, cluster.bootstrap_servers, topic, timeout=60)

    assert done.returncode == 0, done.stderr
