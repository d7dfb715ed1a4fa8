"""``cykafka configs``: the configuration of topics, brokers and groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
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
)
from cykafka.cli.cluster.connection import ConnectionOptions
from cykafka.cli.cluster.lag import list_groups, list_other_groups
from cykafka.cli.cluster.profiles import resolve
from cykafka.cli.terminal.failures import EXIT_STATUS_HELP, UsageError, reason
from cykafka.cli.terminal.parameters import Names, plain
from cykafka.cli.terminal.texts import counted
from cykafka.internal.command_lines import pairs

__all__ = [
    "ChangeOptions",
    "configs",
    "describe_all",
    "own_entries",
    "parse_changes",
    "redact",
    "shown",
    "source_name",
]

HIDDEN = "(hidden)"
Kind = Literal["topic", "broker", "group"]

# Changing these properties may make the brokers delete records. The broker properties, which apply
# to all topics that do not set their own, have the prefix log. or log.cleaner.
_DROPS_RECORDS = frozenset(
    {"cleanup.policy", "delete.retention.ms", "local.retention.bytes", "local.retention.ms",
     "max.compaction.lag.ms", "remote.log.delete.on.disable", "retention.bytes", "retention.hours",
     "retention.minutes", "retention.ms"}
)  # fmt: skip

configs = App(
    name="configs",
    help="Show and change the configuration of topics, brokers and groups.",
    help_epilogue=EXIT_STATUS_HELP,
)


@dataclass(frozen=True, kw_only=True)
class ChangeOptions:
    """The options that change properties, with their help."""

    set_: Annotated[tuple[str, ...], plain("-c", metavar="KEY=VALUE")] = ()
    """set a property; the value @FILE or env:NAME keeps a secret out of the command; repeatable"""
    append: Annotated[tuple[str, ...], plain(metavar="KEY=VALUE")] = ()
    """add a value to a property that is a list; repeatable"""
    subtract: Annotated[tuple[str, ...], plain(metavar="KEY=VALUE")] = ()
    """remove a value from a property that is a list; repeatable"""
    delete: Annotated[tuple[str, ...], plain(metavar="KEY")] = ()
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
        name = self.name.removeprefix("log.").removeprefix("cleaner.")
        return removes or name in _DROPS_RECORDS

    def row(self, entry: ConfigEntry | None) -> tuple[str, str, str | None, str | None]:
        """Return property, operation, current value and given value; hide secrets."""
        before = None if entry is None else shown(entry)
        value = HIDDEN if self.is_secret(entry) else self.value
        return (self.name, self.operation.name.lower(), before, value)

    def is_secret(self, entry: ConfigEntry | None) -> bool:
        """Whether the given value may be a secret: the broker says so, or does not know it."""
        return self.value is not None and (entry is None or entry.is_sensitive)


def parse_changes(options: ChangeOptions) -> list[Change]:
    """Return the changes that a command line requests.

    Raises
    ------
    UsageError
        Changes are missing, a text is not ``KEY=VALUE``, or a property has two changes.
    """
    changes = []
    for option, operation, settings in (
        ("--set", AlterConfigOpType.SET, options.set_),
        ("--append", AlterConfigOpType.APPEND, options.append),
        ("--subtract", AlterConfigOpType.SUBTRACT, options.subtract),
    ):
        try:
            changes += [
                Change(key, operation, resolve(key, text)) for key, text in pairs(settings)
            ]
        except ValueError as error:
            raise UsageError(f"{option}: {error}") from None
    changes += [Change(key, AlterConfigOpType.DELETE) for key in options.delete]
    if not changes:
        raise UsageError("nothing to change: use --set, --append, --subtract or --delete")
    name, count = Counter(change.name for change in changes).most_common(1)[0]
    if count > 1:
        raise UsageError(f"{name} has two changes; give it one")
    return changes


def shown(entry: ConfigEntry) -> str | None:
    """Return a property's value; hide a secret."""
    return HIDDEN if entry.is_sensitive else entry.value


def own_entries(entries: dict[str, ConfigEntry]) -> list[ConfigEntry]:
    """Return the properties that differ from their defaults, by name."""
    default = ConfigSource.DEFAULT_CONFIG.value
    return [entry for _, entry in sorted(entries.items()) if _source(entry) != default]


def _source(entry: ConfigEntry) -> int:
    return entry.source.value if isinstance(entry.source, ConfigSource) else entry.source


def source_name(entry: ConfigEntry) -> str:
    """Return a value's source in Kafka's words, such as ``dynamic topic``."""
    names = {source.value: source.name for source in ConfigSource}  # newer brokers may have others
    name = names.get(_source(entry), "UNKNOWN")
    return name.removesuffix("_CONFIG").replace("_", " ").lower()


