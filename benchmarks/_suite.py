"""The cases: their work, contenders, settings and targets."""

from __future__ import annotations

from dataclasses import replace

from _model import (
    C_PEER,
    PEER,
    PUBLISHED,
    SUBJECT,
    C,
    Contender,
    Kind,
    Shape,
    cpu_above,
    key_ratio,
    overhead_ratio,
    p50_difference,
    peak_ratio,
)

MANY = 16
"""Partitions of a topic to publish to, in the shapes with many."""
CONSUMED = 64
"""Partitions of a topic to read, in the shapes with many. The mock keeps 5 MB of each."""

# --- contenders ---------------------------------------------------------------------------

BATCH_BORROW = Contender(C, "produce_batch, borrowing", "publish:batch_borrow")
BATCH_COPY = Contender(C, "produce_batch, copying", "publish:batch_copy")
PEER_BATCH_COPY = replace(BATCH_COPY, client=C_PEER)
HEADERS_BORROW = Contender(C, "produceva, borrowing", "publish:headers_borrow")
HEADERS_COPY = Contender(C, "produceva, copying", "publish:headers_copy")
PEER_HEADERS_COPY = replace(HEADERS_COPY, client=C_PEER)
PRODUCE_C = Contender(C, "produce", "produce:produce")
CHUNKS_C = Contender(C, "produce, flush", "produce:chunks")
UNSERVED_C = Contender(C, "produce, unserved", "produce:unserved")
FLUSH_C = Contender(C, "produce and flush", "produce:flush")
ONE_C = Contender(C, "produce, report", "round_trip:publish_one")
END_C = Contender(C, "produce, consumer_poll", "round_trip:end_to_end")
CONSUME_C = Contender(C, "consume_batch_queue", "consume:consume")
HEADERS_IN_C = Contender(C, "consume_batch_queue, headers", "consume:headers")
POLL_C = Contender(C, "consumer_poll", "consume:poll")
SHARE_C = Contender(C, "share_poll", "share:read")
ACKNOWLEDGE_C = Contender(C, "share_poll, share_acknowledge", "share:acknowledge")
PREFETCHED_C = Contender(C, "consumer_poll, prefetched", "consume:prefetched")

PUBLISH = Contender(SUBJECT, "publish", "cykafka_batches:publish")
UNHELD = Contender(SUBJECT, "publish, dropped", "cykafka_batches:publish_unheld")
HELD = Contender(SUBJECT, "publish, held", "cykafka_batches:publish")
UNHELD_TUPLE = Contender(
    SUBJECT, "publish of a tuple, dropped", "cykafka_batches:publish_tuple_unheld"
)
HELD_TUPLE = Contender(SUBJECT, "publish of a tuple, held", "cykafka_batches:publish_tuple")
HEADERS = Contender(SUBJECT, "publish, columns", "cykafka_batches:publish_headers")
PAIRS = Contender(SUBJECT, "publish, pairs", "cykafka_batches:publish_header_pairs")
ARROW_OUT = Contender(SUBJECT, "publish_arrow", "cykafka_batches:publish_arrow")
ONE = Contender(SUBJECT, "publish([value]).wait", "cykafka_batches:publish_one")
END = Contender(SUBJECT, "publish, poll", "cykafka_batches:end_to_end")
BATCH_IN = Contender(SUBJECT, "consume_batch", "cykafka_batches:consume_batch")
ARROW_IN = Contender(SUBJECT, "consume_batch to Arrow", "cykafka_batches:consume_arrow")

SHARES = "share_groups"
SHARE_IN = Contender(SUBJECT, "consume_batch", f"{SHARES}:batches")
ACKNOWLEDGE = Contender(
    SUBJECT, "consume_batch, acknowledge(batch)", f"{SHARES}:batches_acknowledge"
)
SHARE_POLL = Contender(SUBJECT, "poll", f"{SHARES}:poll")
ACKNOWLEDGE_EACH = Contender(SUBJECT, "poll, acknowledge", f"{SHARES}:poll_acknowledge")

QUEUES = "pip_services"
SEND_BATCH = Contender(SUBJECT, "send_batch", f"{QUEUES}:send_batch")
SEND = Contender(SUBJECT, "send", f"{QUEUES}:send")
LISTEN = Contender(SUBJECT, "listen", f"{QUEUES}:listen")
RECEIVE = Contender(SUBJECT, "receive", f"{QUEUES}:receive")

