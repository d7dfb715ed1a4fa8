"""Common parts of administrative commands: options, a client, outcomes, consent and names."""

from __future__ import annotations

import fnmatch
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from enum import Enum
from typing import Annotated, Any, TypeAlias, TypeVar

from cyclopts import Parameter
from rich.console import Console
from rich.prompt import Confirm
from rich.text import Text

from cykafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from cykafka.admin import AdminClient, ListOffsetsResultInfo, OffsetSpec, TopicDescription
from cykafka.cli.cluster.connection import Brokers, Connection
from cykafka.cli.terminal.failures import Failed, Status, UsageError, reason
from cykafka.cli.terminal.output import show
from cykafka.cli.terminal.parameters import Flag
from cykafka.cli.terminal.texts import name_of, printable
from cykafka.internal import did_you_mean

__all__ = [
    "Cluster",
    "DryRun",
    "Json",
    "Outcomes",
    "Yes",
    "administration",
    "confirm",
    "has_code",
    "is_internal",
    "need_consent",
    "select",
    "word",
]

_T = TypeVar("_T")
_K = TypeVar("_K")
_About: TypeAlias = tuple[str, object] | None
_PAUSE_S = 0.1
_MOVING = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)

Json = Annotated[Flag, Parameter(help="print JSON, one object per line")]
Yes = Annotated[Flag, Parameter(alias="-y", help="do not prompt; required without a terminal")]
DryRun = Annotated[Flag, Parameter(help="print what would happen, without changing anything")]


class Outcomes:
    """Collects failures from requests with many items, and prints each on standard error.

    Parameters
    ----------
    shown : bool
        False: do not print them.
    """

    def __init__(self, *, shown: bool = True) -> None:
        self.failures = 0
        self.errors: dict[object, list[str]] = {}
        """what failed, per group or partition without a result; None for other failures"""
        self._shown = shown

    def wait_for(self, action: str, future: Future[_T], about: _About = None) -> _T | None:
        """Return a future's result, or None if it failed.

        Parameters
        ----------
        action : str
            What was requested, such as ``"delete topic orders"``.
        future : Future
        about : tuple, optional
            What is missing after a failure, in a few words, and the affected group or partition.
        """
        try:
            return future.result()
        except KafkaException as error:
            self.fail(action, reason(error), about)
            return None

    def wait_for_all(
        self,
        action: str,
        futures: Mapping[_K, Future[Any]],
        shown: Callable[[_K], str] = str,
    ) -> list[_K]:
        """Return the keys whose futures succeed. `wait_for` prints the failures."""
        done = []
        for key, future in futures.items():
            failures = self.failures
            self.wait_for(f"{action} {shown(key)}", future)
            if self.failures == failures:
                done.append(key)
        return done

    def fail(self, action: str, why: str, about: _About = None) -> None:
        """Note that an action failed, and why. `about` is described in `wait_for`."""
        self.failures += 1
        words, lacking = about or (f"cannot {action}", None)
        self.errors.setdefault(lacking, []).append(f"{words}: {why}")
        if self._shown:
            print(printable(f"cykafka: cannot {action}: {why}"), file=sys.stderr)

    def error(self, lacking: object) -> str | None:
        """Return the last failure for a group or partition without a result."""
        return self.errors.get(lacking, [None])[-1]

    def show(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, as_json: bool) -> int:
        """Print the items that succeeded, unless all have failed, and return the exit status."""
        rows = list(rows)
        if rows or not self.failures:
            show(columns, rows, as_json=as_json)
        return self.status

    @property
    def status(self) -> int:
        """1 if an item failed, otherwise 0."""
        return Status.FAILED if self.failures else Status.OK


