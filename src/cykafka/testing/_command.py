"""The commands of ``python -m cykafka.testing`` and their options."""

from __future__ import annotations

import logging
import signal
import sys
import time
from typing import Annotated, NoReturn

from cyclopts import App, Parameter

from cykafka.testing._errors import KafkaClusterError

_PROG = "python -m cykafka.testing"
_LOOK_S = 0.5
_EPILOGUE = """\
It needs Java 17 or newer. Maven downloads Kafka at the first run, into the folder that \
CYKAFKA_CACHE_DIR names, else into ~/.cache/cykafka. All data is removed at the end.

examples::

  python -m cykafka.testing broker --nodes 3
  python -m cykafka.testing broker --port 9092 -X auto.create.topics.enable=false

exit status: 0 ended by Ctrl-C or SIGTERM; 1 the brokers did not start or failed; 2 bad arguments
"""

app = App(
    name=_PROG, help="Kafka clusters for tests and for trying things out.", help_format="rst"
)


def _check_setting(_type: object, setting: str) -> None:
    key, separator, _ = setting.partition("=")
    if not key or not separator:
        raise ValueError(f"{setting!r} is not KEY=VALUE")


_Setting = Annotated[str, Parameter(validator=_check_setting)]


@app.command(help_epilogue=_EPILOGUE)
def broker(
    *,
    nodes: Annotated[int, Parameter(metavar="N")] = 1,
    port: Annotated[int, Parameter(metavar="PORT", show_default=False)] = 0,
    config: Annotated[
        tuple[_Setting, ...],
        Parameter(name=["--config", "-X"], negative=(), metavar="KEY=VALUE", show_default=False),
    ] = (),
    java_option: Annotated[
        tuple[str, ...],
        Parameter(negative=(), metavar="OPTION", show_default=False, allow_leading_hyphen=True),
    ] = (),
) -> int:
    """Run real Kafka brokers until Ctrl-C or SIGTERM.

    The cluster on this machine is thrown away at the end. The first line on standard output is the
    address for clients' bootstrap.servers; it comes when the brokers are ready. All other messages
    go to standard error.

    Parameters
    ----------
    nodes : int
        number of nodes
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
    properties = dict(setting.split("=", 1) for setting in config)
    with KafkaCluster(nodes, port=port, properties=properties, java_options=java) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        print("ready; Ctrl-C stops the brokers and removes the data", file=sys.stderr)
        while all(node.alive for node in cluster.nodes):
            time.sleep(_LOOK_S)
        ended = [node.id for node in cluster.nodes if not node.alive]
        raise KafkaClusterError(f"node {ended[0]} has ended unexpectedly; see its log")
