"""``cykafka groups reset``: move a group's committed offsets."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from cykafka import ConsumerGroupTopicPartitions, TopicPartition
from cykafka.cli.cluster.administration import (
    Cluster,
    DryRun,
    Json,
    Outcomes,
    Yes,
    administration,
    confirm,
    need_consent,
)
from cykafka.cli.cluster.connection import ConnectionOptions
from cykafka.cli.cluster.lag import (
    describe_groups,
    list_groups,
    read_committed,
    refuse_other_group,
)
from cykafka.cli.cluster.profiles import read_text
from cykafka.cli.records.places import find_offsets, parse_place_option
from cykafka.cli.terminal.failures import Failed, UsageError
from cykafka.cli.terminal.output import show
from cykafka.cli.terminal.parameters import Flag, choose_partitions, plain
from cykafka.cli.terminal.texts import counted, name_of, printable
from cykafka.internal import did_you_mean

__all__ = ["Move", "plan", "read_offsets", "reset", "shift_offsets"]


@dataclass(frozen=True)
class Move:
    """A group's new offset in a partition.

    Parameters
    ----------
    before : int or None
        The committed offset; None if there is none.
    after : int
    begin, end : int
        The partition's first offset, and the offset after its last record.
    limited : bool
        Whether the wanted offset is outside the partition, so that `after` is `begin` or `end`.
    """

    topic: str
    partition: int
    before: int | None
    after: int
    begin: int
    end: int
    limited: bool

    @property
    def skipped(self) -> int:
        """The number of records the group would skip; negative if it would reread some."""
        start = self.begin if self.before is None else self.before
        return self.after - start


def plan(
    wanted: Mapping[TopicPartition, int],
    present: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, tuple[int, int]],
) -> list[Move]:
    """Return the moves to wanted offsets, each within its partition.

    Parameters
    ----------
    wanted, present : mapping
        Each partition's offset after and before the reset.
    ends : mapping
        Each partition's first offset, and the offset after its last record.
    """
    moves = []
    for partition in sorted(wanted):
        begin, end = ends[partition]
        after = min(max(wanted[partition], begin), end)
        moves.append(
            Move(partition.topic, partition.partition, present.get(partition), after, begin, end,
                 after != wanted[partition])
        )  # fmt: skip
    return moves


def read_offsets(lines: Iterable[str], name: str, group: str) -> dict[TopicPartition, int]:
    """Return a CSV file's offsets: ``[group,]topic,partition,offset`` per line.

    Skips a first line with column names, and the lines of other groups.

    Parameters
    ----------
    lines : iterable of str
    name : str
        The file, for errors.
    group : str

    Raises
    ------
    Failed
        A line has another form, a partition appears twice, or the group has no lines.
    """
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(lines, skipinitialspace=True), 1):
        if not row or (number == 1 and row[-1].strip() == "offset"):
            continue
        try:
            *of_group, topic, partition, offset = row
            place, wanted = TopicPartition(topic, int(partition)), int(offset)
        except (ValueError, OverflowError):
            topic = ""
        if not topic or len(of_group) > 1 or place.partition < 0 or wanted < 0:
            raise Failed(f"{name}, line {number}: expected topic,partition,offset")
        if of_group and of_group[0] != group:
            continue
        if place in offsets:
            raise Failed(f"{name}, line {number}: {topic}[{place.partition}] appears twice")
        offsets[place] = wanted
    if not offsets:
        raise Failed(f"{name} has no offsets for group {group}")
    return offsets


def shift_offsets(
    by: int, ends: Iterable[TopicPartition], present: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the committed offsets plus a number.

    Raises
    ------
    Failed
        A partition has no committed offset.
    """
    offsets = {}
    for partition in ends:
        if partition not in present:
            raise Failed(
                f"--shift-by needs a committed offset, but {name_of(partition)} has none; use --to"
            )
        offsets[partition] = present[partition] + by
    return offsets


