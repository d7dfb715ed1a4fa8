"""Queues of clients in a Python worker whose memory Spark limits."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyarrow", reason="the group spark is not installed")
pytest.importorskip("pyspark", reason="the group spark is not installed")

from cykafka.spark.clients import properties
from cykafka.spark.clients.properties import fit_to_memory
from cykafka.testing import MockCluster

# Sends more than the limit allows, in batches of 10 MB.
SENDER = """
import resource, sys
import pyarrow as pa
from pyspark.sql.types import BinaryType, StructType
from cykafka.spark.sink.write_options import write_options
from cykafka.spark.sink.writing import write_task

def batches(count):
    for _ in range(count):
        yield pa.record_batch({"value": pa.array([bytes(1000)] * 10_000, pa.binary())})

servers, megabytes = sys.argv[1:]
options = {"kafka.bootstrap.servers": servers, "topic": "t"}
options = write_options(options, StructType().add("value", BinaryType()), False)
list(batches(1))
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (int(megabytes) << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    print("written", write_task(options, batches(60)).records)
except (MemoryError, pa.ArrowMemoryError) as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("megabytes", [40, 80, 120, 200, 400])
def test_a_sink_with_little_memory_ends_with_an_error_of_its_own(megabytes: int) -> None:
    with MockCluster(1) as cluster:
        cluster.create_topic("t", 4)
        done = subprocess.run(
            [sys.executable, "-c", SENDER, cluster.bootstrap_servers, str(megabytes)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip

    assert done.returncode == 0, done.stderr
    if megabytes == 40:
        assert "MemoryError this worker may use" in done.stdout
        assert "spark.executor.pyspark.memory" in done.stdout
    if megabytes == 400:
        assert done.stdout == "written 600000\n"


def test_queues_follow_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("queued.max.messages.kbytes", "fetch.max.bytes")
    given = {"a": "b", "queued.max.messages.kbytes": "100"}
    assert fit_to_memory(given, *names) == given  # without a limit

    monkeypatch.setattr(properties, "_available_memory", lambda: 128 << 20)
    assert fit_to_memory(given, *names) == {**given, "fetch.max.bytes": str(4 << 20)}
    assert fit_to_memory({}, *names)["queued.max.messages.kbytes"] == "4096"
    assert fit_to_memory({}, "queue.buffering.max.kbytes") == {
        "queue.buffering.max.kbytes": "4096"
    }
    least = {"message.max.bytes": "10000000"}
    assert fit_to_memory(least, "fetch.max.bytes")["fetch.max.bytes"] == "10000000"
