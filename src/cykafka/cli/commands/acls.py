"""``cykafka acls``: list, create and delete access rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import App, Parameter

from cykafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
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
    word,
)
from cykafka.cli.cluster.connection import ConnectionOptions
from cykafka.cli.terminal.failures import EXIT_STATUS_HELP, UsageError
from cykafka.cli.terminal.parameters import Flag, plain
from cykafka.cli.terminal.texts import counted

__all__ = ["acls", "bindings", "filters"]

_CLUSTER = "kafka-cluster"

acls = App(
    name="acls",
    help="List, create and delete access rules (ACLs).",
    help_epilogue=EXIT_STATUS_HELP,
)

_Operation = Literal[
    "all", "read", "write", "create", "delete", "alter", "describe", "cluster-action",
    "describe-configs", "alter-configs", "idempotent-write",
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The options that name resources, with their help."""

    topic: Annotated[tuple[str, ...], plain(metavar="NAME")] = ()
    """a topic; with --pattern prefixed a prefix of topics; '*' stands for all; repeatable"""
    group: Annotated[tuple[str, ...], plain(metavar="NAME")] = ()
    """a consumer group; repeatable"""
    transactional_id: Annotated[tuple[str, ...], plain(metavar="NAME")] = ()
    """a transactional id; repeatable"""
    cluster: Flag = False
    """the cluster itself"""

    def all(self) -> list[tuple[ResourceType, str]]:
        """Return each resource's type and name."""
        return [
            *((ResourceType.TOPIC, name) for name in self.topic),
            *((ResourceType.GROUP, name) for name in self.group),
            *((ResourceType.TRANSACTIONAL_ID, name) for name in self.transactional_id),
            *([(ResourceType.BROKER, _CLUSTER)] if self.cluster else []),
        ]


@dataclass(frozen=True, kw_only=True)
class Filter:
    """The options that select rules, with their help."""

    pattern: Literal["any", "match", "literal", "prefixed"] = "any"
    """match also selects the prefixes and the '*' that apply to a name"""
    principal: Annotated[tuple[str, ...], plain(metavar="TYPE:NAME")] = ()
    """the rules of a principal, such as User:alice; repeatable"""
    host: Annotated[tuple[str, ...], plain(metavar="HOST")] = ()
    """the rules of a host; repeatable"""
    operation: Annotated[tuple[_Operation, ...], plain(metavar="OPERATION")] = ()
    """the rules of an operation; repeatable"""
    permission: Literal["any", "allow", "deny"] = "any"
    """the rules that allow, or those that deny"""


def filters(resources: Resources | None, chosen: Filter | None) -> list[AclBindingFilter]:
    """Return the options' filters: one per combination, or without options one for all rules.

    Parameters
    ----------
    resources : Resources or None
    chosen : Filter or None

    Raises
    ------
    UsageError
        A principal is not ``TYPE:NAME``.
    """
    named: list[tuple[ResourceType, str | None]] = [*(resources or Resources()).all()]
    chosen = chosen or Filter()
    _check_principals(chosen.principal)
    return [
        AclBindingFilter(
            kind, name, ResourcePatternType[chosen.pattern.upper()], principal, host,
            _operation(operation), AclPermissionType[chosen.permission.upper()],
        )
        for kind, name in named or [(ResourceType.ANY, None)]
        for principal in chosen.principal or [None]
        for host in chosen.host or [None]
        for operation in chosen.operation or ["any"]
    ]  # fmt: skip


