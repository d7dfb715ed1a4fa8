"""TracedProducer and TracedConsumer: the spans, and the contexts in the headers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fixture_types import Fill, MakeConsumer, MakeProducer, Unique, WaitUntil
from machine import WAIT_S
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from cykafka import KafkaError, KafkaException, Message
from cykafka.otel import TracedConsumer, TracedProducer, TracedShareConsumer
from cykafka.serialization import StringSerializer

MakeTracedProducer = Callable[..., TracedProducer]
MakeTracedConsumer = Callable[..., TracedConsumer]
Spans = Callable[..., list[ReadableSpan]]
TakeMessage = Callable[[], Message]

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
PARENT_SPAN = 0xB7AD6B7169203331


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> Iterator[TracerProvider]:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    yield provider
    provider.shutdown()


@pytest.fixture
def spans(exporter: InMemorySpanExporter) -> Spans:
    """The ended spans whose name begins so, in the order of their ends."""

    def spans(prefix: str = "") -> list[ReadableSpan]:
        return [span for span in exporter.get_finished_spans() if span.name.startswith(prefix)]

    return spans


@pytest.fixture
def traced_producer(make_producer: MakeProducer, provider: TracerProvider) -> MakeTracedProducer:
    return lambda **config: TracedProducer(make_producer(config), tracer_provider=provider)


@pytest.fixture
def traced_consumer(make_consumer: MakeConsumer, provider: TracerProvider) -> MakeTracedConsumer:
    return lambda **config: TracedConsumer(make_consumer(config), tracer_provider=provider)


@pytest.fixture
def message(traced_consumer: MakeTracedConsumer, topic: str, wait_until: WaitUntil) -> TakeMessage:
    """Read the next message."""
    consumers: list[TracedConsumer] = []

    def message() -> Message:
        if not consumers:
            consumers.append(traced_consumer())
            consumers[0].subscribe([topic])
        found: list[Any] = []
        wait_until(lambda: any(found), lambda: found.append(consumers[0].consumer.poll(0.1)))
        got = found[-1]
        assert isinstance(got, Message)
        return got

    return message


def header(span: ReadableSpan) -> bytes:
    """The traceparent that names this span."""
    context = span.context
    text = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    return text.encode()


def linked(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_produce_makes_a_span_that_ends_with_the_delivery(
    traced_producer: MakeTracedProducer, spans: Spans, topic: str, cluster: Any
) -> None:
    producer = traced_producer(**{"client.id": "orders"})
    producer.produce(topic, "order 1", key="k1", partition=2)
    assert spans() == []
    producer.flush(WAIT_S)

    (span,) = spans()
    assert (span.name, span.kind) == (f"send {topic}", SpanKind.PRODUCER)
    assert span.status.status_code is StatusCode.UNSET
    host, _, port = cluster.bootstrap_servers.rpartition(":")
    assert attributes(span) == {
        "messaging.system": "kafka",
        "messaging.client.id": "orders",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": "2",
        "messaging.kafka.message.key": "k1",
        "messaging.kafka.offset": 0,
        "server.address": host,
        "server.port": int(port),
    }


def test_record_carries_the_context_beside_its_own_headers(
    traced_producer: MakeTracedProducer, spans: Spans, message: TakeMessage, topic: str
) -> None:
    producer = traced_producer()
    for own in ({"source": b"web"}, [("source", b"web"), ("source", None)], None):
        before = own.copy() if own is not None else None
        producer.produce(topic, "x", headers=own)
        producer.flush(WAIT_S)

        assert own == before
        pairs = own.items() if isinstance(own, dict) else own or []
        assert message().headers() == [*pairs, ("traceparent", header(spans()[-1]))]


@pytest.mark.parametrize(
    "headers", [{"traceparent": PARENT}, ((b"traceparent", PARENT.encode()),)]
)
def test_record_with_a_context_keeps_it_and_its_span_links_to_it(
    headers: Any,
    traced_producer: MakeTracedProducer,
    spans: Spans,
    message: TakeMessage,
    topic: str,
) -> None:
    producer = traced_producer()
    producer.produce(topic, None, headers=headers)
    producer.flush(WAIT_S)

    assert message().headers() == [("traceparent", PARENT.encode())]
    (span,) = spans()
    assert linked(span) == [PARENT_SPAN]
    assert span.kind is SpanKind.CLIENT
    assert attributes(span)["messaging.kafka.message.tombstone"] is True


def test_context_that_is_not_valid_is_replaced(
    traced_producer: MakeTracedProducer, spans: Spans, message: TakeMessage, topic: str
) -> None:
    # A consumer takes the first traceparent, so the wrong one must go.
    producer = traced_producer()
    wrong = [("traceparent", b"00-0-0-00"), ("source", b"web")]
    producer.produce(topic, "0", headers=wrong, partition=0)
    for context_of in ("batch", "record"):
        producer.publish(topic, ["1"], headers=[wrong], partitions=0, context=context_of)
    producer.flush(WAIT_S)

    produced, batch, _ = spans("send")
    (created,) = spans("create")
    for span in (produced, batch, created):
        assert message().headers() == [("source", b"web"), ("traceparent", header(span))]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"headers": 5}, "headers: expected a dict or a list"),
        ({"headers": ["source"]}, "headers: expected .name, value. pairs"),
        ({"headers": [(5, b"x")]}, "headers: expected a str as name"),
        ({"partition": "0"}, "partition: "),
        ({"on_delivery": 5}, "on_delivery: expected a callable or None, got int"),
    ],
)
def test_wrong_arguments_have_the_errors_of_the_producer(
    arguments: dict[str, Any], text: str, traced_producer: MakeTracedProducer
) -> None:
    producer = traced_producer()
    for item in (producer, producer.producer):
        with pytest.raises(TypeError, match=text):
            item.produce("topic", "x", **arguments)


def test_callback_that_is_false_is_still_called(
    traced_producer: MakeTracedProducer, topic: str
) -> None:
    class Outcomes(list[Any]):  # empty, so it is False
        def __call__(self, error: KafkaError | None, message: Message) -> None:
            self.append(error)

    outcomes = Outcomes()
    producer = traced_producer()
    producer.produce(topic, "x", on_delivery=outcomes)
    producer.flush(WAIT_S)

    assert outcomes == [None]


def test_span_of_a_record_is_a_child_of_the_current_span(
    traced_producer: MakeTracedProducer, spans: Spans, provider: TracerProvider, topic: str
) -> None:
    producer = traced_producer()
    with provider.get_tracer("app").start_as_current_span("request") as request:
        producer.produce(topic, "x")
    producer.flush(WAIT_S)

    (send,) = spans("send")
    assert send.parent is not None
    assert send.parent.span_id == request.get_span_context().span_id


def test_failed_delivery_is_the_status_and_reaches_the_callback(
    traced_producer: MakeTracedProducer, spans: Spans, topic: str
) -> None:
    errors: list[KafkaError | None] = []
    producer = traced_producer()
    producer.produce(topic, "x", callback=lambda error, message: errors.append(error))
    producer.purge()
    producer.flush(WAIT_S)

    (span,) = spans()
    (error,) = errors
    assert error is not None
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == error.str()
    assert attributes(span)["error.type"] == error.name() == "_PURGE_QUEUE"


@pytest.mark.parametrize("way", ["close", "abort"])
def test_spans_of_records_that_are_never_sent_end(
    way: str, make_transactional: MakeProducer, provider: TracerProvider, spans: Spans, topic: str
) -> None:
    raw = make_transactional(**{"linger.ms": 30_000})
    producer = TracedProducer(raw, tracer_provider=provider)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce(topic, "x")
    producer.publish(topic, ["y", "z"], context="record")
    if way == "abort":
        producer.abort_transaction(WAIT_S)
        producer.poll(0)
    else:
        producer.close()

    kinds = [attributes(span)["error.type"] for span in spans("send")]
    assert kinds == ["_PURGE_QUEUE"] * 2


def test_callback_of_the_configuration_is_still_called(
    traced_producer: MakeTracedProducer, topic: str
) -> None:
    offsets: list[int | None] = []
    producer = traced_producer(on_delivery=lambda error, message: offsets.append(message.offset()))
    producer.produce(topic, "x", partition=0)
    producer.flush(WAIT_S)

    assert offsets == [0]


def test_record_that_cannot_be_queued_has_a_failed_span(
    traced_producer: MakeTracedProducer, spans: Spans, topic: str
) -> None:
    producer = traced_producer(**{"message.max.bytes": 1000})
    with pytest.raises(KafkaException):
        producer.produce(topic, b"x" * 2000)
    with pytest.raises(TypeError):
        producer.produce(topic, 5)

    kinds = [attributes(span)["error.type"] for span in spans("send")]
    assert kinds == ["MSG_SIZE_TOO_LARGE", "TypeError"]


def test_publish_makes_one_span_and_no_headers(
    traced_producer: MakeTracedProducer, spans: Spans, message: TakeMessage, topic: str
) -> None:
    producer = traced_producer()
    producer.publish(topic, ["a", "b", "c"]).wait(WAIT_S)
    producer.poll(0)

    (span,) = spans()
    assert (span.name, span.kind) == (f"send {topic}", SpanKind.CLIENT)
    assert attributes(span)["messaging.batch.message_count"] == 3
    assert message().headers() is None


@pytest.mark.parametrize("form", ["none", "mapping", "sequence"])
@pytest.mark.parametrize("which", ["batch", "record"])
def test_publish_adds_the_context_to_each_record_if_asked(
    which: Any,
    form: str,
    traced_producer: MakeTracedProducer,
    spans: Spans,
    message: TakeMessage,
    topic: str,
) -> None:
    headers: Any = {
        "none": None,
        "mapping": {"source": memoryview(b"web"), "n": [b"0", b"1"]},
        "sequence": [{"source": "web", "n": b"0"}, [("source", "web"), ("n", b"1")]],
    }[form]
    before = repr(headers)
    producer = traced_producer()
    delivery = producer.publish(topic, ["0", "1"], headers=headers, partitions=0, context=which)
    delivery.wait(WAIT_S)
    producer.poll(0)
    assert repr(headers) == before

    (send,), created = spans("send"), spans("create")
    if which == "batch":
        assert (send.kind, created) == (SpanKind.PRODUCER, [])
        carried = [send, send]
    else:
        assert send.kind is SpanKind.CLIENT
        assert [span.kind for span in created] == [SpanKind.PRODUCER] * 2
        assert linked(send) == [span.context.span_id for span in created]
        carried = created
    for number, span in enumerate(carried):
        own = [] if form == "none" else [("source", b"web"), ("n", str(number).encode())]
        assert message().headers() == [*own, ("traceparent", header(span))]


def test_publish_keeps_contexts_that_records_have(
    traced_producer: MakeTracedProducer, spans: Spans, message: TakeMessage, topic: str
) -> None:
    producer = traced_producer()
    rows = [{"traceparent": PARENT}, None]
    producer.publish(topic, ["0", "1"], headers=rows, partitions=0, context="record").wait(WAIT_S)
    producer.poll(0)

    (created,), (send,) = spans("create"), spans("send")
    assert message().headers() == [("traceparent", PARENT.encode())]
    assert message().headers() == [("traceparent", header(created))]
    assert linked(send) == [PARENT_SPAN, created.context.span_id]


def test_baggage_alone_is_no_context(
    traced_producer: MakeTracedProducer, spans: Spans, message: TakeMessage, topic: str
) -> None:
    producer = traced_producer()
    own = {"baggage": "tenant=7"}
    producer.publish(topic, ["x"], headers=own, context="batch").wait(WAIT_S)
    producer.poll(0)

    (send,) = spans("send")
    assert message().headers() == [("baggage", b"tenant=7"), ("traceparent", header(send))]


def test_publish_states_how_many_records_failed(
    traced_producer: MakeTracedProducer, spans: Spans, topic: str
) -> None:
    producer = traced_producer(**{"message.max.bytes": 1000})
    producer.publish(topic, [b"x", b"x" * 2000])
    producer.flush(WAIT_S)

    (span,) = spans()
    assert span.status.description is not None
    assert span.status.description.startswith("1 of 2 records failed: ")
    assert attributes(span)["error.type"] == "MSG_SIZE_TOO_LARGE"
    assert attributes(span)["messaging.batch.message_count"] == 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"context": "all"}, ValueError),
        ({"context": "record", "values": None}, TypeError),
        ({"context": "record", "headers": {"n": [b"0", b"1"]}}, ValueError),
        ({"context": "batch", "headers": object()}, TypeError),
    ],
)
def test_publish_refuses_what_it_cannot_trace(
    arguments: dict[str, Any],
    error: type[Exception],
    traced_producer: MakeTracedProducer,
    topic: str,
) -> None:
    with pytest.raises(error, match=r"context|headers"):
        traced_producer().publish(topic, **{"values": ["x"], **arguments})


def test_tracing_is_no_check_of_the_outcomes(
    make_transactional: MakeProducer, provider: TracerProvider, topic: str
) -> None:
    # As without tracing: the program never looked at the Delivery whose record is too large.
    raw = make_transactional(**{"message.max.bytes": 1000})
    producer = TracedProducer(raw, tracer_provider=provider)

    def lose_a_record() -> None:
        with producer.transaction() as inner:
            assert inner is producer
            kept = inner.publish(topic, [b"x", b"x" * 2000])
            inner.flush(WAIT_S)
            assert kept.done

    with pytest.raises(KafkaException, match="could not be queued"):
        lose_a_record()


def test_failures_of_traced_deliveries_are_still_logged(
    make_producer: MakeProducer,
    provider: TracerProvider,
    spans: Spans,
    topic: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    raw = make_producer({"linger.ms": 60_000, "message.max.bytes": 2000})
    producer = TracedProducer(raw, tracer_provider=provider)
    producer.publish(topic, ["a"] * 3)  # dropped before they fail
    producer.publish(topic, [b"x" * 5000] * 4)  # dropped after they failed
    asked = producer.publish(topic, [b"x" * 5000] * 5)
    assert asked.failed == 5
    del asked
    producer.publish(topic, ["a"] * 6).add_done_callback(lambda delivery: None)
    producer.purge()
    with caplog.at_level(logging.WARNING, "cykafka"):
        producer.close()

    assert [record.args[1] for record in caplog.records if "check them;" in record.msg] == [7]
    counts = [attributes(span)["messaging.batch.message_count"] for span in spans()]
    assert counts[:2] == [4, 5]
    assert sorted(counts[2:]) == [3, 6]


def test_poll_makes_a_span_that_links_to_the_sender(
    traced_producer: MakeTracedProducer,
    traced_consumer: MakeTracedConsumer,
    spans: Spans,
    topic: str,
    unique: Unique,
) -> None:
    group = unique("group")
    producer = traced_producer()
    producer.produce(topic, "x", key=b"\xff", partition=3)
    producer.flush(WAIT_S)
    consumer = traced_consumer(**{"group.id": group})
    assert consumer.poll(0) is None
    consumer.subscribe([topic])
    assert consumer.poll(WAIT_S) is not None

    (send,), (poll,) = spans("send"), spans("poll")
    assert (poll.name, poll.kind, poll.parent) == (f"poll {topic}", SpanKind.CLIENT, None)
    assert linked(poll) == [send.context.span_id]
    found = attributes(poll)
    assert found["messaging.operation.name"] == "poll"
    assert found["messaging.operation.type"] == "receive"
    assert found["messaging.consumer.group.name"] == group
    assert found["messaging.destination.partition.id"] == "3"
    assert found["messaging.kafka.offset"] == 0
    assert "messaging.kafka.message.key" not in found  # it is no text
    assert "messaging.batch.message_count" not in found
    assert poll.start_time is not None
    assert poll.end_time is not None
    assert poll.start_time <= poll.end_time


def test_processing_is_the_current_span_of_its_block(
    traced_producer: MakeTracedProducer,
    traced_consumer: MakeTracedConsumer,
    spans: Spans,
    topic: str,
) -> None:
    producer = traced_producer()
    producer.produce(topic, "x")
    producer.flush(WAIT_S)
    consumer = traced_consumer()
    consumer.subscribe([topic])
    message = next(iter(consumer))

    def process() -> None:
        with consumer.processing(message) as span:
            assert trace.get_current_span() is span
            producer.produce(topic, "answer")
            raise LookupError("no such order")

    with pytest.raises(LookupError):
        process()
    producer.flush(WAIT_S)

    (processed,), (first, answer) = spans("process"), spans("send")
    assert (processed.name, processed.kind) == (f"process {topic}", SpanKind.CONSUMER)
    assert linked(processed) == [first.context.span_id]
    assert attributes(processed)["messaging.operation.type"] == "process"
    assert attributes(processed)["error.type"] == "LookupError"
    assert processed.status.description == "no such order"
    assert [event.name for event in processed.events] == ["exception"]
    assert answer.parent is not None
    assert answer.parent.span_id == processed.context.span_id


def test_processing_may_be_a_child_of_the_sender(
    traced_producer: MakeTracedProducer,
    traced_consumer: MakeTracedConsumer,
    spans: Spans,
    provider: TracerProvider,
    topic: str,
) -> None:
    producer, consumer = traced_producer(), traced_consumer()
    token = context.attach(baggage.set_baggage("tenant", "7"))
    producer.produce(topic, "x")
    context.detach(token)
    producer.flush(WAIT_S)
    consumer.subscribe([topic])
    message = consumer.poll(WAIT_S)
    assert message is not None
    with (
        provider.get_tracer("app").start_as_current_span("job") as job,
        consumer.processing(message, as_child=True),
    ):
        assert baggage.get_all() == {"tenant": "7"}
    assert baggage.get_all() == {}

    (send,), (process,) = spans("send"), spans("process")
    assert process.parent is not None
    assert process.parent.span_id == send.context.span_id
    assert linked(process) == [send.context.span_id, job.get_span_context().span_id]
    with pytest.raises(ValueError, match="as_child"), consumer.processing([], as_child=True):
        pass


def test_message_without_a_context_is_processed_in_the_callers_trace(
    traced_consumer: MakeTracedConsumer,
    spans: Spans,
    provider: TracerProvider,
    message: TakeMessage,
    fill: Fill,
    topic: str,
) -> None:
    fill(topic, 1)
    got = message()
    with (
        provider.get_tracer("app").start_as_current_span("job") as job,
        traced_consumer().processing(got, as_child=True),
    ):
        pass

    (process,) = spans("process")
    assert process.parent == job.get_span_context()
    assert process.links == ()


@pytest.mark.parametrize("way", ["consume", "consume_batch", "batches"])
def test_batch_has_one_span_that_links_to_each_context_once(
    way: str,
    traced_producer: MakeTracedProducer,
    traced_consumer: MakeTracedConsumer,
    spans: Spans,
    topic: str,
) -> None:
    producer, consumer = traced_producer(), traced_consumer()
    for context_of in ("batch", "record", None):
        producer.publish(topic, ["x"] * 5, partitions=0, context=context_of).wait(WAIT_S)
    producer.poll(0)
    sent = spans("send")[0].context.span_id
    created = [span.context.span_id for span in spans("create")]
    consumer.subscribe([topic])
    batch: Any
    if way == "batches":
        batch = next(consumer.batches(15, None))
    else:
        batch = getattr(consumer, way)(15, WAIT_S)
    assert len(batch) == 15
    with consumer.processing(batch):
        pass

    (poll,), (process,) = spans("poll"), spans("process")
    for span in (poll, process):
        assert linked(span) == [sent, *created]
        assert attributes(span)["messaging.batch.message_count"] == 15
        assert attributes(span)["messaging.destination.name"] == topic
        assert "messaging.kafka.offset" not in attributes(span)


def test_batch_links_to_at_most_128_contexts(
    traced_producer: MakeTracedProducer,
    traced_consumer: MakeTracedConsumer,
    spans: Spans,
    topic: str,
) -> None:
    producer, consumer = traced_producer(), traced_consumer()
    producer.publish(topic, ["x"] * 200, partitions=0, context="record").wait(WAIT_S)
    consumer.subscribe([topic])
    assert len(consumer.consume_batch(200, WAIT_S)) == 200

    (poll,) = spans("poll")
    assert linked(poll) == [span.context.span_id for span in spans("create")[:128]]


def test_status_is_the_error_but_not_the_end_of_a_partition(
    traced_consumer: MakeTracedConsumer,
    spans: Spans,
    fill: Fill,
    topic: str,
    wait_until: WaitUntil,
) -> None:
    fill(topic, 1)
    consumer = traced_consumer(**{"enable.partition.eof": True, "auto.offset.reset": "error"})
    codes: list[int] = []

    def poll() -> None:
        message = consumer.poll(0.1)
        error = message and message.error()
        if error:
            codes.append(error.code())

    from cykafka import TopicPartition

    consumer.assign([TopicPartition(topic, 0, 1)])
    wait_until(lambda: KafkaError._PARTITION_EOF in codes, poll)
    assert spans() == []
    consumer.assign([TopicPartition(topic, 0, 1000)])
    wait_until(lambda: KafkaError._AUTO_OFFSET_RESET in codes, poll)

    assert [attributes(span)["error.type"] for span in spans()] == ["_AUTO_OFFSET_RESET"]


@pytest.mark.parametrize("way", ["consume", "consume_batch"])
def test_batch_of_nothing_but_ends_of_partitions_has_no_span(
    way: str, traced_consumer: MakeTracedConsumer, spans: Spans, topic: str, wait_until: WaitUntil
) -> None:
    from cykafka import TopicPartition

    consumer = traced_consumer(**{"enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(2)])
    ends: list[Any] = []

    def read() -> None:
        batch = getattr(consumer, way)(10, 0.1)
        ends.extend(batch if way == "consume" else batch.errors)

    wait_until(lambda: len(ends) == 2, read)
    assert {end.error().code() for end in ends} == {KafkaError._PARTITION_EOF}
    assert spans() == []


def test_exception_of_a_read_has_a_span(traced_consumer: MakeTracedConsumer, spans: Spans) -> None:
    consumer = traced_consumer()
    consumer.close()
    with pytest.raises(RuntimeError):
        consumer.poll(0)

    (span,) = spans()
    assert (span.name, span.status.status_code) == ("poll", StatusCode.ERROR)


def test_commit_has_a_span(traced_consumer: MakeTracedConsumer, spans: Spans, topic: str) -> None:
    from cykafka import TopicPartition

    consumer = traced_consumer()
    consumer.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    with pytest.raises(KafkaException):
        consumer.commit(asynchronous=False)

    committed, failed = spans("commit")
    assert (committed.kind, committed.status.status_code) == (SpanKind.CLIENT, StatusCode.UNSET)
    assert attributes(committed)["messaging.operation.type"] == "settle"
    assert attributes(failed)["error.type"] == "_NO_OFFSET"


def test_share_consumer_has_the_spans_of_a_consumer(
    cluster: Any, traced_producer: MakeTracedProducer, provider: TracerProvider, spans: Spans,
    unique: Unique,
) -> None:  # fmt: skip
    from cykafka import ShareConsumer

    topic, group = unique("shared"), unique("group")
    cluster.create_topic(topic, 1)
    inner = ShareConsumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "log_level": 3}
    )
    with TracedShareConsumer(inner, tracer_provider=provider) as consumer:
        consumer.subscribe([topic])
        producer = traced_producer()
        seen: list[Message] = []
        # The group begins at the end of the topic: at the records sent after its first fetch.
        while not seen:
            producer.produce(topic, "x")
            producer.flush(WAIT_S)
            seen += consumer.poll(0.2)
        with consumer.processing(seen):
            consumer.commit_sync()
        producer.produce(topic, "y")
        producer.flush(WAIT_S)
        batch = consumer.consume_batch(WAIT_S)
        producer.produce(topic, "z")
        producer.flush(WAIT_S)
        next(consumer)
    assert len(batch) >= 1

    sent = {span.context.span_id for span in spans("send")}
    first, second, third = spans("poll")
    for poll in (first, second, third):
        assert poll.name == f"poll {topic}"
        assert set(linked(poll)) <= sent
        assert attributes(poll)["messaging.consumer.group.name"] == group
    assert attributes(second)["messaging.batch.message_count"] == len(batch)
    assert "messaging.batch.message_count" not in attributes(third)
    assert [span.name for span in spans("process")] == [f"process {topic}"]
    (commit,) = spans("commit")
    assert attributes(commit)["messaging.operation.type"] == "settle"


def test_serializing_producer_is_traced_in_the_order_of_producer(
    cluster: Any, provider: TracerProvider, spans: Spans, message: TakeMessage, topic: str
) -> None:
    from cykafka import SerializingProducer

    config = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 0}
    serializers = {"key.serializer": StringSerializer(), "value.serializer": StringSerializer()}
    inner = SerializingProducer({**config, **serializers})
    with TracedProducer(inner, tracer_provider=provider) as producer:
        producer.produce(topic, "value", "key")

    got = message()
    assert (got.key(), got.value()) == (b"key", b"value")
    assert len(spans("send")) == 1


def test_clients_of_another_kind_are_refused(
    traced_producer: MakeTracedProducer, traced_consumer: MakeTracedConsumer
) -> None:
    producer, consumer = traced_producer(), traced_consumer()

    for wrap, wrong in (
        (TracedProducer, producer),
        (TracedProducer, consumer.consumer),
        (TracedConsumer, consumer),
        (TracedConsumer, producer.producer),
    ):
        with pytest.raises(TypeError, match=f"expected a .*er, got {type(wrong).__name__}"):
            wrap(wrong)  # type: ignore[call-arg, arg-type]


def test_wrapper_gives_the_clients_other_methods(
    traced_producer: MakeTracedProducer, traced_consumer: MakeTracedConsumer
) -> None:
    producer, consumer = traced_producer(), traced_consumer()

    assert len(producer) == 0
    assert producer
    assert consumer.assignment() == []
    with pytest.raises(AttributeError, match="no_such"):
        _ = producer.no_such


def test_without_a_provider_records_carry_the_callers_context(
    make_producer: MakeProducer, message: TakeMessage, topic: str
) -> None:
    # OpenTelemetry's API alone makes no spans, but it passes contexts on.
    producer = TracedProducer(make_producer())
    parent = trace.SpanContext(0xABC, PARENT_SPAN, False, trace.TraceFlags(1))
    with trace.use_span(trace.NonRecordingSpan(parent)):
        producer.produce(topic, "x")
    producer.flush(WAIT_S)

    ((name, value),) = message().headers() or []
    assert name == "traceparent"
    assert value is not None
    assert b"b7ad6b7169203331" in value