def describe_all(
    cluster: Cluster, kind: Kind, names: Iterable[str], outcomes: Outcomes
) -> dict[str, dict[str, ConfigEntry]]:
    """Return resources' properties by name, without resources that fail."""
    futures: dict[str, Future[dict[str, ConfigEntry]]] = {}
    for name in names:
        resource = ConfigResource(ResourceType[kind.upper()], name)
        futures[name] = cluster.admin.describe_configs(
            [resource], request_timeout=cluster.timeout
        )[resource]
    entries = {
        name: outcomes.wait_for(f"describe the configuration of {kind} {name}", future)
        for name, future in futures.items()
    }
    return {name: found for name, found in entries.items() if found is not None}


def _resources(
    cluster: Cluster, kind: Kind, names: Sequence[str], outcomes: Outcomes
) -> list[str]:
    """Return the resources that arguments name; without arguments, all of the kind."""
    if kind == "topic":
        return cluster.topics(names)
    if kind == "broker":
        known = [str(number) for number in sorted(cluster.metadata.brokers)]
        return select(names, known, "broker")
    if names and not any(sign in name for name in names for sign in "*?["):
        # A group may have a configuration before its first member.
        return list(dict.fromkeys(names))
    groups = list_groups(cluster, outcomes)
    others = list_other_groups(cluster, outcomes, groups)
    return select(names, sorted([*groups, *others]), "group")


@configs.command
def describe(
    kind: Kind,
    /,
    *names: str,
    all_: Annotated[bool, plain()] = False,
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
        resources = _resources(cluster, kind, names, outcomes)
        found = describe_all(cluster, kind, resources, outcomes)
    rows = []
    for name, entries in found.items():
        for entry in [entries[key] for key in sorted(entries)] if all_ else own_entries(entries):
            hidden = entry.is_sensitive
            value = None if hidden and json else shown(entry)
            rows.append(
                (kind, name, entry.name, value, source_name(entry), entry.is_read_only, hidden)
            )
    return outcomes.show(
        ("type", "name", "config", "value", "source", "read_only", "sensitive"),
        rows,
        as_json=json,
    )


@configs.command
def alter(
    kind: Kind,
    names: Names,
    /,
    *,
    changes: Annotated[ChangeOptions | None, Parameter(name="*")] = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Change properties; the others keep their values.

    The command asks before it removes a value, and before it changes the retention of topics or
    brokers, because the brokers may then delete records.

    Parameters
    ----------
    kind : str
        topic, broker or group
    names : str
        names or patterns of topics and groups, numbers of brokers
    """
    wanted = parse_changes(changes or ChangeOptions())
    loses = any(change.loses for change in wanted)
    if loses and not dry_run:
        need_consent("change the configuration", yes=yes)
    entries = [
        ConfigEntry(change.name, change.value, incremental_operation=change.operation)
        for change in wanted
    ]
    outcomes = Outcomes()
    rows = []
    with administration(connection) as cluster:
        resources = _resources(cluster, kind, names, outcomes)
        before = describe_all(cluster, kind, resources, outcomes)
        if loses and before and not dry_run:
            losses = _lines(kind, before, wanted)
            confirm(f"change the configuration of {counted(len(before), kind)}", losses, yes=yes)
        futures = {}
        for name in before:
            type_ = ResourceType[kind.upper()]
            resource = ConfigResource(type_, name, incremental_configs=entries)
            # Each broker handles only its own properties, so send one request per resource.
            futures[name] = cluster.admin.incremental_alter_configs(
                [resource], request_timeout=cluster.timeout, validate_only=dry_run
            )[resource]
        for name, future in futures.items():
            if (error := future.exception()) is None:
                rows += [
                    (kind, name, *change.row(before[name].get(change.name))) for change in wanted
                ]
            else:
                why = redact(reason(error), wanted, before[name])
                outcomes.fail(f"change the configuration of {kind} {name}", why)
    return outcomes.show(
        ("type", "name", "config", "operation", "before", "value"), rows, as_json=json
    )


def _lines(
    kind: Kind, before: dict[str, dict[str, ConfigEntry]], wanted: list[Change]
) -> Iterator[str]:
    """Yield each resource's changes, for the prompt."""
    for name, entries in before.items():
        for change in wanted:
            key, operation, old, value = change.row(entries.get(change.name))
            setting = key if value is None else f"{key}={value}"
            now = "" if old is None else f", now {old or 'empty'}"
            yield f"{kind} {name}: {operation} {setting}{now}"


def redact(text: str, wanted: list[Change], entries: dict[str, ConfigEntry]) -> str:
    """Return a broker's text without secret values."""
    secrets = {
        change.value
        for change in wanted
        if change.value and change.is_secret(entries.get(change.name))
    }
    for secret in sorted(secrets, key=len, reverse=True):  # one may begin with another
        text = text.replace(secret, HIDDEN)
    return text
