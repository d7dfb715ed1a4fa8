"""Restarted streams: the start of the first batch, checkpoints of the JVM connector."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

Load = Callable[..., DataFrame]
WAIT_S = 120

pytestmark = pytest.mark.usefixtures("stop_queries")

# The first line of the JVM's files.
VERSION = "v1"


class Query:
    """A stream into Parquet whose checkpoint the test reads and changes."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.out = folder / "out"
        self.checkpoint = folder / "checkpoint"

    def run(self, frame: DataFrame, *, available_now: bool = True) -> None:
        writer = frame.writeStream.format("parquet").option("path", str(self.out))
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        if available_now:
            assert writer.trigger(availableNow=True).start().awaitTermination(WAIT_S)
            return
        query = writer.start()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    def found(self) -> list[tuple[int, int]]:
        rows = self.spark.read.parquet(str(self.out)).select("partition", "offset").collect()
        return sorted((row.partition, row.offset) for row in rows)

    def end_of(self, batch: int) -> dict[str, Any]:
        return dict(json.loads(self._log(batch).read_text().splitlines()[-1]))

    def _log(self, batch: int) -> Path:
        return self.checkpoint / "offsets" / str(batch)

    def write_end(self, batch: int, end: dict[str, Any]) -> None:
        """Replace the end of a batch in the log, as the JVM connector would have written it."""
        lines = self._log(batch).read_text().splitlines()
        lines[-1] = json.dumps(end, separators=(",", ":"))
        self._log(batch).write_text("\n".join(lines))
        (self.checkpoint / "offsets" / f".{batch}.crc").unlink(missing_ok=True)

    def crash_in(self, batch: int) -> None:
        """Restore the state of a kill after the driver planned this batch."""
        for log in ("offsets", "commits"):
            for path in (self.checkpoint / log).iterdir():
                name = path.name.strip(".").removesuffix(".crc")
                last = batch if log == "offsets" else batch - 1
                if name.isdigit() and int(name) > last:
                    path.unlink()
        # Remove the output of the sink, too.
        for path in (self.out / "_spark_metadata").iterdir():
            name = path.name.strip(".").removesuffix(".crc")
            if name.isdigit() and int(name) >= batch:
                path.unlink()


@pytest.fixture
def stream(stream: Load, read_on: str) -> Load:
    return partial(stream, readOn=read_on)


@pytest.fixture
def query(spark: Any, tmp_path: Path) -> Query:
    return Query(spark, tmp_path)


@pytest.fixture
def single(cluster: Any, unique: Any) -> str:
    name = unique("single")
    cluster.create_topic(name, 1)
    return str(name)


def test_first_batch_is_reread_from_its_start(
    stream: Load, single: str, fill: Any, query: Query
) -> None:
    frame = stream(subscribe=single, startingOffsets="latest")
    fill(single, 5)
    query.run(frame, available_now=False)  # an empty first batch, at 5
    fill(single, 5)
    query.crash_in(0)

    # Now `latest` is 10. From there the batch would begin after its end.
    query.run(frame)
    assert query.found() == [(0, at) for at in range(5, 10)]


def test_first_batch_with_records_is_reread_unchanged(
    stream: Load, single: str, fill: Any, query: Query
) -> None:
    fill(single, 10)
    frame = stream(subscribe=single, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    query.run(frame)
    assert query.found() == [(0, at) for at in range(10)]
    query.crash_in(0)

    # The option of a new query does not matter.
    query.run(stream(subscribe=single, startingOffsets="latest"))

    assert query.found() == [(0, at) for at in range(10)]


def test_only_the_first_end_offset_contains_the_start(
    stream: Load, single: str, fill: Any, query: Query
) -> None:
    fill(single, 8)
    query.run(stream(subscribe=single, startingOffsets="earliest", maxOffsetsPerTrigger="4"))

    carried = {key: value for key, value in query.end_of(0).items() if key != single}
    assert list(carried.values()) == [{single: {"0": 0}}]
    assert query.end_of(1) == {single: {"0": 8}}


def test_batch_in_the_middle_is_reread(stream: Load, single: str, fill: Any, query: Query) -> None:
    fill(single, 10)
    frame = stream(subscribe=single, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    query.run(frame)
    query.crash_in(1)
    fill(single, 1)
    query.run(frame)

    assert query.found() == [(0, at) for at in range(11)]


def test_checkpoint_of_the_jvm_connector_is_continued(
    stream: Load, single: str, fill: Any, query: Query
) -> None:
    fill(single, 10)
    frame = stream(subscribe=single, startingOffsets="earliest")
    query.run(frame)
    # The logs of the two connectors differ only in the first end, and in the JVM's own start.
    query.write_end(0, {single: {"0": 6}})
    initial = query.checkpoint / "sources" / "0"
    initial.mkdir(parents=True)
    (initial / "0").write_text(f'{VERSION}\n{{"{single}":{{"0":0}}}}')

    query.run(frame)

    again = [(0, at) for at in range(6, 10)]
    assert query.found() == sorted([(0, at) for at in range(10)] + again)
    assert query.end_of(1) == {single: {"0": 10}}


@pytest.mark.parametrize("more", [0, 5])
def test_unfinished_first_batch_of_the_jvm_connector_is_not_lost_silently(
    stream: Load, single: str, fill: Any, query: Query, more: int
) -> None:
    frame = stream(subscribe=single, startingOffsets="latest")
    fill(single, 5)
    query.run(frame, available_now=False)
    fill(single, 5)
    query.crash_in(0)
    # The first batch began at 5.
    query.write_end(0, {single: {"0": 10}})
    if more:
        fill(single, more)

    with pytest.raises(StreamingQueryException, match="another connector planned") as caught:
        query.run(frame)

    assert f'{{"{single}": {{"0": 10}}}}' in str(caught.value)
    # The test follows the advice of the error.
    began = json.dumps({single: {"0": 5}})
    query.run(stream(subscribe=single, startingOffsets=began))
    assert query.found() == [(0, at) for at in range(5, 10 + more)]


def test_offsets_of_another_source_are_refused(
    stream: Load, single: str, fill: Any, query: Query, tmp_path: Path
) -> None:
    fill(single, 3)
    frame = stream(subscribe=single, startingOffsets="earliest")
    query.run(frame)
    query.write_end(0, {"logOffset": 0})
    shutil.rmtree(query.checkpoint / "commits")

    with pytest.raises(StreamingQueryException, match="the stream's offset in the checkpoint"):
        query.run(frame)


@pytest.mark.parametrize("crashed", [0, 1], ids=["first batch", "second batch"])
def test_checkpoint_is_continued_with_the_other_value_of_read_on(
    stream: Load, read_on: str, single: str, fill: Any, query: Query, crashed: int
) -> None:
    other = "driver" if read_on == "executors" else "executors"
    fill(single, 10)
    options = {"subscribe": single, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"}
    query.run(stream(**options))
    ends = [query.end_of(batch) for batch in range(3)]
    query.crash_in(crashed)
    fill(single, 5)

    query.run(stream(**{**options, "startingOffsets": "latest", "readOn": other}))

    assert [query.end_of(batch) for batch in range(crashed + 1)] == ends[: crashed + 1]
    assert query.found() == [(0, at) for at in range(15)]
