"""The command line: help, configuration errors, exit codes, and errors of Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cykafka.internal.command_lines import run_app
from cykafka.spark.jobs.command import EXAMPLES
from cykafka.spark.jobs.config import topic_check
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.observing.report import Summary
from cykafka.spark.jobs.problems import ConfigError, Stopped, explain_error
from cykafka.spark.jobs.run import session

ARCHIVE = ("archive", "--bootstrap-servers", "localhost:1", "--topics", "a", "--path", "/p",
           "--checkpoint", "/c")  # fmt: skip


def run(*arguments: str) -> int:
    """The exit status of a command line."""
    return run_app("cykafka.spark.jobs.command", arguments, extra="spark")


def test_help_lists_the_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help") == 0

    text = capsys.readouterr().out
    for name, job in JOBS.items():
        assert name in text
        assert (job.__doc__ or "").splitlines()[0] in text
    assert "exit status" in text


@pytest.mark.parametrize("name", JOBS)
def test_help_of_a_job_has_all_keys_and_examples(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(name, "--help") == 0

    text = capsys.readouterr().out
    for key, field in JOBS[name].model_fields.items():
        option = {"job": "", "spark": "spark-conf"}.get(key, field.alias or key)
        assert f"--{option}".replace("_", "-") in text
    for words in ("a TOML file with the", "print the configuration as TOML", "show Spark's log"):
        assert words in text
    assert f"  python -m cykafka.spark {name} --" in text
    assert "None" not in text


@pytest.mark.parametrize("name", JOBS)
def test_examples_of_the_help_are_valid(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import shlex

    # The files of the examples have the options that other examples have on the command line.
    base = {
        "archive": 'topics = ["a"]\npath = "/p"\ncheckpoint = "/c"\n',
        "replay": 'path = "/p"\n',
        "compact": 'format = "iceberg"\npath = "/p"\n',
        "mirror": 'topics = ["a"]\nto = "b"\ncheckpoint = "/c"\n',
        "redrive": 'topics = ["a"]\ncheckpoint = "/c"\n',
        "profile": 'topics = ["a"]\n',
    }
    (tmp_path / f"{name}.toml").write_text(
        base[name] + '[kafka]\n"bootstrap.servers" = "localhost:1"\n'
    )
    monkeypatch.chdir(tmp_path)

    lines = EXAMPLES[name].replace("\\\n", " ").splitlines()

    assert len(lines) >= 2
    for line in lines:
        arguments = shlex.split(line)
        assert arguments[:4] == ["python", "-m", "cykafka.spark", name]
        assert run(*arguments[3:], "--print-config") == 0, capsys.readouterr().err


def test_misspelled_option_error_suggests_the_right_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("archive", "--chekpoint", "x") == 2

    error = capsys.readouterr().err
    assert "Unknown option: --chekpoint. Did you mean --checkpoint?" in error


def test_mistakes_are_listed_and_end_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.toml"
    file.write_text('topics = ["a"]\npath = "/p"\n')

    assert run("archive", "--config", str(file), "--compression", "x") == 2

    error = capsys.readouterr().err
    assert f"3 mistakes in {file} or in the options:" in error
    assert error.count("\n  - ") == 3


def test_configuration_error_loads_no_spark() -> None:
    code = (
        "import sys; from cykafka.internal.command_lines import run_app;"
        "status = run_app('cykafka.spark.jobs.command', None, extra='spark');"
        "assert not [name for name in sys.modules if name.startswith('pyspark')];"
        "sys.exit(status)"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, "archive", "--compression", "x"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 2, done.stderr
    assert "mistakes:" in done.stderr


def test_the_configuration_is_printed_without_secrets(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PASSWORD", "geheim")

    assert run(*ARCHIVE, "--kafka", "sasl.password=env:PASSWORD", "--print-config") == 0

    text = capsys.readouterr().out
    assert "geheim" not in text
    assert '"sasl.password" = "********"' in text


def test_invalid_pair_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*ARCHIVE, "--kafka", "geheim") == 2

    assert "expected NAME=VALUE" in capsys.readouterr().err


# -- running, with a fake session

LOG = b"""\
26/01/01 00:00:00 ERROR Executor: the disk is full, says geheim
java.io.IOException: No space left
\tat java.base/java.io.X(X.java:1)
Traceback (most recent call last):
  File "x.py", line 1, in main
    fail()
