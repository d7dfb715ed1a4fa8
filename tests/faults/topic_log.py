"""The records of a topic, as Kafka's own consumer reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from history import identity

from cykafka.testing import KafkaCluster

__all__ = ["records"]

_LINE = re.compile(r"Partition:(\d+)\tOffset:(\d+)\t(.*)")


def records(
    cluster: KafkaCluster, topic: str, partitions: int, timeout_ms: int = 5_000
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the partition, the offset, the sender and the number of each committed record.

    Parameters
    ----------
    cluster : KafkaCluster
    topic : str
    partitions : int
        Their number. They are read one after another, because the output is kept in memory.
    timeout_ms : int, default 5_000
        The end of a partition is where no record arrives for so long.
    """
    for partition in range(partitions):
        output = cluster.tool(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--topic", topic,
            "--partition", str(partition), "--offset", "earliest",
            "--isolation-level", "read_committed", "--timeout-ms", str(timeout_ms),
            "--property", "print.partition=true", "--property", "print.offset=true",
            timeout=600.0,
        )  # fmt: skip
        for line in output.split("\n"):
            if found := _LINE.fullmatch(line):
                yield int(found[1]), int(found[2]), *identity(found[3].encode())
            elif line.startswith("Partition:"):
                raise ValueError(f"an unknown line: {line[:200]}")
