"""kafkarrow: ``poll()`` returns RecordBatches with all columns except the timestamp's type.

It cannot select partitions. It reads the whole topic in the order of the timestamps, until it has
the requested number of records.
"""

from __future__ import annotations

import time
from typing import Any

from clients._section import CHUNK, SPARK_COLUMNS, Arguments, Section, check

STALL = 30.0
"""The longest wait for a record, s."""


def read(args: Arguments, topic: str, messages: int) -> Any:
    """Read `messages` records. Returns the last batch."""
    client = args.client
    manager = client.ConsumerManager(
        args.config, [client.SourceTopic.from_earliest(topic)], batch_size=CHUNK
    )
    left, last = messages, None
    deadline = time.monotonic() + STALL
    while left > 0 and time.monotonic() < deadline:
        rows = manager.poll(1000)
        if rows.num_rows:
            left -= rows.num_rows
            last = rows
            deadline = time.monotonic() + STALL
    if left > 0:
        check(f"records read until it had none for {STALL:.0f} s", messages - left, messages)
    return last


def poll(args: Arguments) -> dict[str, float]:
    read(args, f"{args.topic}-warm", CHUNK)
    section = Section()
    last = read(args, args.topic, args.messages)
    result = section.report(args.messages)
    check("columns", last.schema.names, SPARK_COLUMNS[:-1])
    check("bytes of the last value", len(last["value"][-1].as_py()), args.value_size)
    return result
