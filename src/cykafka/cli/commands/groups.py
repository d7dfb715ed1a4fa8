"""``cykafka groups``: list, describe and delete consumer groups, and show their lag."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter, validators
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from cykafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)
from cykafka.admin import ConfigEntry, ConsumerGroupDescription
from cykafka.cli.cluster.administration import (
    Cluster,
    DryRun,
    Json,
    Outcomes,
    Yes,
    administration,
    confirm,
    need_consent,
    select,
    word,
)
from cykafka.cli.cluster.connection import ConnectionOptions
from cykafka.cli.cluster.lag import (
    Position,
    describe_groups,
    find_positions,
    list_groups,
    list_other_groups,
    read_committed,
    refuse_other_group,
    sum_positions,
)
from cykafka.cli.commands.configs import describe_all
from cykafka.cli.commands.reset import reset
from cykafka.cli.terminal.failures import EXIT_STATUS_HELP, Failed, Status, UsageError, reason
from cykafka.cli.terminal.output import json_line, show, table
from cykafka.cli.terminal.parameters import Names, choose_partitions, plain
from cykafka.cli.terminal.texts import counted, name_of, printable

__all__ = ["groups"]

groups = App(
    name="groups",
    help="Show groups and their lag, and move their offsets.",
    help_epilogue=EXIT_STATUS_HELP,
)
groups.command(reset)

_State = Literal["preparing-rebalancing", "completing-rebalancing", "stable", "dead", "empty"]
_Type = Literal["consumer", "classic"]


# What is known of a group that is neither classic nor of KIP-848.
_OTHER = "share/streams"


def _find(
    cluster: Cluster, patterns: Sequence[str], outcomes: Outcomes
) -> tuple[list[str], list[str]]:
    """Return the matching consumer groups, and the share and streams groups with exactly a name.

    Raises
    ------
    Failed
        A pattern does not match a group.
    """
    known = list_groups(cluster, outcomes)
    names = [name for name in patterns if name not in known]
    others = list_other_groups(cluster, outcomes, known) if names else []
    others = [name for name in others if name in names]
    chosen = select(patterns, sorted([*known, *others]), "group")
    return [name for name in chosen if name in known], others


@groups.command(name="list")
def list_(
    *patterns: str,
    state: Annotated[tuple[_State, ...], plain()] = (),
    type_: Annotated[tuple[_Type, ...], plain()] = (),
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """List groups with their state and type.

    The type is consumer for the protocol of KIP-848, classic for the older one, and share/streams
    for share groups and groups of Kafka Streams, whose state librdkafka cannot read.

    Parameters
    ----------
    patterns : str
        names, or patterns such as 'billing*' (default: all groups)
    state : str
        only groups in this state; repeatable
    type_ : str
        only groups of this type; repeatable
    """
    outcomes = Outcomes()
    with administration(connection) as cluster:
        wanted_states = {ConsumerGroupState[name.replace("-", "_").upper()] for name in state}
        wanted_types = {ConsumerGroupType[name.upper()] for name in type_}
        known = list_groups(cluster, outcomes, wanted_states or None, wanted_types or None)
        no_filter = not wanted_states and not wanted_types
        other = list_other_groups(cluster, outcomes, known) if no_filter else []
        chosen = select(patterns, [*known, *other], "group")
    rows = [
        (name, word(known[name].state), word(known[name].type))
        if name in known
        else (name, None, _OTHER)
        for name in sorted(chosen)
    ]
    return outcomes.show(("group", "state", "type"), rows, as_json=json)


@groups.command
def describe(*patterns: str, json: Json = False, connection: ConnectionOptions = None) -> int:
    """Show members, assignments, committed offsets and the lag of groups.

    Of share groups it shows the configuration (share.*), which cykafka configs alter changes.

    Parameters
    ----------
    patterns : str
        names, or patterns such as 'billing*' (default: all groups)
    """
    outcomes = Outcomes()
    with administration(connection) as cluster:
        known = list_groups(cluster, outcomes)
        others = list_other_groups(cluster, outcomes, known)
        chosen = select(patterns, sorted([*known, *others]), "group")
        names = [name for name in chosen if name in known]
        others = [name for name in chosen if name not in known]
        descriptions = describe_groups(cluster, names, outcomes)
        found = find_positions(cluster, list(descriptions), descriptions, outcomes)
        configs = describe_all(cluster, "group", others, outcomes)
    for number, (name, group) in enumerate(descriptions.items()):
        if number and not json:
            print()
        _show_group(group, [position for position in found if position.group == name], json)
    for number, name in enumerate(others, len(descriptions)):
        if number and not json:
            print()
        _show_other(name, configs.get(name, {}), json)
    return outcomes.status


_MEMBER_COLUMNS = ("member", "client_id", "host", "instance_id", "partitions")
_OFFSET_COLUMNS = ("topic", "partition", "committed", "end", "lag", "member")
_OFFSET_CELLS = attrgetter("topic", "partition", "committed", "end", "lag", "member_id")


def _show_group(group: ConsumerGroupDescription, found: list[Position], json: bool) -> None:
    members = [
        (
            member.member_id,
            member.client_id,
            member.host.removeprefix("/"),  # Java writes an address without a name this way
            member.group_instance_id,
            len(member.assignment.topic_partitions),
        )
        for member in group.members
    ]
    offsets = list(map(_OFFSET_CELLS, found))
    total = sum_positions(found)[2]
    head = {
        "group": group.group_id,
        "state": word(group.state),
        "type": word(group.type),
        "assignor": group.partition_assignor or None,
        "coordinator": group.coordinator.id,
    }
    if json:
        parts = {
            "members": [dict(zip(_MEMBER_COLUMNS, row, strict=True)) for row in members],
            "offsets": [dict(zip(_OFFSET_COLUMNS, row, strict=True)) for row in offsets],
        }
        print(json_line({**head, "lag": total, **parts}))
        return
    text = (
        f"group {group.group_id}: {head['state']}, type {head['type']}, "
        f"assignor {head['assignor'] or '-'}, coordinator {head['coordinator']}, "
        f"{counted(len(members), 'member')}, lag {'-' if total is None else total}"
    )
    print(printable(text))
    if members:
        show(_MEMBER_COLUMNS, members)
    if offsets:
        show(_OFFSET_COLUMNS, offsets)


def _show_other(name: str, configs: Mapping[str, ConfigEntry], json: bool) -> None:
    """Show a share group or a streams group."""
    found = {
        key: entry.value for key, entry in sorted(configs.items()) if key.startswith("share.")
    }
    if json:
        print(json_line({"group": name, "state": None, "type": _OTHER, "configs": found}))
        return
    print(printable(f"group {name}: type {_OTHER}"))
    show(("config", "value"), list(found.items()))


# -- lag

_LAG_COLUMNS = ("group", "topic", "partitions", "committed", "end", "lag", "max_lag")


@groups.command
def lag(
    *patterns: str,
    watch: Annotated[bool, plain("-w")] = False,
    interval: Annotated[
        float, Parameter(metavar="S", validator=validators.Number(gte=0.1, lte=3600))
    ] = 2.0,
    max_: Annotated[int | None, Parameter(metavar="N", validator=validators.Number(gte=0))] = None,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Show the lag of groups in each topic.

    Partitions without a committed offset have no lag; the sums leave them out. --watch repeats the
    request until Ctrl-C, also while brokers are down.

    Parameters
    ----------
    patterns : str
        names, or patterns such as 'billing*' (default: all groups)
    watch : bool
        repeat; on a terminal in place, otherwise as new lines
    interval : float
        seconds between two requests of --watch
    max_ : int
        exit with status 1 if the lag of a group is greater, or unknown in one of its topics
    """
    if watch and max_ is not None:
        raise UsageError("--max is for a single request; remove --watch")
    outcomes = Outcomes()
    with administration(connection) as cluster:
        if watch:
            _watch(cluster, patterns, interval, json)
        rows = _lag_rows(cluster, patterns, outcomes)
    outcomes.show(_LAG_COLUMNS, rows, as_json=json)
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row[0]] += row[5] or 0
    if max_ is None:
        return outcomes.status
    troubles = [
        f"the lag of group {row[0]}{f' in topic {row[1]}' if row[1] else ''} is unknown: "
        "check that its consumers commit offsets"
        for row in rows
        if row[5] is None
    ]
    troubles += [
        f"group {name} has a lag of {total}, more than {max_}"
        for name, total in totals.items()
        if total > max_
    ]
    for text in troubles:
        print(printable(f"cykafka: {text}"), file=sys.stderr)
    return Status.FAILED if troubles else outcomes.status


