"""The source is made known to a session by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from cykafka.spark import register
from cykafka.spark.source import CyKafkaDataSource


def test_register_makes_the_source_known() -> None:
    known: list[Any] = []
    register(SimpleNamespace(dataSource=SimpleNamespace(register=known.append)))  # type: ignore[arg-type]
    assert known == [CyKafkaDataSource]
    assert known[0].name() == "cykafka"
