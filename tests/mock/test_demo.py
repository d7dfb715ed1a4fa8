"""``python -m cykafka demo`` from end to end, in separate processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cykafka import KafkaError
from cykafka.testing import MockCluster

NO_BROKER = "127.0.0.1:1"  # a reserved port without a listener
TIMEOUT_S = 60


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "cykafka", "demo", *map(str, arguments)]


def run(*arguments: object, input: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), input=input, capture_output=True, text=True, timeout=TIMEOUT_S
    )


@pytest.fixture
def ndjson(tmp_path: Path) -> Path:
    path = tmp_path / "events.ndjson"
    lines = (json.dumps({"id": i % 7 or None, "text": "\u00e9" * (i % 50)}) for i in range(5_000))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_demo_embedded_cluster(ndjson: Path) -> None:
    result = run(ndjson)
    assert result.returncode == 0, result.stderr
    assert "All 5,000 records of events.ndjson arrived once and unchanged" in result.stdout
    assert "records/s" in result.stdout
    assert result.stderr == ""


def test_demo_with_a_closed_output_ends_as_by_sigpipe() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        result = subprocess.run(
            command("-"), input='{"a": 1}\n', stdout=write_end, stderr=subprocess.PIPE,
            text=True, timeout=TIMEOUT_S, check=False,
        )  # fmt: skip
    finally:
        os.close(write_end)
    assert (result.returncode, result.stderr) == (141, "")


def test_demo_zip_with_a_key_and_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "events.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("events", "id,text\n" + "".join(f"{i % 7},{i}\n" for i in range(500)))
    result = run(path, "--key", "text", "--limit", "300", "--partitions", "2")
    assert result.returncode == 0, result.stderr
    assert "All 300 records of events.zip arrived once and unchanged" in result.stdout
    header, write, read = (line.split() for line in result.stdout.splitlines()[:3])
    assert header == ["records", "MB", "s", "records/s"]
    assert (write[:2], read[:2]) == (["write", "300"], ["read", "300"])


def test_demo_standard_input_of_one_record() -> None:
    result = run("-", input='{"a": 1}\n')
    assert result.returncode == 0, result.stderr
    assert "The one record of standard input arrived once and unchanged" in result.stdout


def test_demo_slow_reader_loses_nothing(tmp_path: Path) -> None:
    # Three times the capacity of a mock partition, all in one partition.
    path = tmp_path / "large.csv"
    text = "x" * 990
    path.write_text("key,text\n" + "".join(f"one,{i}{text}\n" for i in range(15_000)))
    slow = ("-X", "queued.max.messages.kbytes=1", "-X", "fetch.queue.backoff.ms=100")
    result = run(path, *slow)
    assert result.returncode == 0, result.stderr
    assert "All 15,000 records" in result.stdout


def test_demo_large_records(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    path.write_text("key,text\n" + "".join(f"{i},{'x' * 900_000}\n" for i in range(12)))
    result = run(path)
    assert result.returncode == 0, result.stderr
    assert "All 12 records" in result.stdout


def test_demo_names_the_oversized_record(tmp_path: Path) -> None:
    path = tmp_path / "large.ndjson"
    path.write_text('{"a": 1}\n{"a": "' + "x" * 2_000_000 + '"}\n')
    result = run(path)
    assert result.returncode == 1
    assert f"{path}, line 2: " in result.stderr
    assert "too large" in result.stderr
    assert "1 record not delivered" in result.stderr


def test_demo_uses_the_brokers_of_a_file(
    ndjson: Path, tmp_path: Path, mock_cluster: MockCluster
) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={mock_cluster.bootstrap_servers}\n")
    mock_cluster.start_request_tracking()
    result = run(ndjson, "--config", file, "--limit", 100)
    assert result.returncode == 0, result.stderr
    assert "All 100 records" in result.stdout
    assert mock_cluster.requests("Produce")
    assert mock_cluster.requests("Fetch")


def test_demo_survives_broker_errors(ndjson: Path, mock_cluster: MockCluster) -> None:
    errors = [KafkaError.NOT_LEADER_FOR_PARTITION] * 3
    mock_cluster.push_request_errors("Produce", errors)
    mock_cluster.push_request_errors("Fetch", errors)
    result = run(ndjson, "--bootstrap-servers", mock_cluster.bootstrap_servers)
    assert result.returncode == 0, result.stderr


def test_demo_detects_records_of_an_earlier_run(ndjson: Path, mock_cluster: MockCluster) -> None:
    arguments = (
        ndjson,
        *("--bootstrap-servers", mock_cluster.bootstrap_servers, "--topic", "used", "--limit", 50),
    )
    assert run(*arguments).returncode == 0
    result = run(*arguments)
    assert result.returncode == 1
    assert "50 records arrived more than once" in result.stderr


def test_demo_reports_a_refused_record(ndjson: Path, mock_cluster: MockCluster) -> None:
    mock_cluster.push_request_errors("Produce", [KafkaError.RECORD_LIST_TOO_LARGE] * 100)
    result = run(ndjson, "--bootstrap-servers", mock_cluster.bootstrap_servers)
    assert result.returncode == 1
    assert "not delivered" in result.stderr
    assert "larger than configured" in result.stderr


def test_demo_counts_one_refused_record_once(mock_cluster: MockCluster) -> None:
    mock_cluster.push_request_errors("Produce", [KafkaError.RECORD_LIST_TOO_LARGE] * 100)
    brokers = mock_cluster.bootstrap_servers
    result = run("-", "--bootstrap-servers", brokers, input='{"a": 1}\n')
    assert result.returncode == 1
    assert "1 record not delivered" in result.stderr


def test_demo_without_a_broker_fails_in_time(ndjson: Path) -> None:
    result = run(ndjson, "--bootstrap-servers", NO_BROKER, "--timeout", 1)
    assert result.returncode == 1
    assert NO_BROKER in result.stderr
    assert "Connection refused" in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""  # no progress bars


def test_demo_names_the_broker_that_never_answers(ndjson: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        name = f"127.0.0.1:{server.getsockname()[1]}"
        result = run(ndjson, "--bootstrap-servers", name, "--timeout", 1)
    assert result.returncode == 1
    assert f"cannot reach {name} within 1 s: no response" in result.stderr


def test_demo_reports_a_lost_broker_in_time(ndjson: Path, mock_cluster: MockCluster) -> None:
    mock_cluster.start_request_tracking()
    mock_cluster.set_rtt(50)
    process = subprocess.Popen(
        command(
            ndjson, "--bootstrap-servers", mock_cluster.bootstrap_servers, "--timeout", 2,
            "-X", "batch.num.messages=10",
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    with process:
        mock_cluster.wait_for_requests("Produce", timeout=TIMEOUT_S)
        mock_cluster.broker_down()
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert mock_cluster.bootstrap_servers in err
    assert "Traceback" not in err


def test_demo_ends_if_no_record_can_be_read(ndjson: Path, mock_cluster: MockCluster) -> None:
    errors = [KafkaError.NOT_LEADER_FOR_PARTITION] * 1_000
    mock_cluster.push_request_errors("Fetch", errors)
    brokers = mock_cluster.bootstrap_servers
    result = run(ndjson, "--bootstrap-servers", brokers, "--timeout", 1)
    assert result.returncode == 1
    assert (
        f"no records arrived from {brokers} within 1 s (--timeout waits longer)" in result.stderr
    )
    assert result.stdout == ""


def test_demo_bad_setting_is_named_before_the_file_is_read(tmp_path: Path) -> None:
    result = run(tmp_path / "not there.csv", "-X", "no.such.setting=1")
    assert result.returncode == 2
    assert result.stderr.startswith("cykafka: -X: No such configuration property")
    assert "no.such.setting" in result.stderr


def test_demo_bad_line_exit_2(tmp_path: Path) -> None:
    path = tmp_path / "bad.ndjson"
    path.write_text('{"a": 1}\n{"a": \n')
    result = run(path)
    assert result.returncode == 2
    assert f"{path}, line 2: " in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_demo_interrupted_ends_all_processes(
    tmp_path: Path, mock_cluster: MockCluster, number: signal.Signals
) -> None:
    path = tmp_path / "long.csv"
    path.write_text("a\n" + "".join(f"{i}\n" for i in range(100_000)))
    mock_cluster.start_request_tracking()
    mock_cluster.set_rtt(100)  # so that it still works when the signal arrives
    process = subprocess.Popen(
        command(
            path, "--bootstrap-servers", mock_cluster.bootstrap_servers,
            "-X", "batch.num.messages=100",
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )  # fmt: skip
    with process:
        mock_cluster.wait_for_requests("Produce", timeout=TIMEOUT_S)
        if number == signal.SIGINT:  # a terminal sends it to the whole group
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        # This ends when no process holds the pipes.
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130
    assert err == "cykafka: interrupted\n"
