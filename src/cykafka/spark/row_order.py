"""Sort the rows of a task by partition before they are sent.

librdkafka has a list of records for each partition. With rows in a mixed order, the records of a
list are scattered in memory, and each one is out of the processor's cache when its request is
made. That doubles the time of a record of 100 bytes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from cykafka import KafkaError, KafkaException, Producer
from cykafka.internal import key_partitions
from cykafka.spark.write_options import WriteOptions

__all__ = ["PartitionCounts", "RowOrder", "Rows"]

# librdkafka's default of topic.metadata.refresh.interval.ms, s.
_REFRESH_S = 300.0
# The timeout of the request for a topic's partitions, s. Without an answer, rows stay as they are.
_METADATA_S = 5.0
_NO_ANSWER = (KafkaError._TIMED_OUT, KafkaError._TRANSPORT)


class PartitionCounts:
    """The numbers of partitions of topics, as a producer knows them."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._found: dict[str, tuple[int, float]] = {}

    def of(self, topic: str) -> int:
        """The number of partitions of a topic, from the last five minutes; 0: not known."""
        count, until = self._found.get(topic, (0, 0.0))
        if time.monotonic() < until:
            return count
        try:
            metadata = self._producer.list_topics(topic, _METADATA_S)
            count = len(metadata.topics[topic].partitions)
        except KafkaException as error:
            if error.args[0].code() not in _NO_ANSWER:
                raise
            count = 0
        self._found[topic] = count, time.monotonic() + _REFRESH_S
        return count


@dataclass(frozen=True)
class Rows:
    """Rows to send together.

    Attributes
    ----------
    batch : RecordBatch
        The rows, sorted.
    given : RecordBatch
        The rows as the task has them.
    places : Array or None
        The place in `given` of each row of `batch`; None: it is the same.
    """

    batch: pa.RecordBatch
    given: pa.RecordBatch
    places: pa.Array | None = None

    def place(self, index: int) -> int:
        """The place in `given` of a row of `batch`."""
        return index if self.places is None else int(self.places[index].as_py())


class RowOrder:
    """Sorts rows by partition. Rows of one partition keep their order.

    The order is all that changes: librdkafka chooses the partition of each record. If a topic has
    got partitions in the last five minutes, the order is only less good.
    """

    def __init__(self, options: WriteOptions, counts: PartitionCounts) -> None:
        self._options = options
        self._counts = counts

    def sort(self, batch: pa.RecordBatch) -> Rows:
        """Sort the rows of a batch."""
        partitions = self._partitions(batch)
        if partitions is None:
            return Rows(batch, batch)
        places = pc.sort_indices(partitions)  # a stable sort
        return Rows(batch.take(places), batch, places)

    def _partitions(self, batch: pa.RecordBatch) -> pa.Array | None:
        """The partition of each row; None if not all are known, or all are the same."""
        options = self._options
        given = None if options.partition is None else batch.column(options.partition)
        if given is None or given.null_count == len(given):
            partitions = self._of_keys(batch)
        else:
            partitions = given
        if partitions is None or partitions.null_count:
            return None
        ends = pc.min_max(partitions)
        low, high = ends["min"].as_py(), ends["max"].as_py()
        return partitions if 0 <= low < high else None

    def _of_keys(self, batch: pa.RecordBatch) -> pa.Array | None:
        """The partition of each row by its key; None if the number of partitions is not known."""
        options = self._options
        topic = self._topic(batch)
        count = 0 if options.key is None or topic is None else self._counts.of(topic)
        if count == 0:
            return None
        keys = batch.column(options.key)
        packed = key_partitions(keys, options.config["partitioner"], count)
        return pa.Array.from_buffers(pa.int32(), len(keys), [None, pa.py_buffer(packed)])

    def _topic(self, batch: pa.RecordBatch) -> str | None:
        """The topic of all rows; None if there are several."""
        if self._options.topic is not None:
            return self._options.topic
        topics = pc.unique(batch.column("topic"))
        return topics[0].as_py() if len(topics) == 1 else None
