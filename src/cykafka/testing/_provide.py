"""Broker sources for tests: an address, a container, or Java processes.

The processes of one test run can share brokers, which stop when the last process leaves. The
brokers belong to a keeper, a separate process. Its standard input is a named pipe that each user
of the brokers holds open for writing. The keeper therefore reads end-of-file when the last user
has left or crashed.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from errno import ENXIO
from pathlib import Path
from select import POLLERR, poll
from typing import Any

from cykafka.testing._deployment import copy_logs
from cykafka.testing._process import HOST, NoBrokerError, Port
from cykafka.testing._server_properties import PLAINTEXT, BrokerEndpoint, server_properties
from cykafka.testing.kafka import KafkaCluster, RealCluster

ADDRESS = "CYKAFKA_TEST_BOOTSTRAP"
_IMAGE = "apache/kafka:4.3.0"
_CONTAINER_DATA = "/tmp/kafka-data"
_CONTAINER_CONTROLLER = "127.0.0.1:9093"
_CONTAINER_READY = "Kafka Server started"
_CONTAINER_TIMEOUT_S = 120
_LOOK_S = 0.02
# The keeper runs in the background, so its starter need not wait for it. The shell would redirect
# the keeper's standard input, hence the copy on descriptor 3.
_IN_BACKGROUND = '{ "$@" <&3 3<&- & } 3<&0'


class ExternalCluster(RealCluster):
    """Running brokers, which a test cannot stop or pause.

    Parameters
    ----------
    bootstrap_servers : str
        ``host:port,...`` of a listener without authentication.
    logs : sequence of Path
        The paths of the brokers' logs, if they are on this machine.
    """

    def __init__(self, bootstrap_servers: str, logs: Sequence[Path] = ()) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._logs = logs

    def __repr__(self) -> str:
        return f"<ExternalCluster at {self._bootstrap_servers}>"

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the brokers, joined by commas; for ``bootstrap.servers``."""
        return self._bootstrap_servers

    def keep_logs(self) -> Path | None:
        """Copy the brokers' logs to a permanent directory; return None if there are none."""
        return copy_logs(self._logs)

    def _askable(self) -> list[str]:
        return [self._bootstrap_servers]


@contextmanager
def any_cluster() -> Iterator[RealCluster]:
    """Open one or more brokers, from the first source that has any.

    Raises
    ------
    NoBrokerError
        If every source lacks brokers; the message gives the reason for each source.
    """
    if address := os.environ.get(ADDRESS):
        yield ExternalCluster(address)
        return
    with ExitStack() as stack:
        cluster: RealCluster
        try:
            cluster = stack.enter_context(_container())
        except NoBrokerError as no_container:
            try:
                cluster = stack.enter_context(KafkaCluster())
            except NoBrokerError as no_java:
                raise NoBrokerError(
                    f"{ADDRESS} is not set; {no_container}; {no_java}"
                ) from no_java
        yield cluster


@contextmanager
def own_cluster(**options: Any) -> Iterator[KafkaCluster]:
    """Open a KafkaCluster, for tests that kill nodes or choose the settings.

    Raises
    ------
    NoBrokerError
        If this machine cannot run it, or the tests must use the brokers at an address.
    """
    if address := os.environ.get(ADDRESS):
        raise NoBrokerError(
            f"the brokers at {address} ({ADDRESS}) are not under the test's control"
        )
    with KafkaCluster(**options) as cluster:
        yield cluster