def _lag_rows(
    cluster: Cluster, patterns: Sequence[str], outcomes: Outcomes
) -> list[tuple[Any, ...]]:
    """Return the lag per group and topic; a group without partitions has a row without a topic."""
    names, others = _find(cluster, patterns, outcomes)
    for name in others:
        outcomes.fail(f"read the lag of group {name}", "it is not a consumer group")
    descriptions = describe_groups(cluster, names, outcomes)
    by_group: dict[str, dict[str | None, list[Position]]] = {name: {} for name in descriptions}
    for position in find_positions(cluster, list(descriptions), descriptions, outcomes):
        by_group[position.group].setdefault(position.topic, []).append(position)
    return [
        (group, topic, len(found), *sum_positions(found))
        for group, by_topic in by_group.items()
        for topic, found in (by_topic or {None: []}).items()
    ]


def _watch(cluster: Cluster, patterns: Sequence[str], interval: float, json: bool) -> None:
    """Print the lag repeatedly until Ctrl-C."""
    live = None
    if sys.stdout.isatty() and not json:
        live = Live(console=Console(), auto_refresh=False)
        live.start()
    try:
        while True:
            began = time.monotonic()
            try:
                cluster.refresh()
                rows = _lag_rows(cluster, patterns, Outcomes())
            except (Failed, KafkaException) as error:
                # The next request may succeed, for example after an election.
                if live is None:
                    print(f"cykafka: {printable(reason(error))}", file=sys.stderr)
                else:
                    live.update(Text(printable(reason(error)), style="red"), refresh=True)
            else:
                if live is None:
                    show(_LAG_COLUMNS, rows, as_json=json)
                    sys.stdout.flush()
                else:
                    at = Text(f"{time.strftime('%H:%M:%S')}; Ctrl-C ends", style="dim")
                    live.update(Group(table(_LAG_COLUMNS, rows, cut=True), at), refresh=True)
            time.sleep(max(began + interval - time.monotonic(), 0))
    finally:
        if live is not None:
            live.stop()


