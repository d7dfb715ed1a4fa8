"""``cykafka topics``: topics, their partitions, and the offsets of their records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from cyclopts import App, Parameter
from cyclopts.types import PositiveInt

from cykafka import KafkaError, Node, TopicPartition
from cykafka.admin import NewPartitions, NewTopic, OffsetSpec, TopicDescription
from cykafka.cli.cluster.administration import (
    Cluster,
    DryRun,
    Json,
    Outcomes,
    Yes,
    administration,
    confirm,
    has_code,
    is_internal,
    need_consent,
)
from cykafka.cli.cluster.connection import ConnectionOptions
from cykafka.cli.cluster.profiles import resolve
from cykafka.cli.commands.configs import describe_all, own_entries, shown
from cykafka.cli.records.places import find_offsets, parse_place_option
from cykafka.cli.terminal.failures import EXIT_STATUS_HELP, Failed, UsageError, reason
from cykafka.cli.terminal.output import json_line, show
from cykafka.cli.terminal.parameters import Flag, Names, choose_partitions, milliseconds, plain
from cykafka.cli.terminal.texts import counted, iso, name_of, printable
from cykafka.internal.command_lines import pairs

__all__ = ["id_of", "topics"]

topics = App(
    name="topics",
    help="List, describe, create and delete topics, and add partitions.",
    help_epilogue=EXIT_STATUS_HELP,
)


@topics.command(name="list")
def list_(
    *patterns: str,
    internal: Flag = False,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """List topics with their partitions and replicas.

    Parameters
    ----------
    patterns : str
        names, or patterns such as 'orders*' (default: all topics)
    internal : bool
        also list topics whose names begin with two underscores, such as __consumer_offsets
    """
    outcomes = Outcomes()
    rows = []
    with administration(connection) as cluster:
        for name in cluster.topics(patterns, internal):
            found = cluster.metadata.topics[name]
            if found.error is not None:
                outcomes.fail(f"list topic {name}", found.error.str())
                continue
            parts = found.partitions.values()
            replicas = max((len(part.replicas) for part in parts), default=0)
            behind = [
                part for part in parts if len(part.isrs) < len(part.replicas) or part.leader < 0
            ]
            rows.append((name, len(parts), replicas, len(behind), is_internal(name)))
    columns = ("topic", "partitions", "replication_factor", "under_replicated", "internal")
    return outcomes.show(columns, rows, as_json=json)


@topics.command
def describe(
    *patterns: str,
    under_replicated: Flag = False,
    internal: Flag = False,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Show partitions, leaders, replicas, offsets and the changed configuration of topics.

    The number of records is the difference between a partition's two offsets. Compacted topics and
    topics with transactions have fewer. Clients cannot see the size in bytes.

    Parameters
    ----------
    patterns : str
        names, or patterns such as 'orders*' (default: all topics)
    under_replicated : bool
        only partitions with replicas that are not in sync, or without a leader; also those of
        internal topics
    internal : bool
        let patterns match topics whose names begin with two underscores
    """
    outcomes = Outcomes()
    with administration(connection) as cluster:
        names = cluster.topics(patterns, internal or under_replicated)
        found = cluster.descriptions(names, outcomes)
        if under_replicated:
            found = [topic for topic in found if _unhealthy_partitions(topic)]
        led = [
            TopicPartition(topic.name, partition.id)
            for topic in found
            for partition in topic.partitions
            if _leader(partition.leader) is not None
        ]
        ends = cluster.ends(led, outcomes)
        configs = describe_all(cluster, "topic", [topic.name for topic in found], outcomes)
    for number, topic in enumerate(found):
        if number and not json:
            print()
        behind = _unhealthy_partitions(topic)
        own = {entry.name: shown(entry) for entry in own_entries(configs.get(topic.name, {}))}
        rows = [
            (
                partition.id,
                _leader(partition.leader),
                [replica.id for replica in partition.replicas],
                [replica.id for replica in partition.isr],
                partition.id in behind,
                *_range(ends.get(TopicPartition(topic.name, partition.id))),
            )
            for partition in topic.partitions
            if partition.id in behind or not under_replicated
        ]
        _show_topic(topic, own, rows, json)
    return outcomes.status


_COLUMNS = ("partition", "leader", "replicas", "isr", "under_replicated", "begin", "end",
            "records")  # fmt: skip


def _show_topic(
    topic: TopicDescription, own: dict[str, str | None], rows: list[Any], json: bool
) -> None:
    if json:
        head = {
            "topic": topic.name,
            "topic_id": id_of(topic),
            "internal": is_internal(topic.name),
            "replication_factor": _replication(topic),
            "configs": own,
        }
        partitions = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
        print(json_line({**head, "partitions": partitions}))
        return
    print(f"topic {topic.name}, id {id_of(topic)}")
    configs = ", ".join(f"{name}={value}" for name, value in own.items())
    print(printable(f"configs: {configs or 'all have their defaults'}"))
    show(_COLUMNS, rows)


