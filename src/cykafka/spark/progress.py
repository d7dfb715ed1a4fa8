"""Spark's reports of a query's progress: the offsets and the lag of Kafka's partitions.

A report is the JSON of a `StreamingQueryProgress`. Spark makes one after each micro-batch, and one
every ten seconds while a query waits for records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from cykafka.spark.offsets import Offsets, Partition, parse_offsets, take_start

__all__ = ["lag_of", "ranges_of"]


def ranges_of(source: Mapping[str, Any]) -> dict[Partition, tuple[int | None, int]]:
    """A source's offsets in a report, by partition: the first and the one behind the last.

    The first offset is None for a new partition, because the report does not have it.
    """
    end, carried = take_start(_document(source.get("endOffset")))
    # The very first batch has no start except the one that its end carries.
    start = _offsets(source.get("startOffset")) or carried or {}
    return {at: (start.get(at), last) for at, last in parse_offsets(end, "endOffset").items()}


def lag_of(report: Mapping[str, Any]) -> Offsets:
    """The offsets that the query has not read yet, by topic and partition.

    Sources whose offsets are not Kafka's have none, and neither has a query before its first
    micro-batch.
    """
    lag: Offsets = {}
    for source in report.get("sources", ()):
        with suppress(ValueError):  # another source's offsets
            latest, end = _offsets(source.get("latestOffset")), _offsets(source.get("endOffset"))
            for at, last in latest.items() if end else ():
                lag[at] = max(lag.get(at, 0), last - end.get(at, last))
    return lag


def _document(offset: Any) -> Any:
    document = json.loads(offset) if isinstance(offset, str) else offset
    return document or {}


def _offsets(offset: Any) -> Offsets:
    document = _document(offset)
    if not isinstance(document, Mapping):
        raise ValueError(f"expected the offsets of topics, got {offset!r}")
    return parse_offsets(take_start(document)[0], "offset")
