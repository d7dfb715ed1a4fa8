"""``cykafka topics``: list, describe, create, delete and alter topics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

from cyclopts import App, Parameter
from cyclopts.types import PositiveInt

from cykafka import KafkaError, Node, TopicPartition
from cykafka.admin import NewPartitions, NewTopic, TopicDescription
from cykafka.cli.administration import (
    Cluster,
    DryRun,
    Json,
    Names,
    Outcomes,
    Yes,
    administration,
    has_code,
    is_internal,
    texts,
)
from cykafka.cli.configs import describe_all, own_entries, shown
from cykafka.cli.confirm import confirm, need_consent
from cykafka.cli.connection import ConnectionOptions
from cykafka.cli.counts import counted
from cykafka.cli.failures import EXIT_STATUS_HELP, UsageError, reason
from cykafka.cli.output import json_line, show
from cykafka.cli.printable import printable
from cykafka.cli.profiles import resolve
from cykafka.cli.watermarks import delete_records, offsets
from cykafka.internal import pairs

__all__ = ["id_of", "topics"]

topics = App(
    name="topics",
    help="List, describe, create and delete topics, and add partitions.",
    help_epilogue=EXIT_STATUS_HELP,
)
topics.command(offsets)
topics.command(delete_records)

_Internal = Annotated[bool, Parameter(negative=(), show_default=False)]
_IfExists = Annotated[bool, Parameter(negative=(), show_default=False)]


@topics.command(name="list")
def list_(
    *patterns: str,
    internal: _Internal = False,
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
            replicas = max((len(each.replicas) for each in parts), default=0)
            behind = [
                each for each in parts if len(each.isrs) < len(each.replicas) or each.leader < 0
            ]
            rows.append((name, len(parts), replicas, len(behind), is_internal(name)))
    columns = ("topic", "partitions", "replication_factor", "under_replicated", "internal")
    outcomes.show(columns, rows, as_json=json)
    return outcomes.status


@topics.command
def describe(
    *patterns: str,
    under_replicated: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    internal: _Internal = False,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Show partitions, leaders, replicas, offsets and the changed configuration of topics.

    The records of a partition are the distance of its two offsets. Compacted topics and topics
    with transactions have fewer. Clients cannot see the size in bytes.

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
            found = [topic for topic in found if _behind(topic)]
        led = [
            TopicPartition(topic.name, each.id)
            for topic in found
            for each in topic.partitions
            if _leader(each.leader) is not None
        ]
        ends = cluster.ends(led, outcomes)
        configs = describe_all(cluster, "topic", [topic.name for topic in found], outcomes)
    for number, topic in enumerate(found):
        if number and not json:
            print()
        behind = _behind(topic)
        own = {each.name: shown(each) for each in own_entries(configs.get(topic.name, {}))}
        rows = [
            (
                each.id,
                _leader(each.leader),
                [replica.id for replica in each.replicas],
                [replica.id for replica in each.isr],
                each.id in behind,
                *_range(ends.get(TopicPartition(topic.name, each.id))),
            )
            for each in topic.partitions
            if each.id in behind or not under_replicated
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
    print(printable(f"configs: {texts(own) or 'all have their defaults'}"))
    show(_COLUMNS, rows)


def id_of(topic: TopicDescription) -> str:
    """The id of a topic as Kafka's scripts and logs write it: in the URL's alphabet of base64."""
    return str(topic.topic_id).replace("+", "-").replace("/", "_")


def _replication(topic: TopicDescription) -> int:
    return max((len(each.replicas) for each in topic.partitions), default=0)


def _behind(topic: TopicDescription) -> set[int]:
    """The partitions with replicas that are not in sync, or without a leader."""
    return {
        each.id
        for each in topic.partitions
        if len(each.isr) < len(each.replicas) or _leader(each.leader) is None
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
    partitions: Annotated[
        PositiveInt | None, Parameter(name=["--partitions", "-p"], metavar="N")
    ] = None,
    replication_factor: Annotated[
        PositiveInt | None, Parameter(name=["--replication-factor", "-r"], metavar="N")
    ] = None,
    set_: Annotated[
        tuple[str, ...],
        Parameter(name=["--set", "-c"], negative=(), metavar="KEY=VALUE", show_default=False),
    ] = (),
    if_not_exists: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
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
        a topic that exists is no error
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
    outcomes.show(("topic", "outcome"), rows, as_json=json)
    return outcomes.status


@topics.command
def delete(
    names: Names,
    /,
    *,
    if_exists: _IfExists = False,
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
        a name or a pattern without a topic is no error
    """
    if not dry_run:
        need_consent("delete topics", yes=yes)
    outcomes = Outcomes()
    with administration(connection) as cluster:
        asked = [each for each in names if not if_exists or cluster.has_topic(each)]
        found = cluster.topics(asked) if asked else []
        if found and not dry_run:
            action = f"delete {counted(len(found), 'topic')}"
            confirm(action, _losses(cluster, found), yes=yes)
            futures = cluster.admin.delete_topics(
                found, request_timeout=cluster.timeout, operation_timeout=cluster.timeout
            )
            found = [
                name for name in found if outcomes.succeeded(f"delete topic {name}", futures[name])
            ]
    outcome = "would be deleted" if dry_run else "deleted"
    outcomes.show(("topic", "outcome"), [(name, outcome) for name in found], as_json=json)
    return outcomes.status


def _losses(cluster: Cluster, names: Sequence[str]) -> Iterator[str]:
    """What goes with each topic."""
    numbers = {name: cluster.metadata.topics[name].partitions for name in names}
    led = [
        TopicPartition(name, each)
        for name in names
        for each, part in numbers[name].items()
        if part.leader >= 0
    ]
    # A partition that does not answer is no reason to keep its topic.
    ends = cluster.ends(led, Outcomes())
    known = Counter(each.topic for each in ends)
    records: Counter[str] = Counter()
    for each, (begin, end) in ends.items():
        records[each.topic] += end - begin
    for name in names:
        partitions = counted(len(numbers[name]), "partition")
        least = "" if known[name] == len(numbers[name]) else "at least "
        yield f"topic {name}: {partitions}, {least}{counted(records[name], 'record')}"


@topics.command
def alter(
    names: Names,
    /,
    *,
    partitions: Annotated[
        PositiveInt, Parameter(name=["--partitions", "-p"], metavar="N", show_default=False)
    ],
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
    if not dry_run:
        need_consent("add partitions", yes=yes)
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
        rows = [
            (name, present[name], partitions)
            for name in found
            if outcomes.succeeded(f"add partitions to topic {name}", futures[name])
        ]
    outcomes.show(("topic", "before", "after"), rows, as_json=json)
    return outcomes.status
