"""``cykafka configs``: the configuration of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import App, Parameter

from cykafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ResourceType,
)
from cykafka.cli.administration import (
    Cluster,
    DryRun,
    Json,
    Outcomes,
    Yes,
    administration,
    count_of,
    select,
)
from cykafka.cli.confirm import confirm, need_consent
from cykafka.cli.connection import ConnectionOptions
from cykafka.cli.failures import EXIT_STATUS_HELP, UsageError, reason
from cykafka.cli.profiles import resolve
from cykafka.internal import pairs

__all__ = ["ChangeOptions", "Changes", "apply", "configs", "own_entries", "shown"]

HIDDEN = "(hidden)"
Kind = Literal["topic", "broker", "group"]

# A lower value of these properties makes the brokers delete records.
_DROPS_RECORDS = frozenset(
    {"cleanup.policy", "local.retention.bytes", "local.retention.ms", "max.compaction.lag.ms",
     "retention.bytes", "retention.ms"}
)  # fmt: skip

configs = App(
    name="configs",
    help="Show and change the configuration of topics, brokers and groups.",
    help_epilogue=EXIT_STATUS_HELP,
)


@dataclass(frozen=True, kw_only=True)
class ChangeOptions:
    """The options that change properties, with their help."""

    set_: Annotated[
        tuple[str, ...],
        Parameter(name=["--set", "-c"], negative=(), metavar="KEY=VALUE", show_default=False),
    ] = ()
    """set a property; the value @FILE or env:NAME keeps a secret out of the command; repeatable"""
    append: Annotated[
        tuple[str, ...], Parameter(negative=(), metavar="KEY=VALUE", show_default=False)
    ] = ()
    """add a value to a property that is a list; repeatable"""
    subtract: Annotated[
        tuple[str, ...], Parameter(negative=(), metavar="KEY=VALUE", show_default=False)
    ] = ()
    """remove a value from a property that is a list; repeatable"""
    delete: Annotated[
        tuple[str, ...], Parameter(negative=(), metavar="KEY", show_default=False)
    ] = ()
    """remove a property, so that it has its default again; repeatable"""


@dataclass(frozen=True)
class Change:
    """A change of one property; `value` is None if the change deletes it."""

    name: str
    operation: AlterConfigOpType
    value: str | None = None

    @property
    def loses(self) -> bool:
        """Whether the change removes a value, or may make the brokers delete records."""
        removes = self.operation in (AlterConfigOpType.DELETE, AlterConfigOpType.SUBTRACT)
        return removes or self.name in _DROPS_RECORDS


class Changes:
    """The changes of properties that a command line asks for.

    Parameters
    ----------
    options : ChangeOptions

    Raises
    ------
    UsageError
        A text is not ``KEY=VALUE``, or a property has two changes.
    """

    def __init__(self, options: ChangeOptions | None) -> None:
        options = options or ChangeOptions()
        self.all: list[Change] = []
        for option, operation, texts in (
            ("--set", AlterConfigOpType.SET, options.set_),
            ("--append", AlterConfigOpType.APPEND, options.append),
            ("--subtract", AlterConfigOpType.SUBTRACT, options.subtract),
        ):
            try:
                settings = list(pairs(texts))
            except ValueError as error:
                raise UsageError(f"{option}: {error}") from None
            self.all += [Change(key, operation, resolve(key, text)) for key, text in settings]
        self.all += [Change(key, AlterConfigOpType.DELETE) for key in options.delete]
        names = [change.name for change in self.all]
        for name in names:
            if names.count(name) > 1:
                raise UsageError(f"{name} has two changes; give it one")

    def __bool__(self) -> bool:
        return bool(self.all)

    @property
    def loses(self) -> bool:
        """Whether a change removes something."""
        return any(change.loses for change in self.all)

    def entries(self) -> list[ConfigEntry]:
        """The changes as a request has them."""
        return [
            ConfigEntry(change.name, change.value, incremental_operation=change.operation)
            for change in self.all
        ]

    def plan(
        self, current: dict[str, ConfigEntry]
    ) -> list[tuple[str, str, str | None, str | None]]:
        """Rows of property, operation, present value and given value; secrets are hidden."""
        rows = []
        for change in self.all:
            entry = current.get(change.name)
            new = change.value
            # The broker does not say whether a property is a secret if it does not know it.
            if new is not None and (entry is None or entry.is_sensitive):
                new = HIDDEN
            old = None if entry is None else shown(entry)
            rows.append((change.name, change.operation.name.lower(), old, new))
        return rows

    def redacted(self, text: str, current: dict[str, ConfigEntry]) -> str:
        """A broker's text without the values of secrets."""
        for change, row in zip(self.all, self.plan(current), strict=True):
            if row[3] == HIDDEN and change.value:
                text = text.replace(change.value, HIDDEN)
        return text


def shown(entry: ConfigEntry) -> str | None:
    """The value of a property; a secret is hidden."""
    return HIDDEN if entry.is_sensitive else entry.value


def own_entries(entries: dict[str, ConfigEntry]) -> list[ConfigEntry]:
    """The properties that are not at their default, by name."""
    default = ConfigSource.DEFAULT_CONFIG.value
    return [entry for _, entry in sorted(entries.items()) if _source(entry) != default]


def _source(entry: ConfigEntry) -> int:
    return entry.source.value if isinstance(entry.source, ConfigSource) else entry.source


