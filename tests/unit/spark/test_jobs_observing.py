"""How a job is watched: its health, its endpoint, its metrics and its log of JSON."""

from __future__ import annotations

import json
import logging
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from guides import ROOT
from http_answers import get
from progress_reports import first_report, second_report
from prometheus_client import CollectorRegistry

from cykafka.internal.command_lines import run_app
from cykafka.spark.jobs.config.load import load
from cykafka.spark.jobs.config.models import JOBS
from cykafka.spark.jobs.observing.endpoint import Endpoint, JobMetrics, listen
from cykafka.spark.jobs.observing.logs import JsonFormatter, log_as_json
from cykafka.spark.jobs.observing.report import Health, Summary
from cykafka.spark.jobs.problems import ConfigError
from cykafka.spark.jobs.run import session
from cykafka.spark.jobs.run.streams import Tally

GIVEN = {"kafka.bootstrap.servers": "a:1", "topics": "a"}


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(60.0, clock)


@pytest.fixture
def metrics(health: Health) -> JobMetrics:
    return JobMetrics("mirror", health, {"version": "1.2.3"})


@pytest.fixture
def endpoint(metrics: JobMetrics, health: Health) -> Iterator[Endpoint]:
    with closing(Endpoint("127.0.0.1:0", "mirror", metrics, health)) as server:
        yield server


# -- health


def test_job_is_live_but_not_ready_while_spark_starts(health: Health, clock: Clock) -> None:
    clock.now += 1_000  # a cluster may let it wait

    assert (health.liveness_problem(), health.readiness_problem()) == (None, "the job is starting")


def test_job_is_ready_until_a_micro_batch_takes_too_long(health: Health, clock: Clock) -> None:
    health.note_progress()
    health.note_response()
    health.note_activity("Getting offsets from Kafka")
    clock.now += 60
    health.note_response()
    assert health.readiness_problem() is None

    clock.now += 1
    assert health.liveness_problem() is None
    assert health.readiness_problem() == (
        "the micro-batch has not ended for 61 s (health_timeout: 60 s); "
        "Spark: Getting offsets from Kafka"
    )

    health.note_progress()
    assert health.readiness_problem() is None


def test_job_whose_spark_hangs_is_neither_live_nor_ready(health: Health, clock: Clock) -> None:
    health.note_progress()
    health.note_response()
    clock.now += 61
    health.note_progress()

    assert health.liveness_problem() == "Spark has not responded for 61 s (health_timeout: 60 s)"
    assert health.readiness_problem() == health.liveness_problem()


# -- the endpoint


def test_endpoint_answers_probes_with_a_reason(
    endpoint: Endpoint, health: Health, clock: Clock
) -> None:
    status, body = get(f"{endpoint.url}/ready")
    assert (status, json.loads(body)) == (
        503,
        {"job": "mirror", "status": "unavailable", "reason": "the job is starting"},
    )

    health.note_progress()
    health.note_response()
    for path in ("/ready", "/health"):
        status, body = get(endpoint.url + path)
        assert (status, json.loads(body)) == (200, {"job": "mirror", "status": "ok"})

    clock.now += 61
    assert get(f"{endpoint.url}/health")[0] == 503


def test_endpoint_names_its_paths(endpoint: Endpoint) -> None:
    status, body = get(f"{endpoint.url}/metric")

    assert status == 404
    assert json.loads(body) == {"error": "expected /metrics, /health, /ready"}


