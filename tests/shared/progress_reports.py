"""Reports of a streaming query's progress, as Spark 4.3 writes them."""

from __future__ import annotations

import json
from typing import Any

from cykafka.spark.source.offsets import START_KEY

_SOURCE = "org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream@288bc477"
ID = "6427d74a-600f-457a-95d0-a5ef99affc36"


def first_report(name: str | None = "mine") -> dict[str, Any]:
    """The report of a query's first micro-batch, which has no triggerExecution."""
    return _report(
        name,
        0,
        "2026-11-26T14:12:15.828Z",
        24066,
        {"addBatch": 21679, "commitOffsets": 385, "latestOffset": 87, "walCommit": 196},
        None,
        {"t": {"0": 3, "1": 3}, START_KEY: {"t": {"0": 0, "1": 0}}},
        6,
    )


def second_report(name: str | None = "mine") -> dict[str, Any]:
    """The report of its second micro-batch."""
    return _report(
        name,
        1,
        "2026-11-26T14:12:40.261Z",
        1992,
        {"addBatch": 1366, "latestOffset": 24, "triggerExecution": 1992, "walCommit": 167},
        {"t": {"0": 3, "1": 3}},
        {"t": {"0": 5, "1": 4}},
        3,
    )


def _report(
    name: str | None,
    number: int,
    time: str,
    duration_ms: int,
    phases_ms: dict[str, int],
    start: Any,
    end: Any,
    rows: int,
) -> dict[str, Any]:
    report = {
        "id": ID,
        "runId": "e76b301d-70a7-49d4-aa3a-a929fade493b",
        "name": name,
        "timestamp": time,
        "batchId": number,
        "batchDuration": duration_ms,
        "numInputRows": rows,
        "inputRowsPerSecond": 0.0,
        "processedRowsPerSecond": 2.0,
        "durationMs": phases_ms,
        "stateOperators": [],
        "sources": [
            {
                "description": _SOURCE,
                "startOffset": start,
                "endOffset": end,
                "latestOffset": {"t": {"0": 5, "1": 5}},
                "numInputRows": rows,
                "inputRowsPerSecond": 0.0,
                "processedRowsPerSecond": 2.0,
            }
        ],
        "sink": {"description": "PythonTable@340c153b", "numOutputRows": rows},
        "observedMetrics": {
            "cykafka": {"records": rows, "bytes": 10 * rows, "bad": 1, "sent": rows - 1}
        },
    }
    copy: dict[str, Any] = json.loads(json.dumps(report))
    return copy
