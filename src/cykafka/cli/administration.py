"""What the commands for administration share: their options, a client, outcomes, and names."""

from __future__ import annotations

import fnmatch
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

from cyclopts import Parameter

from cykafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from cykafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec, TopicDescription
from cykafka.cli.connection import Brokers, Connection
from cykafka.cli.failures import Failed, Status, UsageError, reason
from cykafka.cli.output import show
from cykafka.cli.printable import printable
from cykafka.internal import did_you_mean

__all__ = [
    "Cluster",
    "DryRun",
    "Json",
    "Names",
    "Outcomes",
    "Yes",
    "administration",
    "has_code",
    "is_internal",
    "select",
    "texts",
]

_T = TypeVar("_T")
_PAUSE_S = 0.1
_MOVING = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)

Names = Annotated[tuple[str, ...], Parameter(negative=())]
Json = Annotated[
    bool,
    Parameter(
        name="--json", negative=(), show_default=False, help="print JSON, one object a line"
    ),
]
Yes = Annotated[
    bool,
    Parameter(
        name=["--yes", "-y"],
        negative=(),
        show_default=False,
        help="do not ask; required without a terminal",
    ),
]
DryRun = Annotated[
    bool,
    Parameter(negative=(), show_default=False, help="print what would happen, and change nothing"),
]


class Outcomes:
    """Collects the failures of a request with many items; prints each on standard error."""

    def __init__(self) -> None:
        self.failures = 0

    def of(self, action: str, future: Future[_T]) -> _T | None:
        """The result of a future; None if it failed.

        Parameters
        ----------
        action : str
            What was asked for, such as ``"delete topic orders"``.
        future : Future
        """
        try:
            return future.result()
        except KafkaException as error:
            self.fail(action, reason(error))
            return None

    def succeeded(self, action: str, future: Future[Any]) -> bool:
        """Whether a future succeeds; a failure is printed, as by `of`."""
        before = self.failures
        self.of(action, future)
        return self.failures == before

    def fail(self, action: str, why: str) -> None:
        """Print that an action failed, and why."""
        self.failures += 1
        print(printable(f"cykafka: cannot {action}: {why}"), file=sys.stderr)

    def show(
        self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, as_json: bool
    ) -> None:
        """Print the items that succeeded, unless all have failed."""
        rows = list(rows)
        if rows or not self.failures:
            show(columns, rows, as_json=as_json)

    @property
    def status(self) -> int:
        """1 if an item failed, otherwise 0."""
        return Status.FAILED if self.failures else Status.OK


