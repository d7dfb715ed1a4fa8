"""Samples of a cluster's groups: committed offsets, ends of partitions, members, errors."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, TypeVar

from cykafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from cykafka.admin import (
    AdminClient,
    ClusterMetadata,
    ConsumerGroupDescription,
    OffsetSpec,
    PartitionMetadata,
)
from cykafka.cli.connection import Brokers
from cykafka.cli.failures import Failed, reason
from cykafka.cli.lag import members_by_partition

__all__ = ["Group", "Key", "Position", "Sample", "Sampler"]

Key = tuple[str, str, int]
"""Group, topic and partition."""

_T = TypeVar("_T")
# A request may wait for a coordinator that answers just before the timeout.
_GRACE_S = 1.0


@dataclass(frozen=True, kw_only=True)
class Position:
    """A group's position in a partition."""

    group: str
    topic: str
    partition: int
    committed: int | None = None
    """the committed offset; None if there is none"""
    end: int | None = None
    """the offset after the last record; None if it is not known"""
    client_id: str | None = None
    """the member that has the partition"""
    error: str | None = None

    @property
    def key(self) -> Key:
        return self.group, self.topic, self.partition

    @property
    def lag(self) -> int | None:
        """Records after the committed offset; None if it or the end is not known."""
        if self.committed is None or self.end is None:
            return None
        return max(0, self.end - self.committed)


