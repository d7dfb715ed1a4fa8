"""A standalone cluster of two workers on this machine, and the crash of one of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from machine import WAIT_S
from processes import Process, family, kill_all
from spark_jobs import Bench, offsets_by_listing, once
from spark_servers import standalone

HERE = Path(__file__).parent
SHARED = HERE.parent / "shared"
PER_PARTITION = 40
RECORDS = 4 * PER_PARTITION


@pytest.mark.timeout(600)
def test_every_record_arrives_although_a_worker_dies(
    cluster: Any, unique: Any, java_options: str, tmp_path: Path
) -> None:
    topic, target = unique("topic"), unique("target")
    for name in (topic, target):
        cluster.create_topic(name, 4, config={"retention.ms": -1})
    bench = Bench(None, cluster.bootstrap_servers, java_options)
    bench.fill(topic, PER_PARTITION)
    path = os.pathsep.join([str(SHARED), os.environ.get("PYTHONPATH", "")])

    with (
        standalone(tmp_path) as (master, workers),
        (tmp_path / "errors").open("w") as errors,
    ):
        arguments = [cluster.bootstrap_servers, master, topic, target, str(tmp_path), java_options]
        driver = subprocess.Popen(
            [sys.executable, str(HERE / "standalone_driver.py"), *arguments],
            env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert driver.stdin is not None
        assert driver.stdout is not None
        own: list[Process] = []
        said: dict[str, list[Any]] = {}
        try:
            for line in driver.stdout:
                own = family(driver)
                for name, value in json.loads(line).items():
                    said.setdefault(name, []).append(value)
                if "running" in line:
                    if len(said["running"]) == 1:
                        workers[0].kill()
                    driver.stdin.write("\n")
                    driver.stdin.flush()
            assert driver.wait(WAIT_S) == 0, (tmp_path / "errors").read_text()[-3000:]
        finally:
            driver.stdin.close()
            driver.kill()
            driver.wait()
            kill_all(own)
            driver.stdout.close()

    assert said["running"] == ["spark", "deterministic"]
    assert said["read"] == [RECORDS]
    assert said["archived"] == [RECORDS, RECORDS]
    assert said["mirrored"] == [RECORDS]
    assert offsets_by_listing(str(tmp_path / "deterministic")) == once(topic, PER_PARTITION)
    assert committed_offsets(tmp_path / "spark") == once(topic, PER_PARTITION)
    values = [message.value() for message in bench.read(target)]
    wanted = {f"v{partition}-{n}".encode() for partition in range(4) for n in range(PER_PARTITION)}
    assert set(values) == wanted
    assert len(values) >= 2 * RECORDS  # from the sink and from the job


def committed_offsets(path: Path) -> Any:
    """The offsets of the files that Spark's log in the folder lists."""
    from collections import Counter

    import pyarrow.parquet as pq

    found: Counter[tuple[str, int, int]] = Counter()
    entries = [
        json.loads(line)
        for log in (path / "_spark_metadata").glob("[0-9]*")
        for line in log.read_text().splitlines()[1:]
    ]
    for name in {entry["path"].removeprefix("file://") for entry in entries}:
        topic = next(part for part in Path(name).parts if part.startswith("topic="))
        rows = pq.ParquetFile(name).read(["partition", "offset"]).to_pylist()
        found.update((topic.partition("=")[2], row["partition"], row["offset"]) for row in rows)
    return found
