"""Small micro-batches that the driver reads, and how PySpark takes their rows."""

from __future__ import annotations

import io
import json
from collections.abc import Generator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.serializers import read_int, write_with_length
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming import python_streaming_source_runner as runner

from cykafka.spark import prefetch
from cykafka.spark.jobs.task_work import WorkingReader
from cykafka.spark.offsets import PartitionRange
from cykafka.spark.options import DRIVER_RECORDS, ReadOptions
from cykafka.spark.prefetch import PlanningReader, Prefetch
from cykafka.spark.schema import source_schema
from cykafka.spark.source import CyKafkaDataSource
from cykafka.spark.versions import SimpleReader

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "a"}


class Reads:
    """Reads one batch of a column for each range, as long as nothing is wrong."""

    def __init__(self) -> None:
        self.asked: list[Sequence[PartitionRange]] = []
        self.timeouts: list[float] = []
        self.error: Exception | None = None
        self.bytes = 1
        self.takes = 0.0  # for each range, s
        self.now = 0.0

    def __call__(
        self, ranges: Sequence[PartitionRange], options: ReadOptions
    ) -> Generator[pa.RecordBatch]:
        self.asked.append(ranges)
        self.timeouts.append(options.poll_timeout_s)
        for each in ranges:
            if self.error is not None:
                raise self.error
            self.now += self.takes
            values = [bytes(self.bytes)] * each.size
            yield pa.record_batch([values], ["value"])


def prefetching(**options: str) -> tuple[Prefetch, Reads]:
    reads = Reads()
    return Prefetch(
        ReadOptions.of({**GIVEN, **options}, "stream"), reads, lambda: reads.now
    ), reads


def some(count: int, partition: int = 0) -> PartitionRange:
    return PartitionRange("a", partition, 0, count)


ONE = [(some(2), some(3, 1))]


def test_small_micro_batch_is_read_once_and_its_rows_are_taken_once() -> None:
    rows, reads = prefetching()
    assert not rows.is_full
    rows.fill(ONE)
    assert rows.is_full
    assert [batch.num_rows for batch in rows.take()] == [2, 3]
    assert not rows.is_full
    assert list(rows.take()) == []
    assert len(reads.asked) == 1
    assert reads.timeouts == [prefetch.PATIENCE_S]


def test_a_shorter_timeout_of_the_options_wins() -> None:
    rows, reads = prefetching(**{"kafkaconsumer.polltimeoutms": "20"})
    rows.fill(ONE)
    assert reads.timeouts == [0.02]


@pytest.mark.parametrize(
    "tasks",
    [[], [(some(0),)], [(some(DRIVER_RECORDS + 1),)], [(some(1),), (some(1, 1),)]],
    ids=["none", "empty", "large", "two tasks"],
)
def test_tasks_read_other_micro_batches(tasks: list[Any]) -> None:
    rows, reads = prefetching()
    rows.fill(tasks)
    assert not rows.is_full
    assert reads.asked == []


@pytest.mark.parametrize("most", [1, 100_000])
def test_option_says_what_is_small(most: int) -> None:
    rows, reads = prefetching(maxrecordsondriver=str(most))
    reads.bytes = prefetch.RECORD_BYTES - 100  # Arrow's own bytes count, too
    rows.fill([(some(most),)])
    assert rows.is_full
    rows.fill([(some(most + 1),)])
    assert not rows.is_full
    assert len(reads.asked) == 1
    reads.bytes = prefetch.RECORD_BYTES + 1
    rows.fill([(some(most),)])
    assert not rows.is_full
    assert len(reads.asked) == 2


def test_rows_that_nobody_took_do_not_enter_the_next_micro_batch() -> None:
    rows, reads = prefetching()
    rows.fill(ONE)
    reads.error = TimeoutError("no record")
    rows.fill(ONE)
    assert not rows.is_full


