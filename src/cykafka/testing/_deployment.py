"""Creates a cluster's nodes: directory, ports, properties, formatted storage, processes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from cykafka.testing._java import JAVA_OPTIONS, LOGGING, classpath, java, run_tool
from cykafka.testing._listener_security import Security
from cykafka.testing._node import KafkaNode
from cykafka.testing._process import HOST, Port, ProcessGroup
from cykafka.testing._server_properties import (
    PLAINTEXT,
    SESSION_TIMEOUT,
    BrokerEndpoint,
    kafka_uuid,
    server_properties,
    write_properties,
)

_JAVA_OPTIONS = (*JAVA_OPTIONS, "-Xmx256m", "-Djava.awt.headless=true")


class Deployment:
    """A cluster's processes, ports and files. The caller must close the deployment.

    Parameters
    ----------
    count : int
        Number of nodes.
    port : int
        Port of the first node's plain listener; 0 for free ports.
    properties : mapping of str to object
        The user's broker settings.
    java_options : sequence of str
        The user's Java options.
    listeners : sequence of str
        The secured listeners of every node.
    users : sequence of str
        The users of the secured listeners.
    timeout : float
        Longest time until a node is ready, in s.
    """

    def __init__(
        self,
        count: int,
        port: int,
        properties: Mapping[str, object],
        java_options: Sequence[str],
        listeners: Sequence[str],
        users: Sequence[str],
        timeout: float,
    ) -> None:
        self._java = java()
        self._classpath = classpath()
        self._options = (*_JAVA_OPTIONS, *java_options)
        # No other node can take over from a single node, so a long session keeps a busy machine
        # from fencing it. A start after a kill waits until the old session ends, so later starts
        # use a short session.
        self._first_start = (
            ("--override", f"{SESSION_TIMEOUT}=60000")
            if count == 1 and SESSION_TIMEOUT not in properties
            else ()
        )
        self._owner = os.getpid()
        self.nodes: tuple[KafkaNode, ...] = ()
        with ExitStack() as cleaning:
            self._folder = Path(tempfile.mkdtemp(prefix="cykafka-kafka-"))
            cleaning.callback(shutil.rmtree, self._folder, ignore_errors=True)
            self._group = ProcessGroup(self._folder)
            cleaning.callback(self._group.close)
            self._security = Security(listeners, users, self._folder)
            self._security.start(self._group, cleaning)
            controllers = [cleaning.enter_context(Port()) for _ in range(count)]
            self._quorum = {id_: at.address for id_, at in enumerate(controllers, 1)}
            self._endpoints: list[list[BrokerEndpoint]] = []
            for index in range(count):
                number = cleaning.enter_context(Port(port + index if port else 0)).number
                plain = BrokerEndpoint(PLAINTEXT, "PLAINTEXT", HOST, number)
                secured = {name: cleaning.enter_context(Port()).number for name in listeners}
                self._endpoints.append([plain, *self._security.endpoints(secured)])
            self.nodes = tuple(self._node(id_, properties, timeout) for id_ in range(1, count + 1))
            for node in self.nodes:
                cleaning.callback(node.kill)
            self._cleaning = cleaning.pop_all()

    @property
    def client_environment(self) -> dict[str, str]:
        """Environment variables for processes with clients."""
        return self._security.environment

    def client_config(self, listener: str, user: str | None) -> dict[str, str]:
        """Return the client settings for a listener."""
        found = [
            endpoint.address
            for endpoints in self._endpoints
            for endpoint in endpoints
            if endpoint.name == listener
        ]
        if not found:
            names = (endpoint.name for endpoint in self._endpoints[0])
            raise ValueError(f"listener must be one of {', '.join(names)}, not {listener!r}")
        security = {} if listener == PLAINTEXT else self._security.client_config(listener, user)
        return {"bootstrap.servers": ",".join(found), **security}

    def start(self) -> None:
        """Format the nodes' storage and start them all."""
        self._format()
        for node in self.nodes:
            node.start(wait=False)
        for node in self.nodes:
            node.wait_ready()

    def close(self) -> None:
        """Kill the nodes, remove the files and free the ports. Does nothing in a forked child."""
        if self.owned:
            self._cleaning.close()

    @property
    def owned(self) -> bool:
        """Whether this process created the deployment, not the parent of a fork."""
        return os.getpid() == self._owner

    def keep_logs(self) -> Path | None:
        """Copy the nodes' logs to a permanent directory; return None if there are none yet."""
        return copy_logs([node.log_path for node in self.nodes])

    def _node(self, id_: int, properties: Mapping[str, object], timeout: float) -> KafkaNode:
        endpoints = self._endpoints[id_ - 1]
        settings = server_properties(id_, self._data(id_), endpoints, self._quorum)
        file = self._properties(id_)
        write_properties(file, {**settings, **self._security.broker_properties(), **properties})
        log = self._folder / f"node-{id_}.log"
        return KafkaNode(id_, endpoints[0].address, log, partial(self._launch, file), timeout)

    def _launch(self, properties: Path, log: Path) -> subprocess.Popen[bytes]:
        if not self._folder.exists():
            raise RuntimeError("the node's KafkaCluster is closed")
        command = [
            self._java,
            f"-Djava.io.tmpdir={self._folder}",
            f"-Dlog4j2.configurationFile={LOGGING}",
            *self._options,
            *self._security.java_options,
            "-cp",
            self._classpath,
            "kafka.Kafka",
            str(properties),
            *(() if log.exists() else self._first_start),
        ]
        return self._group.start(command, log)

    def _format(self) -> None:
        """Format the first node's storage, and copy it to the other nodes with their own ids."""
        run_tool(
            "kafka-storage",
            *("format", "--cluster-id", kafka_uuid(), "--config", str(self._properties(1))),
            *self._security.format_arguments,
            # The tool joins the group: if it outlived this process, it would recreate the
            # removed directory.
            process_group=self._group.number,
        )
        for node in self.nodes[1:]:
            data = self._data(node.id)
            shutil.copytree(self._data(1), data)
            meta = data / "meta.properties"
            text = re.sub("(?m)^node.id=.*$", f"node.id={node.id}", meta.read_text())
            meta.write_text(re.sub("(?m)^directory.id=.*$", f"directory.id={kafka_uuid()}", text))

    def _data(self, node: int) -> Path:
        return self._folder / f"node-{node}"

    def _properties(self, node: int) -> Path:
        return self._folder / f"node-{node}.properties"


def copy_logs(paths: Sequence[Path]) -> Path | None:
    """Copy the existing logs to a permanent directory; return None if there are none."""
    logs = [path for path in paths if path.exists()]
    if not logs:
        return None
    kept = Path(tempfile.mkdtemp(prefix="cykafka-kafka-logs-"))
    for log in logs:
        shutil.copy(log, kept)
    return kept
