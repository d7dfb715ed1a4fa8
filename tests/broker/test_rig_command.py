"""``python -m cykafka.testing broker``: a cluster for as long as the command runs."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from fixture_types import MakeProducer, Unique

pytestmark = pytest.mark.ours

WAIT_S = 90.0


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "cykafka.testing", "broker", *map(str, arguments)]


def run(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments),
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, **environment},
        check=False,
    )


@pytest.mark.usefixtures("own_brokers")
@pytest.mark.parametrize(
    ("number", "group"),
    [(signal.SIGINT, True), (signal.SIGTERM, False)],
    ids=["ctrl-c", "sigterm"],
)
def test_broker_serves_until_a_signal_and_cleans_up(
    number: signal.Signals,
    group: bool,
    tmp_path: Path,
    unique: Unique,
    make_producer: MakeProducer,
) -> None:
    with subprocess.Popen(
        command(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        host, _, port = address.rpartition(":")
        producer = make_producer({"bootstrap.servers": address})
        producer.produce(unique("served"), b"x")
        assert producer.flush(WAIT_S) == 0
        if group:  # as a terminal does it
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        out, err = process.communicate(timeout=WAIT_S)

    assert process.returncode == 0
    assert out == ""
    assert err.splitlines() == [
        "starting 1 node of Kafka ...",
        "ready; Ctrl-C stops the brokers and removes the data",
    ]
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def test_broker_help_lists_its_requirements() -> None:
    done = run("--help")

    assert done.returncode == 0
    for word in ("--nodes", "--port", "bootstrap.servers", "Java 17", "Ctrl-C"):
        assert word in done.stdout


@pytest.mark.usefixtures("own_brokers")
def test_broker_error_names_the_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("--port", port)

    assert done.returncode == 1
    assert f"port {port} " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("own_brokers")
def test_broker_wrong_setting_is_named(tmp_path: Path) -> None:
    done = run("-X", "num.io.threads=many", TMPDIR=str(tmp_path))

    assert done.returncode == 1
    assert "num.io.threads" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_broker_bad_number_of_nodes_is_refused() -> None:
    done = run("--nodes", 0)

    assert done.returncode == 2
    assert "nodes must be from 1 to 9, not 0" in done.stderr


def test_broker_without_java_explains_how_to_install_it(tmp_path: Path) -> None:
    done = run(PATH=str(tmp_path), JAVA_HOME="")

    assert done.returncode == 1
    assert "Java 17" in done.stderr
    assert "apt-get install --no-install-recommends default-jre-headless maven" in done.stderr
    assert "Traceback" not in done.stderr


def test_broker_without_maven_and_jars_explains_how_to_install_it(tmp_path: Path) -> None:
    script = tmp_path / "java"
    script.write_text(f"#!{sys.executable}\nprint('openjdk version \"21.0.1\" 2023-10-17')\n")
    script.chmod(0o755)

    done = run(PATH=str(tmp_path), JAVA_HOME="", CYKAFKA_CACHE_DIR=str(tmp_path / "cache"))

    assert done.returncode == 1
    assert "Maven, which fetches the jars of" in done.stderr
    assert "is not installed" in done.stderr
    assert "apt-get install" in done.stderr


def test_broker_error_names_the_old_java(tmp_path: Path) -> None:
    script = tmp_path / "java"
    script.write_text(f"#!{sys.executable}\nprint('openjdk version \"1.8.0_392\"')\n")
    script.chmod(0o755)

    done = run(PATH=str(tmp_path), JAVA_HOME="")

    assert done.returncode == 1
    assert f"{script} is Java 8" in done.stderr


SENDS = """
import os, sys
from cykafka import Producer
with Producer({"bootstrap.servers": os.environ["CYKAFKA_BOOTSTRAP_SERVERS"]}) as producer:
    producer.publish("sent", [b"x"]).wait(60)
print("sent", sys.argv[1:])
sys.exit(7)
"""


@pytest.mark.usefixtures("own_brokers")
def test_broker_runs_a_command_and_returns_its_status(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "cykafka", "broker", "--nodes", "1", "--",
         sys.executable, "-c", SENDS, "--option", "word"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )  # fmt: skip

    assert done.returncode == 7, done.stderr
    assert done.stdout == "sent ['--option', 'word']\n"
    assert "ready at 127.0.0.1:" in done.stderr
    assert list(tmp_path.iterdir()) == []


ASKS = """
import os, urllib.request
print(os.environ["CYKAFKA_BOOTSTRAP_SERVERS"].partition(":")[0])
print(urllib.request.urlopen(os.environ["CYKAFKA_SCHEMA_REGISTRY_URL"] + "/subjects").read())
"""


@pytest.mark.usefixtures("own_brokers")
def test_broker_runs_a_schema_registry() -> None:
    done = run("--schema-registry", "--", sys.executable, "-c", ASKS)

    assert done.returncode == 0, done.stderr
    assert done.stdout == "127.0.0.1\nb'[]'\n"


@pytest.mark.usefixtures("own_brokers")
def test_broker_prints_the_address_of_its_schema_registry() -> None:
    with subprocess.Popen(
        command("--schema-registry"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        address, url = process.stdout.readline(), process.stdout.readline().strip()
        with urllib.request.urlopen(f"{url}/contexts") as response:
            assert response.read() == b'["."]'
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=WAIT_S)

    assert address.startswith("127.0.0.1:")
    assert process.returncode == 0


def test_broker_error_names_the_schema_registrys_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = run("--schema-registry-port", port)

    assert done.returncode == 1
    assert f"cannot serve the Schema Registry on port {port}: " in done.stderr
    assert "Traceback" not in done.stderr


WAITS = """
import os, signal, sys
numbers = {signal.SIGINT, signal.SIGTERM}
signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
print(os.environ["CYKAFKA_BOOTSTRAP_SERVERS"], flush=True)
sys.exit(40 + signal.sigwait(numbers))
"""


@pytest.mark.usefixtures("own_brokers")
@pytest.mark.parametrize(
    ("number", "group"),
    [(signal.SIGINT, True), (signal.SIGTERM, False)],
    ids=["ctrl-c", "sigterm"],
)
def test_broker_passes_a_signal_to_the_command(
    number: signal.Signals, group: bool, tmp_path: Path
) -> None:
    with subprocess.Popen(
        command("--", sys.executable, "-c", WAITS),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        host, _, port = process.stdout.readline().strip().rpartition(":")
        if group:  # as a terminal does it
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        process.communicate(timeout=WAIT_S)

    assert process.returncode == 40 + number
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


@pytest.mark.parametrize(
    ("given", "missing"),
    [(("--", "/no/such/command"), "command /no/such/command"), (("--node", "3"), "option --node")],
)
def test_broker_with_a_missing_command_exits_127(given: tuple[str, ...], missing: str) -> None:
    done = run(*given)

    assert done.returncode == 127
    assert done.stderr.endswith(f" broker: unknown {missing}\n")


@pytest.mark.usefixtures("own_brokers")
def test_demo_runs_on_a_real_broker(tmp_path: Path) -> None:
    path = tmp_path / "events.csv"
    path.write_text("key,text\n" + "".join(f"{n % 7},text {n}\n" for n in range(5_000)))
    done = subprocess.run(
        [sys.executable, "-m", "cykafka", "demo", str(path), "--broker"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert "All 5,000 records of events.csv arrived once and unchanged" in done.stdout
    assert list(tmp_path.iterdir()) == [path]
