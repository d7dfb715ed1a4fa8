"""Spark's servers on this machine: a standalone master with workers, a Spark Connect server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from guides import commands, example
from machine import WAIT_S
from processes import family, kill_all

_SMALL = {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1"}
CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


class Server:
    """A server of Spark as a process.

    Attributes
    ----------
    pid : int
    said : str
        What the line says that shows that the server is up: its address.
    """

    def __init__(self, command: list[str], up: str, env: Mapping[str, str], cwd: Path) -> None:
        import pyspark

        home = Path(pyspark.__file__).parent
        self._lines: deque[str] = deque(maxlen=200)
        self._up = threading.Event()
        self._pattern = re.compile(up)
        self.said = ""
        self._process = subprocess.Popen(
            [str(home / "bin" / command[0]), *command[1:]],
            env={**os.environ, **_environment(), "SPARK_HOME": str(home), **env},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self.pid = self._process.pid
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)
            found = self._pattern.search(line)
            if found and not self._up.is_set():
                self.said = found[1] if found.groups() else found[0]
                self._up.set()
        self._up.set()

    def wait(self) -> str:
        """Wait until the server is up, and return its address."""
        assert self._up.wait(WAIT_S), self.log()
        assert self.said, self.log()
        return self.said

    def log(self) -> str:
        """The end of the server's output."""
        return "".join(self._lines)

    def kill(self) -> None:
        """Kill the server and its executors, as if their machine had crashed."""
        kill_all(family(self._process))

    def end(self) -> None:
        """End the server and all processes that it has started."""
        own = family(self._process)
        self._process.terminate()
        try:
            self._process.wait(WAIT_S)
        finally:
            kill_all(own)
            self._reader.join()
            assert self._process.stdout is not None
            self._process.stdout.close()


def _environment() -> dict[str, str]:
    from cykafka.spark.java import find_java

    return {
        "JAVA_HOME": str(find_java()),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }


@contextmanager
def standalone(folder: Path, workers: int = 2) -> Iterator[tuple[str, list[Server]]]:
    """A standalone cluster with workers of one core, by the commands of docs/spark-clusters.md.

    Its address and the workers.
    """
    servers = []
    _, master, worker = commands(example("docs/spark-clusters.md", "deploy.master.Master"))
    ports = ["--port", "0", "--webui-port", "0"]
    try:
        command = ["spark-class", *master[1:], *ports]
        servers.append(Server(command, r"master at (spark://\S+)", _SMALL, folder))
        address = servers[0].wait()
        for number in range(workers):
            work = folder / f"worker-{number}"
            work.mkdir()
            given = [address if word.startswith("spark://") else word for word in worker[1:]]
            command = ["spark-class", *given, *ports, "--cores", "1", "--memory", "1g",
                       "--work-dir", str(work)]  # fmt: skip
            servers.append(Server(command, "Successfully registered", _SMALL, work))
        for server in servers:
            server.wait()
        yield address, servers[1:]
    finally:
        for server in reversed(servers):
            server.end()


@contextmanager
def connect_server(folder: Path, conf: Mapping[str, str]) -> Iterator[str]:
    """A Spark Connect server; its address."""
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        **conf,
    }
    options = [part for pair in settings.items() for part in ("--conf", "=".join(pair))]
    command = ["spark-submit", "--class", CONNECT, *options, "spark-internal"]
    server = Server(command, r"Connect server started at: \S+?:(\d+)", {}, folder)
    try:
        yield f"sc://127.0.0.1:{server.wait()}"
    finally:
        server.end()