@pytest.mark.parametrize("wrong", ["error", "memory", "bytes", "slow"])
def test_tasks_read_for_a_while_after_the_driver_could_not(
    wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    rows, reads = prefetching()
    caplog.set_level("INFO", "cykafka.spark")
    if wrong in ("error", "memory"):
        reads.error = TimeoutError("no record") if wrong == "error" else MemoryError("none left")
    elif wrong == "bytes":
        reads.bytes = DRIVER_RECORDS * prefetch.RECORD_BYTES
    else:
        reads.takes = prefetch.PATIENCE_S
    rows.fill(ONE)
    assert not rows.is_full
    reasons = {"error": "no record", "memory": "none left", "bytes": "more than 24,000,000 bytes",
               "slow": "longer than 1 s"}  # fmt: skip
    assert reasons[wrong] in caplog.text
    reads.now += prefetch.PAUSE_S
    rows.fill(ONE)  # fails again: the pause doubles
    reads.error, reads.bytes, reads.takes = None, 1, 0.0
    reads.now += 2 * prefetch.PAUSE_S - 1
    rows.fill(ONE)
    assert not rows.is_full
    reads.now += 1
    rows.fill(ONE)
    assert rows.is_full


def test_driver_reads_smaller_micro_batches_after_one_was_too_large() -> None:
    rows, reads = prefetching()
    reads.bytes = 1_500
    rows.fill([(some(20_000),)])
    assert not rows.is_full
    reads.bytes = 1
    rows.fill([(some(10_001),)])
    assert not rows.is_full
    rows.fill([(some(10_000),)])
    assert rows.is_full
    reads.now += prefetch.PAUSE_S
    reads.bytes = 1_500
    rows.fill([(some(20_000),)])  # the pause doubles, in spite of the small one
    reads.bytes = 1
    reads.now += 2 * prefetch.PAUSE_S - 1
    rows.fill([(some(20_000),)])
    assert not rows.is_full
    reads.now += 1
    rows.fill([(some(20_000),)])
    assert rows.is_full


def test_a_fault_of_ours_is_not_hidden() -> None:
    rows, reads = prefetching()
    reads.error = AttributeError("a typing error")
    with pytest.raises(AttributeError):
        rows.fill(ONE)


# -- PySpark's side


@pytest.fixture
def reader(monkeypatch: pytest.MonkeyPatch) -> Any:
    source = CyKafkaDataSource(GIVEN)
    made: Any = source.streamReader(source.schema())
    monkeypatch.setattr(made.plan, "ranges", lambda start, end: [some(end["a"]["0"])])
    return made


def whole(ranges: Sequence[PartitionRange], options: ReadOptions) -> Generator[pa.RecordBatch]:
    """Rows of the source's own schema."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = to_arrow_schema(source_schema(False), timezone="UTC")
    for each in ranges:
        rows = [
            {"key": None, "value": b"x", "topic": "a", "partition": 0, "offset": at,
             "timestamp": 0, "timestampType": 0}
            for at in range(each.size)
        ]  # fmt: skip
        yield pa.RecordBatch.from_pylist(rows, schema)


def answer(reader: Any, count: int) -> io.BytesIO:
    """PySpark's answer to the JVM, which asks for the plan of a micro-batch."""
    asked, told = io.BytesIO(), io.BytesIO()
    for offset in ({"a": {"0": 0}}, {"a": {"0": count}}):
        write_with_length(json.dumps(offset).encode(), asked)
    asked.seek(0)
    schema = source_schema(False)
    runner.partitions_func(reader, CyKafkaDataSource(GIVEN), schema, 10_000, asked, told)
    told.seek(0)
    for _ in range(read_int(told)):
        told.read(read_int(told))
    return told


def test_pyspark_sends_the_rows_with_the_plan(reader: Any) -> None:
    reader.prefetch._read = whole
    told = answer(reader, 3)
    assert read_int(told) == runner.NON_EMPTY_PYARROW_RECORD_BATCHES
    read_int(told)  # the beginning of a stream of Arrow
    rows = pa.ipc.open_stream(told).read_all()
    assert rows["offset"].to_pylist() == [0, 1, 2]


def test_pyspark_sends_no_rows_of_a_large_micro_batch(reader: Any) -> None:
    reader.prefetch._read = whole
    told = answer(reader, DRIVER_RECORDS + 1)
    assert read_int(told) == runner.PREFETCHED_RECORDS_NOT_FOUND


def test_micro_batch_without_records_has_an_empty_block(reader: Any) -> None:
    """Such as one of aborted transactions only."""
    reader.prefetch._read = lambda ranges, options: (each for each in ())
    assert read_int(answer(reader, 3)) == runner.EMPTY_PYARROW_RECORD_BATCHES


def test_reader_is_a_simple_one_only_while_it_has_rows(reader: Any) -> None:
    reader.prefetch._read = whole
    assert not isinstance(reader, SimpleReader)
    tasks = reader.partitions({"a": {"0": 0}}, {"a": {"0": 3}})
    assert len(tasks) == 1  # Spark asserts it
    assert isinstance(reader, SimpleReader)
    assert isinstance(reader, DataSourceStreamReader | PlanningReader)
    list(reader.getCache({}, {}))
    assert not isinstance(reader, SimpleReader)
    assert reader.__class__ is type(reader)


def test_reader_can_be_pickled_for_tasks() -> None:
    source = CyKafkaDataSource(GIVEN)
    made = source.streamReader(source.schema())
    copy = cloudpickle.loads(cloudpickle.dumps(made))
    assert type(copy) is type(made)
    assert copy.options == made.options


def test_work_of_tasks_is_not_done_by_the_driver(
    reader: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader.prefetch._read = whole
    monkeypatch.setattr(reader, "prefetches", WorkingReader.prefetches)
    reader.partitions({"a": {"0": 0}}, {"a": {"0": 3}})
    assert not reader.prefetch.is_full


@pytest.mark.parametrize("what", ["a comment", "a nested comment", "headers"])
def test_driver_reads_no_rows_that_spark_would_refuse(what: str) -> None:
    schema = source_schema(what != "a comment")
    field = schema["value"] if what == "a comment" else schema["headers"]
    if what == "a comment":
        field.metadata = {"comment": "the text"}
    elif what == "a nested comment":
        field.dataType.elementType["key"].metadata = {"comment": "the name"}
    assert not CyKafkaDataSource(GIVEN).streamReader(schema).prefetches


# -- the number of tasks

PARTITIONS = [PartitionRange("a", number, 0, 1_000) for number in range(8)]
SHARED = {"maxrecordspersharedtask": "4000"}


def stream_tasks(monkeypatch: pytest.MonkeyPatch, schema: Any = None, **options: str) -> int:
    source = CyKafkaDataSource({**GIVEN, **SHARED, **options})
    made: Any = source.streamReader(schema or source.schema())
    monkeypatch.setattr(made.plan, "ranges", lambda start, end: PARTITIONS)
    monkeypatch.setattr(made.prefetch, "_all", lambda ranges: [])
    return len(made.partitions({}, {}))


def test_stream_has_one_task_for_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    assert stream_tasks(monkeypatch) == 1
    assert stream_tasks(monkeypatch, maxrecordsondriver="0") == 2
    assert stream_tasks(monkeypatch, includeheaders="true") == 2


def test_number_of_tasks_depends_on_offsets_and_options_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Otherwise a new PySpark would break transactional streams with an unfinished batch."""
    commented = source_schema(False)
    commented["value"].metadata = {"comment": "the text"}
    assert stream_tasks(monkeypatch, commented) == 1
    monkeypatch.setattr(prefetch, "SimpleReader", None)
    assert stream_tasks(monkeypatch) == 1


def test_jobs_and_batches_have_the_tasks_of_shared_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = ReadOptions.of({**GIVEN, **SHARED, "includeheaders": "true"}, "stream")
    working: Any = WorkingReader(options, "", SimpleNamespace(columns=("value",)))
    batch: Any = CyKafkaDataSource({**GIVEN, **SHARED}).reader(source_schema(False))
    monkeypatch.setattr(working.plan, "ranges", lambda start, end: PARTITIONS)

    assert len(working.partitions({}, {})) == 2
    assert len(batch.tasks(PARTITIONS)) == 2
