"""README's example for Spark runs and does what README says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from guides import blocks
from machine import WAIT_S


@pytest.mark.usefixtures("stop_queries")
def test_readme(spark: Any, cluster: Any, unique: Any, batch: Any, tmp_path: Path) -> None:
    (block,) = (each for each in blocks("README.md") if "spark" in each)
    topics = {'"orders"': unique("orders"), '"shouted"': unique("shouted")}
    for text, name in topics.items():
        cluster.create_topic(name, 1)
        block = block.replace(text, repr(name))
    block = block.replace("localhost:9092", cluster.bootstrap_servers)
    block = block.replace("shouted.checkpoint", str(tmp_path / "checkpoint"))
    block = block.replace(".awaitTermination()", "")
    exec(compile(block, "README.md", "exec"), {"spark": spark})

    (query,) = spark.streams.active
    query.processAllAvailable()
    from cykafka import Producer

    with Producer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
        producer.publish(topics['"orders"'], [b"tea"], keys=[b"k"]).wait(WAIT_S)
    deadline = time.monotonic() + WAIT_S
    rows: list[Any] = []
    while not rows:
        assert time.monotonic() < deadline
        query.processAllAvailable()
        rows = batch("key binary, value binary", subscribe=topics['"shouted"']).collect()

    assert [(bytes(row.key), bytes(row.value)) for row in rows] == [(b"k", b"TEA")]