OF_095 = "kafka_python_095"
OLD_SEND = Contender(SUBJECT, "send_messages of 500", f"{OF_095}:send_messages")
OLD_ONE = Contender(SUBJECT, "send_messages of 1", f"{OF_095}:send_one")
OLD_ITERATE = Contender(SUBJECT, "KafkaConsumer", f"{OF_095}:iterate")

AIO = "with_aiokafka"
LOOP = "cykafka_aio"
ASYNC_PRODUCE = Contender(SUBJECT, "AsyncProducer.produce, flush", f"{LOOP}:produce")
ASYNC_POLL = Contender(SUBJECT, "AsyncConsumer.poll", f"{LOOP}:poll")
ASYNC_BATCH = Contender(SUBJECT, "AsyncConsumer.consume_batch", f"{LOOP}:batches")
ASYNC_END = Contender(SUBJECT, "produce, await poll", f"{LOOP}:end_to_end")
AIO_PRODUCE = Contender(PEER, "AIOProducer.produce, flush", f"{LOOP}:aio_produce", 0.2)
AIO_POLL = Contender(PEER, "AIOConsumer.poll", f"{LOOP}:aio_poll", 0.02)
AIOKAFKA_SEND = Contender("aiokafka", "send", f"{AIO}:send", 0.2)
AIOKAFKA_MANY = Contender("aiokafka", "getmany", f"{AIO}:getmany", 0.5)
AIOKAFKA_END = Contender("aiokafka", "send, getone", f"{AIO}:end_to_end")
OLD = "with_kafka_python"
PRODUCING = "confluent_producing"
CONSUMING = "confluent_consuming"
REPORTED = Contender(PEER, "produce(on_delivery)", f"{PRODUCING}:produce_on_delivery")
PEER_CALLS = Contender(PEER, "produce of 500, flush", f"{PRODUCING}:produce_calls")
BATCHED = Contender(PEER, "produce_batch(on_delivery)", f"{PRODUCING}:produce_batch")
PEER_HEADERS = Contender(PEER, "produce(headers, on_delivery)", f"{PRODUCING}:produce_headers")
PEER_ARROW_OUT = Contender(PEER, "to_pylist, produce", f"{PRODUCING}:produce_arrow")
PEER_CONSUME = Contender(PEER, "consume", f"{CONSUMING}:consume")
PEER_ARROW_IN = Contender(PEER, "consume, pyarrow", f"{CONSUMING}:consume_arrow")

# --- settings of librdkafka; clients/with_*.py translate them for the other clients -------

PRODUCER = {"queue.buffering.max.messages": "1000000"}
# Small requests, one at a time, are slower than publishing. So the queue is full, as with a slow
# broker; otherwise the peak would depend on the broker's speed.
BOUNDED = {
    "queue.buffering.max.messages": "10000000",
    "queue.buffering.max.kbytes": "65536",
    "batch.num.messages": "200",
    "max.in.flight.requests.per.connection": "1",
}
UNSERVED = {"queue.buffering.max.messages": "2000000"}
AT_ONCE = {"linger.ms": "0"}
# With the default backoff a fast reader stalls for a second whenever its queue is full.
CONSUMER = {
    "group.id": "bench",
    "enable.auto.commit": "false",
    "fetch.queue.backoff.ms": "5",
    "queued.min.messages": "1000000",
}
IMPLICIT = {"share.acknowledgement.mode": "implicit"}
EXPLICIT = {"share.acknowledgement.mode": "explicit"}
PREFETCHED = CONSUMER | {"queued.max.messages.kbytes": "1048576"}

PLAIN, KILO, TEN_KILO = Shape(100, MANY), Shape(1_000, MANY), Shape(10_000, MANY)
ONE_AT_A_TIME = (Shape(100, 1),)
READ = Shape(100, CONSUMED)
SHARED = (Shape(100, 16), Shape(100, 1))
READ_KEYED = Shape(100, CONSUMED, keyed=True)


def single(
    name: str,
    title: str,
    loop: str,
    floor: Contender,
    limit: float,
    config: dict[str, str] | None = None,
) -> Kind:
    """A case of confluent_kafka's API: both clients run the same lines."""
    own, peer = (Contender(client, name, loop) for client in (SUBJECT, PEER))
    peer_floor = replace(floor, client=C_PEER)
    reads = loop.startswith(CONSUMING)
    return Kind(
        name,
        title,
        config or (CONSUMER if reads else PRODUCER),
        (own, floor, peer_floor, peer),
        floor,
        peer_floor,
        (
            overhead_ratio(own, floor, peer, peer_floor, limit),
            overhead_ratio(own, floor, peer, floor, limit, judged=False),
        ),
        (READ if reads else PLAIN,),
        reads,
    )


