"""Envelopes, classes and messages that misbehave."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fixture_types import MakeProducer
from machine import WAIT_S

import cykafka
from cykafka.internal import EnvelopeCodec, EnvelopeError

pytestmark = pytest.mark.ours


class Envelope:
    def __init__(self, **fields: Any) -> None:
        self.message_id: Any = "id"
        self.trace_id: Any = "trace"
        self.message_type: Any = "type"
        self.message: Any = b"body"
        self.sent_time: Any = None
        self.__dict__.update(fields)


FIELDS = ["message_id", "trace_id", "message_type", "message"]


@pytest.fixture
def codec() -> EnvelopeCodec:
    return EnvelopeCodec(Envelope)


@pytest.fixture
def publish(codec: EnvelopeCodec, producer: Any, topic: str) -> Callable[..., Any]:
    def publish(*envelopes: Any, **options: Any) -> Any:
        return codec.publish(producer, topic, [Envelope(), *envelopes], **options)

    return publish


def doing(name: str, action: Callable[[], Any]) -> Any:
    """An envelope with a property that runs an action."""
    return type(
        "Doing", (Envelope,), {name: property(lambda self: action(), lambda self, v: None)}
    )()


# -- encoding


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("value", [1, 1.5, object(), ["a"], True])
def test_field_of_a_wrong_type_is_named(publish: Any, name: str, value: object) -> None:
    with pytest.raises(TypeError, match=rf"envelopes\[1\]: {name}: expected .*, got "):
        publish(Envelope(**{name: value}))


@pytest.mark.parametrize("name", FIELDS)
def test_text_that_utf8_cannot_encode_is_named(publish: Any, name: str) -> None:
    with pytest.raises(UnicodeEncodeError, match=rf"envelopes\[1\]: {name}"):
        publish(Envelope(**{name: "a\ud800"}))


@pytest.mark.parametrize("name", FIELDS)
def test_exception_of_a_property_is_the_cause(publish: Any, name: str) -> None:
    with pytest.raises(
        EnvelopeError, match=rf"envelopes\[1\]: cannot read {name}: ZeroDivisionError"
    ) as caught:
        publish(doing(name, lambda: 1 / 0))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert caught.value.message is None

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        publish(doing(name, interrupt))


@pytest.mark.parametrize("other", [None, 1, "envelope", object(), {"message_id": "1"}])
def test_object_that_is_not_an_envelope_is_named(publish: Any, other: object) -> None:
    with pytest.raises(TypeError, match=r"envelopes\[1\]: expected an envelope, got .*message_id"):
        publish(other)


def test_a_missing_attribute_is_named(publish: Any) -> None:
    envelope = Envelope()
    del envelope.message
    with pytest.raises(TypeError, match=r"envelopes\[1\]: .* has no message"):
        publish(envelope)


@pytest.mark.parametrize("name", FIELDS)
def test_property_may_close_the_producer(
    codec: EnvelopeCodec, make_producer: MakeProducer, topic: str, name: str
) -> None:
    for topics in (topic, [topic] * 18, "never seen"):
        producer = make_producer()
        codec.publish(producer, topic, [Envelope()]).wait(WAIT_S)

        def close(producer: Any = producer) -> str:
            producer.close()
            return "closed"

        with pytest.raises(RuntimeError, match="closed"):
            codec.publish(producer, topics, [Envelope(), doing(name, close)] * 9)


def test_property_that_clears_the_list_drops_no_envelope(
    codec: EnvelopeCodec, producer: Any, topic: str
) -> None:
    envelopes = [Envelope() for _ in range(50)]

    def clear() -> str:
        envelopes.clear()
        gc.collect()
        return "x"

    envelopes.insert(5, doing("message_id", clear))
    assert len(codec.publish(producer, topic, envelopes)) == 51


def test_delivered_envelopes_are_released(codec: EnvelopeCodec, producer: Any, topic: str) -> None:
    envelope = Envelope(
        message_id="i" * 50, trace_id="t" * 50, message_type="m" * 50, message=b"b" * 5000
    )

    def references() -> list[int]:
        return [sys.getrefcount(value) for value in vars(envelope).values() if value is not None]

    before = references()
    for wrong in ([], [1], [Envelope(trace_id=1)], [doing("message", lambda: 1 / 0)]):
        with contextlib.suppress(TypeError, EnvelopeError):
            codec.publish(producer, topic, [envelope, envelope, *wrong]).wait(WAIT_S)
        assert references() == before


class Text(str):
    def __str__(self) -> str:
        raise AssertionError

    def encode(self, *args: Any, **kwargs: Any) -> bytes:
        raise AssertionError

    def __len__(self) -> int:
        return 10**9


class Data(bytes):
    def __bytes__(self) -> bytes:
        raise AssertionError

    def __len__(self) -> int:
        return 10**9


def test_subclasses_of_str_and_bytes_keep_their_content(codec: EnvelopeCodec) -> None:
    fields = {name: Text("é") for name in FIELDS}
    record = codec.to_record(Envelope(**{**fields, "message": Data(b"body")}))
    assert record["key"] == "é"
    assert type(record["key"]) is str
    again = codec.to_envelope(
        cykafka.Message(
            topic="t",
            key=record["key"].encode(),
            value=record["value"],
            headers=[(k, v.encode()) for k, v in record["headers"].items()],
        )
    )
    assert (again.message_id, again.trace_id, again.message) == ("é", "é", b"body")


def test_bodies_may_be_text_and_buffers(codec: EnvelopeCodec, producer: Any, topic: str) -> None:
    for body in ("body", bytearray(b"body"), memoryview(b"b-o-d-y-")[::2]):
        record = codec.to_record(Envelope(message=body))
        message = cykafka.Message(topic="t", value=record["value"])
        assert codec.to_envelope(message).message == b"body"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"partition": "0"}, TypeError),
        ({"partition": -2}, ValueError),
        ({"partition": 2**31}, ValueError),
        ({"timestamp_ms": -1}, ValueError),
        ({"timestamp_ms": 1.5}, TypeError),
        ({"timeout": "1"}, TypeError),
        ({"timeout": float("nan")}, ValueError),
    ],
)
def test_other_arguments_are_checked(publish: Any, options: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match=next(iter(options))):
        publish(**options)


def test_wrong_arguments_are_refused(codec: EnvelopeCodec, producer: Any, topic: str) -> None:
    for envelopes in (Envelope(), "abc", b"abc", {1, 2}, {"a": 1}, None, iter([])):
        with pytest.raises(TypeError, match="envelopes"):
            codec.publish(producer, topic, envelopes)
    for other in (None, object(), cykafka):
        with pytest.raises(TypeError):
            codec.publish(other, topic, [])
        with pytest.raises(TypeError):
            codec.decode(other)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            codec.to_envelope(other)  # type: ignore[arg-type]
    for topics in (None, 1, ["a", "b"], [1]):
        with pytest.raises((TypeError, ValueError), match="topic"):
            codec.publish(producer, topics, [Envelope()])  # type: ignore[arg-type]
    with pytest.raises((RuntimeError, ValueError)):
        codec.publish(cykafka.Producer.__new__(cykafka.Producer), topic, [Envelope()])


def test_codec_refuses_wrong_arguments_and_a_second_init() -> None:
    for wrong in (None, 1, Envelope()):
        with pytest.raises(TypeError, match="envelope_type"):
            EnvelopeCodec(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot create instances"):
        EnvelopeCodec(type(_ for _ in ()))
    with pytest.raises(TypeError, match="positional argument"):
        EnvelopeCodec(Envelope, "headers")  # type: ignore[call-arg]
    codec = EnvelopeCodec(Envelope)
    with pytest.raises(TypeError, match="already"):
        codec.__init__(Envelope)  # type: ignore[misc]
    raw = EnvelopeCodec.__new__(EnvelopeCodec)
    for call in (
        lambda: raw.to_record(Envelope()),
        lambda: raw.to_envelope(cykafka.Message()),
    ):
        with pytest.raises(ValueError, match="not initialized"):
            call()


# -- decoding


@pytest.fixture
def batch(kafka: Any, codec: EnvelopeCodec, producer: Any, consumer: Any, topic: str) -> Any:
    envelopes = [Envelope(message_id=str(n), message=b"%d" % n * 50) for n in range(20)]
    codec.publish(producer, topic, envelopes, partition=0).wait(WAIT_S)
    consumer.assign([kafka.TopicPartition(topic, 0, 0)])
    return consumer.consume_batch(20, WAIT_S)


def test_envelopes_of_slotted_and_property_subclasses_are_created(batch: Any) -> None:
    class Slotted:
        __slots__ = (
            "_MessageEnvelope__reference",
            "message",
            "message_id",
            "message_type",
            "sent_time",
            "trace_id",
        )

    class Proper(Envelope):
        extra = 1

        @property
        def message_id(self) -> str:
            return self.own

        @message_id.setter
        def message_id(self, value: str) -> None:
            self.own = value + "!"

        def __init__(self) -> None:
            raise AssertionError("made by __new__ alone")

    assert [e.message_id for e in EnvelopeCodec(Slotted).decode(batch)][:2] == ["0", "1"]
    assert [e.message_id for e in EnvelopeCodec(Proper).decode(batch)][:2] == ["0!", "1!"]


def test_class_that_cannot_be_instantiated_fails_each_record(batch: Any) -> None:
    class Demanding:
        def __new__(cls, needed: object) -> Any:
            raise AssertionError

    class Picky(Envelope):
        def __setattr__(self, name: str, value: object) -> None:
            if value == "7":
                raise ZeroDivisionError
            super().__setattr__(name, value)

    for made in (Demanding, int):
        errors = EnvelopeCodec(made).decode(batch)
        assert [type(error) for error in errors] == [EnvelopeError] * 20
        assert errors[3].message.offset() == 3
    picked = EnvelopeCodec(Picky).decode(batch)
    assert [type(made) for made in picked] == [Picky] * 7 + [EnvelopeError] + [Picky] * 12
    assert isinstance(picked[7].__cause__, ZeroDivisionError)


@pytest.mark.parametrize("name", ["_MessageEnvelope__reference", *FIELDS, "sent_time"])
@pytest.mark.parametrize("action", ["close", "release", "spoil"])
def test_setter_may_close_or_release_the_batch(
    batch: Any, consumer: Any, name: str, action: str
) -> None:
    made: list[Any] = []

    class Doing(Envelope):
        def __setattr__(self, attribute: str, value: Any) -> None:
            super().__setattr__(attribute, value)
            if attribute != name:
                return
            made.append(self)
            if action == "close":
                consumer.close()
            elif action == "release":
                batch.release()
            else:
                message = self.__dict__.get("_MessageEnvelope__reference")
                if message is not None:
                    message.set_value(None)
                    message.set_key(None)
                    message.set_headers(None)
            if len(made) % 9 == 1:
                gc.collect()

    envelopes = EnvelopeCodec(Doing).decode(batch)
    assert [envelope.message_id for envelope in envelopes] == [str(n) for n in range(20)]
    assert [envelope.message for envelope in envelopes] == [b"%d" % n * 50 for n in range(20)]


def test_setter_may_change_the_class(batch: Any) -> None:
    class Other:
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, [value])

    class Changing:
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            if name == "trace_id":
                self.__class__ = Other  # type: ignore[assignment]
                del Changing.__setattr__

    first, second, *_ = EnvelopeCodec(Changing).decode(batch)
    assert (type(first), first.trace_id, first.message_id) == (Other, "trace", ["0"])
    assert (type(second), second.message_id) == (Changing, "1")


def test_setter_may_change_the_list_of_records(batch: Any) -> None:
    class Doing:
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            for found in gc.get_objects():
                if type(found) is list and found and isinstance(found[-1], cykafka.Message):
                    found[1:] = [None] * (len(found) - 1)

    with pytest.raises(RuntimeError, match="the list of envelopes changed"):
        EnvelopeCodec(Doing).decode(batch)


def test_a_released_batch_is_refused(codec: EnvelopeCodec, batch: Any) -> None:
    batch.release()
    with pytest.raises(ValueError, match="released"):
        codec.decode(batch)


@pytest.mark.parametrize(
    "fields",
    [
        {"key": 1},
        {"value": object()},
        {"headers": [1]},
        {"headers": [("a",)]},
        {"headers": [(1, b"")]},
        {"headers": 5},
        {"key": "\ud800"},
    ],
)
def test_messages_with_fields_of_wrong_types_are_refused(
    codec: EnvelopeCodec, fields: Any
) -> None:
    with pytest.raises(EnvelopeError):
        codec.to_envelope(cykafka.Message(**{"topic": "t", "value": b"{}", **fields}))


def test_messages_that_the_caller_created_are_read(codec: EnvelopeCodec) -> None:
    for headers in ({"trace_id": "t"}, [("trace_id", "t")], [("trace_id", bytearray(b"t"))]):
        message = cykafka.Message(topic="t", key="k", value="{}", headers=headers)
        envelope = codec.to_envelope(message)
        assert (envelope.message_id, envelope.trace_id) == ("k", "t")


def test_private_classes_are_safe_to_instantiate() -> None:
    from cykafka._core.common import message as _message
    from cykafka._core.envelope import codec as _envelope

    for hidden in (
        _envelope.Kept,
        _envelope.EnvelopeColumns,
        _envelope.EnvelopeRows,
        _message.HeaderBlock,
    ):
        hidden()
    block = _message.HeaderBlock()
    assert cykafka.Message(headers=block).headers() == []  # type: ignore[arg-type]


@pytest.mark.parametrize("end", ["close", "detach", "release"])
def test_many_threads_decode_a_batch_that_is_released(
    codec: EnvelopeCodec, batch: Any, consumer: Any, end: str
) -> None:
    started = threading.Barrier(5)
    failures: list[object] = []

    def work() -> None:
        started.wait(WAIT_S)
        try:
            for _ in range(200):
                envelopes = codec.decode(batch)
                if [envelope.message_id for envelope in envelopes] != [str(n) for n in range(20)]:
                    failures.append(envelopes)
                envelopes[5].__dict__["_MessageEnvelope__reference"].headers()
        except ValueError as error:
            if end != "release" or "released" not in str(error):
                failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    started.wait(WAIT_S)
    {"close": consumer.close, "detach": batch.detach, "release": batch.release}[end]()
    for thread in threads:
        thread.join(WAIT_S)
    assert failures == []
