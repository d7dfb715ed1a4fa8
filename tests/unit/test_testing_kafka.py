"""The base of `KafkaCluster`, without a broker: jars, ports, properties, containers."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from cykafka.testing import NoBrokerError
from cykafka.testing._java import classpath
from cykafka.testing._process import Port
from cykafka.testing._provide import any_cluster
from cykafka.testing._server_properties import write_properties

pytestmark = pytest.mark.ours

TIMEOUT_S = 60
# It acts like Maven, but slowly enough for a concurrent run, and appends a line to a file.
FAKE_MAVEN = f"""#!{sys.executable}
import pathlib, sys, threading
[folder] = [arg.partition("=")[2] for arg in sys.argv if arg.startswith("-DoutputDirectory=")]
with open(pathlib.Path(__file__).with_name("runs"), "a") as runs:
    runs.write("run\\n")
pathlib.Path(folder).mkdir()
threading.Event().wait(0.3)
pathlib.Path(folder, "kafka_2.13-4.3.0.jar").touch()
"""


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fake Maven, the only program on the PATH, and an empty cache."""
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(FAKE_MAVEN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("CYKAFKA_CACHE_DIR", str(tmp_path / "cache"))
    return program


def test_concurrent_runs_fetch_the_jars_once(maven: Path) -> None:
    script = "from cykafka.testing._java import classpath; print(classpath())"
    running = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    found = {process.communicate(timeout=TIMEOUT_S)[0].strip() for process in running}

    assert (maven.parent / "runs").read_text() == "run\n"
    assert found == {classpath()}
    [jar] = Path(classpath()).parent.iterdir()
    assert jar.name == "kafka_2.13-4.3.0.jar"


def test_partly_fetched_jars_are_not_used(maven: Path, tmp_path: Path) -> None:
    whole = maven.read_text()
    maven.write_text(f"#!{sys.executable}\nprint('[ERROR] no route')\nraise SystemExit(1)\n")
    with pytest.raises(NoBrokerError, match="no route"):
        classpath()
    left = {path.name for path in (tmp_path / "cache" / "kafka").iterdir()}
    assert left == {"lock"}

    maven.write_text(whole)
    assert classpath()


def test_unwritable_cache_is_named(maven: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()

    with pytest.raises(NoBrokerError, match="CYKAFKA_CACHE_DIR"):
        classpath()


def test_reserved_port_stays_reserved_while_servers_start_and_stop() -> None:
    with Port() as port:
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port.number))
            with socket.create_server(
                ("127.0.0.1", port.number)
            ):  # reuses the address, as Java does
                socket.create_connection(("127.0.0.1", port.number)).close()
        with socket.socket() as stranger, pytest.raises(OSError, match="in use") as raised:
            stranger.bind(("127.0.0.1", port.number))
        assert raised.value.errno == errno.EADDRINUSE


def test_properties_escape_special_characters(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    odd = {"a": " b\\c\nd", "e": True, "f": 'x="1";', "g": "\u00fc", "h i:=#!": "\r"}
    write_properties(path, odd)

    assert path.read_text() == (
        'a=\\ b\\\\c\\nd\ne=true\nf=x="1";\ng=\\u00fc\nh\\ i\\:\\=\\#\\!=\\r\n'
    )
    assert path.stat().st_mode & 0o077 == 0


class FakeContainer:
    """The parts of testcontainers' DockerContainer that the code uses."""

    made: list[FakeContainer]

    def __init__(self, image: str) -> None:
        self.image = image
        self.env: dict[str, str] = {}
        self.ports: dict[int, int] = {}
        self.running = False
        self.made.append(self)

    def with_bind_ports(self, container: int, host: int) -> FakeContainer:
        self.ports[container] = host
        return self

    def with_env(self, key: str, value: str) -> FakeContainer:
        self.env[key] = value
        return self

    def start(self) -> None:
        self.running = True

    def stop(self) -> None:
        self.running = False


@pytest.fixture
def containers(monkeypatch: pytest.MonkeyPatch) -> list[FakeContainer]:
    """A fake testcontainers package and engine; the list has the containers it ran."""

    def module(name: str, **names: Any) -> None:
        fake = ModuleType(name)
        fake.__dict__.update(names)
        monkeypatch.setitem(sys.modules, name, fake)

    FakeContainer.made = []
    module("docker", from_env=lambda: SimpleNamespace(ping=lambda: True))
    module("testcontainers")
    module("testcontainers.core")
    module("testcontainers.core.container", DockerContainer=FakeContainer)
    module("testcontainers.core.waiting_utils", wait_for_logs=lambda *args, **kwargs: None)
    monkeypatch.delenv("CYKAFKA_TEST_BOOTSTRAP", raising=False)
    return FakeContainer.made


def test_container_is_used_if_an_engine_answers(containers: list[FakeContainer]) -> None:
    with any_cluster() as cluster:
        [container] = containers
        [port] = container.ports
        assert container.running
        assert container.image == "apache/kafka:4.3.0"
        assert container.ports == {port: port}
        assert cluster.bootstrap_servers == f"127.0.0.1:{port}"
        assert f"PLAINTEXT://127.0.0.1:{port}" in container.env["KAFKA_ADVERTISED_LISTENERS"]
        assert container.env["KAFKA_LISTENERS"].startswith(f"PLAINTEXT://:{port},")
        assert container.env["KAFKA_PROCESS_ROLES"] == "broker,controller"
        assert cluster.nodes == ()

    assert not container.running


def test_given_address_takes_precedence_over_a_container(
    containers: list[FakeContainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CYKAFKA_TEST_BOOTSTRAP", "kafka.example:9092")

    with any_cluster() as cluster:
        assert cluster.bootstrap_servers == "kafka.example:9092"

    assert containers == []


def test_error_names_both_missing_engine_and_missing_java(
    containers: list[FakeContainer], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ping() -> None:
        raise ConnectionError("no such socket")

    monkeypatch.setattr(
        sys.modules["docker"], "from_env", lambda: SimpleNamespace(ping=ping), raising=True
    )
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)

    with pytest.raises(NoBrokerError, match=r"no such socket.*Java 17"), any_cluster():
        pass
