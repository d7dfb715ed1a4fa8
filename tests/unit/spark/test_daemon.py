"""The daemon of Python workers. The tests in tests/spark run with it."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

PROGRAM = """
import gc, runpy, sys
from pyspark import daemon

def fork_workers():
    ours = {"cykafka.spark.sink.writers", "cykafka.spark.source.worker"}
    needed = {"pyarrow.compute", "pyspark.worker", *ours}
    print(needed <= sys.modules.keys(), gc.get_freeze_count() > 0)

daemon.manager = fork_workers
runpy.run_module("cykafka.spark.daemon", run_name="__main__")
"""


def test_daemon_imports_before_it_forks_workers() -> None:
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.split() == ["True", "True"]


def test_tasks_of_jobs_import_no_configuration() -> None:
    # PySpark's workers collect garbage after each task, and each module makes that slower.
    jobs = "cykafka.spark.jobs"
    tasks = ["run.job_source", "mirror.send_records", "archive.write_files", "replay.read_files",
             "records.job_sink", "records.outcome", "records.task_codec"]  # fmt: skip
    imports = "".join(f"import {jobs}.{name}\n" for name in tasks)
    program = f"import sys\n{imports}\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    imported = set(done.stdout.split())
    assert f"{jobs}.records.outcome" in imported
    assert imported.isdisjoint({"pydantic", "rich", f"{jobs}.config.models"})