def flushing(name: str, title: str, loop: str) -> Kind:
    own, peer = (Contender(client, name, loop) for client in (SUBJECT, PEER))
    peer_floor = replace(FLUSH_C, client=C_PEER)
    targets = tuple(
        key_ratio(own, peer, 1.0, key, text)
        for text, key in (("CPU", "cpu_us"), ("p50", "p50_us"), ("p99", "p99_us"))
    )
    return Kind(
        name,
        title,
        AT_ONCE,
        (own, FLUSH_C, peer_floor, peer),
        FLUSH_C,
        peer_floor,
        targets,
        ONE_AT_A_TIME,
        measure="exchanges",
    )


KINDS = [
    Kind(
        "publish",
        "batches of 10,000 values; every outcome is known",
        PRODUCER,
        (
            PUBLISH,
            BATCH_BORROW,
            BATCH_COPY,
            PEER_BATCH_COPY,
            REPORTED,
            BATCHED,
            Contender("aiokafka", "send", f"{AIO}:send", 0.2),
            Contender("kafka-python", "send", f"{OLD}:send", 0.03),
        ),
        BATCH_BORROW,
        PEER_BATCH_COPY,
        (
            key_ratio(PUBLISH, BATCH_BORROW, 1.1),
            overhead_ratio(PUBLISH, BATCH_BORROW, REPORTED, PEER_BATCH_COPY, 0.1),
            overhead_ratio(PUBLISH, BATCH_BORROW, BATCHED, PEER_BATCH_COPY, 0.15),
        ),
        (PLAIN, replace(PLAIN, partitions=1), KILO, TEN_KILO),
    ),
    Kind(
        "publish_headers",
        "the same with a key and two headers",
        PRODUCER,
        (
            HEADERS,
            PAIRS,
            HEADERS_BORROW,
            HEADERS_COPY,
            PEER_HEADERS_COPY,
            PEER_HEADERS,
            Contender("aiokafka", "send", f"{AIO}:send_headers", 0.1),
            Contender("kafka-python", "send", f"{OLD}:send_headers", 0.03),
        ),
        HEADERS_BORROW,
        PEER_HEADERS_COPY,
        (
            key_ratio(HEADERS, HEADERS_BORROW, 1.2),
            overhead_ratio(HEADERS, HEADERS_BORROW, PEER_HEADERS, PEER_HEADERS_COPY, 0.2),
        ),
        (replace(PLAIN, keyed=True), replace(KILO, keyed=True)),
    ),
    Kind(
        "publish_arrow",
        "batches of 10,000 values of a pyarrow RecordBatch; every outcome is known",
        PRODUCER,
        (
            ARROW_OUT,
            BATCH_BORROW,
            BATCH_COPY,
            PEER_BATCH_COPY,
            PEER_ARROW_OUT,
            Contender("aiokafka", "to_pylist, send", f"{AIO}:send_arrow", 0.2),
            Contender("kafka-python", "to_pylist, send", f"{OLD}:send_arrow", 0.03),
        ),
        BATCH_BORROW,
        PEER_BATCH_COPY,
        (
            key_ratio(ARROW_OUT, BATCH_BORROW, 1.1),
            overhead_ratio(ARROW_OUT, BATCH_BORROW, PEER_ARROW_OUT, PEER_BATCH_COPY, 0.1),
        ),
        (PLAIN, KILO),
    ),
    Kind(
        "consume_batch",
        "10,000 at a time, the values as a list of bytes",
        CONSUMER,
        (
            BATCH_IN,
            CONSUME_C,
            replace(CONSUME_C, client=C_PEER),
            PEER_CONSUME,
            Contender("aiokafka", "getmany", f"{AIO}:getmany", 0.5),
            Contender("kafka-python", "poll", f"{OLD}:poll", 0.0625),
        ),
        CONSUME_C,
        replace(CONSUME_C, client=C_PEER),
        (
            key_ratio(BATCH_IN, CONSUME_C, 1.3),
            overhead_ratio(
                BATCH_IN, CONSUME_C, PEER_CONSUME, replace(CONSUME_C, client=C_PEER), 0.25
            ),
        ),
        (
            READ,
            replace(READ, partitions=1),
            READ_KEYED,
            replace(READ, value_size=1_000),
            replace(READ, value_size=10_000),
        ),
        reads=True,
    ),
    Kind(
        "consume_arrow",
        "10,000 at a time, all of Spark's columns as Arrow",
        CONSUMER,
        (
            ARROW_IN,
            CONSUME_C,
            replace(CONSUME_C, client=C_PEER),
            PEER_ARROW_IN,
            Contender("aiokafka", "getmany, pyarrow", f"{AIO}:getmany_arrow", 0.5),
            Contender("kafka-python", "poll, pyarrow", f"{OLD}:poll_arrow", 0.0625),
            Contender("kafkarrow", "poll", "with_kafkarrow:poll", 0.1, ("real",)),
        ),
        CONSUME_C,
        replace(CONSUME_C, client=C_PEER),
        (
            key_ratio(ARROW_IN, CONSUME_C, 1.25),
            key_ratio(ARROW_IN, PEER_ARROW_IN, 0.33),
        ),
        (READ, READ_KEYED, replace(READ, value_size=1_000)),
        reads=True,
    ),
    single(
        "produce",
        "produce(topic, value), then flush()",
        f"{PRODUCING}:produce",
        PRODUCE_C,
        0.5,
    ),
    single(
        "produce_on_delivery",
        "the same with on_delivery=",
        f"{PRODUCING}:produce_on_delivery",
        PRODUCE_C,
        0.25,
    ),
    single(
        "produce_unserved",
        "the same; all reports are served after the last record",
        f"{PRODUCING}:produce_unserved",
        UNSERVED_C,
        0.25,
        UNSERVED,
    ),
    single(
        "consume",
        "consume(10_000), each value() read",
        f"{CONSUMING}:consume",
        CONSUME_C,
        0.5,
    ),
    single("poll", "poll(), each value() read", f"{CONSUMING}:poll", POLL_C, 0.5),
    single(
        "poll_prefetched",
        "the same; all records are fetched before",
        f"{CONSUMING}:poll_prefetched",
        PREFETCHED_C,
        0.4,
        PREFETCHED,
    ),
    flushing("flush", "produce() and flush() of one message", f"{PRODUCING}:flush_each"),
    flushing(
        "flush_on_delivery",
        "the same with on_delivery=",
        f"{PRODUCING}:flush_each_on_delivery",
    ),
    Kind(
        "publish_one",
        "one record published and waited for, linger.ms=0",
        AT_ONCE,
        (
            ONE,
            ONE_C,
            replace(ONE_C, client=C_PEER),
            Contender(PEER, "produce, flush", f"{PRODUCING}:flush_each_on_delivery"),
            Contender("aiokafka", "send_and_wait", f"{AIO}:send_and_wait"),
            Contender("kafka-python", "send().get", f"{OLD}:send_and_get"),
        ),
        ONE_C,
        replace(ONE_C, client=C_PEER),
        (p50_difference(ONE, ONE_C, 30),),
        ONE_AT_A_TIME,
        measure="exchanges",
    ),
    Kind(
        "end_to_end",
        "one record from a producer to a consumer of the same process, linger.ms=0",
        AT_ONCE | CONSUMER,
        (
            END,
            END_C,
            replace(END_C, client=C_PEER),
            Contender(PEER, "produce, poll", f"{PRODUCING}:end_to_end"),
            Contender("aiokafka", "send, getone", f"{AIO}:end_to_end"),
            Contender("kafka-python", "send, poll", f"{OLD}:end_to_end"),
        ),
        END_C,
        replace(END_C, client=C_PEER),
        (p50_difference(END, END_C, 30),),
        ONE_AT_A_TIME,
        measure="exchanges",
        brokers=("real",),
    ),
    Kind(
        "share_read",
        "a member of a share group; each poll accepts the records of the last one",
        IMPLICIT,
        (
            SHARE_IN,
            SHARE_POLL,
            SHARE_C,
            replace(SHARE_C, client=C_PEER),
            replace(SHARE_POLL, client=PEER),
        ),
        SHARE_C,
        replace(SHARE_C, client=C_PEER),
        (key_ratio(SHARE_IN, SHARE_C, 1.15),),
        SHARED,
        reads=True,
        brokers=("real",),
        in_share_group=True,
    ),
    Kind(
        "share_acknowledge",
        "the same in explicit mode: each record is acknowledged",
        EXPLICIT,
        (
            ACKNOWLEDGE,
            ACKNOWLEDGE_EACH,
            ACKNOWLEDGE_C,
            replace(ACKNOWLEDGE_C, client=C_PEER),
            replace(ACKNOWLEDGE_EACH, client=PEER),
        ),
        ACKNOWLEDGE_C,
        replace(ACKNOWLEDGE_C, client=C_PEER),
        (key_ratio(ACKNOWLEDGE, ACKNOWLEDGE_C, 1.3),),
        SHARED,
        reads=True,
        brokers=("real",),
        in_share_group=True,
    ),
    Kind(
        "queue_send_batch",
        "a message queue: 10,000 envelopes at a time; all are stored",
        PRODUCER,
        (
            SEND_BATCH,
            HEADERS_BORROW,
            HEADERS_COPY,
            PEER_HEADERS_COPY,
            Contender(PUBLISHED, "send", f"{QUEUES}:send_all", 0.01),
        ),
        HEADERS_BORROW,
        PEER_HEADERS_COPY,
        (cpu_above(SEND_BATCH, HEADERS_BORROW, 1.4, 0.6),),
        (replace(KILO, keyed=True),),
    ),
    Kind(
        "queue_listen",
        "a message queue: a receiver that reads each body",
        CONSUMER,
        (
            LISTEN,
            CONSUME_C,
            HEADERS_IN_C,
            replace(CONSUME_C, client=C_PEER),
            replace(LISTEN, client=PUBLISHED),
        ),
        CONSUME_C,
        replace(CONSUME_C, client=C_PEER),
        (
            cpu_above(LISTEN, CONSUME_C, 1.5, 1.2),
            cpu_above(LISTEN, HEADERS_IN_C, 1.5, 1.2, judged=False),
        ),
        (replace(READ_KEYED, value_size=1_000),),
        reads=True,
    ),
    Kind(
        "queue_send",
        "a message queue: one envelope sent",
        {},
        (
            SEND,
            FLUSH_C,
            replace(FLUSH_C, client=C_PEER),
            replace(SEND, client=PUBLISHED),
        ),
        FLUSH_C,
        replace(FLUSH_C, client=C_PEER),
        (p50_difference(SEND, FLUSH_C, 50),),
        (Shape(1_000, 1),),
        measure="exchanges",
    ),
    Kind(
        "queue_receive",
        "a message queue: one record from a plain producer to receive(), linger.ms=0",
        AT_ONCE | CONSUMER,
        (
            RECEIVE,
            END_C,
            replace(END_C, client=C_PEER),
            replace(RECEIVE, client=PUBLISHED, share=0.1),
        ),
        END_C,
        replace(END_C, client=C_PEER),
        (p50_difference(RECEIVE, END_C, 1_000),),
        (Shape(1_000, 1),),
        measure="exchanges",
        brokers=("real",),
    ),
    Kind(
        "old_send",
        "kafka-python 0.9.5's send_messages() of 500; all are stored",
        AT_ONCE | PRODUCER,
        (
            OLD_SEND,
            BATCH_COPY,
            replace(BATCH_COPY, client=C_PEER),
            PEER_CALLS,
            Contender("kafka-python", "send, flush", f"{OLD}:send_calls", 0.03),
        ),
        BATCH_COPY,
        replace(BATCH_COPY, client=C_PEER),
        (
            key_ratio(OLD_SEND, PEER_CALLS, 1.0, "wall_us", "time"),
            key_ratio(
                OLD_SEND,
                Contender("kafka-python", "send, flush", f"{OLD}:send_calls", 0.03),
                0.2,
                "wall_us",
                "time",
            ),
        ),
        (Shape(100, 4),),
        brokers=("real",),
    ),
    Kind(
        "old_send_one",
        "kafka-python 0.9.5's send_messages() of one",
        AT_ONCE,
        (
            OLD_ONE,
            FLUSH_C,
            replace(FLUSH_C, client=C_PEER),
            Contender(PEER, "produce, flush", f"{PRODUCING}:flush_each"),
        ),
        FLUSH_C,
        replace(FLUSH_C, client=C_PEER),
        (
            p50_difference(OLD_ONE, FLUSH_C, 200),
            p50_difference(
                OLD_ONE, Contender(PEER, "produce, flush", f"{PRODUCING}:flush_each"), 200
            ),
        ),
        ONE_AT_A_TIME,
        measure="exchanges",
        brokers=("real",),
    ),
    Kind(
        "old_iterate",
        "the iteration over kafka-python 0.9.5's KafkaConsumer, each value read",
        CONSUMER,
        (
            OLD_ITERATE,
            POLL_C,
            replace(POLL_C, client=C_PEER),
            Contender(PEER, "poll", f"{CONSUMING}:poll"),
            Contender("kafka-python", "iteration", f"{OLD}:iterate", 0.0625),
        ),
        POLL_C,
        replace(POLL_C, client=C_PEER),
        (
            key_ratio(
                OLD_ITERATE,
                Contender("kafka-python", "iteration", f"{OLD}:iterate", 0.0625),
                0.2,
                "wall_us",
                "time",
            ),
        ),
        (READ,),
        reads=True,
        brokers=("real",),
    ),
    Kind(
        "aio_produce",
        "asyncio: 10,000 records, whose futures are awaited",
        PRODUCER,
        (
            ASYNC_PRODUCE,
            Contender(SUBJECT, "AsyncProducer.publish", f"{LOOP}:publish"),
            Contender(SUBJECT, "AIOProducer.produce, flush", f"{LOOP}:aio_produce"),
            CHUNKS_C,
            replace(CHUNKS_C, client=C_PEER),
            AIO_PRODUCE,
            AIOKAFKA_SEND,
        ),
        CHUNKS_C,
        replace(CHUNKS_C, client=C_PEER),
        (
            key_ratio(ASYNC_PRODUCE, AIO_PRODUCE, 1 / 5, "wall_us", "time"),
            key_ratio(ASYNC_PRODUCE, AIOKAFKA_SEND, 1 / 3, "wall_us", "time"),
        ),
        (PLAIN,),
        brokers=("real",),
    ),
    Kind(
        "aio_poll",
        "asyncio: await poll() and each value",
        CONSUMER,
        (
            ASYNC_POLL,
            Contender(SUBJECT, "AIOConsumer.poll", f"{LOOP}:aio_poll"),
            POLL_C,
            replace(POLL_C, client=C_PEER),
            AIO_POLL,
        ),
        POLL_C,
        replace(POLL_C, client=C_PEER),
        (key_ratio(ASYNC_POLL, AIO_POLL, 1 / 15, "wall_us", "time"),),
        (READ,),
        reads=True,
        brokers=("real",),
    ),
    Kind(
        "aio_batches",
        "asyncio: batches of at most 10,000, and their values",
        CONSUMER,
        (
            ASYNC_BATCH,
            CONSUME_C,
            replace(CONSUME_C, client=C_PEER),
            AIOKAFKA_MANY,
        ),
        CONSUME_C,
        replace(CONSUME_C, client=C_PEER),
        (key_ratio(ASYNC_BATCH, AIOKAFKA_MANY, 1 / 2, "wall_us", "time"),),
        (replace(READ, times=2.5),),
        reads=True,
        brokers=("real",),
    ),
    Kind(
        "aio_end_to_end",
        "asyncio: one record from a producer to a consumer of the same loop, linger.ms=0",
        AT_ONCE | CONSUMER,
        (
            ASYNC_END,
            END_C,
            replace(END_C, client=C_PEER),
            AIOKAFKA_END,
        ),
        END_C,
        replace(END_C, client=C_PEER),
        (key_ratio(ASYNC_END, AIOKAFKA_END, 1.0, "p99_us", "p99"),),
        ONE_AT_A_TIME,
        measure="exchanges",
        brokers=("real",),
    ),
    Kind(
        "memory",
        "peak of publishing in batches of 10,000 through a queue of 64 MB",
        BOUNDED,
        (
            UNHELD,
            HELD,
            UNHELD_TUPLE,
            HELD_TUPLE,
            BATCH_BORROW,
            BATCH_COPY,
            PEER_BATCH_COPY,
            REPORTED,
        ),
        BATCH_BORROW,
        PEER_BATCH_COPY,
        (
            peak_ratio(UNHELD, BATCH_BORROW, 1.1),
            peak_ratio(UNHELD_TUPLE, BATCH_BORROW, 1.1),
            peak_ratio(UNHELD, BATCH_BORROW, 1.1, growth=True),
            peak_ratio(HELD, BATCH_BORROW, 1.1, held=16),
            peak_ratio(HELD_TUPLE, BATCH_BORROW, 1.1, held=16),
            peak_ratio(HELD, BATCH_BORROW, 1.1, held=16, growth=True),
        ),
        (PLAIN,),
        measure="memory",
        brokers=("real",),
        most_rounds=3,
    ),
]
