"""The command line with its own Spark: each job once, stopped streams, failures."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spark_jobs import Bench

from cykafka.spark.java import find_java
from cykafka.spark.jobs import command

SECRET = "geheim-4711"
START_S = 150


def arguments(job: str, bench: Bench, summary: Path, *more: str) -> list[str]:
    given = ("--summary", str(summary), "--progress", "1s")
    return bench.command(job, *given, "--kafka", "ssl.key.password=env:SECRET", *more)


def environment() -> dict[str, str]:
    return {**os.environ, "SECRET": SECRET}


def run(job: str, bench: Bench, folder: Path, *more: str) -> tuple[Any, dict[str, Any]]:
    """Run a command; return the finished process and its summary."""
    summary = folder / f"{job}.json"
    done = subprocess.run(
        arguments(job, bench, summary, *more),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=START_S,
        check=False,
    )
    assert SECRET not in done.stdout + done.stderr
    return done, json.loads(summary.read_text()) if summary.exists() else {}


@pytest.fixture
def run_here(
    bench: Bench,
    shared_session: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., tuple[int, str, dict[str, Any]]]:
    """Run a command in this process; return its exit status, standard error and summary."""
    monkeypatch.setenv("SECRET", SECRET)

    def run_here(job: str, *more: str) -> tuple[int, str, dict[str, Any]]:
        summary = tmp_path / f"{job}.json"
        _, _, _, *given = arguments(job, bench, summary, *more)
        status = command.main(given)
        said = capsys.readouterr()
        assert SECRET not in said.out + said.err
        return status, said.err, json.loads(summary.read_text())

    return run_here


@pytest.mark.timeout(5 * START_S)
def test_each_job_runs_as_a_command(
    bench: Bench, topic: str, other_topic: str, dead: str, tmp_path: Path
) -> None:
    bench.send(topic, [{"value": f'{{"id": {n}}}', "partition": 1} for n in range(20)])
    bench.send(topic, [{"value": "bad", "partition": 1}])
    path, checkpoints = str(tmp_path / "archive"), str(tmp_path / "checkpoint")

    done, summary = run("archive", bench, tmp_path, "--topics", topic, "--path", path,
                        "--checkpoint", checkpoints + "-1")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (summary["records"], summary["outcome"]) == (21, "finished")
    assert "archive finished" in done.stdout
    assert re.search(r"^\[[\d:.]+ s\] archive: [\d,]+ records, ", done.stderr, re.MULTILINE)

    done, summary = run("replay", bench, tmp_path, "--path", path, "--to", other_topic,
                        "--until-offset", "5")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert summary["offsets"] == {topic: {"1": {"start": 0, "end": 5}}}

    done, summary = run("mirror", bench, tmp_path, "--topics", topic, "--to", other_topic,
                        "--schema", "id BIGINT", "--dead-letter-topic", dead,
                        "--checkpoint", checkpoints + "-2")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (summary["records"], summary["bad"], summary["counts"]) == (21, 1, {"sent": 20})

    done, summary = run("redrive", bench, tmp_path, "--topics", dead,
                        "--checkpoint", checkpoints + "-3")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert summary["counts"]["sent"] == 1

    done, summary = run("profile", bench, tmp_path, "--topics", f"{topic},{other_topic}")
    assert done.returncode == 0, done.stderr
    assert summary["topics"][topic]["records"] == 22
    assert summary["topics"][other_topic]["records"] == 25
    assert "id BIGINT" in done.stdout


@pytest.mark.timeout(2 * START_S)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stream_that_is_stopped_ends_with_its_summary(
    bench: Bench, topic: str, tmp_path: Path, number: int
) -> None:
    bench.fill(topic, 10)
    summary = tmp_path / "archive.json"
    process = subprocess.Popen(
        arguments("archive", bench, summary, "--topics", topic, "--path", str(tmp_path / "a"),
                  "--checkpoint", str(tmp_path / "c"), "--trigger", "continuous"),
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + START_S
        while not list((tmp_path / "c").glob("commits/0")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.1)
        # A terminal also sends the signal to the whole process group.
        os.killpg(process.pid, number)
        out, error = process.communicate(timeout=60)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()

    assert process.returncode == 0, error
    assert "archive stopped" in out
    assert json.loads(summary.read_text())["records"] == 40
    assert "Traceback" not in error


def test_failed_job_reports_the_cause(
    bench: Bench, topic: str, tmp_path: Path, run_here: Callable[..., Any]
) -> None:
    bench.fill(topic, 1)
    (tmp_path / SECRET).write_text("not a folder")

    status, error, summary = run_here("archive", "--topics", topic, "--path", str(tmp_path / "a"),
                                      "--checkpoint", str(tmp_path / SECRET / "c"))  # fmt: skip
    assert status == 2
    assert "Traceback" not in error
    text = " ".join(error.split())
    assert 'key "checkpoint" = ' in text
    assert "cannot read or create it: [Errno 20] Not a directory" in text
    assert str(tmp_path / "********") in text
    assert summary["outcome"] == "failed"

    status, error, summary = run_here("archive", "--topics", topic, "--path", "nofs:///a",
                                      "--checkpoint", str(tmp_path / "c"))  # fmt: skip
    assert status == 2
    assert "key \"path\" = 'nofs:///a': cannot read or create it: " in error
    assert 'scheme "nofs" (UnsupportedFileSystemException)' in error
    assert summary["outcome"] == "failed"

    status, error, summary = run_here("archive", "--topics", topic + "-misspelt",
                                      "--path", str(tmp_path / "a"),
                                      "--checkpoint", str(tmp_path / "c"))  # fmt: skip
    assert status == 2
    assert f"key \"topics\": topic '{topic}-misspelt' does not exist" in error
    assert summary["outcome"] == "failed"


def test_error_of_a_spark_that_does_not_start_names_the_java(
    bench: Bench, topic: str, tmp_path: Path
) -> None:
    done, summary = run("profile", bench, tmp_path, "--topics", topic,
                        "--spark-conf", "driver.memory=300m")  # fmt: skip
    assert done.returncode == 1
    assert re.search(r"(?s)Spark did not start, with Java \d+ of /.*memory", done.stderr)
    assert summary["outcome"] == "failed"


@pytest.mark.timeout(2 * START_S)
def test_lost_records_are_reported(
    bench: Bench, topic: str, tmp_path: Path, delete_before: Any
) -> None:
    """In a separate process, because the command reads warnings from the output of its Spark."""
    places = {"path": str(tmp_path / "a"), "checkpoint": str(tmp_path / "c")}
    bench.fill(topic, 5)
    bench.run("archive", topics=topic, **places)
    bench.fill(topic, 15)
    delete_before(topic, 2, 12)

    done, summary = run("archive", bench, tmp_path, "--topics", topic, "--path", places["path"],
                        "--checkpoint", places["checkpoint"],
                        "--source", "failOnDataLoss=false")  # fmt: skip

    assert (done.returncode, summary["outcome"]) == (0, "finished"), done.stderr
    assert (summary["records"], summary["offsets_without_record"]) == (53, 7)
    (found,) = summary["warnings"]
    assert f"{topic} [2]" in found
    assert f"warning: {found}\n" in done.stderr
    assert f"  warning: {found}\n" in done.stdout
    assert "  no record    7 offsets\n" in done.stdout


SUBMITTED = """
import sys
from cykafka.spark.jobs import command
from cykafka.spark.jobs.run import session

settings = session._settings
def told(*given):
    from pyspark import SparkConf
    print("chosen", settings(*given).get("spark.master"), flush=True)
    return settings(*given)
session._settings = told
status = command.main()
from pyspark import SparkContext
print("master", SparkContext._jvm.java.lang.System.getProperty("spark.master"), flush=True)
sys.exit(status)
"""


@pytest.mark.timeout(2 * START_S)
def test_job_started_by_spark_submit_uses_its_master(
    bench: Bench, topic: str, tmp_path: Path
) -> None:
    import pyspark

    bench.fill(topic, 1)
    program = tmp_path / "program.py"
    program.write_text(SUBMITTED)
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"
    done = subprocess.run(
        [str(submit), "--master", "local[2]", "--driver-memory", "1g",
         "--driver-java-options", bench.java_options, str(program), "profile",
         "--bootstrap-servers", bench.servers, "--topics", topic],
        env={**environment(), "PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(find_java()),
             "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True, text=True, timeout=START_S, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "chosen None" in done.stdout
    assert "master local[2]" in done.stdout
    assert "profile finished" in done.stdout