def reset(
    group: str,
    /,
    *,
    topic: Annotated[tuple[str, ...], plain("-t", metavar="TOPIC[:PARTITIONS]")] = (),
    all_topics: Flag = False,
    to: Annotated[str | None, Parameter(metavar="PLACE", allow_leading_hyphen=True)] = None,
    shift_by: Annotated[int | None, Parameter(metavar="N", allow_leading_hyphen=True)] = None,
    from_csv: Annotated[Path | None, Parameter(metavar="FILE")] = None,
    csv_: Annotated[bool, plain()] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Move the committed offsets of a group that has no members.

    An offset outside of a partition becomes its first or its end; the column limited shows that.
    A group that does not exist is created. The command asks before it changes anything. It refuses
    while the group has members.

    Parameters
    ----------
    group : str
        the name
    topic : list of str
        a topic, or some of its partitions such as orders:0,2-4; repeatable
    all_topics : bool
        all partitions that have a committed offset
    to : str
        beginning (or earliest); end (or latest); stored (or current); an offset; -N for the last N
        records of each partition; or @ and a time: @2026-01-31T12:00:00Z, @-1h
    shift_by : int
        move each offset by N records; negative values go back
    from_csv : Path
        a file with lines topic,partition,offset, as --csv prints them
    csv_ : bool
        print the plan as lines topic,partition,offset for --from-csv
    """  # fmt: skip
    if sum(option is not None for option in (to, shift_by, from_csv)) != 1:
        raise UsageError("give one of --to, --shift-by and --from-csv")
    if from_csv is not None and (topic or all_topics):
        raise UsageError("--from-csv names the partitions; remove --topic and --all-topics")
    if from_csv is None and bool(topic) == all_topics:
        raise UsageError("give either --topic or --all-topics")
    if csv_ and json:
        raise UsageError("give one of --csv and --json")
    place = None if to is None else parse_place_option("--to", to)
    need_consent("reset offsets", yes=yes or dry_run)
    saved = None
    if from_csv is not None:
        saved = read_offsets(read_text(from_csv).splitlines(), str(from_csv), group)
    outcomes = Outcomes()
    with administration(connection) as cluster:
        present = read_committed(cluster, [group], outcomes).get(group, {})
        groups = list_groups(cluster, outcomes)
        if not present:
            refuse_other_group(cluster, outcomes, group, groups)
        exists = group in groups
        hint = "" if exists else did_you_mean(group, groups)
        if not (topic or saved or present or outcomes.failures):
            why = "has no committed offsets" if exists else "does not exist"
            raise Failed(f"group {group} {why}; name topics with --topic{hint}")
        named = topic or [
            f"{partition.topic}:{partition.partition}" for partition in saved or present
        ]
        ends = cluster.ends(choose_partitions(named, cluster.counts()), outcomes)
        if place is not None:
            wanted = find_offsets(cluster, place, ends, outcomes, present)
        elif shift_by is not None:
            wanted = shift_offsets(shift_by, ends, present)
        else:
            wanted = saved or {}
        members = _members(cluster, group, outcomes) if exists else None
        if outcomes.failures:
            raise Failed(f"the offsets of group {group} were not changed")
        moves = plan(wanted, present, ends)
        would = "would be" if dry_run else "is"
        news = [] if exists else [f"group {group} does not exist, so it {would} created{hint}"]
        if not dry_run:
            if members:
                raise Failed(members)
            action = f"reset {counted(len(moves), 'offset')} of group {group}"
            confirm(action, [*news, *_losses(moves)], yes=yes)
            moves = _commit(cluster, group, moves, outcomes)
    _print(group, moves, as_csv=csv_, as_json=json)
    if dry_run:
        for text in news:
            print(printable(f"cykafka: {text}"), file=sys.stderr)
    if dry_run and members:
        outcomes.fail(f"reset group {group}", members)
    return outcomes.status


def _members(cluster: Cluster, group: str, outcomes: Outcomes) -> str | None:
    """Return why the group's offsets cannot change, or None if it has no members."""
    described = describe_groups(cluster, [group], outcomes).get(group)
    if described is None or not described.members:
        return None
    first = described.members[0]
    return (
        f"group {group} has {counted(len(described.members), 'member')}, such as "
        f"{first.client_id} on {first.host.removeprefix('/')}: stop its consumers, then try again"
    )


def _losses(moves: Iterable[Move]) -> Iterator[str]:
    """Yield what the reset does, for the prompt."""
    for move in moves:
        if move.skipped >= 0:
            effect = f"skips {counted(move.skipped, 'record')}"
        else:
            effect = f"reads {counted(-move.skipped, 'record')} again"
        before = "none" if move.before is None else move.before
        yield f"{move.topic}[{move.partition}]: {before} -> {move.after}, {effect}"


def _commit(cluster: Cluster, group: str, moves: list[Move], outcomes: Outcomes) -> list[Move]:
    """Commit the new offsets; return the moves that succeeded."""
    if not moves:
        return []
    offsets = [TopicPartition(move.topic, move.partition, move.after) for move in moves]
    future = cluster.admin.alter_consumer_group_offsets(
        [ConsumerGroupTopicPartitions(group, offsets)], request_timeout=cluster.timeout
    )[group]
    answer = outcomes.wait_for(f"reset group {group}", future)
    errors = {
        partition: partition.error for partition in (answer and answer.topic_partitions) or ()
    }
    done = []
    for move in moves:
        place = TopicPartition(move.topic, move.partition)
        if (error := errors.get(place)) is not None:
            outcomes.fail(f"reset {move.topic}[{move.partition}]", error.str())
        elif place in errors:
            done.append(move)
    return done


def _print(group: str, moves: list[Move], *, as_csv: bool, as_json: bool) -> None:
    if as_csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows((move.topic, move.partition, move.after) for move in moves)
        return
    show(
        ("group", "topic", "partition", "before", "after", "begin", "end", "limited"),
        [(group, *astuple(move)) for move in moves],
        as_json=as_json,
    )