@dataclass(frozen=True, kw_only=True)
class Group:
    """A consumer group."""

    name: str
    state: str
    members: int = 0
    error: str | None = None


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What one round of requests has found."""

    clock_s: float
    """a monotonic clock, for rates"""
    time_s: float
    """seconds since the epoch"""
    groups: tuple[Group, ...] = ()
    positions: tuple[Position, ...] = ()
    errors: tuple[str, ...] = ()
    """errors of the whole cluster, such as a coordinator that did not list its groups"""


class Sampler:
    """Takes samples of the groups and topics that match.

    Parameters
    ----------
    brokers : Brokers
    client : AdminClient
        A client of these brokers.
    groups, topics : sequence of str
        Names, or patterns with ``*``, ``?`` and ``[...]``; all if there are none.
    """

    def __init__(
        self,
        brokers: Brokers,
        client: AdminClient,
        groups: Sequence[str] = (),
        topics: Sequence[str] = (),
    ) -> None:
        self._brokers = brokers
        self._client = client
        self._groups = groups
        self._topics = topics

    def sample(self) -> Sample:
        """Ask the brokers; this blocks.

        Raises
        ------
        Failed
            No broker answers. The next call may succeed.
        """
        metadata = self._brokers.metadata(self._client)
        listed, errors = self._listed()
        described, failed = self._described(list(listed))
        committed, without = self._committed(list(listed))
        members = {name: members_by_partition(described.get(name)) for name in listed}
        keys = {
            (name, each)
            for name in listed
            for each in {*committed.get(name, {}), *members[name]}
            if _matches(each.topic, self._topics)
        }
        ends = self._ends({each for _, each in keys}, metadata)
        # The positions are taken now: the rates are those of the ends.
        clock_s, time_s = time.monotonic(), time.time()
        positions = []
        for name, each in sorted(keys):
            offset, trouble = committed.get(name, {}).get(each, (None, None))
            end, doubt = ends[each]
            member = members[name].get(each)
            positions.append(
                Position(
                    group=name,
                    topic=each.topic,
                    partition=each.partition,
                    committed=offset,
                    end=end,
                    client_id=member.client_id if member else None,
                    error=doubt or trouble,
                )
            )
        groups = [
            Group(
                name=name,
                state=_state(described[name].state if name in described else state),
                members=len(described[name].members) if name in described else 0,
                error=without.get(name) or failed.get(name),
            )
            for name, state in listed.items()
        ]
        if self._topics:  # groups that do not read these topics are left out
            kept = {group for group, _ in keys}
            groups = [group for group in groups if group.name in kept or group.error]
        return Sample(
            clock_s=clock_s,
            time_s=time_s,
            groups=tuple(groups),
            positions=tuple(positions),
            errors=errors,
        )

    def _listed(self) -> tuple[dict[str, Any], tuple[str, ...]]:
        """The state of each group that matches, by its name, and the errors of brokers."""
        try:
            listing = self._wait(
                self._client.list_consumer_groups(request_timeout=self._brokers.timeout)
            )
        except (KafkaException, FutureTimeoutError) as error:
            raise Failed(f"cannot list the groups: {_text(error)}") from None
        states = {
            each.group_id: getattr(each, "state", None)
            for each in listing.valid or ()
            if _matches(each.group_id, self._groups)
        }
        errors = (f"a broker cannot list groups: {reason(each)}" for each in listing.errors or ())
        return dict(sorted(states.items())), tuple(errors)

    def _wait(self, future: Future[_T]) -> _T:
        return future.result(self._brokers.timeout + _GRACE_S)

    def _results(
        self, futures: Mapping[Any, Future[_T]], what: str
    ) -> tuple[dict[Any, _T], dict[Any, str]]:
        """The results that came, and the errors of the others."""
        results, errors = {}, {}
        for key, future in futures.items():
            try:
                results[key] = self._wait(future)
            except (KafkaException, FutureTimeoutError) as error:
                errors[key] = f"{what}: {_text(error)}"
        return results, errors

    def _described(
        self, names: list[str]
    ) -> tuple[dict[str, ConsumerGroupDescription], dict[str, str]]:
        if not names:
            return {}, {}
        futures = self._client.describe_consumer_groups(
            names, request_timeout=self._brokers.timeout
        )
        return self._results(futures, "no members")

    def _committed(
        self, names: list[str]
    ) -> tuple[dict[str, dict[TopicPartition, tuple[int | None, str | None]]], dict[str, str]]:
        """For each group and partition the committed offset and its error."""
        futures: dict[str, Future[ConsumerGroupTopicPartitions]] = {}
        for name in names:  # librdkafka takes one group at a time; the requests run together
            futures |= self._client.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(name)], request_timeout=self._brokers.timeout
            )
        results, errors = self._results(futures, "no offsets")
        found = {
            name: {
                each: (
                    each.offset if each.offset >= 0 else None,
                    f"no offset: {reason(each.error)}" if each.error else None,
                )
                for each in result.topic_partitions or ()
            }
            for name, result in results.items()
        }
        return found, errors

    def _ends(
        self, partitions: Iterable[TopicPartition], metadata: ClusterMetadata
    ) -> dict[TopicPartition, tuple[int | None, str | None]]:
        """The end of each partition, and its error."""
        found: dict[TopicPartition, tuple[int | None, str | None]] = {}
        wanted = {}
        for each in partitions:
            known = metadata.topics.get(each.topic)
            partition = known and known.partitions.get(each.partition)
            if not partition:
                found[each] = None, "deleted"
            elif partition.leader < 0:
                found[each] = None, "no leader"
            else:
                wanted[each] = OffsetSpec.latest()
                found[each] = None, _out_of_sync(partition)
        if wanted:
            results, errors = self._results(
                self._client.list_offsets(wanted, request_timeout=self._brokers.timeout), "no end"
            )
            for each, result in results.items():
                found[each] = result.offset, found[each][1]
            for each, text in errors.items():
                found[each] = None, text
        return found


def _text(error: BaseException) -> str:
    return reason(error) or "no answer in time"  # a time-out of a future has no text


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _state(state: Any) -> str:
    return str(state.name).lower().replace("_", " ") if state is not None else "unknown"


def _out_of_sync(partition: PartitionMetadata) -> str | None:
    replicas, in_sync = len(partition.replicas), len(partition.isrs)
    return f"{in_sync} of {replicas} in sync" if in_sync < replicas else None
