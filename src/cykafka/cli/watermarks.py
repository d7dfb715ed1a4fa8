"""The offsets of partitions: ``cykafka topics offsets`` and ``cykafka topics delete-records``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from cyclopts import Parameter

from cykafka import TopicPartition
from cykafka.admin import OffsetSpec
from cykafka.cli.administration import (
    Cluster,
    DryRun,
    Json,
    Names,
    Outcomes,
    Yes,
    administration,
)
from cykafka.cli.confirm import confirm, need_consent
from cykafka.cli.connection import ConnectionOptions
from cykafka.cli.counts import counted
from cykafka.cli.failures import Failed, UsageError
from cykafka.cli.offsets import Place, parse_place
from cykafka.cli.partitions import chosen_partitions
from cykafka.cli.times import iso, milliseconds

__all__ = ["delete_records", "offsets", "offsets_at", "place_of"]

# The names of kafka-consumer-groups.sh and kafka-get-offsets.sh.
_JAVA_NAMES = {"earliest": "beginning", "latest": "end", "current": "stored"}
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


def place_of(option: str, text: str) -> Place:
    """The place that the value of an option names.

    Raises
    ------
    UsageError
        It is no place.
    """
    try:
        return parse_place(_JAVA_NAMES.get(text, text))
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None


def offsets_at(
    cluster: Cluster,
    place: Place,
    ends: Mapping[TopicPartition, tuple[int, int]],
    outcomes: Outcomes,
    stored: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """The offset of a place in each partition.

    Parameters
    ----------
    place : Place
        At a time: the first record that is as late, or the end if there is none.
    ends : mapping
        The first offset of each partition, and the offset after its last record.
    stored : mapping, optional
        The committed offsets; a partition without one is at its end.
    """
    if place.kind == "time":
        found = cluster.offsets(ends, OffsetSpec.for_timestamp(place.number), outcomes)
        return {
            each: ends[each][1] if info.offset < 0 else info.offset for each, info in found.items()
        }
    stored = stored or {}
    return {
        each: {
            "beginning": begin,
            "end": end,
            "stored": stored.get(each, end),
            "offset": place.number,
            "last": max(end - place.number, begin),
        }[place.kind]
        for each, (begin, end) in ends.items()
    }


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
        chosen = chosen_partitions(partitions, cluster.counts())
        if spec is None:
            ends = cluster.ends(chosen, outcomes)
            rows = [
                (each.topic, each.partition, begin, end, end - begin)
                for each, (begin, end) in ends.items()
            ]
            columns = ("topic", "partition", "begin", "end", "records")
            outcomes.show(columns, rows, as_json=json)
            return outcomes.status
        found = cluster.offsets(chosen, spec, outcomes)
    times = [
        (
            each.topic,
            each.partition,
            None if info.offset < 0 else info.offset,
            None if info.timestamp < 0 else iso(info.timestamp),
        )
        for each, info in found.items()
    ]
    outcomes.show(("topic", "partition", "offset", "timestamp"), times, as_json=json)
    return outcomes.status


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
    place = place_of("--before", before)
    if place.kind == "stored":
        raise UsageError("--before: a topic has no stored offset; name OFFSET, end or @TIME")
    if not dry_run:
        need_consent("delete records", yes=yes)
    outcomes = Outcomes()
    with administration(connection) as cluster:
        chosen = chosen_partitions(partitions, cluster.counts())
        ends = cluster.ends(chosen, outcomes)
        targets = offsets_at(cluster, place, ends, outcomes)
        if outcomes.failures:
            raise Failed("no record was deleted")
        for each, target in targets.items():
            if target > ends[each][1]:
                raise Failed(
                    f"{each.topic}[{each.partition}] has no offset {target}: "
                    f"its end is {ends[each][1]}"
                )
        lost = {
            each: target - ends[each][0]
            for each, target in targets.items()
            if target > ends[each][0]
        }
        kept = {each: targets[each] for each in lost}
        if lost and not dry_run:
            losses = [
                f"{each.topic}[{each.partition}]: {counted(lost[each], 'record')} before "
                f"offset {targets[each]}"
                for each in lost
            ]
            confirm(f"delete {counted(sum(lost.values()), 'record')}", losses, yes=yes)
            futures = cluster.admin.delete_records(
                [TopicPartition(each.topic, each.partition, targets[each]) for each in lost],
                request_timeout=cluster.timeout,
                operation_timeout=cluster.timeout,
            )
            answers = {
                each: outcomes.of(f"delete records of {each.topic}[{each.partition}]", future)
                for each, future in futures.items()
            }
            kept = {each: answer.low_watermark for each, answer in answers.items() if answer}
    rows = [(each.topic, each.partition, lost[each], begin) for each, begin in kept.items()]
    outcomes.show(("topic", "partition", "deleted", "begin"), rows, as_json=json)
    return outcomes.status
