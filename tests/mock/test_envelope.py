"""Envelopes to records and back. test_envelope_attacks has the failures."""

from __future__ import annotations

import base64
import datetime
import json
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from machine import WAIT_S

from cykafka.internal import EnvelopeCodec, EnvelopeError

pytestmark = pytest.mark.ours

TRACE_ID = "0123456789abcdef0123456789ABCDEF"


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


@pytest.fixture(params=["headers", "json"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


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


def test_envelopes_round_trip(wire: Wire, form: str) -> None:
    codec = EnvelopeCodec(MessageEnvelope, form)

    wire.send(codec, ENVELOPES)
    batch = wire.batch(len(ENVELOPES))
    arrived = codec.decode(batch)

    assert [type(envelope) for envelope in arrived] == [MessageEnvelope] * len(ENVELOPES)
    assert [*map(fields_of, arrived)] == [*map(fields_of, ENVELOPES)]
    assert [envelope.get_reference() for envelope in arrived] == list(batch)


def test_many_envelopes_round_trip_in_order_and_from_slices(wire: Wire, form: str) -> None:
    codec = EnvelopeCodec(MessageEnvelope, form)
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
    kafka: Any, wire: Wire, make_producer: Any
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


def test_envelopes_of_pip_services_round_trip(wire: Wire, form: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        messaging = pytest.importorskip("pip_services4_messaging.queues")
        context = pytest.importorskip("pip_services4_components.context")
    codec = EnvelopeCodec(messaging.MessageEnvelope, form)
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
    if form == "json":  # each reader reads the JSON of the other
        theirs = messaging.MessageEnvelope.from_json(arrived[1].get_reference().value().decode())
        assert fields_of(theirs) == fields_of(sent[1])
        again = codec.to_envelope(kafka_message(json.dumps(sent[2].to_json())))
        assert fields_of(again) == fields_of(sent[2])


def kafka_message(value: Any = None, **fields: Any) -> Any:
    from cykafka import Message

    value = value.encode() if isinstance(value, str) else value
    return Message(topic="t", partition=0, offset=7, value=value, **fields)


# -- the format of records


def test_headers_form_matches_the_published_package(wire: Wire) -> None:
    before = time.time() * 1000
    wire.send(EnvelopeCodec(MessageEnvelope), [envelope_of(message_id="1"), ENVELOPES[2]])
    first, second = wire.batch(2)

    assert (first.key(), first.value()) == (b"1", b"body")
    assert first.headers() == [("message_type", b"type"), ("trace_id", b"trace")]
    assert before - 1 <= first.timestamp()[1] <= time.time() * 1000 + 1
    assert (second.key(), second.value()) == (None, None)
    assert second.headers() == [("message_type", None), ("trace_id", None)]


def test_json_form_writes_one_object(wire: Wire, zone: Callable[[str], None]) -> None:
    zone("Asia/Kolkata")
    sent_time = datetime.datetime(2024, 1, 2, 3, 4, 5, 678)
    utc = datetime.UTC
    codec = EnvelopeCodec(MessageEnvelope, "json")
    envelopes = [
        envelope_of(message_id="1", sent_time=sent_time),
        envelope_of(message_id="2", sent_time=sent_time.replace(tzinfo=utc)),
        envelope_of(message_id="3"),
    ]

    wire.send(codec, envelopes, timestamp_ms=1_700_000_000_123)
    batch = wire.batch(3)
    objects = [json.loads(value) for value in batch.values()]

    assert batch.keys() == [b"1", b"2", b"3"]
    assert batch.headers() == [None] * 3
    assert batch.timestamps.tolist() == [1_700_000_000_123] * 3
    assert objects[0] == {
        "message_id": "1",
        "trace_id": "trace",
        "message_type": "type",
        "sent_time": "2024-01-02T03:04:05.000678+05:30",
        "message": base64.b64encode(b"body").decode(),
    }
    assert objects[1]["sent_time"] == "2024-01-02T03:04:05.000678+00:00"
    assert objects[2]["sent_time"] == "2023-11-15T03:43:20.123000+05:30"
    arrived = codec.decode(batch)
    assert [envelope.sent_time for envelope in arrived] == [
        sent_time,
        sent_time + datetime.timedelta(hours=5, minutes=30),
        datetime.datetime.fromtimestamp(1_700_000_000.123),
    ]


def test_records_have_the_requested_partition_timestamp_and_topic(
    wire: Wire, form: str, cluster: Any, unique: Callable[[str], str]
) -> None:
    codec = EnvelopeCodec(MessageEnvelope, form)
    other = unique("other")
    cluster.create_topic(other, 4)

    delivery = codec.publish(
        wire.producer, [wire.topic, other], [envelope_of()] * 2, partition=2, timestamp_ms=5
    )
    delivery.wait(WAIT_S)

    assert list(delivery.partitions) == [2, 2]
    assert len(codec.publish(wire.producer, wire.topic, [])) == 0


def test_traceparent_is_written_and_read(wire: Wire, form: str) -> None:
    codec = EnvelopeCodec(MessageEnvelope, form, traceparent=True)
    wire.send(codec, [envelope_of(trace_id=TRACE_ID), envelope_of(), envelope_of(trace_id=None)])
    batch = wire.batch(3)

    headers = [dict(headers or ()) for headers in batch.headers()]
    version, trace, span, flags = headers[0]["traceparent"].decode().split("-")
    assert (version, trace, flags) == ("00", TRACE_ID.lower(), "01")
    assert len(span) == 16
    assert int(span, 16)
    assert ["traceparent" in row for row in headers] == [True, False, False]
    assert [e.trace_id for e in codec.decode(batch)] == [TRACE_ID, "trace", None]


def test_the_trace_id_is_found_in_older_and_foreign_headers(wire: Wire) -> None:
    parent = ("traceparent", f"00-{TRACE_ID.lower()}-0123456789abcdef-01")
    for headers in (
        [parent, ("correlation_id", "c"), ("trace_id", "t")],
        [parent, ("correlation_id", "c"), ("trace_id", None)],
        [parent],
        [("traceparent", "nonsense")],
    ):
        wire.producer.produce(wire.topic, "", partition=0, headers=headers)
    batch = wire.batch(4)

    plain, traced = (
        EnvelopeCodec(MessageEnvelope),
        EnvelopeCodec(MessageEnvelope, traceparent=True),
    )
    assert [e.trace_id for e in plain.decode(batch)] == ["t", "c", None, None]
    assert [e.trace_id for e in traced.decode(batch)] == ["t", "c", TRACE_ID.lower(), None]


def test_text_that_is_not_utf8_is_replaced_and_bodies_are_kept(wire: Wire) -> None:
    headers = [("message_type", b"\xfft"), ("trace_id", b"\xc3")]
    wire.producer.produce(wire.topic, b"\xff", key=b"k\xff", partition=0, headers=headers)
    (envelope,) = EnvelopeCodec(MessageEnvelope).decode(wire.batch(1))

    assert fields_of(envelope) == ("k\ufffd", "\ufffd", "\ufffdt", b"\xff")


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


def json_of(**fields: Any) -> str:
    return json.dumps(fields)


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2024-07-01T12:00:00Z", "2024-07-01T12:00:00"),
        ("2024-07-01T12:00:00.25+02:00", "2024-07-01T10:00:00.250000"),
        ("2024-07-01 12:00-0330", "2024-07-01T15:30:00"),
    ],
)
def test_json_times_with_an_offset_become_local(
    zone: Callable[[str], None], text: str, utc: str
) -> None:
    zone("America/New_York")
    envelope = EnvelopeCodec(MessageEnvelope, "json").to_envelope(
        kafka_message(json_of(sent_time=text))
    )
    expected = datetime.datetime.fromisoformat(utc) - datetime.timedelta(hours=4)
    assert envelope.sent_time == expected
    assert envelope.sent_time.tzinfo is None


def test_json_times_without_an_offset_are_local_and_default_to_the_records(
    zone: Callable[[str], None],
) -> None:
    zone("America/New_York")
    codec = EnvelopeCodec(MessageEnvelope, "json")
    naive = codec.to_envelope(kafka_message(json_of(sent_time="2024-07-01T12:00:00.000001")))
    assert naive.sent_time == datetime.datetime(2024, 7, 1, 12, 0, 0, 1)
    for value in ("{}", '{"sent_time": null}'):
        missing = codec.to_envelope(kafka_message(value, timestamp=(1, 1_700_000_000_123)))
        assert missing.sent_time == datetime.datetime.fromtimestamp(1_700_000_000.123)


def test_ambiguous_naive_times_keep_their_fold(wire: Wire, zone: Callable[[str], None]) -> None:
    zone("Europe/Berlin")
    codec = EnvelopeCodec(MessageEnvelope, "json")
    times = [
        datetime.datetime(2024, 10, 27, 2, minute, fold=fold)
        for minute in range(0, 60, 7)
        for fold in (0, 1)
    ]
    wire.send(codec, [envelope_of(sent_time=moment) for moment in times])
    batch = wire.batch(len(times))

    written = [datetime.datetime.fromisoformat(json.loads(v)["sent_time"]) for v in batch.values()]
    assert [moment.timestamp() for moment in written] == [moment.timestamp() for moment in times]
    arrived = [envelope.sent_time for envelope in codec.decode(batch)]
    assert [(m, m.fold) for m in arrived] == [(m, m.fold) for m in times]


# -- malformed values


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "the value is null"),
        (b"", "expected an object"),
        (b"plain text", "expected an object"),
        (b'{"message": "YQ"}', "message: truncated or unpadded base64"),
        (b'{"message": 1}', "message: expected a string or null"),
        (b'{"trace_id": "\xff"}', "trace_id: invalid UTF-8"),
        (b'{"trace_id": "\\ud800"}', "trace_id: an unpaired surrogate"),
        (b'{"sent_time": "soon"}', "sent_time: expected an ISO 8601 date and time"),
        (b'{"x": ' + b"[" * 100_000, "nested too deep"),
        (b"{} {}", "data after the object"),
    ],
)
def test_malformed_value_fails_only_its_record(wire: Wire, value: bytes | None, says: str) -> None:
    codec = EnvelopeCodec(MessageEnvelope, "json")
    good = b'{"message_id": "1", "unknown": {"a": [1, 2.5e3, null]}}'
    for record in (good, value, good):
        wire.producer.produce(wire.topic, record, key=b"k", partition=0)
    batch = wire.batch(3)
    first, error, last = codec.decode(batch)

    assert first.message_id == last.message_id == "1"
    assert isinstance(error, EnvelopeError)
    assert isinstance(error, ValueError)
    assert says in str(error)
    assert f"{wire.topic} [0] at offset 1" in str(error)
    assert error.message == batch[1]
    with pytest.raises(EnvelopeError, match=says.replace("[", r"\[")):
        codec.to_envelope(batch[1])