def bindings(
    resources: Resources | None,
    principals: Sequence[str],
    operations: Sequence[str],
    *,
    hosts: Sequence[str] = (),
    prefixed: bool = False,
    deny: bool = False,
    producer: bool = False,
    consumer: bool = False,
) -> list[AclBinding]:
    """Return the options' rules: one per combination.

    Parameters
    ----------
    resources : Resources or None
    principals, operations, hosts : sequence of str
        Empty `hosts` mean all hosts.
    prefixed : bool
        Whether the names are prefixes.
    deny : bool
        Whether the rules deny access.
    producer, consumer : bool
        Add the operations that a producer or a consumer needs.

    Raises
    ------
    UsageError
        The options lack a resource, a principal or an operation.
    """
    named = (resources or Resources()).all()
    kinds = {kind for kind, _ in named}
    if not named:
        raise UsageError("name a resource: --topic, --group, --transactional-id or --cluster")
    if not principals:
        raise UsageError("name a principal, such as --principal User:alice")
    _check_principals(principals)
    if not (operations or producer or consumer):
        raise UsageError("name an operation: --operation, --producer or --consumer")
    if deny and (producer or consumer):
        raise UsageError("--producer and --consumer allow operations; remove --deny")
    if producer and ResourceType.TOPIC not in kinds:
        raise UsageError("--producer needs --topic")
    if consumer and not {ResourceType.TOPIC, ResourceType.GROUP} <= kinds:
        raise UsageError("--consumer needs --topic and --group")
    if prefixed and any(name == "*" for _, name in named):
        raise UsageError("'*' is not a prefix: remove --pattern prefixed, or name a prefix")
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
    rules = [
        AclBinding(
            kind, name,
            ResourcePatternType.LITERAL if kind is ResourceType.BROKER else pattern,
            principal, host, operation, permission,
        )
        for kind, name in named
        for principal in principals
        for host in hosts or ["*"]
        for operation in _operations(kind, operations, producer, consumer)
    ]  # fmt: skip
    return list(dict.fromkeys(rules))


def _check_principals(principals: Sequence[str]) -> None:
    for principal in principals:
        if not all(principal.partition(":")):
            raise UsageError(
                f"--principal: expected TYPE:NAME such as User:alice, got {principal!r}"
            )


def _operations(
    kind: ResourceType, given: Sequence[str], producer: bool, consumer: bool
) -> list[AclOperation]:
    operations = [_operation(name) for name in given]
    if kind is ResourceType.TOPIC:
        if producer:
            operations += [AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE]
        if consumer:
            operations += [AclOperation.READ, AclOperation.DESCRIBE]
    if kind is ResourceType.GROUP and consumer:
        operations.append(AclOperation.READ)
    if kind is ResourceType.TRANSACTIONAL_ID and producer:
        operations += [AclOperation.WRITE, AclOperation.DESCRIBE]
    return operations


def _operation(name: str) -> AclOperation:
    return AclOperation[name.replace("-", "_").upper()]


_COLUMNS = ("type", "name", "pattern", "principal", "host", "operation", "permission")


def _row(rule: AclBinding) -> tuple[str | None, ...]:
    kind = "cluster" if rule.restype is ResourceType.BROKER else word(rule.restype)
    return (
        kind,
        rule.name,
        word(rule.resource_pattern_type),
        rule.principal,
        rule.host,
        word(rule.operation),
        word(rule.permission_type),
    )


def _line(rule: AclBinding) -> str:
    kind, name, pattern, principal, host, operation, permission = _row(rule)
    return f"{permission} {principal} from {host} to {operation} {pattern} {kind} {name}"


