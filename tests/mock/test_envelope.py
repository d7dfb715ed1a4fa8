"""Envelopes to records and back. test_envelope_attacks has the failures."""

from __future__ import annotations

import datetime
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fixture_types import MakeProducer, Unique
from machine import WAIT_S

from cykafka.internal import EnvelopeCodec

pytestmark = pytest.mark.ours


class MessageEnvelope:
    """The fields of the class of pip-services."""

    def __init__(self, context: Any, message_type: str | None, message: Any) -> None:
        self.__reference: Any = None
        self.trace_id = context
        self.message_type = message_type
        self.message_id: str | None = f"id-{id(self)}"
        self.sent_time: datetime.datetime | None = None
        self.message: bytes | None = message

    def get_reference(self) -> Any:
        return self.__reference


def envelope_of(**fields: Any) -> MessageEnvelope:
    envelope = MessageEnvelope(fields.pop("trace_id", "trace"), "type", b"body")
    for name, value in fields.items():
        setattr(envelope, name, value)
    return envelope


def fields_of(envelope: Any) -> tuple[Any, ...]:
    return (
        envelope.message_id,
        envelope.trace_id,
        envelope.message_type,
        envelope.message,
    )


ENVELOPES = [
    envelope_of(),
    envelope_of(message=b""),
    envelope_of(message=None, message_id=None, trace_id=None, message_type=None),
    envelope_of(message=b"\0\xff" * 600, message_id="", trace_id="", message_type=""),
    envelope_of(
        message="Grüße".encode(), message_id="ключ", trace_id="名", message_type="\U0001f600"
    ),
    envelope_of(message=b'{"a": 1}', message_id='a "b" \\ \n\x01', message_type="\0"),
    envelope_of(message=b"x" * 20_000),
]


class Wire:
    """A topic of one partition. It returns the sent records as one batch."""

    def __init__(self, kafka: Any, producer: Any, consumer: Any, topic: str) -> None:
        self.producer, self.consumer, self.topic = producer, consumer, topic
        consumer.assign([kafka.TopicPartition(topic, 0, 0)])

    def send(self, codec: EnvelopeCodec, envelopes: Any, **options: Any) -> None:
        codec.publish(self.producer, self.topic, envelopes, partition=0, **options).wait(WAIT_S)

    def batch(self, count: int) -> Any:
        batch = self.consumer.consume_batch(count, WAIT_S)
        assert len(batch) == count
        return batch