def _source_name(entry: ConfigEntry) -> str:
    """The source of a value in Kafka's words, such as ``dynamic topic``."""
    return ConfigSource(_source(entry)).name.removesuffix("_CONFIG").replace("_", " ").lower()


def apply(
    cluster: Cluster,
    kind: Kind,
    names: Sequence[str],
    changes: Changes,
    outcomes: Outcomes,
    *,
    as_json: bool,
    dry_run: bool,
    yes: bool,
) -> None:
    """Ask if something is lost, change the configuration of resources, and print the changes.

    Parameters
    ----------
    kind : {"topic", "broker", "group"}
    names : sequence of str
    changes : Changes
    outcomes : Outcomes
        Gets the failures.
    as_json, dry_run, yes : bool
        The options of the command.

    Raises
    ------
    Failed
        The user does not agree.
    """
    before = describe_all(cluster, kind, names, outcomes)
    plans = {name: changes.plan(entries) for name, entries in before.items()}
    if changes.loses and not dry_run and plans:
        losses = [
            f"{kind} {name}: {operation} {key}: {old or 'no value'} -> {new or 'the default'}"
            for name, rows in plans.items()
            for key, operation, old, new in rows
        ]
        confirm(f"change the configuration of {count_of(len(plans), kind)}", losses, yes=yes)
    asked = {}
    for name in before:
        resource = ConfigResource(_restype(kind), name, incremental_configs=changes.entries())
        # Each broker answers for itself, so each resource is a request.
        asked[name] = cluster.admin.incremental_alter_configs(
            [resource], request_timeout=cluster.timeout, validate_only=dry_run
        )[resource]
    rows = []
    for name, future in asked.items():
        if (error := future.exception()) is not None:
            why = changes.redacted(reason(error), before[name])
            outcomes.fail(f"change the configuration of {kind} {name}", why)
            continue
        rows += [(kind, name, *row) for row in plans[name]]
    outcomes.show(("type", "name", "config", "operation", "old", "new"), rows, as_json=as_json)


def describe_all(
    cluster: Cluster, kind: Kind, names: Iterable[str], outcomes: Outcomes
) -> dict[str, dict[str, ConfigEntry]]:
    """The properties of resources by name; a resource that fails is left out."""
    futures: dict[str, Future[dict[str, ConfigEntry]]] = {}
    for name in names:
        resource = ConfigResource(_restype(kind), name)
        futures[name] = cluster.admin.describe_configs(
            [resource], request_timeout=cluster.timeout
        )[resource]
    entries = {
        name: outcomes.of(f"describe the configuration of {kind} {name}", future)
        for name, future in futures.items()
    }
    return {name: each for name, each in entries.items() if each is not None}


def _restype(kind: Kind) -> ResourceType:
    return ResourceType[kind.upper()]


def _resources(cluster: Cluster, kind: Kind, names: Sequence[str]) -> list[str]:
    """The resources that arguments name; all of the kind if there are none."""
    if kind == "topic":
        return cluster.topics(names)
    if kind == "broker":
        known = [str(number) for number in sorted(cluster.metadata.brokers)]
        return select(names, known, "broker")
    if names and not any(sign in name for name in names for sign in "*?["):
        return list(
            dict.fromkeys(names)
        )  # a group may have a configuration before its first member
    listed = cluster.admin.list_consumer_groups(request_timeout=cluster.timeout).result()
    return select(names, sorted(each.group_id for each in listed.valid or ()), "group")


@configs.command
def describe(
    kind: Kind,
    /,
    *names: str,
    all_: Annotated[bool, Parameter(name="--all", negative=(), show_default=False)] = False,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Show the properties that differ from the default, or all of them.

    Values of secrets are hidden. The source says where a value comes from: dynamic topic, dynamic
    broker, dynamic default broker, static broker, group, or default.

    Parameters
    ----------
    kind : str
        topic, broker or group
    names : str
        names or patterns of topics and groups, numbers of brokers (default: all)
    all_ : bool
        also show the properties that have their default
    """
    outcomes = Outcomes()
    with administration(connection) as cluster:
        found = describe_all(cluster, kind, _resources(cluster, kind, names), outcomes)
    rows = []
    for name, entries in found.items():
        for entry in [entries[key] for key in sorted(entries)] if all_ else own_entries(entries):
            hidden = entry.is_sensitive
            value = None if hidden and json else shown(entry)
            rows.append(
                (kind, name, entry.name, value, _source_name(entry), entry.is_read_only, hidden)
            )
    outcomes.show(
        ("type", "name", "config", "value", "source", "read_only", "sensitive"),
        rows,
        as_json=json,
    )
    return outcomes.status


@configs.command
def alter(
    kind: Kind,
    name: str,
    /,
    *names: str,
    changes: Annotated[ChangeOptions | None, Parameter(name="*")] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Change properties; the others keep their values.

    The command asks before it removes a value, and before it changes the retention of a topic,
    because the brokers may then delete records.

    Parameters
    ----------
    kind : str
        topic, broker or group
    name, names : str
        names or patterns of topics and groups, numbers of brokers
    """
    wanted = Changes(changes)
    if not wanted:
        raise UsageError("nothing to change: use --set, --append, --subtract or --delete")
    if wanted.loses and not dry_run:
        need_consent("change the configuration", yes=yes)
    outcomes = Outcomes()
    with administration(connection) as cluster:
        apply(
            cluster, kind, _resources(cluster, kind, (name, *names)), wanted, outcomes,
            as_json=json, dry_run=dry_run, yes=yes,
        )  # fmt: skip
    return outcomes.status
