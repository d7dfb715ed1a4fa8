"""The ``python -m cykafka.testing`` commands and their options."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, NoReturn

from cyclopts import App, Parameter

from cykafka import __version__
from cykafka.internal.command_lines import pairs
from cykafka.testing._process import KafkaClusterError

if TYPE_CHECKING:
    from cykafka.testing.kafka import KafkaCluster

_PROG = "python -m cykafka.testing"
_LOOK_S = 0.5
_GRACE_S = 10.0
_NOT_FOUND = 127  # as shells report it
_HELP = (
    "Run a throw-away cluster of real Kafka brokers on this machine until Ctrl-C or SIGTERM.\n\n"
    "The first line on standard output is the address for clients' bootstrap.servers. It appears "
    "when the brokers are ready. All other output goes to standard error.\n\n"
    "With -- COMMAND the cluster runs until the command ends. The command finds the address in "
    "the variable CYKAFKA_BOOTSTRAP_SERVERS, and standard output is the command's alone.\n\n"
    "With --schema-registry a Schema Registry for tests runs as well. Its address is the second "
    "line, and in the variable CYKAFKA_SCHEMA_REGISTRY_URL."
)
_EPILOGUE = (
    "The brokers need Java 17 or newer. On the first run, Maven fetches Kafka into the directory "
    "CYKAFKA_CACHE_DIR (default: ~/.cache/cykafka). The command removes all data at the end.\n\n"
    "examples:\n"
    "  {prog} broker --nodes 3\n"
    "  {prog} broker --port 9092 \\\n"
    "      -X auto.create.topics.enable=false\n"
    "  {prog} broker --schema-registry -- pytest tests\n\n"
    "exit status: 0 ended by Ctrl-C or SIGTERM; 1 the brokers did not start or failed; 2 bad "
    "arguments; with -- COMMAND the exit status of COMMAND, or 127 if COMMAND does not exist"
)

app = App(
    name=_PROG,
    help="Kafka clusters for tests and experiments.",
    help_format="plaintext",
    version=f"cykafka {__version__}",
)


def add_broker(app: App, prog: str) -> None:
    """Add the ``broker`` command to a command line.

    Parameters
    ----------
    app : App
    prog : str
        The program's name, for errors and examples.
    """
    app.command(
        _broker(prog),
        name="broker",
        help=_HELP,
        help_epilogue=_EPILOGUE.format(prog=prog),
        help_format="plaintext",
    )


def _broker(prog: str) -> Callable[..., int]:
    def broker(
        *command: Annotated[
            str, Parameter(metavar="COMMAND", show_default=False, allow_leading_hyphen=True)
        ],
        nodes: Annotated[int, Parameter(metavar="N")] = 1,
        port: Annotated[int, Parameter(metavar="PORT", show_default=False)] = 0,
        properties: Annotated[
            tuple[str, ...],
            Parameter(
                name=["--property", "-X"], negative=(), metavar="KEY=VALUE", show_default=False
            ),
        ] = (),
        java_option: Annotated[
            tuple[str, ...],
            Parameter(
                negative=(), metavar="OPTION", show_default=False, allow_leading_hyphen=True
            ),
        ] = (),
        schema_registry: Annotated[bool, Parameter(negative=())] = False,
        schema_registry_port: Annotated[int, Parameter(metavar="PORT", show_default=False)] = 0,
    ) -> int:
        """Run the brokers.

        Parameters
        ----------
        command : str
            after --: a command to run with the cluster, and its arguments
        nodes : int
            number of nodes, 1 to 9
        port : int
            port of the first node; the others follow (default: free ports)
        properties : list of str
            a property of the brokers, such as auto.create.topics.enable=false; repeatable
        java_option : list of str
            an option for the brokers' Java, such as --java-option=-Xmx1g; repeatable
        schema_registry : bool
            also run a Schema Registry, which keeps schemas in memory
        schema_registry_port : int
            port of the Schema Registry (default: a free port)
        """
        if command and shutil.which(command[0]) is None:
            unknown = "option" if command[0].startswith("-") else "command"
            print(f"{prog} broker: unknown {unknown} {command[0]}", file=sys.stderr)
            return _NOT_FOUND
        logging.basicConfig(format="%(message)s", level=logging.WARNING)
        logging.getLogger("cykafka.testing").setLevel(logging.INFO)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            with _registry(schema_registry, schema_registry_port) as registry_url:
                return _serve(nodes, port, properties, java_option, command, registry_url)
        except KeyboardInterrupt:
            return 130 if command else 0
        except (KafkaClusterError, OSError) as error:
            for line in (error, *getattr(error, "__notes__", ())):
                print(f"{prog} broker: {line}", file=sys.stderr)
            return 1
        except ValueError as error:
            print(f"{prog} broker: {error}", file=sys.stderr)
            return 2

    return broker


add_broker(app, _PROG)


@contextmanager
def _registry(is_wanted: bool, port: int) -> Iterator[str | None]:
    """Run a Schema Registry during the block, and return its URL; or None without one."""
    from cykafka.testing.schema_registry import SchemaRegistry

    if not is_wanted and not port:
        yield None
        return
    with SchemaRegistry(port=port) as registry:
        yield registry.url


def _serve(
    nodes: int,
    port: int,
    properties: Sequence[str],
    java: Sequence[str],
    command: Sequence[str],
    registry_url: str | None,
) -> int:
    from cykafka.testing.kafka import KafkaCluster  # Ctrl-C can also interrupt the import

    count = "1 node" if nodes == 1 else f"{nodes} nodes"
    print(f"starting {count} of Kafka ...", file=sys.stderr)
    settings = dict(pairs(properties))
    with KafkaCluster(nodes, port=port, properties=settings, java_options=tuple(java)) as cluster:
        if command:
            return _run(cluster, command, registry_url)
        print(cluster.bootstrap_servers, flush=True)
        if registry_url is not None:
            print(registry_url, flush=True)
        print("ready; Ctrl-C stops the brokers and removes the data", file=sys.stderr)
        _wait(cluster)


def _wait(cluster: KafkaCluster) -> NoReturn:
    while all(node.alive for node in cluster.nodes):
        time.sleep(_LOOK_S)
    ended = [node.id for node in cluster.nodes if not node.alive]
    raise KafkaClusterError(f"node {ended[0]} has ended unexpectedly; see its log")


def _run(cluster: KafkaCluster, command: Sequence[str], registry_url: str | None) -> int:
    """Run a command with the cluster, and return its exit status."""
    environment = {**os.environ, "CYKAFKA_BOOTSTRAP_SERVERS": cluster.bootstrap_servers}
    if registry_url is not None:
        environment["CYKAFKA_SCHEMA_REGISTRY_URL"] = registry_url
    print(f"ready at {cluster.bootstrap_servers}; running {command[0]}", file=sys.stderr)
    stopped = threading.Event()
    # Before the command starts, so that no signal is lost. The terminal sends Ctrl-C to the
    # command as well, and the command decides what that means.
    signal.signal(signal.SIGINT, lambda number, frame: None)
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.set())
    process = subprocess.Popen(command, env=environment)
    signal.signal(signal.SIGTERM, lambda number, frame: process.terminate())
    if stopped.is_set():
        process.terminate()
    try:
        status = process.wait()
    finally:
        if process.poll() is None:
            _end(process)
    return 128 - status if status < 0 else status


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
