"""The commands of ``python -m cykafka.testing`` and their options."""

from __future__ import annotations

import logging
import signal
import sys
import time
from typing import Annotated, NoReturn

from cyclopts import App, Parameter

from cykafka import __version__
from cykafka.internal import pairs
from cykafka.testing._errors import KafkaClusterError

_PROG = "python -m cykafka.testing"
_LOOK_S = 0.5
_HELP = (
    "Run a throw-away cluster of real Kafka brokers on this machine until Ctrl-C or SIGTERM.\n\n"
    "The first line on standard output is the address for clients' bootstrap.servers. It appears "
    "when the brokers are ready. All other output goes to standard error."
)
_EPILOGUE = (
    "It needs Java 17 or newer. At the first run Maven fetches Kafka into the folder of "
    "CYKAFKA_CACHE_DIR, or else into ~/.cache/cykafka. All data is removed at the end.\n\n"
    "examples:\n"
    f"  {_PROG} broker --nodes 3\n"
    f"  {_PROG} broker --port 9092 \\\n"
    "      -X auto.create.topics.enable=false\n\n"
    "exit status: 0 ended by Ctrl-C or SIGTERM; 1 the brokers did not start or failed; 2 bad "
    "arguments"
)

app = App(
    name=_PROG,
    help="Kafka clusters for tests and for trying things out.",
    help_format="plaintext",
    version=f"cykafka {__version__}",
)


@app.command(help=_HELP, help_epilogue=_EPILOGUE)
def broker(
    *,
    nodes: Annotated[int, Parameter(metavar="N")] = 1,
    port: Annotated[int, Parameter(metavar="PORT", show_default=False)] = 0,
    config: Annotated[
        tuple[str, ...],
        Parameter(name=["--config", "-X"], negative=(), metavar="KEY=VALUE", show_default=False),
    ] = (),
    java_option: Annotated[
        tuple[str, ...],
        Parameter(negative=(), metavar="OPTION", show_default=False, allow_leading_hyphen=True),
    ] = (),
) -> int:
    """Run the brokers.

    Parameters
    ----------
    nodes : int
        number of nodes, 1 to 9
    port : int
        port of the first node; the others follow (default: free ports)
    config : list of str
        a setting for the brokers; repeatable
    java_option : list of str
        an option for the brokers' Java, such as --java-option=-Xmx1g; repeatable
    """
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("cykafka.testing").setLevel(logging.INFO)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _serve(nodes, port, config, java_option)
    except KeyboardInterrupt:
        return 0
    except (KafkaClusterError, OSError) as error:
        for line in (error, *getattr(error, "__notes__", ())):
            print(f"{_PROG} broker: {line}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"{_PROG} broker: {error}", file=sys.stderr)
        return 2


def _serve(nodes: int, port: int, config: tuple[str, ...], java: tuple[str, ...]) -> NoReturn:
    from cykafka.testing.kafka import KafkaCluster  # importing it can be interrupted, too

    count = "1 node" if nodes == 1 else f"{nodes} nodes"
    print(f"starting {count} of Kafka ...", file=sys.stderr)
    properties = dict(pairs(config))
    with KafkaCluster(nodes, port=port, properties=properties, java_options=java) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        print("ready; Ctrl-C stops the brokers and removes the data", file=sys.stderr)
        while all(node.alive for node in cluster.nodes):
            time.sleep(_LOOK_S)
        ended = [node.id for node in cluster.nodes if not node.alive]
        raise KafkaClusterError(f"node {ended[0]} has ended unexpectedly; see its log")
