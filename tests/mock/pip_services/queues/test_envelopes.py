"""KafkaMessageEnvelope, which fixes bugs of MessageEnvelope."""

from __future__ import annotations

import datetime
import json
from typing import Any

import pytest
from pip_services4_messaging.queues import MessageEnvelope
from pip_services_queues import MakeQueue, envelope

from pip_services4_kafka.queues import KafkaMessageEnvelope

pytestmark = pytest.mark.ours


@pytest.mark.parametrize(
    ("message", "stored"),
    [(b"\xff", b"\xff"), (bytearray(b"x"), b"x"), ("ü", "ü".encode()), ({"a": 1}, b'{"a": 1}')],
)
def test_an_envelope_takes_bytes_and_a_string_for_a_context(message: Any, stored: bytes) -> None:
    envelope = KafkaMessageEnvelope("123", "order", message)
    assert (envelope.trace_id, envelope.message_type, envelope.message) == ("123", "order", stored)
    assert envelope.message_id


def test_str_of_an_envelope_has_its_trace_id_once() -> None:
    assert str(KafkaMessageEnvelope("123", "order", b"a\xff")) == "[123,order,a\ufffd]"
    assert str(KafkaMessageEnvelope(None, None)) == "[---,---,---]"


def test_an_empty_message_can_become_json() -> None:
    found = KafkaMessageEnvelope("123", "order").to_json()
    assert (found["trace_id"], found["message_type"], found["message"]) == ("123", "order", None)


def test_json_time_is_independent_of_the_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    envelope = KafkaMessageEnvelope("123", "order", b"x")
    envelope.sent_time = datetime.datetime(2026, 1, 2, 3, 4, 5)
    found = envelope.to_json()
    values = datetime.datetime.fromisoformat(found["sent_time"])
    assert values.tzinfo is not None
    assert values == envelope.sent_time.astimezone()

    again = KafkaMessageEnvelope.from_json(json.dumps(found))
    assert again is not None
    assert again.sent_time == envelope.sent_time
    assert (again.message, again.message_id) == (b"x", envelope.message_id)
    assert again.get_reference() is None


def test_from_json_reads_the_published_form_and_rejects_other_text() -> None:
    old = MessageEnvelope(None, "order", "x")
    old.sent_time = datetime.datetime(2026, 1, 2, 3, 4, 5)
    found = KafkaMessageEnvelope.from_json(json.dumps(old.to_json()))
    assert found is not None
    assert (found.sent_time, found.message) == (old.sent_time, b"x")
    assert KafkaMessageEnvelope.from_json(None) is None
    assert KafkaMessageEnvelope.from_json("{") is None


def test_queue_returns_kafka_message_envelopes(make_queue: MakeQueue) -> None:
    queue = make_queue()
    queue.send(None, envelope("1"))
    received = queue.receive(None, 30_000)
    assert type(received) is KafkaMessageEnvelope
    assert str(received) == "[trace,test,1]"