class Cluster:
    """An administrative client whose brokers have responded.

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
        """Refresh the cluster's metadata.

        Raises
        ------
        Failed
            No broker responds.
        """
        self.metadata = self.brokers.metadata(self.admin)

    def topics(self, patterns: Sequence[str], internal: bool = False) -> list[str]:
        """Return the names of matching topics. An internal topic matches only its own name.

        Parameters
        ----------
        patterns : sequence of str
            Names, or patterns with ``*``, ``?`` and ``[...]``. An empty sequence matches all.
        internal : bool
            Whether patterns also match internal topics.

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
        """Return the partition count per topic."""
        return {name: len(topic.partitions) for name, topic in self.metadata.topics.items()}

    def descriptions(self, names: Sequence[str], outcomes: Outcomes) -> list[TopicDescription]:
        """Return topic descriptions, without topics that fail."""
        if not names:
            return []
        futures = self.admin.describe_topics(
            TopicCollection(list(names)), request_timeout=self.timeout
        )
        answers = (outcomes.wait_for(f"describe topic {name}", futures[name]) for name in names)
        return [answer for answer in answers if answer is not None]

    def offsets(
        self,
        partitions: Iterable[TopicPartition],
        spec: OffsetSpec,
        outcomes: Outcomes,
        *,
        wait: bool = True,
    ) -> dict[TopicPartition, ListOffsetsResultInfo]:
        """Return each partition's offset, without partitions that fail.

        Brokers learn of a new topic or leader with a delay. With `wait`, this retries until then.
        """
        found: dict[TopicPartition, ListOffsetsResultInfo] = {}
        wanted = list(partitions)
        deadline = time.monotonic() + (self.timeout if wait else 0)
        while wanted:
            futures = self.admin.list_offsets(
                dict.fromkeys(wanted, spec), request_timeout=self.timeout
            )
            again = []
            for partition, future in futures.items():
                failure = future.exception()
                if failure is None:
                    found[partition] = future.result()
                elif has_code(failure, *_MOVING) and time.monotonic() < deadline:
                    again.append(partition)
                else:
                    action = f"get an offset of {name_of(partition)}"
                    outcomes.fail(action, reason(failure), ("no end", partition))
            wanted = again
            if again:
                self.admin.poll(_PAUSE_S)
        return dict(sorted(found.items()))

    def ends(
        self, partitions: Sequence[TopicPartition], outcomes: Outcomes
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return each partition's first offset, and the offset after its last record."""
        first = self.offsets(partitions, OffsetSpec.earliest(), outcomes)
        last = self.offsets(first, OffsetSpec.latest(), outcomes)
        return {partition: (first[partition].offset, last[partition].offset) for partition in last}


@contextmanager
def administration(connection: Connection | None) -> Iterator[Cluster]:
    """Open an administrative client whose brokers have responded.

    Raises
    ------
    UsageError
        The connection options are wrong, or the block passes an invalid value for a request, such
        as an empty name.
    Failed
        No broker responds.
    """
    brokers = (connection or Connection()).brokers()
    with brokers.admin() as admin:
        try:
            yield Cluster(brokers, admin)
        except ValueError as error:
            raise UsageError(str(error)) from None


# -- consent


def need_consent(action: str, *, yes: bool) -> None:
    """Reject an action that removes something, unless the user has agreed or can be prompted.

    Parameters
    ----------
    action : str
        Such as ``"delete topics"``.
    yes : bool
        Whether the command line has ``--yes``.

    Raises
    ------
    UsageError
        The command runs without a terminal and without ``--yes``.
    """
    if not yes and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(
            f"refused to {action}: cannot prompt without a terminal; pass --yes to skip the prompt"
        )


def confirm(action: str, losses: Iterable[str], *, yes: bool) -> None:
    """Show the losses on standard error and prompt, unless the command line has ``--yes``.

    Parameters
    ----------
    action : str
        Such as ``"delete 2 topics"``.
    losses : iterable of str
        One line per thing that will be lost; not read with ``--yes``.
    yes : bool
        Whether the command line has ``--yes``.

    Raises
    ------
    UsageError
        The command runs without a terminal and without ``--yes``.
    Failed
        The user does not agree.
    """
    need_consent(action, yes=yes)
    if yes:
        return
    console = Console(stderr=True, highlight=False)
    for line in losses:
        console.print(Text(printable(line)), soft_wrap=True)
    question = Text(printable(action[:1].upper() + action[1:] + "?"))
    try:
        agreed = Confirm.ask(question, console=console, default=False)
    except EOFError:
        agreed = False
    except KeyboardInterrupt:
        print("\ncykafka: nothing was changed", file=sys.stderr)
        raise
    if not agreed:
        raise Failed("nothing was changed")


# -- names


def select(
    patterns: Sequence[str], names: Sequence[str], kind: str, hidden: Iterable[str] = ()
) -> list[str]:
    """Return the matching names, in their order.

    Parameters
    ----------
    patterns : sequence of str
        Names, or patterns with ``*``, ``?`` and ``[...]``. An empty sequence selects all names. If
        a pattern is itself a name, it selects only that name.
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
            raise Failed(f"{kind} {pattern!r} does not exist{did_you_mean(pattern, names)}")
        chosen |= found
    return [name for name in names if name in chosen]


def is_internal(topic: str) -> bool:
    """Whether a name begins with two underscores, like the names of Kafka's own topics."""
    return topic.startswith("__")


def has_code(error: BaseException, *codes: int) -> bool:
    """Whether an exception carries a KafkaError with one of these codes."""
    return isinstance(error, KafkaException) and error.args[0].code() in codes


def word(member: Enum) -> str:
    """Return an enum member's name as the command line writes it, such as ``cluster-action``."""
    return member.name.lower().replace("_", "-")
