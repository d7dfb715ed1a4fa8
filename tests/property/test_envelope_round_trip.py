"""Any envelope round-trips."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from machine import WAIT_S
from repeated import examples

import cykafka
from cykafka.internal import EnvelopeCodec
from cykafka.testing import MockCluster

TOPIC = "envelopes"

# With NULs, which must not end a string in C. Without surrogates, which UTF-8 cannot encode.
texts = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
bodies = st.one_of(st.none(), st.binary(max_size=70), st.binary(max_size=9).map(lambda b: b * 500))


class Envelope:
    __slots__ = (
        "_MessageEnvelope__reference",
        "message",
        "message_id",
        "message_type",
        "sent_time",
        "trace_id",
    )


@st.composite
def envelopes(draw: Any) -> Envelope:
    envelope = Envelope()
    envelope.message_id = draw(texts)
    envelope.trace_id = draw(texts)
    envelope.message_type = draw(texts)
    envelope.message = draw(bodies)
    return envelope


def fields_of(envelope: Envelope) -> tuple[Any, ...]:
    return (
        envelope.message_id,
        envelope.trace_id,
        envelope.message_type,
        envelope.message,
    )


class Wire:
    def __init__(self, cluster: MockCluster) -> None:
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        self.producer = cykafka.Producer({**servers, "linger.ms": 0})
        self.consumer = cykafka.Consumer({**servers, "group.id": "g", "fetch.wait.max.ms": 10})
        self.consumer.assign([cykafka.TopicPartition(TOPIC, 0, 0)])

    def batch(self, count: int) -> cykafka.MessageBatch:
        batch = self.consumer.consume_batch(count, WAIT_S)
        assert len(batch) == count
        return batch

    def close(self) -> None:
        self.producer.close()
        self.consumer.close()


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with MockCluster() as cluster:
        cluster.create_topic(TOPIC, 1)
        wire = Wire(cluster)
        yield wire
        wire.close()


@pytest.fixture(params=["UTC", "America/St_Johns"], scope="module", autouse=True)
def zone(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    sent=st.lists(envelopes(), min_size=1, max_size=140),
    timestamp_ms=st.integers(1, 4_102_444_800_000),
)
def test_envelopes_round_trip(wire: Wire, sent: list[Envelope], timestamp_ms: int) -> None:
    codec = EnvelopeCodec(Envelope)
    codec.publish(wire.producer, TOPIC, sent, partition=0, timestamp_ms=timestamp_ms).wait(WAIT_S)
    batch = wire.batch(len(sent))
    arrived = codec.decode(batch)

    assert [*map(fields_of, arrived)] == [*map(fields_of, sent)]
    assert [*map(fields_of, map(codec.to_envelope, batch))] == [*map(fields_of, sent)]
    seconds, ms = divmod(timestamp_ms, 1000)
    sent_time = datetime.datetime.fromtimestamp(seconds).replace(microsecond=ms * 1000)
    for envelope in arrived:
        assert envelope.sent_time == sent_time
        assert envelope.sent_time.fold == sent_time.fold
