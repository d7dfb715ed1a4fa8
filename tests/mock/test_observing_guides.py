"""The examples of docs/statistics.md and docs/tracing.md run and do what the pages say."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from fixture_types import WaitUntil
from guides import ROOT, blocks
from machine import WAIT_S
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from cykafka import Consumer, Message, Producer, TopicPartition
from cykafka.aio import AsyncConsumer, AsyncProducer
from cykafka.otel import TracedConsumer, TracedProducer
from cykafka.stats.prometheus import StatisticsCollector

pytestmark = pytest.mark.ours


@pytest.fixture
def names() -> Iterator[dict[str, Any]]:
    """What the blocks define; their clients are closed at the end."""
    names: dict[str, Any] = {}
    yield names
    for value in names.values():
        if isinstance(value, (Producer, Consumer, TracedProducer, TracedConsumer)):
            value.close()
    names.clear()


@pytest.fixture
def run(cluster: Any, topic: str, names: dict[str, Any]) -> Callable[[str], None]:
    """Run an example with the cluster's brokers and a topic of our own."""

    def run(block: str) -> None:
        source = block.replace("localhost:9092", cluster.bootstrap_servers)
        source = source.replace('"orders"', repr(topic)).replace("5000", "50")
        source = source.replace('"group.id": ', '"group.protocol": "consumer", "group.id": ')
        exec(compile(source, "docs", "exec"), names)

    return run


def test_statistics_are_shown(
    run: Callable[[str], None], names: dict[str, Any], wait_until: WaitUntil
) -> None:
    lines: list[str] = []
    names["print"] = lambda *words: lines.append(" ".join(map(str, words)))
    run(blocks("docs/statistics.md")[0])
    producer = names["producer"]
    wait_until(lambda: any(" UP " in line for line in lines), lambda: producer.poll(0.05))

    assert any(line.endswith(" 0 records sent") for line in lines)


def test_metrics_are_served(
    run: Callable[[str], None],
    names: dict[str, Any],
    wait_until: WaitUntil,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry, ports = CollectorRegistry(), []
    monkeypatch.setattr("prometheus_client.start_http_server", ports.append)
    monkeypatch.setattr(
        "cykafka.stats.prometheus.StatisticsCollector",
        lambda: StatisticsCollector(registry=registry),
    )
    first, second, third = blocks("docs/statistics.md")
    run(first)
    run(second)
    # The page's clients have the default interval of 5 s.
    wait_until(
        lambda: 'group="billing"' in generate_latest(registry).decode(),
        lambda: names["consumer"].poll(0.05),
    )
    run(third)

    assert ports == [9100]
    assert json.loads(names["dashboard"])["title"] == "cykafka"


def test_page_lists_every_metric() -> None:
    text = (ROOT / "docs/statistics.md").read_text(encoding="utf-8")
    listed = set()
    for row in re.findall(r"^\| (`cykafka_[^|]*)\|", text, re.MULTILINE):
        first, *others = re.findall(r"`(\w+)`", row)
        listed.add(first)
        for other in others:
            listed.add(other if other.startswith("cykafka") else _full(first, other))
    collector = StatisticsCollector(registry=None)
    exported = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in collector.describe()
    }
    partition = {name for name in listed if name.startswith("cykafka_partition_")}

    assert listed - partition == exported


def _full(first: str, ending: str) -> str:
    """The whole name of a metric whose first words are those of another: cykafka_queue_..."""
    word = first.split("_")[1]
    return f"cykafka_{ending[1:]}" if ending.startswith(f"_{word}") else f"cykafka_{word}{ending}"


def test_records_are_traced(
    run: Callable[[str], None], names: dict[str, Any], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Seen(Exception):
        pass

    def show(value: bytes) -> None:
        values.append(value)
        if len(values) == 3:
            raise Seen  # otherwise the loop would never end

    def set_tracer_provider(provider: TracerProvider) -> None:
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)

    values: list[bytes] = []
    exporter = InMemorySpanExporter()
    monkeypatch.setattr(trace, "set_tracer_provider", set_tracer_provider)
    names["print"] = show
    setup, send, batch, read, of_asyncio = blocks("docs/tracing.md")
    run(setup)
    run(send)
    run(batch)
    names["producer"].poll(WAIT_S if not names["delivery"].done else 0)
    with pytest.raises(Seen):
        run(read)

    spans = exporter.get_finished_spans()
    verbs = Counter(span.name.removesuffix(f" {topic}") for span in spans)
    assert verbs == {"send": 2, "poll": 3, "process": 3}
    sent = {span.context.span_id for span in spans if span.name.startswith("send")}
    linked = [link.context.span_id for span in spans for link in span.links]
    assert set(linked) == sent
    assert len(linked) == 6

    exporter.clear()
    run(of_asyncio)

    async def send_and_read() -> None:
        async def work(message: Message) -> None:
            assert message.value() == b"traced"

        config = {"bootstrap.servers": names["config"]["bootstrap.servers"]}
        async with AsyncProducer(config) as producer:
            sent = await names["send_traced"](producer, topic, b"traced")
        async with AsyncConsumer({**config, "group.id": "any"}) as consumer:
            consumer.assign([TopicPartition(topic, sent.partition(), sent.offset())])
            await names["process_traced"](await consumer.poll(WAIT_S), work)

    asyncio.run(asyncio.wait_for(send_and_read(), WAIT_S))
    sending, processing = exporter.get_finished_spans()
    assert processing.parent is not None
    assert processing.parent.span_id == sending.context.span_id
