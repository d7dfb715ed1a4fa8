"""Run tasks of micro-batches in this process, like Spark's workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import types as t

from cykafka.spark.sink.transactions import Handling, write_in_transaction
from cykafka.spark.sink.writers import stream_writer
from cykafka.spark.sink.writing import Written

QUERY = "query"
COLUMNS = t.StructType(
    [
        t.StructField("value", t.StringType()),
        t.StructField("topic", t.StringType()),
        t.StructField("partition", t.IntegerType()),
    ]
)


def write_task(
    options: Mapping[str, Any],
    batches: Iterable[Any],
    *,
    batch: int = 0,
    task: int = 0,
    run: str | None = "run",
    attempt: int = 0,
    handling: Handling | None = None,
) -> Written:
    """Run a task of the sink with a partition id, batch and query run.

    With `handling`, it is a transactional task of a job.
    """
    properties = {
        "streaming.sql.batchId": str(batch),
        "sql.streaming.queryId": QUERY,
        "spark.jobGroup.id": run,
    }
    context = SimpleNamespace(
        partitionId=lambda: task,
        attemptNumber=lambda: attempt,
        getLocalProperty=properties.get,
    )
    writer = stream_writer(options, COLUMNS, False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pyspark.TaskContext, "get", classmethod(lambda _: context))
        if handling is None:
            written = writer.write(iter(batches))
        else:
            written = write_in_transaction(writer._options, batches, handling)
    assert isinstance(written, Written)
    return written


def rows(values: list[str], partition: int = 0, topic: str | None = None) -> Any:
    """An Arrow batch with the columns `COLUMNS`."""
    return pa.record_batch(
        {
            "value": pa.array(values, pa.string()),
            "topic": pa.array([topic] * len(values), pa.string()),
            "partition": pa.array([partition] * len(values), pa.int32()),
        }
    )
