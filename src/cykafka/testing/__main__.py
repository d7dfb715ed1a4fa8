"""``python -m cykafka.testing broker``: real Kafka for as long as the command runs."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import time
from collections.abc import Sequence

from cykafka.testing._errors import KafkaClusterError

_PROG = "python -m cykafka.testing"
_LOOK_S = 0.5
_DESCRIPTION = """\
Run a throw-away cluster of real Kafka brokers on this machine until Ctrl-C or SIGTERM.

The first line on standard output is the address for clients' bootstrap.servers. It appears when
the brokers are ready. All other output goes to standard error.
"""
_EPILOG = """\
It needs Java 17 or newer. At the first run Maven fetches Kafka into the folder of
CYKAFKA_CACHE_DIR, or else into ~/.cache/cykafka. All data is removed at the end.

examples:
  python -m cykafka.testing broker --nodes 3
  python -m cykafka.testing broker --port 9092 -X auto.create.topics.enable=false

exit status: 0 ended by Ctrl-C or SIGTERM; 1 the brokers did not start or failed; 2 bad arguments
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process if None.

    Returns
    -------
    int
        The exit status.
    """
    arguments = _parser().parse_args(argv)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("cykafka.testing").setLevel(logging.INFO)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        return _broker(arguments)
    except KeyboardInterrupt:
        return 0
    except (KafkaClusterError, OSError) as error:
        for line in (error, *getattr(error, "__notes__", ())):
            print(f"{_PROG} broker: {line}", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"{_PROG} broker: {error}", file=sys.stderr)
        return 2


def _broker(arguments: argparse.Namespace) -> int:
    from cykafka.testing.kafka import KafkaCluster  # slow: Ctrl-C may interrupt it

    nodes = "1 node" if arguments.nodes == 1 else f"{arguments.nodes} nodes"
    print(f"starting {nodes} of Kafka ...", file=sys.stderr)
    with KafkaCluster(
        arguments.nodes,
        port=arguments.port,
        properties=dict(arguments.config),
        java_options=arguments.java_option,
    ) as cluster:
        print(cluster.bootstrap_servers, flush=True)
        print("ready; Ctrl-C stops the brokers and removes the data", file=sys.stderr)
        while all(node.alive for node in cluster.nodes):
            time.sleep(_LOOK_S)
        ended = [node.id for node in cluster.nodes if not node.alive]
        raise KafkaClusterError(f"node {ended[0]} has ended unexpectedly; see its log")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=_PROG, description="Kafka clusters for tests and for trying things out."
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    broker = commands.add_parser(
        "broker",
        help="run real Kafka brokers until Ctrl-C",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    broker.add_argument(
        "--nodes", type=int, default=1, metavar="N", help="number of nodes (default: %(default)s)"
    )
    broker.add_argument(
        "--port",
        type=int,
        default=0,
        metavar="PORT",
        help="port of the first node; the others follow (default: free ports)",
    )
    broker.add_argument(
        "-X",
        "--config",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a setting for the brokers; repeatable",
    )
    broker.add_argument(
        "--java-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="an option for the brokers' Java, such as --java-option=-Xmx1g; repeatable",
    )
    return parser


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


if __name__ == "__main__":
    sys.exit(main())