@acls.command(name="list")
def list_(
    *,
    resources: Annotated[Resources | None, Parameter(name="*")] = None,
    chosen: Annotated[Filter | None, Parameter(name="*")] = None,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """List the rules that the options select; all rules without options."""
    wanted = filters(resources, chosen)
    outcomes = Outcomes()
    with administration(connection) as cluster:
        rules = _find_rules(cluster, wanted, outcomes)
    return outcomes.show(_COLUMNS, map(_row, rules), as_json=json)


def _find_rules(
    cluster: Cluster, wanted: Sequence[AclBindingFilter], outcomes: Outcomes
) -> list[AclBinding]:
    """Return the rules that filters select, sorted and unique."""
    futures = [
        cluster.admin.describe_acls(selection, request_timeout=cluster.timeout)
        for selection in wanted
    ]
    return sorted(
        {rule for future in futures for rule in outcomes.wait_for("list rules", future) or ()}
    )


@acls.command
def create(
    *,
    resources: Annotated[Resources | None, Parameter(name="*")] = None,
    pattern: Literal["literal", "prefixed"] = "literal",
    principal: Annotated[tuple[str, ...], plain(metavar="TYPE:NAME")] = (),
    operation: Annotated[tuple[_Operation, ...], plain(metavar="OPERATION")] = (),
    producer: Flag = False,
    consumer: Flag = False,
    host: Annotated[tuple[str, ...], plain(metavar="HOST")] = (),
    deny: Flag = False,
    dry_run: DryRun = False,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Create a rule for each combination of resource, principal, host and operation.

    Creating an existing rule again is not an error.

    Parameters
    ----------
    pattern : str
        prefixed: the names are prefixes
    principal : list of str
        who, such as User:alice or 'User:*'; repeatable
    operation : list of str
        an operation; repeatable
    producer : bool
        write, describe and create on topics; write and describe on transactional ids
    consumer : bool
        read and describe on topics, and read on groups
    host : list of str
        the host of the client (default: all hosts); repeatable
    deny : bool
        deny instead of allow
    """
    rules = bindings(
        resources, principal, operation,
        hosts=host, prefixed=pattern == "prefixed", deny=deny, producer=producer,
        consumer=consumer,
    )  # fmt: skip
    outcomes = Outcomes()
    with administration(connection) as cluster:
        if not dry_run:
            futures = cluster.admin.create_acls(rules, request_timeout=cluster.timeout)
            rules = outcomes.wait_for_all("create the rule:", futures, _line)
    return outcomes.show(_COLUMNS, map(_row, rules), as_json=json)


@acls.command
def delete(
    *,
    resources: Annotated[Resources | None, Parameter(name="*")] = None,
    chosen: Annotated[Filter | None, Parameter(name="*")] = None,
    all_: Annotated[bool, plain()] = False,
    yes: Yes = False,
    dry_run: DryRun = False,
    json: Json = False,
    connection: ConnectionOptions = None,
) -> int:
    """Delete the rules that the options select.

    Parameters
    ----------
    all_ : bool
        delete all rules of the cluster
    """
    wanted = filters(resources, chosen)
    everything = wanted == filters(None, None)
    if everything != all_:
        raise UsageError(
            "--all cannot be combined with options that select rules"
            if all_
            else "select rules by --topic, --principal and others; --all deletes all rules"
        )
    need_consent("delete rules", yes=yes or dry_run)
    outcomes = Outcomes()
    with administration(connection) as cluster:
        rules = _find_rules(cluster, wanted, outcomes)
        if rules and not dry_run:
            confirm(f"delete {counted(len(rules), 'rule')}", map(_line, rules), yes=yes)
            rules = _delete_rules(cluster, rules, outcomes)
    return outcomes.show(_COLUMNS, map(_row, rules), as_json=json)


def _delete_rules(
    cluster: Cluster, rules: Sequence[AclBinding], outcomes: Outcomes
) -> list[AclBinding]:
    """Delete exactly these rules, even if more match by now; return the deleted rules."""
    exact = {}
    for rule in rules:
        try:
            only = AclBindingFilter(
                rule.restype, rule.name, rule.resource_pattern_type, rule.principal, rule.host,
                rule.operation, rule.permission_type,
            )  # fmt: skip
        except ValueError as error:  # a newer broker may have other kinds of rules
            outcomes.fail(f"delete the rule: {_line(rule)}", str(error))
        else:
            exact[only] = rule
    if not exact:
        return []
    futures = cluster.admin.delete_acls(list(exact), request_timeout=cluster.timeout)
    answers = [
        outcomes.wait_for(f"delete the rule: {_line(exact[selection])}", future)
        for selection, future in futures.items()
    ]
    return sorted({rule for answer in answers for rule in answer or ()})
