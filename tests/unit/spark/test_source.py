"""The calls of Spark to the source, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.datasource import EqualTo, In, InputPartition, IsNull

from cykafka.spark import register
from cykafka.spark.clients import consumers
from cykafka.spark.data_source import CyKafkaDataSource, PushdownReader

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a"}


def reader(**options: str) -> Any:
    source = CyKafkaDataSource({**GIVEN, **options})
    return source.reader(source.schema())


def test_register_registers_the_source() -> None:
    known: list[Any] = []
    register(SimpleNamespace(dataSource=SimpleNamespace(register=known.append)))  # type: ignore[arg-type]
    assert known == [CyKafkaDataSource]
    assert known[0].name() == "cykafka"


def test_empty_plan_needs_no_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "OpenConsumer", None)  # calling it would raise
    assert list(reader().read(InputPartition(None))) == []


def test_inexact_filters_are_also_left_to_spark() -> None:
    made = reader(pushdown="true")
    assert isinstance(made, PushdownReader)
    scattered = In(("offset",), (1, 5))
    null = IsNull(("value",))
    given = [EqualTo(("partition",), 1), scattered, null, IsNull(("key",))]

    assert list(made.pushFilters(given)) == [scattered, null]
    assert (len(made.conditions), len(made.of_rows)) == (2, 1)