def test_json_without_an_id_uses_the_key() -> None:
    codec = EnvelopeCodec(MessageEnvelope, "json")
    assert codec.to_envelope(kafka_message("{}", key=b"k")).message_id == "k"
    assert codec.to_envelope(kafka_message('{"message_id": "1"}', key=b"k")).message_id == "1"
    assert codec.to_envelope(kafka_message("{}")).message_id is None


# -- one at a time


def test_single_envelope_round_trips_like_many(wire: Wire, form: str) -> None:
    codec = EnvelopeCodec(MessageEnvelope, form, traceparent=True)
    sent_time = datetime.datetime(2024, 1, 2, 3, 4, 5)
    envelopes = [*ENVELOPES, envelope_of(trace_id=TRACE_ID)]
    for envelope in envelopes:
        envelope.sent_time = sent_time
    wire.send(codec, envelopes, timestamp_ms=5)
    for envelope in envelopes:
        record = codec.to_record(envelope, timestamp_ms=5)
        wire.producer.produce(wire.topic, partition=0, **record)
    many, single = wire.batch(len(envelopes)), wire.batch(len(envelopes))

    assert single.values() == many.values()
    assert single.keys() == many.keys()
    for ours, others in zip(many.headers(), single.headers(), strict=True):
        names = [name for name, _ in ours or ()]
        assert names == [name for name, _ in others or ()]
        assert (ours or ())[:2] == (others or ())[:2] or form == "json"
    assert [*map(fields_of, map(codec.to_envelope, many))] == [*map(fields_of, codec.decode(many))]


def test_equal_message_types_are_one_str_object(wire: Wire, form: str) -> None:
    codec = EnvelopeCodec(MessageEnvelope, form)
    kinds = ["Order.Created", "Order.Deleted", "Order.Created", "x" * 300]
    wire.send(codec, [envelope_of(message_type=kind) for kind in kinds])
    arrived = [envelope.message_type for envelope in codec.decode(wire.batch(4))]

    assert arrived == kinds
    assert arrived[0] is arrived[2]