def id_of(topic: TopicDescription) -> str:
    """Return a topic's id as Kafka's scripts and logs write it: in URL-safe base64."""
    return str(topic.topic_id).replace("+", "-").replace("/", "_")


def _replication(topic: TopicDescription) -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


def _unhealthy_partitions(topic: TopicDescription) -> set[int]:
    """Return the partitions with replicas that are not in sync, or without a leader."""
    return {
        partition.id
        for partition in topic.partitions
        if len(partition.isr) < len(partition.replicas) or _leader(partition.leader) is None
    }


def _leader(node: Node | None) -> int | None:
    return None if node is None or node.id < 0 else node.id


def _range(ends: tuple[int, int] | None) -> tuple[int | None, int | None, int | None]:
    return (None, None, None) if ends is None else (*ends, ends[1] - ends[0])


@topics.command
def create(
    names: Names,
    /,
    *,
    partitions: Annotated[PositiveInt | None, Parameter(alias="-p", metavar="N")] = None,
    replication_factor: Annotated[PositiveInt | None, Parameter(alias="-r", metavar="N")] = None,
    set_: Annotated[tuple[str, ...], plain("-c", metavar="KEY=VALUE")] = (),
    if_not_exists: Flag = False,
    dry_run: DryRun = False,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Create topics.

    Parameters
    ----------
    names : str
        the names
    partitions : int
        number of partitions (default: that of the brokers)
    replication_factor : int
        replicas of each partition (default: that of the brokers)
    set_ : list of str
        a property of the topics, such as retention.ms=86400000; repeatable
    if_not_exists : bool
        do not fail if a topic exists
    """
    try:
        config = {key: resolve(key, value) for key, value in pairs(set_)}
    except ValueError as error:
        raise UsageError(f"--set: {error}") from None
    names = tuple(dict.fromkeys(names))
    outcomes = Outcomes()
    rows = []
    with administration(connection) as cluster:
        futures = cluster.admin.create_topics(
            [
                NewTopic(name, partitions or -1, replication_factor or -1, config=config)
                for name in names
            ],
            request_timeout=cluster.timeout,
            operation_timeout=cluster.timeout,
            validate_only=dry_run,
        )
        for name in names:
            failure = futures[name].exception()
            if failure is None:
                rows.append((name, "valid" if dry_run else "created"))
            elif if_not_exists and has_code(failure, KafkaError.TOPIC_ALREADY_EXISTS):
                rows.append((name, "exists"))
            else:
                outcomes.fail(f"create topic {name}", reason(failure))
    return outcomes.show(("topic", "outcome"), rows, as_json=json)


@topics.command
def delete(
    names: Names,
    /,
    *,
    if_exists: Flag = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Delete topics and all their records.

    Parameters
    ----------
    names : str
        names, or patterns such as 'test-*'
    if_exists : bool
        do not fail if a name or a pattern matches no topic
    """
    need_consent("delete topics", yes=yes or dry_run)
    outcomes = Outcomes()
    with administration(connection) as cluster:
        asked = [name for name in names if not if_exists or cluster.has_topic(name)]
        found = cluster.topics(asked) if asked else []
        if found and not dry_run:
            action = f"delete {counted(len(found), 'topic')}"
            confirm(action, _losses(cluster, found), yes=yes)
            futures = cluster.admin.delete_topics(
                found, request_timeout=cluster.timeout, operation_timeout=cluster.timeout
            )
            found = outcomes.wait_for_all("delete topic", futures)
    outcome = "would be deleted" if dry_run else "deleted"
    return outcomes.show(("topic", "outcome"), [(name, outcome) for name in found], as_json=json)


def _losses(cluster: Cluster, names: Sequence[str]) -> Iterator[str]:
    """Yield what each topic's deletion removes."""
    numbers = {name: cluster.metadata.topics[name].partitions for name in names}
    led = [
        TopicPartition(name, number)
        for name in names
        for number, part in numbers[name].items()
        if part.leader >= 0
    ]
    # A partition with unknown offsets must not keep its topic, hence separate outcomes.
    ends = cluster.ends(led, Outcomes())
    known = Counter(partition.topic for partition in ends)
    records: Counter[str] = Counter()
    for partition, (begin, end) in ends.items():
        records[partition.topic] += end - begin
    for name in names:
        partitions = counted(len(numbers[name]), "partition")
        least = "" if known[name] == len(numbers[name]) else "at least "
        yield f"topic {name}: {partitions}, {least}{counted(records[name], 'record')}"


@topics.command
def alter(
    names: Names,
    /,
    *,
    partitions: Annotated[PositiveInt, Parameter(alias="-p", metavar="N", show_default=False)],
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Add partitions to topics.

    The command asks first: Kafka cannot remove partitions again, and producers then send many
    keys to other partitions. ``cykafka configs alter topic`` changes the configuration.

    Parameters
    ----------
    names : str
        names, or patterns such as 'orders*'
    partitions : int
        number of partitions after the change
    """
    need_consent("add partitions", yes=yes or dry_run)
    outcomes = Outcomes()
    with administration(connection) as cluster:
        found = cluster.topics(names)
        present = {name: len(cluster.metadata.topics[name].partitions) for name in found}
        wanted = [NewPartitions(name, partitions) for name in found]
        if not dry_run:
            losses = [
                f"topic {name}: {present[name]} -> {counted(partitions, 'partition')}"
                for name in found
            ]
            confirm(f"add partitions to {counted(len(found), 'topic')}", losses, yes=yes)
        futures = cluster.admin.create_partitions(
            wanted,
            request_timeout=cluster.timeout,
            operation_timeout=cluster.timeout,
            validate_only=dry_run,
        )
        added = outcomes.wait_for_all("add partitions to topic", futures)
        rows = [(name, present[name], partitions) for name in added]
    return outcomes.show(("topic", "before", "after"), rows, as_json=json)


# -- offsets

_SPECS = {
    "earliest": OffsetSpec.earliest,
    "latest": OffsetSpec.latest,
    "max-timestamp": OffsetSpec.max_timestamp,
}


def _spec(text: str) -> OffsetSpec:
    if text in _SPECS:
        return _SPECS[text]()
    try:
        return OffsetSpec.for_timestamp(milliseconds(text.removeprefix("@")))
    except ValueError as error:
        raise UsageError(f"--time: {error}; or {', '.join(_SPECS)}") from None


@topics.command
def offsets(
    partitions: Names,
    /,
    *,
    time: Annotated[str | None, Parameter(metavar="TIME", allow_leading_hyphen=True)] = None,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Show the first and the last offset of partitions, or the offsets at a time.

    Parameters
    ----------
    partitions : str
        TOPIC, or TOPIC:PARTITIONS such as orders:0,2-4
    time : str
        the offset of the first record at this time or later: ISO 8601, -1h, ms since the epoch;
        or earliest, latest, max-timestamp
    """
    spec = None if time is None else _spec(time)
    outcomes = Outcomes()
    with administration(connection) as cluster:
        chosen = choose_partitions(partitions, cluster.counts())
        if spec is None:
            ends = cluster.ends(chosen, outcomes)
            rows = [
                (partition.topic, partition.partition, begin, end, end - begin)
                for partition, (begin, end) in ends.items()
            ]
            columns = ("topic", "partition", "begin", "end", "records")
            return outcomes.show(columns, rows, as_json=json)
        found = cluster.offsets(chosen, spec, outcomes)
    times = [
        (
            partition.topic,
            partition.partition,
            None if info.offset < 0 else info.offset,
            None if info.timestamp < 0 else iso(info.timestamp),
        )
        for partition, info in found.items()
    ]
    return outcomes.show(("topic", "partition", "offset", "timestamp"), times, as_json=json)


@topics.command
def delete_records(
    partitions: Names,
    /,
    *,
    before: Annotated[str, Parameter(metavar="PLACE", allow_leading_hyphen=True)],
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Delete the records before an offset or a time.

    The records cannot be restored. Other records keep their offsets.

    Parameters
    ----------
    partitions : str
        TOPIC, or TOPIC:PARTITIONS such as orders:0,2-4
    before : str
        an offset; end for all records; -N for all but the last N of a partition; or @ and a time,
        such as @2026-01-31T12:00:00Z or @-7d
    """
    place = parse_place_option("--before", before)
    if place.kind == "stored":
        raise UsageError("--before: a topic has no stored offset; name OFFSET, end or @TIME")
    need_consent("delete records", yes=yes or dry_run)
    outcomes = Outcomes()
    with administration(connection) as cluster:
        chosen = choose_partitions(partitions, cluster.counts())
        ends = cluster.ends(chosen, outcomes)
        targets = find_offsets(cluster, place, ends, outcomes)
        if outcomes.failures:
            raise Failed("no record was deleted")
        for partition, target in targets.items():
            if target > ends[partition][1]:
                raise Failed(
                    f"{name_of(partition)} has no offset {target}: its end is {ends[partition][1]}"
                )
        lost = {
            partition: target - ends[partition][0]
            for partition, target in targets.items()
            if target > ends[partition][0]
        }
        kept = {partition: targets[partition] for partition in lost}
        if lost and not dry_run:
            losses = [
                f"{name_of(partition)}: {counted(lost[partition], 'record')} before "
                f"offset {targets[partition]}"
                for partition in lost
            ]
            confirm(f"delete {counted(sum(lost.values()), 'record')}", losses, yes=yes)
            futures = cluster.admin.delete_records(
                [
                    TopicPartition(partition.topic, partition.partition, targets[partition])
                    for partition in lost
                ],
                request_timeout=cluster.timeout,
                operation_timeout=cluster.timeout,
            )
            answers = {
                partition: outcomes.wait_for(f"delete records of {name_of(partition)}", future)
                for partition, future in futures.items()
            }
            kept = {
                partition: answer.low_watermark for partition, answer in answers.items() if answer
            }
    rows = [
        (partition.topic, partition.partition, lost[partition], begin)
        for partition, begin in kept.items()
    ]
    return outcomes.show(("topic", "partition", "deleted", "begin"), rows, as_json=json)
