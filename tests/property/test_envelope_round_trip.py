"""Any envelope round-trips. Any JSON is read as by Python, or refused."""

from __future__ import annotations

import base64
import datetime
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from machine import WAIT_S
from repeated import examples

import cykafka
from cykafka.internal import EnvelopeCodec, EnvelopeError
from cykafka.testing import MockCluster

BASE64 = re.compile("([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
TOPIC = "envelopes"

# With NULs, which must not end a string in C. Without surrogates, which UTF-8 cannot encode.
texts = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
bodies = st.one_of(st.none(), st.binary(max_size=70), st.binary(max_size=9).map(lambda b: b * 500))
times = st.one_of(
    st.none(),
    st.datetimes(datetime.datetime(1970, 1, 2), datetime.datetime(2100, 1, 1)),
    st.datetimes(
        datetime.datetime(1, 1, 3),
        datetime.datetime(9999, 12, 29),
        timezones=st.integers(-86_399, 86_399).map(
            lambda s: datetime.timezone(datetime.timedelta(seconds=s))
        ),
    ),
)


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
    envelope.sent_time = draw(times)
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


@pytest.mark.parametrize("form", ["headers", "json"])
@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(sent=st.lists(envelopes(), min_size=1, max_size=140), traceparent=st.booleans())
def test_envelopes_round_trip(
    wire: Wire, form: str, sent: list[Envelope], traceparent: bool
) -> None:
    codec = EnvelopeCodec(Envelope, form, traceparent=traceparent)
    codec.publish(wire.producer, TOPIC, sent, partition=0).wait(WAIT_S)
    batch = wire.batch(len(sent))
    arrived = codec.decode(batch)

    assert [*map(fields_of, arrived)] == [*map(fields_of, sent)]
    assert [*map(fields_of, map(codec.to_envelope, batch))] == [*map(fields_of, sent)]
    for one, other in zip(sent, arrived, strict=True):
        if form == "json" and one.sent_time is not None:
            assert other.sent_time.tzinfo is None
            expected = one.sent_time.astimezone().replace(tzinfo=None)
            skipped = one.sent_time.tzinfo is None and expected != one.sent_time
            assert other.sent_time == expected or skipped


# -- JSON

json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        texts,
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
names = st.one_of(
    st.sampled_from(["message_id", "trace_id", "message_type", "correlation_id", "messag", "é"]),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5).filter(
        lambda name: name not in ("message", "sent_time")
    ),
)


def decoded(value: bytes) -> Envelope:
    codec = EnvelopeCodec(Envelope, "json")
    return codec.to_envelope(cykafka.Message(topic="t", value=value))  # type: ignore[no-any-return]


@settings(max_examples=examples(400), deadline=None)
@given(
    members=st.lists(st.tuples(names, json_values), max_size=6),
    ascii=st.booleans(),
    indent=st.sampled_from([None, 0, 2, "\t"]),
    body=bodies,
)
def test_json_is_read_like_by_python(
    members: list[tuple[str, Any]], ascii: bool, indent: Any, body: bytes | None
) -> None:
    given = dict(members)
    if body is not None:
        given["message"] = base64.b64encode(body).decode()
    text = json.dumps(given, ensure_ascii=ascii, indent=indent)
    value = text.encode()
    known = ("message_id", "trace_id", "message_type", "correlation_id")
    wrong = [name for name in known if not isinstance(given.get(name), str | None)]
    if wrong:
        with pytest.raises(EnvelopeError):
            decoded(value)
        return
    envelope = decoded(value)
    trace_id = given.get("trace_id")
    assert envelope.message_id == given.get("message_id")
    assert envelope.message_type == given.get("message_type")
    assert envelope.trace_id == (given.get("correlation_id") if trace_id is None else trace_id)
    assert envelope.message == body


@settings(max_examples=examples(400), deadline=None)
@given(
    text=st.one_of(
        st.text("AZaz09+/= \n-_", max_size=14),
        st.binary(max_size=40).map(lambda b: base64.b64encode(b).decode()),
        st.binary(max_size=300).map(lambda b: base64.encodebytes(b).decode()),
    )
)
@example(text="YQ=")
@example(text="====")
@example(text="0000=")
def test_base64_is_read_if_correctly_padded(text: str) -> None:
    value = json.dumps({"message": text}).encode()
    plain = "".join(text.split())
    # The strict mode of Python accepts more or less padding, depending on its version.
    if BASE64.fullmatch(plain):
        assert decoded(value).message == base64.b64decode(plain)
    else:
        with pytest.raises(EnvelopeError, match="base64"):
            decoded(value)


@settings(max_examples=examples(300), deadline=None)
@given(value=st.binary(max_size=60))
@example(value=b'{"a":1e400}')
def test_any_bytes_are_decoded_or_refused(value: bytes) -> None:
    for candidate in (value, b'{"x": ' + value + b"}", b'{"message": "' + value + b'"}'):
        try:
            decoded(candidate)
        except EnvelopeError:
            continue
        assert isinstance(json.loads(candidate), dict)
