"""Jobs that run are scraped and probed; their numbers are those of their summaries."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from http_answers import get
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from relay import Relay, serving
from spark_jobs import Bench

from cykafka.spark.jobs.observing.endpoint import Endpoint, listen
from cykafka.spark.jobs.observing.report import Health
from cykafka.spark.jobs.run.session import JobRun
from cykafka.spark.metrics import QueryMetrics

WAIT_S = 120
_HANGS = r".*the micro-batch has not ended for .*; Spark: Getting offsets from Kafka"


class SilentRelay(Relay):
    """A relay whose broker answers only while `speaks` is set."""

    def __init__(self, bootstrap_servers: str) -> None:
        super().__init__(bootstrap_servers)
        self.speaks = threading.Event()
        self.speaks.set()

    def answer(self, request: int, answer: bytes) -> bytes:
        self.speaks.wait()
        return super().answer(request, answer)


def scraped(url: str) -> dict[tuple[str, ...], float]:
    """The series of a job: their values by the metric and the values of its further labels."""
    status, text = get(f"{url}/metrics")
    assert status == 200
    return {
        (
            sample.name.removeprefix("cykafka_job_"),
            *(value for label, value in sorted(sample.labels.items()) if label != "name"),
        ): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.startswith("cykafka_job_") and not sample.name.endswith("_bucket")
    }


def wait_for(what: Callable[[], bool], ended: Callable[[], Any]) -> None:
    """Wait until something holds, while the job runs: `ended` returns why it does not."""
    deadline = time.monotonic() + WAIT_S
    while not what():
        assert not (reason := ended()), reason
        assert time.monotonic() < deadline
        time.sleep(0.1)


def observed(run: JobRun, timeout_s: float = 60.0) -> Endpoint:
    """The endpoint of a run, as the command makes it."""
    run.health = Health(timeout_s)
    server = listen(run.config, run.health)
    run.metrics = server.metrics
    return server


def send(bench: Bench, topic: str, good: int, bad: int) -> None:
    bench.send(topic, [{"value": f'{{"id": {n}}}', "partition": n % 4} for n in range(good)])
    bench.send(topic, [{"value": "bad", "partition": 1}] * bad)


def test_running_job_is_scraped_and_probed(
    bench: Bench, topic: str, other_topic: str, checkpoint: str
) -> None:
    queries = CollectorRegistry()
    listener = QueryMetrics(registry=queries)
    send(bench, topic, 30, 10)
    ended = threading.Event()

    def of_query(metric: str) -> float | None:
        labels = {"query": "cykafka-mirror"}
        return queries.get_sample_value(f"cykafka_query_{metric}", labels)

    with (
        serving(SilentRelay(bench.servers)) as relay,
        ThreadPoolExecutor(1) as pool,
        ExitStack() as stack,
    ):
        keys = {"kafka__bootstrap__servers": relay.bootstrap_servers, "topics": topic}
        run = bench.prepare("mirror", to=other_topic, checkpoint=checkpoint, schema="id BIGINT",
                            trigger="continuous", interval="0.3", metrics=0, **keys)  # fmt: skip
        server = stack.enter_context(closing(observed(run, 2.0)))

        def until(what: Callable[[], bool]) -> None:
            wait_for(what, ended.is_set)

        def is_ready() -> bool:
            return get(f"{server.url}/ready")[0] == 200

        def watch() -> dict[tuple[str, ...], float]:
            try:
                until(lambda: scraped(server.url).get(("records_total",)) == 40)
                until(is_ready)

                # No broker answers: the query waits for the offsets of the next micro-batch.
                relay.speaks.clear()
                until(lambda: re.match(_HANGS, get(f"{server.url}/ready")[1]) is not None)
                assert scraped(server.url)["ready",] == 0
                until(lambda: get(f"{server.url}/health")[0] == 200)
                relay.speaks.set()
                until(is_ready)

                send(bench, topic, 4, 1)
                until(lambda: scraped(server.url)["records_total",] == 45)
                return scraped(server.url)
            finally:
                relay.speaks.set()
                run.stop.ask()

        bench.spark.streams.addListener(listener)
        watcher = pool.submit(watch)
        try:
            # The session belongs to this thread.
            summary = bench.work("mirror", run)
            wait_for(lambda: of_query("active") == 0, lambda: None)
        finally:
            ended.set()
            bench.spark.streams.removeListener(listener)
        found = watcher.result()

    assert summary.outcome == "stopped"
    assert found["records_total",] == summary.records == 45
    assert found["bytes_total",] == summary.bytes
    assert found["bad_records_total",] == summary.bad == 11
    assert found["outcome_records_total", "sent"] == summary.counts["sent"] == 34
    assert found["batches_total",] == found["batch_seconds_count",] == summary.batches
    assert {key: value for key, value in found.items() if key[0] == "lag_records"} == {
        ("lag_records", str(partition), topic): 0 for partition in range(4)
    }
    assert found["last_batch_phase_seconds", "addBatch"] > 0
    assert time.time() - WAIT_S < found["last_batch_timestamp_seconds",] < time.time()

    # A listener sees what the job has seen. Without dead letters bad records are not written.
    assert of_query("records_total") == 45
    assert of_query("output_records_total") == 34
    assert of_query("batch_seconds_count") == summary.batches
    assert queries.get_sample_value(
        "cykafka_query_observed",
        {"query": "cykafka-mirror", "observation": "cykafka", "metric": "records"},
    )


def test_replay_is_scraped_while_it_sends(
    bench: Bench, topic: str, other_topic: str, places: dict[str, str]
) -> None:
    bench.fill(topic, 20, partitions=2, key="k", value="v" * 9)
    bench.run("archive", topics=topic, **places)
    run = bench.prepare("replay", path=places["path"], to=other_topic, step=10, rate=20,
                        checkpoint=f"{places['checkpoint']}-2", metrics=0)  # fmt: skip
    ended = threading.Event()
    with closing(observed(run)) as server, ThreadPoolExecutor(1) as pool:

        def watch() -> list[dict[tuple[str, ...], float]]:
            seen = []
            while not ended.wait(0.1):
                seen.append(scraped(server.url))
            return seen

        watcher = pool.submit(watch)
        try:
            summary = bench.work("replay", run)
        finally:
            ended.set()
        seen = watcher.result()

    assert (summary.records, summary.batches) == (40, 4)
    sent = [metrics.get(("outcome_records_total", "sent"), 0) for metrics in seen]
    assert sent == sorted(sent)
    assert {10, 20, 30} <= {*sent}
    for metrics in seen:
        assert metrics["records_total",] == metrics.get(("outcome_records_total", "sent"), 0)
        assert (
            metrics["bytes_total",] / summary.bytes == metrics["records_total",] / summary.records
        )
    assert any(metrics["tasks",] > 0 and metrics["ready",] == 1 for metrics in seen)


@pytest.mark.timeout(3 * WAIT_S)
def test_command_logs_json_and_spark_shows_its_rows(
    bench: Bench, topic: str, other_topic: str, tmp_path: Path
) -> None:
    send(bench, topic, 40, 0)
    with socket.create_server(("127.0.0.1", 0)) as free:
        ui_port = free.getsockname()[1]
    summary = tmp_path / "summary.json"
    command = bench.command(
        "mirror", "--topics", topic, "--to", other_topic, "--checkpoint", str(tmp_path / "c"),
        # The transform makes Spark handle the records: without it Spark sees only their number.
        "--transform", "SELECT key, value FROM records",
        "--trigger", "continuous", "--metrics", "0", "--log-format", "json", "--progress", "200ms",
        "--verbose",
        "--summary", str(summary), "--spark-conf", "ui.enabled=true",
        "--spark-conf", f"ui.port={ui_port}", "--kafka", "ssl.key.password=geheim-4711",
    )  # fmt: skip
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    try:
        first = process.stderr.readline()
        url = json.loads(first)["url"]
        assert get(f"{url}/health")[0] == 200
        assert json.loads(get(f"{url}/ready")[1])["reason"] == "the job is starting"
        wait_for(
            lambda: scraped(url).get(("records_total",)) == 40,
            lambda: process.poll() is not None and process.communicate(),
        )
        assert get(f"{url}/ready")[0] == 200
        ui = f"http://127.0.0.1:{ui_port}"
        (app,) = json.loads(get(f"{ui}/api/v1/applications")[1])
        page = get(f"{ui}/StreamingQuery/")[1]
        queries = json.loads(get(f"{ui}/api/v1/applications/{app['id']}/sql?details=true")[1])
        os.killpg(process.pid, signal.SIGTERM)
        out, rest = process.communicate(timeout=WAIT_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()

    assert (process.returncode, out) == (0, "")
    assert "geheim" not in first + rest
    lines = [json.loads(line) for line in (first + rest).splitlines()]
    assert {line["job"] for line in lines} == {"mirror"}
    assert any(line["logger"] == "cykafka.spark.jobs.stderr" for line in lines)
    progress = [line["records"] for line in lines if "records" in line]
    assert progress == sorted(progress)
    assert progress[-1] == 40
    assert lines[-1]["message"] == "mirror stopped"
    assert lines[-1]["summary"] == json.loads(summary.read_text())

    assert "cykafka-mirror" in page
    nodes: dict[str, dict[str, str]] = {
        node["nodeName"]: {metric["name"]: metric["value"] for metric in node["metrics"]}
        for query in queries
        for node in query["nodes"]
        if node["metrics"]
    }
    for node in ("MicroBatchScan", "WriteToDataSourceV2"):
        assert nodes[node]["number of output rows"] == "40"
        assert {"data sent to Python workers", "data returned from Python workers"} <= {
            *nodes[node]
        }
