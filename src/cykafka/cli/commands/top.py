"""The ``cykafka top`` command and its options."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated

from cyclopts import Group, Parameter, validators

from cykafka.cli.cluster.connection import Brokers, Connection, ConnectionOptions
from cykafka.cli.terminal.failures import EXIT_STATUS_HELP, Status, UsageError
from cykafka.cli.terminal.output import show
from cykafka.cli.terminal.parameters import plain
from cykafka.cli.top.sampling import Sample, Sampler

__all__ = ["HELP_EPILOGUE", "top"]

HELP_EPILOGUE = (
    "examples:\n\n"
    "* ``cykafka top -b localhost:9092``\n"
    "* ``cykafka top --group 'billing-*' --interval 5``\n"
    "* ``cykafka top --json | jq 'select(.lag > 1000)'``\n\n" + EXIT_STATUS_HELP
)

_WHAT = Group("What", sort_key=1)
_HOW = Group("How", sort_key=2)
_OF_POSITION = ("group", "topic", "partition", "committed", "end", "lag", "client_id")
_COLUMNS = (*_OF_POSITION, "state", "error")


@dataclass(frozen=True, kw_only=True)
class TopOptions:
    """The options of ``cykafka top``, with their help."""

    group: Annotated[tuple[str, ...], plain(metavar="NAME", group=_WHAT)] = ()
    """only these groups; * ? and [...] match parts of names; repeatable"""
    topic: Annotated[tuple[str, ...], plain(metavar="NAME", group=_WHAT)] = ()
    """only these topics; * ? and [...] match parts of names; repeatable"""
    interval: Annotated[
        float, Parameter(group=_HOW, metavar="S", validator=validators.Number(gte=0.1, lte=3600))
    ] = 2.0
    """seconds between samples"""
    once: Annotated[bool, plain(group=_HOW)] = False
    """print one sample as a table, without rates, and end"""
    json: Annotated[bool, plain(group=_HOW)] = False
    """print one sample as JSON, an object for each partition, and end"""


def top(
    *,
    options: Annotated[TopOptions | None, Parameter(name="*")] = None,
    connection: ConnectionOptions = None,
) -> int:
    """Watch the lag and the throughput of consumer groups.

    The page shows each partition that a group reads: the lag of the group's committed offset, the
    records a second that arrive and that the group commits, and the course of the lag. It goes on
    when brokers do not answer. The keys are at the bottom of the page.
    """
    options, connection = options or TopOptions(), connection or Connection()
    if options.once or options.json:
        return _print_once(options, connection.brokers())
    # Textual writes the page to standard error.
    if not all(stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr)):
        raise UsageError("the page needs a terminal; use --once or --json")
    kind = os.environ.get("TERM", "")
    if kind in ("", "dumb", "unknown"):
        raise UsageError(
            f"the page needs a terminal whose cursor it can move, but TERM is {kind!r}; "
            "set TERM, or use --once or --json"
        )
    brokers = connection.brokers()
    if connection.verbose or "debug" in brokers.config:
        raise UsageError(
            "--verbose and the property debug would write into the page; use them with --once or "
            "--json"
        )
    try:
        from cykafka.cli.top.view import TopApp
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("cykafka"):
            raise
        raise UsageError(f"{error}: pip install 'cykafka[top]', or use --once or --json") from None
    with brokers.admin() as client:
        sampler = Sampler(brokers, client, options.group, options.topic)
        page = TopApp(sampler.sample, options.interval, brokers.servers)
        page.run()
    # Textual does not return a code if an input error ended the page.
    return Status.FAILED if page.return_code is None else page.return_code


def _print_once(options: TopOptions, brokers: Brokers) -> int:
    with brokers.admin() as client:
        sample = Sampler(brokers, client, options.group, options.topic).sample()
    rows = _rows(sample)
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(sample.time_s))
    show(_COLUMNS, rows, as_json=options.json, title=f"{brokers.servers}, {at}")
    for error in sample.errors:
        print(f"cykafka top: {error}", file=sys.stderr)
    failed = sample.errors or any(group.error for group in sample.groups)
    return Status.FAILED if failed else Status.OK


def _rows(sample: Sample) -> list[tuple[object, ...]]:
    states = {group.name: group.state for group in sample.groups}
    rows: list[tuple[object, ...]] = [
        (*attrgetter(*_OF_POSITION)(position), states[position.group], position.error)
        for position in sample.positions
    ]
    read = {position.group for position in sample.positions}
    rows += [
        (group.name, None, None, None, None, None, None, group.state, group.error)
        for group in sample.groups
        if group.error or group.name not in read
    ]
    return rows