class Cluster:
    """An administrative client of brokers that have answered.

    Parameters
    ----------
    brokers : Brokers
    admin : AdminClient
    """

    def __init__(self, brokers: Brokers, admin: AdminClient) -> None:
        self.brokers = brokers
        self.admin = admin
        self.timeout = brokers.timeout
        self.refresh()

    def refresh(self) -> None:
        """Get the metadata of the cluster again.

        Raises
        ------
        Failed
            No broker answers.
        """
        self.metadata = self.brokers.metadata(self.admin)

    def topics(self, patterns: Sequence[str], internal: bool = False) -> list[str]:
        """The names of the topics that match; an internal topic matches only its own name.

        Parameters
        ----------
        patterns : sequence of str
            Names, or patterns with ``*``, ``?`` and ``[...]``; all topics if there are none.
        internal : bool
            Let patterns match the internal topics, too.

        Raises
        ------
        Failed
            A pattern matches no topic.
        """
        names = sorted(self.metadata.topics)
        hidden = set() if internal else {name for name in names if is_internal(name)}
        return select(patterns, names, "topic", hidden)

    def has_topic(self, pattern: str) -> bool:
        """Whether a name or a pattern matches a topic."""
        try:
            return bool(self.topics([pattern]))
        except Failed:
            return False

    def counts(self) -> dict[str, int]:
        """The number of partitions of each topic."""
        return {name: len(each.partitions) for name, each in self.metadata.topics.items()}

    def descriptions(self, names: Sequence[str], outcomes: Outcomes) -> list[TopicDescription]:
        """The descriptions of topics; a topic that fails is left out."""
        if not names:
            return []
        futures = self.admin.describe_topics(
            TopicCollection(list(names)), request_timeout=self.timeout
        )
        answers = (outcomes.of(f"describe topic {name}", futures[name]) for name in names)
        return [each for each in answers if each is not None]

    def offsets(
        self, partitions: Iterable[TopicPartition], spec: OffsetSpec, outcomes: Outcomes
    ) -> dict[TopicPartition, ListOffsetsResultInfo]:
        """The offset of each partition; a partition that fails is left out.

        Brokers learn of a new topic or leader a moment late. The request is repeated meanwhile.
        """
        found: dict[TopicPartition, ListOffsetsResultInfo] = {}
        wanted = list(partitions)
        deadline = time.monotonic() + self.timeout
        while wanted:
            futures = self.admin.list_offsets(
                dict.fromkeys(wanted, spec), request_timeout=self.timeout
            )
            again = []
            for each, future in futures.items():
                failure = future.exception()
                if failure is None:
                    found[each] = future.result()
                elif has_code(failure, *_MOVING) and time.monotonic() < deadline:
                    again.append(each)
                else:
                    where = f"{each.topic}[{each.partition}]"
                    outcomes.fail(f"get an offset of {where}", reason(failure))
            wanted = again
            if again:
                self.admin.poll(_PAUSE_S)
        return dict(sorted(found.items()))

    def ends(
        self, partitions: Sequence[TopicPartition], outcomes: Outcomes
    ) -> dict[TopicPartition, tuple[int, int]]:
        """The first offset of each partition, and the offset after its last record."""
        first = self.offsets(partitions, OffsetSpec.earliest(), outcomes)
        last = self.offsets(first, OffsetSpec.latest(), outcomes)
        return {each: (first[each].offset, last[each].offset) for each in last}


@contextmanager
def administration(connection: Connection | None) -> Iterator[Cluster]:
    """A client for administration; its brokers have answered.

    Raises
    ------
    UsageError
        The options of the connection are wrong, or the block asks for what no request can have,
        such as an empty name.
    Failed
        No broker answers.
    """
    brokers = (connection or Connection()).brokers()
    with brokers.admin() as admin:
        try:
            yield Cluster(brokers, admin)
        except ValueError as error:
            raise UsageError(str(error)) from None


def select(
    patterns: Sequence[str], names: Sequence[str], kind: str, hidden: Iterable[str] = ()
) -> list[str]:
    """The names that match, in their order.

    Parameters
    ----------
    patterns : sequence of str
        Names, or patterns with ``*``, ``?`` and ``[...]``; all names if there are none. A group
        may have such a name itself; then the pattern selects that group alone.
    names : sequence of str
    kind : str
        The kind of the names, for the error.
    hidden : iterable of str
        Names that only match themselves.

    Raises
    ------
    Failed
        A pattern matches no name.
    """
    hidden = set(hidden)
    shown = [name for name in names if name not in hidden]
    if not patterns:
        return shown
    chosen: set[str] = set()
    for pattern in patterns:
        if pattern in names:
            chosen.add(pattern)
            continue
        found = {name for name in shown if fnmatch.fnmatchcase(name, pattern)}
        if not found:
            if any(sign in pattern for sign in "*?["):
                raise Failed(f"no {kind} matches {pattern!r}")
            raise Failed(f"there is no {kind} {pattern!r}{did_you_mean(pattern, names)}")
        chosen |= found
    return [name for name in names if name in chosen]


def is_internal(topic: str) -> bool:
    """Whether a name begins with two underscores, as the names of Kafka's own topics do."""
    return topic.startswith("__")


def has_code(error: BaseException, *codes: int) -> bool:
    """Whether an exception carries a KafkaError with one of these codes."""
    return isinstance(error, KafkaException) and error.args[0].code() in codes


def texts(values: Mapping[str, Any]) -> str:
    """Names and values on one line."""
    return ", ".join(f"{name}={value}" for name, value in values.items())