# -- deleting


@groups.command
def delete(
    names: Names,
    /,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Delete groups and their committed offsets; they must have no members.

    Parameters
    ----------
    names : str
        names, or patterns such as 'test-*'
    """
    need_consent("delete groups", yes=yes or dry_run)
    outcomes = Outcomes()
    with administration(connection) as cluster:
        found, others = _find(cluster, names, outcomes)
        offsets = read_committed(cluster, found, outcomes)
        counts: dict[str, int | None] = {name: len(offsets.get(name, ())) for name in found}
        counts |= dict.fromkeys(others)
        found = list(counts)
        if not dry_run:
            losses = [
                f"group {name}: "
                + (
                    "its positions in all partitions"
                    if count is None
                    else counted(count, "committed offset")
                )
                for name, count in counts.items()
            ]
            confirm(f"delete {counted(len(found), 'group')}", losses, yes=yes)
            futures = cluster.admin.delete_consumer_groups(found, request_timeout=cluster.timeout)
            found = outcomes.wait_for_all("delete group", futures)
    outcome = "would be deleted" if dry_run else "deleted"
    rows = [(name, counts[name], outcome) for name in found]
    return outcomes.show(("group", "offsets", "outcome"), rows, as_json=json)


@groups.command
def delete_offsets(
    group: str,
    partitions: Names,
    /,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Delete the committed offsets of a group in partitions that it is not subscribed to.

    Parameters
    ----------
    group : str
        the name
    partitions : str
        TOPIC, or TOPIC:PARTITIONS such as orders:0,2-4
    """
    need_consent("delete offsets", yes=yes or dry_run)
    outcomes = Outcomes()
    with administration(connection) as cluster:
        before = read_committed(cluster, [group], outcomes).get(group, {})
        if not before:
            known = list_groups(cluster, outcomes)
            refuse_other_group(cluster, outcomes, group, known)
            select([group], sorted(known), "group")
        counts = cluster.counts()
        for partition in before:  # a deleted topic may still have committed offsets
            counts[partition.topic] = max(counts.get(partition.topic, 0), partition.partition + 1)
        chosen = [
            partition for partition in choose_partitions(partitions, counts) if partition in before
        ]
        if not chosen:
            raise Failed(f"group {group} has no committed offset in {', '.join(partitions)}")
        if not dry_run:
            losses = [f"{name_of(partition)}: offset {before[partition]}" for partition in chosen]
            action = f"delete {counted(len(chosen), 'committed offset')} of group {group}"
            confirm(action, losses, yes=yes)
            request = [ConsumerGroupTopicPartitions(group, chosen)]
            future = cluster.admin.delete_consumer_group_offsets(
                request, request_timeout=cluster.timeout
            )[group]
            answer = outcomes.wait_for(f"delete offsets of group {group}", future)
            chosen = _without_errors(answer, group, outcomes)
    outcome = "would be deleted" if dry_run else "deleted"
    rows = [
        (group, partition.topic, partition.partition, before[partition], outcome)
        for partition in chosen
    ]
    return outcomes.show(
        ("group", "topic", "partition", "committed", "outcome"), rows, as_json=json
    )


def _without_errors(
    answer: ConsumerGroupTopicPartitions | None, group: str, outcomes: Outcomes
) -> list[TopicPartition]:
    done = []
    for partition in (answer and answer.topic_partitions) or ():
        if partition.error is None:
            done.append(partition)
        else:
            action = f"delete the offset of group {group} in {name_of(partition)}"
            outcomes.fail(action, partition.error.str())
    return done