@pytest.fixture
def wire(kafka: Any, producer: Any, consumer: Any, topic: str) -> Wire:
    return Wire(kafka, producer, consumer, topic)


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Set the process's time zone."""

    def set_zone(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield set_zone
    monkeypatch.undo()
    time.tzset()


# -- round trips


def test_envelopes_round_trip(wire: Wire) -> None:
    codec = EnvelopeCodec(MessageEnvelope)

    wire.send(codec, ENVELOPES)
    batch = wire.batch(len(ENVELOPES))
    arrived = codec.decode(batch)

    assert [type(envelope) for envelope in arrived] == [MessageEnvelope] * len(ENVELOPES)
    assert [*map(fields_of, arrived)] == [*map(fields_of, ENVELOPES)]
    assert [envelope.get_reference() for envelope in arrived] == list(batch)


def test_many_envelopes_round_trip_in_order_and_from_slices(wire: Wire) -> None:
    codec = EnvelopeCodec(MessageEnvelope)
    envelopes = [envelope_of(message_id=str(n), message=b"%d" % n * 20) for n in range(300)]

    wire.send(codec, envelopes)
    batch = wire.batch(300)

    assert [e.message_id for e in codec.decode(batch)] == [str(n) for n in range(300)]
    part = codec.decode(batch[250:30:-7])
    assert [e.message_id for e in part] == [str(n) for n in range(250, 30, -7)]
    assert [e.get_reference() for e in part] == list(batch[250:30:-7])
    batch.detach()
    assert [e.message for e in codec.decode(batch)] == [e.message for e in envelopes]
    assert codec.decode(batch[:0]) == []


def test_messages_outlive_their_batch_headers_included(
    kafka: Any, wire: Wire, make_producer: MakeProducer
) -> None:
    codec = EnvelopeCodec(MessageEnvelope)
    headers = [("message_type", b"t"), ("a", None), ("é", b"\xff"), ("a", b"")]
    producer = make_producer()
    for n in range(100):
        producer.produce(wire.topic, str(n), partition=0, headers=headers if n % 3 else None)
    producer.flush(WAIT_S)

    batch = wire.batch(100)
    expected = [message.headers() for message in batch]
    envelopes = codec.decode(batch)
    batch.release()
    wire.consumer.close()

    messages = [envelope.get_reference() for envelope in envelopes]
    assert [message.headers() for message in messages] == expected
    assert messages[1].headers() == headers
    assert messages[0].headers() is None
    assert [message.value() for message in messages] == [b"%d" % n for n in range(100)]
    messages[1].set_headers([("b", b"1")])
    assert messages[1].headers() == [("b", b"1")]
    assert messages[2].headers() == headers


def test_envelopes_of_pip_services_round_trip(wire: Wire) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        messaging = pytest.importorskip("pip_services4_messaging.queues")
        context = pytest.importorskip("pip_services4_components.context")
    codec = EnvelopeCodec(messaging.MessageEnvelope)
    sent = [
        messaging.MessageEnvelope(context.Context.from_trace_id("trace"), "type", f"body {n}")
        for n in range(3)
    ]

    wire.send(codec, sent)
    arrived = codec.decode(wire.batch(3))

    assert [*map(fields_of, arrived)] == [*map(fields_of, sent)]
    assert [envelope.get_message_as_string() for envelope in arrived] == [
        "body 0",
        "body 1",
        "body 2",
    ]
    assert [envelope.get_reference().offset() for envelope in arrived] == [0, 1, 2]
    assert vars(arrived[0]).keys() == vars(sent[0]).keys()
    arrived[0].set_reference("mine")
    assert arrived[0].get_reference() == "mine"


def kafka_message(value: bytes, **fields: Any) -> Any:
    from cykafka import Message

    return Message(topic="t", partition=0, offset=7, value=value, **fields)


# -- the format of records


def test_records_match_the_published_package(wire: Wire) -> None:
    before = time.time() * 1000
    wire.send(EnvelopeCodec(MessageEnvelope), [envelope_of(message_id="1"), ENVELOPES[2]])
    first, second = wire.batch(2)

    assert (first.key(), first.value()) == (b"1", b"body")
    assert first.headers() == [("message_type", b"type"), ("trace_id", b"trace")]
    assert before - 1 <= first.timestamp()[1] <= time.time() * 1000 + 1
    assert (second.key(), second.value()) == (None, None)
    assert second.headers() == [("message_type", None), ("trace_id", None)]


def test_records_have_the_requested_partition_timestamp_and_topic(
    wire: Wire, cluster: Any, unique: Unique
) -> None:
    codec = EnvelopeCodec(MessageEnvelope)
    other = unique("other")
    cluster.create_topic(other, 4)

    delivery = codec.publish(
        wire.producer, [wire.topic, other], [envelope_of()] * 2, partition=2, timestamp_ms=5
    )
    delivery.wait(WAIT_S)

    assert list(delivery.partitions) == [2, 2]
    assert len(codec.publish(wire.producer, wire.topic, [])) == 0


def test_the_trace_id_is_found_in_older_headers(wire: Wire) -> None:
    for headers in (
        [("correlation_id", "c"), ("trace_id", "t")],
        [("correlation_id", "c"), ("trace_id", None)],
        [("traceparent", "p")],
    ):
        wire.producer.produce(wire.topic, "", partition=0, headers=headers)

    envelopes = EnvelopeCodec(MessageEnvelope).decode(wire.batch(3))
    assert [envelope.trace_id for envelope in envelopes] == ["t", "c", None]


def test_text_that_is_not_utf8_is_replaced_and_bodies_are_kept(wire: Wire) -> None:
    headers = [("message_type", b"\xfft"), ("trace_id", b"\xc3")]
    wire.producer.produce(wire.topic, b"\xff", key=b"k\xff", partition=0, headers=headers)
    (envelope,) = EnvelopeCodec(MessageEnvelope).decode(wire.batch(1))

    assert fields_of(envelope) == ("k\ufffd", "\ufffd", "\ufffdt", b"\xff")


def test_text_that_is_not_ascii_is_found_at_each_place() -> None:
    codec = EnvelopeCodec(MessageEnvelope)
    for size in range(40):
        texts = ["x" * size, *("x" * place + "é" + "x" * size for place in range(size))]
        for text in texts:
            envelope = codec.to_envelope(kafka_message(b"", key=text.encode()))
            assert envelope.message_id == text
            assert envelope.message_id.isascii() == ("é" not in text)


# -- times


@pytest.mark.parametrize(
    "name", ["UTC", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata", "Africa/Monrovia"]
)
def test_sent_time_is_the_local_time_of_the_record(
    wire: Wire, zone: Callable[[str], None], name: str
) -> None:
    zone(name)
    codec = EnvelopeCodec(MessageEnvelope)
    stamps = [1]
    for start in (63_593_070, 1_711_846_800, 1_729_990_800, 1_712_415_600, 1_728_142_200):
        stamps += [(start + step * 600) * 1000 + step for step in range(-9, 10)]
    for stamp in stamps:
        codec.publish(wire.producer, wire.topic, [envelope_of()], partition=0, timestamp_ms=stamp)

    arrived = codec.decode(wire.batch(len(stamps)))

    for envelope, stamp in zip(arrived, stamps, strict=True):
        expected = datetime.datetime.fromtimestamp(stamp / 1000)
        assert (envelope.sent_time, envelope.sent_time.fold) == (expected, expected.fold)
        assert envelope.sent_time.tzinfo is None


def test_timestamp_beyond_datetime_becomes_none() -> None:
    codec = EnvelopeCodec(MessageEnvelope)
    for kind, ms in ((0, -1), (1, 2**62), (1, -(2**62)), (1, 253_402_300_800_000 + 86_400_000)):
        assert codec.to_envelope(kafka_message(b"", timestamp=(kind, ms))).sent_time is None
    assert codec.to_envelope(kafka_message(b"", timestamp=(2, 0))).sent_time is not None


# -- one at a time


def test_single_envelope_round_trips_like_many(wire: Wire) -> None:
    codec = EnvelopeCodec(MessageEnvelope)
    wire.send(codec, ENVELOPES, timestamp_ms=5)
    for envelope in ENVELOPES:
        record = codec.to_record(envelope, timestamp_ms=5)
        wire.producer.produce(wire.topic, partition=0, **record)
    many, single = wire.batch(len(ENVELOPES)), wire.batch(len(ENVELOPES))

    assert single.values() == many.values()
    assert single.keys() == many.keys()
    assert single.headers() == many.headers()
    assert single.timestamps.tolist() == many.timestamps.tolist() == [5] * len(ENVELOPES)
    assert [*map(fields_of, map(codec.to_envelope, many))] == [*map(fields_of, codec.decode(many))]


def test_equal_message_types_are_one_str_object(wire: Wire) -> None:
    codec = EnvelopeCodec(MessageEnvelope)
    kinds = ["Order.Created", "Order.Deleted", "Order.Created", "x" * 300]
    wire.send(codec, [envelope_of(message_type=kind) for kind in kinds])
    arrived = [envelope.message_type for envelope in codec.decode(wire.batch(4))]

    assert arrived == kinds
    assert arrived[0] is arrived[2]