@contextmanager
def _container() -> Iterator[ExternalCluster]:
    """Run one broker in a container, if testcontainers is installed and an engine responds."""
    try:
        import docker  # type: ignore[import,unused-ignore]
        from testcontainers.core.container import (  # type: ignore[import,unused-ignore]
            DockerContainer,
        )
        from testcontainers.core.waiting_utils import (  # type: ignore[import,unused-ignore]
            wait_for_logs,
        )
    except ImportError:
        raise NoBrokerError("testcontainers is not installed") from None
    try:
        docker.from_env().ping()
    except Exception as error:  # any error of the engine's client means: no engine
        raise NoBrokerError(f"no container engine responds: {error}") from None
    with Port() as port:
        endpoint = BrokerEndpoint(PLAINTEXT, "PLAINTEXT", HOST, port.number)
        number = port.number
    container = DockerContainer(_IMAGE).with_bind_ports(number, number)
    settings = server_properties(1, _CONTAINER_DATA, [endpoint], {1: _CONTAINER_CONTROLLER})
    # The engine forwards the port to the container's own address.
    settings["listeners"] = settings["listeners"].replace(f"//{endpoint.address}", f"//:{number}")
    for key, value in settings.items():
        container = container.with_env(f"KAFKA_{key.upper().replace('.', '_')}", value)
    try:
        container.start()
    except Exception as error:
        raise NoBrokerError(f"the container engine cannot run {_IMAGE}: {error}") from error
    try:
        wait_for_logs(container, _CONTAINER_READY, timeout=_CONTAINER_TIMEOUT_S)
        yield ExternalCluster(endpoint.address)
    finally:
        container.stop()


# -- brokers that processes share


@contextmanager
def shared_cluster(folder: Path) -> Iterator[ExternalCluster]:
    """Share one `any_cluster` among all processes that pass the same directory.

    Parameters
    ----------
    folder : Path
        A directory of the test run; created if missing.

    Raises
    ------
    NoBrokerError
        The cluster cannot start.
    """
    folder.mkdir(exist_ok=True)
    with _locked(folder):
        user = _join(folder)
    try:
        state = _state(folder, user)
        yield ExternalCluster(state["servers"], [Path(path) for path in state["logs"]])
    finally:
        os.close(user)


def _join(folder: Path) -> int:
    """Open the keeper's pipe for writing; start a keeper if none runs."""
    pipe = folder / "users"
    if not pipe.exists():
        os.mkfifo(pipe)
    try:
        return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != ENXIO:  # no keeper reads
            raise
    (folder / "state").unlink(missing_ok=True)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    user = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
    os.set_blocking(reader, True)
    with (folder / "keeper.log").open("ab") as log:
        subprocess.run(
            ["sh", "-c", _IN_BACKGROUND, "sh", sys.executable, "-m", __name__, str(folder)],
            stdin=reader,
            stdout=log,
            stderr=log,
            check=True,
            start_new_session=True,  # Ctrl-C must reach only the run, whose end ends the keeper
        )
    os.close(reader)
    return user


def _state(folder: Path, user: int) -> dict[str, Any]:
    """Wait for and return the state that the keeper reports after the brokers' start."""
    path = folder / "state"
    pipe = poll()
    pipe.register(user, 0)
    while not path.exists():
        if any(event & POLLERR for _, event in pipe.poll(_LOOK_S * 1000)) and not path.exists():
            log = (folder / "keeper.log").read_text(errors="replace")
            raise NoBrokerError(f"the process that keeps the brokers has ended: {log.strip()}")
        time.sleep(_LOOK_S)
    state: dict[str, Any] = json.loads(path.read_text())
    if "error" in state:
        raise NoBrokerError(state["error"])
    return state


def _keep(folder: Path) -> None:
    """The keeper's main function: runs a cluster until its last user leaves."""

    def say(**state: Any) -> None:
        scratch = folder / "state.new"
        scratch.write_text(json.dumps(state))
        scratch.replace(folder / "state")

    try:
        with any_cluster() as cluster:
            logs = [str(node.log_path) for node in cluster.nodes]
            say(servers=cluster.bootstrap_servers, logs=logs)
            while not _is_left(folder):
                pass
    except NoBrokerError as error:
        say(error=str(error))


def _is_left(folder: Path) -> bool:
    """Wait until the last user closes the pipe; return False if another user joined since."""
    os.read(0, 1)
    with _locked(folder):
        os.set_blocking(0, False)
        try:
            os.read(0, 1)
        except BlockingIOError:
            os.set_blocking(0, True)
            return False
        (folder / "state").unlink()
        os.close(0)  # the next user starts a new keeper
        return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    _keep(Path(sys.argv[1]))