"""


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The work of the job `archive`: it calls the first function of this list with its run."""
    work: list[Any] = []

    @contextmanager
    def no_session(config: Any, log: Any = None) -> Iterator[Any]:
        if log is not None:
            log.file.write(LOG)
            log.file.flush()
        yield None

    class Module:
        @staticmethod
        def run(run: Any) -> Any:
            return work[0](run)

    monkeypatch.setattr(session, "session", no_session)
    monkeypatch.setitem(sys.modules, "cykafka.spark.jobs.archive.archiving", Module)
    monkeypatch.setitem(sys.modules, "cykafka.spark.jobs.mirror.mirroring", Module)
    monkeypatch.setattr(topic_check, "check_topics", lambda config: None)
    return work


def test_a_job_ends_with_its_summary(
    job: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(run: Any) -> Any:
        run.summary.records = 5
        return run.summary

    job.append(work)
    file = tmp_path / "s.json"

    assert run(*ARCHIVE, "--summary", str(file)) == 0

    assert "archive finished" in capsys.readouterr().out
    assert json.loads(file.read_text())["records"] == 5


def test_failed_job_reports_the_cause_and_its_progress(
    job: list[Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(run: Any) -> Any:
        run.summary.records = 5
        raise RuntimeError("no geheim\nfor you")

    job.append(work)
    monkeypatch.setenv("PASSWORD", "geheim")

    assert run(*ARCHIVE, "--kafka", "sasl.password=${PASSWORD}") == 1

    said = capsys.readouterr()
    assert "archive failed" in said.out
    assert "archive: no ******** for you" in said.err
    assert "Traceback" not in said.err
    # Spark's log is lost with the process, so the job prints its end without stack traces.
    assert (
        "the end of Spark's log:\n"
        "  | 26/01/01 00:00:00 ERROR Executor: the disk is full, says ********\n"
        "  | java.io.IOException: No space left\n("
    ) in said.err
    # The last line names the cause, and no other line does.
    assert said.err.endswith("archive: no ******** for you\n")
    assert said.err.count("for you") == 1


def test_stages_of_a_start_are_shown_at_once(
    job: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    job.append(lambda run: run.summary)

    assert run(*ARCHIVE) == 0
    assert capsys.readouterr().err.splitlines() == [
        "archive: requesting the topics from the brokers",
        "archive: starting Spark",
        "archive: planning",
    ]
    assert run(*ARCHIVE, "--progress", "0") == 0
    assert capsys.readouterr().err == ""


def outcome(file: Path) -> Any:
    return json.loads(file.read_text())["outcome"]


def test_summary_of_an_earlier_run_is_removed(job: list[Any], tmp_path: Path) -> None:
    file, seen = tmp_path / "s.json", []

    def work(run: Any) -> Any:
        seen.append(outcome(file))
        return run.summary

    def is_misconfigured(run: Any) -> Any:
        raise ConfigError('key "schema": no')

    job.append(work)
    assert run(*ARCHIVE, "--summary", str(file)) == 0
    assert outcome(file) == "finished"
    # A killed run leaves this state.
    assert run(*ARCHIVE, "--summary", str(file)) == 0
    assert seen == ["running", "running"]

    job[0] = is_misconfigured
    assert run(*ARCHIVE, "--summary", str(file)) == 2
    assert outcome(file) == "failed"


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_missing_target_is_reported_before_spark_starts(
    options: tuple[str, ...], job: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def missing(config: Any) -> None:
        raise ConfigError(f'key "to" = {config.to!r}: there is no such topic')

    monkeypatch.setattr(topic_check, "check_topics", missing)
    job.append(lambda run: pytest.fail("it was run"))
    file = tmp_path / "s.json"

    status = run("mirror", "--bootstrap-servers", "localhost:1", "--topics", "a", "--to", "b",
                 "--checkpoint", "/c", "--summary", str(file), *options)  # fmt: skip

    assert (status, outcome(file)) == (2, "failed")
    assert json.loads(file.read_text())["dry_run"] is bool(options)
    assert "key \"to\" = 'b': there is no such topic" in capsys.readouterr().err


def test_failed_start_of_spark_writes_a_summary(
    job: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    @contextmanager
    def no_module(config: Any, log: Any = None) -> Iterator[Any]:
        raise ModuleNotFoundError("No module named 'pyspark'", name="pyspark")
        yield

    monkeypatch.setattr(session, "session", no_module)
    file = tmp_path / "s.json"
    file.write_text('{"outcome": "finished"}')

    assert run(*ARCHIVE, "--summary", str(file)) == 1

    assert outcome(file) == "failed"
    said = capsys.readouterr()
    assert said.out == ""
    assert "No module named 'pyspark': pip install 'cykafka[spark]'" in said.err


WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

missing = sys.argv.pop(1)
sys.meta_path.insert(0, Missing())
from cykafka.spark.jobs.command import main
sys.exit(main())
"""


@pytest.mark.parametrize("missing", ["pyspark", "pyarrow"])
def test_job_without_a_library_says_what_to_install(missing: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, missing, *ARCHIVE],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip

    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        f"python -m cykafka.spark archive: No module named '{missing}': pip install "
        "'cykafka[spark]'"
    )


def test_unwritable_summary_is_reported_once(
    job: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    def work(run: Any) -> Any:
        monkeypatch.setattr(Summary, "write", full)
        return run.summary

    def full(self: Any, path: str) -> None:
        raise OSError(28, "No space left on device")

    job.append(work)

    assert run(*ARCHIVE, "--summary", str(tmp_path / "s.json")) == 1

    said = capsys.readouterr()
    assert said.out.count("archive finished") == 1
    assert said.err.count("No space left on device") == 1
    assert "Traceback" not in said.err


def test_stream_that_was_cut_short_fails(
    job: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(run: Any) -> Any:
        raise Stopped("stopped before all was read")

    job.append(work)
    file = tmp_path / "s.json"

    assert run(*ARCHIVE, "--summary", str(file)) == 1

    assert outcome(file) == "stopped"
    said = capsys.readouterr()
    assert "archive stopped" in said.out
    assert "archive: stopped before all was read" in said.err
    assert "log" not in said.err


def test_verbose_shows_the_trace(job: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    def work(run: Any) -> Any:
        raise RuntimeError("oh")

    job.append(work)

    assert run(*ARCHIVE, "--verbose") == 1

    assert "Traceback" in capsys.readouterr().err


def test_signals_ask_the_job_to_stop(job: list[Any]) -> None:
    import signal

    before = signal.getsignal(signal.SIGTERM)
    asked = []

    def work(run: Any) -> Any:
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
            asked.append(run.stop.asked)
        return run.summary

    job.append(work)

    assert run(*ARCHIVE) == 0

    assert asked == [1, 2]
    assert signal.getsignal(signal.SIGTERM) is before


# -- errors


PYTHON = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted due to stage \
failure: Task 0 in stage 1.0 failed 1 times, most recent failure: Lost task 0.0 (TID 1) (driver): \
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/a/worker.py", line 1, in main
    process()
  File "/b/worker.py", line 9, in read
    raise ReadTimeoutError("nothing came")
cykafka.spark.source.worker.ReadTimeoutError: orders [3] from 5 to 9: nothing came within 120 s

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handle(PythonRunner.scala:1)
SQLSTATE: XXKST"""
JAVA = """\
An error occurred while calling o1.save.
: org.apache.spark.SparkException: Job aborted.
\tat org.apache.spark.sql.X(X.scala:1)
Caused by: java.io.FileNotFoundException: /p/a.parquet (Permission denied)
\tat java.base/java.io.FileOutputStream.open0(Native Method)
"""
CALL = """\
An error occurred while calling o136.start.
: org.apache.hadoop.fs.ParentNotDirectoryException: Parent path is not a directory: file:/p
\tat org.apache.hadoop.fs.FileContext.mkdir(FileContext.java:1)
"""
ANALYSIS = """\
[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `x` cannot be resolved. SQLSTATE: 42703; \
line 1 pos 7
"""
QUERY = """\
[STREAM_FAILED] Query [id = 09e379af-5103, runId = 4bd6e372-1a61] terminated with exception: \
Broken pipe SQLSTATE: XXKST
=== Streaming Query ===
Identifier: cykafka-mirror [id = 09e379af-5103, runId = 4bd6e372-1a61]
Logical Plan:
~WriteToMicroBatchDataSource org.apache.spark.sql.X@1, 09e379af-5103, [], Append
"""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (PYTHON, "orders [3] from 5 to 9: nothing came within 120 s (ReadTimeoutError)"),
        (JAVA, "/p/a.parquet (Permission denied) (FileNotFoundException)"),
        (CALL, "Parent path is not a directory: file:/p (ParentNotDirectoryException)"),
        (ANALYSIS, "A column with name `x` cannot be resolved.; line 1 pos 7"),
        (QUERY, "Broken pipe"),
        ("simple", "simple"),
        ("", "RuntimeError"),
    ],
)
def test_errors_of_spark_become_one_paragraph(words: str, expected: str) -> None:
    assert explain_error(RuntimeError(words)) == expected