def test_connection_without_a_request_ends_quietly(
    endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cykafka.spark.jobs.observing.endpoint._RequestHandler.timeout", 0.05)
    host, port = endpoint.url.removeprefix("http://").split(":")

    with socket.create_connection((host, int(port)), timeout=60) as connection:
        assert connection.recv(1) == b""

    assert capfd.readouterr().err == ""
    monkeypatch.undo()  # a busy machine needs longer for a request
    assert get(f"{endpoint.url}/health")[0] == 200


def test_taken_port_is_a_mistake_of_the_configuration(endpoint: Endpoint) -> None:
    address = endpoint.url.removeprefix("http://")

    with pytest.raises(ConfigError, match="Address already in use") as raised:
        listen(load(JOBS["profile"], None, {**GIVEN, "metrics": address}, {}), Health())

    assert f"key \"metrics\" = '{address}': cannot listen there" in str(raised.value)


def test_port_is_free_after_the_end(metrics: JobMetrics, health: Health) -> None:
    with closing(Endpoint("[::1]:0", "mirror", metrics, health)) as first:
        assert get(f"{first.url}/metrics")[0] == 200
        address = first.url.removeprefix("http://")
    with closing(Endpoint(address, "mirror", metrics, health)) as second:
        assert second.url == first.url


@pytest.mark.parametrize(
    ("given", "address"),
    [
        ("9464", "127.0.0.1:9464"),
        (9464, "127.0.0.1:9464"),
        ("0.0.0.0:0", "0.0.0.0:0"),
        ("[::]:9464", "[::]:9464"),
        ("pod-1.local:80", "pod-1.local:80"),
    ],
)
def test_address_is_a_port_with_or_without_a_host(given: Any, address: str) -> None:
    assert load(JOBS["profile"], None, {**GIVEN, "metrics": given}, {}).metrics == address


@pytest.mark.parametrize("given", ["", "localhost", ":9464", "a:b", "65536", "::1:80", True, -1])
def test_other_addresses_are_mistakes(given: Any) -> None:
    with pytest.raises(ConfigError, match="expected an address, such as 9464"):
        load(JOBS["profile"], None, {**GIVEN, "metrics": given}, {})


def test_health_timeout_without_metrics_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    load(JOBS["profile"], None, {**GIVEN, "health_timeout": "30s"}, {})

    assert 'key "health_timeout" = 30 has no effect without "metrics"' in caplog.messages


# -- metrics


def test_metrics_are_those_of_the_summary(endpoint: Endpoint, metrics: JobMetrics) -> None:
    summary = Summary("mirror")
    tally = Tally(summary, metrics=metrics)
    tally.add_reports([first_report()])
    tally.add_reports([second_report(), first_report()])  # each counts once
    metrics.set_summary(summary)
    metrics.set_tasks(3, 8)

    def value(name: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(
            f"cykafka_job_{name}", {"name": "mirror", **labels}
        )

    assert (summary.records, summary.bytes, summary.bad, summary.batches) == (9, 90, 2, 2)
    assert value("records_total") == summary.records
    assert value("bytes_total") == summary.bytes
    assert value("bad_records_total") == summary.bad
    assert value("batches_total") == value("batch_seconds_count") == summary.batches
    assert value("outcome_records_total", outcome="sent") == summary.counts["sent"] == 7
    assert value("lag_records", topic="t", partition="1") == tally.behind == 1
    assert (value("completed_tasks"), value("tasks"), value("ready")) == (3, 8, 0)
    assert value("info", version="1.2.3") == 1
    status, text = get(f"{endpoint.url}/metrics")
    assert status == 200
    assert 'cykafka_job_records_total{name="mirror"} 9.0\n' in text
    assert "process_cpu_seconds_total" in text


def test_scrape_between_two_reports_has_numbers_that_belong_together(metrics: JobMetrics) -> None:
    summary = Summary("mirror", counts={"sent": 0})
    metrics.set_summary(summary)
    summary.add(5, 50, 0, {"sent": 5})  # the job is about to change the rest

    sent = {"name": "mirror", "outcome": "sent"}
    assert metrics.registry.get_sample_value("cykafka_job_outcome_records_total", sent) == 0


def test_guide_lists_every_metric(metrics: JobMetrics) -> None:
    pytest.importorskip("pyspark", reason="the group spark is not installed")
    from cykafka.spark.metrics import QueryMetrics

    queries = CollectorRegistry()
    QueryMetrics(registry=queries)
    endings = {"counter": "_total", "info": "_info"}
    exported = {
        family.name + endings.get(family.type, "")
        for registry in (metrics.registry, queries)
        for family in registry.collect()
        if family.name.startswith("cykafka_")
    }
    page = (ROOT / "docs/spark-observing.md").read_text(encoding="utf-8")
    named = set(re.findall(r"cykafka_(?:job|query)_\w+", page))
    rows = re.findall(r"^\| (`cykafka_[^|]*)\|", page, re.MULTILINE)

    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == exported
    assert named == exported


# -- the log of JSON


def formatted(record: logging.LogRecord, **secrets: str) -> dict[str, Any]:
    def redact(text: str) -> str:
        return text.replace('geheim\n"ü', "****")

    line = JsonFormatter("mirror", redact).format(record)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_record_is_one_line_of_json() -> None:
    record = logging.makeLogRecord(
        {"name": "a.b", "levelname": "INFO", "msg": "read %d\nrecords", "args": (5,),
         "created": datetime(2026, 1, 31, 12, 0, 0, 5_999, UTC).timestamp(),
         "batch": 3, "behind": None, "places": [("t", 0)]}
    )  # fmt: skip

    assert formatted(record) == {
        "time": "2026-01-31T12:00:00.005Z",
        "level": "INFO",
        "logger": "a.b",
        "message": "read 5\nrecords",
        "job": "mirror",
        "batch": 3,
        "behind": None,
        "places": [["t", 0]],
    }


def test_secrets_of_messages_fields_and_exceptions_are_hidden() -> None:
    secret = 'geheim\n"ü'
    try:
        raise ValueError(f"wrong: {secret}")
    except ValueError as error:
        cause = (type(error), error, error.__traceback__)
    record = logging.makeLogRecord(
        {"msg": f"a {secret}", "exc_info": cause, "summary": {"x": [f"b {secret}"]}}
    )

    found = formatted(record)

    assert (found["message"], found["summary"]) == ("a ****", {"x": ["b ****"]})
    assert found["exception"].startswith("Traceback (most recent call last)")
    assert found["exception"].endswith("ValueError: wrong: ****")
    assert "geheim" not in json.dumps(found)


def run(*arguments: str) -> int:
    return run_app("cykafka.spark.jobs.command", arguments, extra="spark")


def lines_of(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_mistakes_are_a_line_of_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text('log_format = "${FORM}"\ninterval = 3\nto = "b"\ncheckpoint = "/c"\n')
    monkeypatch.setenv("FORM", "json")

    status = run("mirror", "--config", str(file), "--bootstrap-servers", "a:1")

    assert status == 2
    said = capfd.readouterr()
    warning, error = lines_of(said.err)
    assert said.out == ""
    assert (warning["level"], warning["logger"]) == ("WARNING", "cykafka.spark")
    assert warning["message"].startswith('key "interval" = 3 has no effect')
    assert (error["level"], error["job"]) == ("ERROR", "mirror")
    assert error["message"] == f"a mistake in {file} or in the options"
    assert 'key "topics" is missing' in error["details"][0]


def test_text_of_libraries_and_programs_becomes_messages(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with log_as_json("mirror", lambda text: text.replace("geheim", "****")) as log:
        log.info("first")
        os.write(2, b"%3|FAIL|rdkafka#consumer-1| geheim\n\n\xff half")
        subprocess.run(["sh", "-c", "echo ' a line' >&2"], check=True)
        os.write(2, b"the last words")
    os.write(2, b"text again\n")

    first, *stray, again = capfd.readouterr().err.splitlines()
    assert json.loads(first)["message"] == "first"
    found = [json.loads(line) for line in stray]
    assert {line["logger"] for line in found} == {"cykafka.spark.jobs.stderr"}
    assert [line["message"] for line in found] == [
        "%3|FAIL|rdkafka#consumer-1| ****",
        "\ufffd half a line",
        "the last words",
    ]
    assert again == "text again"


def test_job_goes_on_if_nothing_reads_its_log() -> None:
    code = (
        "import sys; from cykafka.spark.jobs.observing.logs import log_as_json\n"
        "with log_as_json('mirror') as log:\n"
        "    log.info('lost')\n"
        "    print('text', file=sys.stderr, flush=True)\n"
        "    print('done', flush=True)\n"
    )
    source, sink = os.pipe()
    os.close(source)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=sink,
            text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(sink)

    assert done.stdout == "done\n"


def test_warnings_of_a_text_log_stay_text() -> None:
    # In a process of its own, because pytest handles the log of this one.
    code = "import sys; from cykafka.spark.jobs.command import main; sys.exit(main())"
    given = ["mirror", "--interval", "3", "--checkpoint", "/c", "--bootstrap-servers", "a:1",
             "--to", "b", "--topics", "a", "--print-config"]  # fmt: skip

    done = subprocess.run(
        [sys.executable, "-c", code, *given],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stderr == 'key "interval" = 3 has no effect without trigger = "continuous"\n'
    assert 'log_format = "text"' in done.stdout


def test_failure_is_a_line_of_json_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("Spark has lost geheim-4711")

    monkeypatch.setattr("cykafka.spark.jobs.config.topic_check.check_topics", lambda config: None)
    monkeypatch.setattr(session, "session", fail)

    status = run("mirror", "--log-format", "json", "--checkpoint", "/c", "--to", "b",
                 "--bootstrap-servers", "a:1", "--topics", "a", "--metrics", "0",
                 "--kafka", "sasl.password=geheim-4711")  # fmt: skip

    assert status == 1
    said = capfd.readouterr()
    assert (said.out, "geheim" in said.err) == ("", False)
    address, *stages, error = lines_of(said.err)
    assert re.fullmatch(r"http://127.0.0.1:[1-9]\d+", address["url"])
    assert [each["message"] for each in stages] == [
        "mirror: requesting the topics from the brokers",
        "mirror: starting Spark",
    ]
    assert error["message"] == "Spark has lost ********"
    assert error["exception"].endswith("ValueError: Spark has lost ********")
    assert error["spark_log"] == []
