"""The rules and filters that the options of ``cykafka acls`` name."""

from __future__ import annotations

from typing import Any

import pytest

from cykafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from cykafka.cli.commands.acls import Filter, Resources, bindings, filters
from cykafka.cli.terminal.failures import UsageError

pytestmark = pytest.mark.ours

ORDERS = Resources(topic=("orders",))


def rule(kind: str, name: str, operation: str, pattern: str = "literal") -> AclBinding:
    return AclBinding(kind, name, pattern, "User:a", "*", operation, "allow")


def test_filter_without_options_selects_all_rules() -> None:
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip

    assert filters(None, None) == filters(Resources(), Filter()) == [everything]


def test_filters_combine_resources_principals_and_operations() -> None:
    found = filters(
        Resources(topic=("orders",), group=("billing",), cluster=True),
        Filter(principal=("User:a", "User:b"), operation=("alter-configs",), permission="deny"),
    )

    assert len(found) == 6
    assert found[-1] == AclBindingFilter(
        "broker", "kafka-cluster", "any", "User:b", None, "alter_configs", "deny"
    )


def test_bindings_combine_resources_principals_hosts_and_operations() -> None:
    rules = bindings(
        Resources(topic=("a", "b")), ["User:x", "User:y"], ["read", "write"], hosts=["h1", "h2"]
    )

    assert len(set(rules)) == 16
    assert rules[0] == AclBinding("topic", "a", "literal", "User:x", "h1", "read", "allow")


def test_producer_and_consumer_add_the_operations_that_they_need() -> None:
    resources = Resources(topic=("t",), group=("g",), transactional_id=("i",))

    assert set(bindings(resources, ["User:a"], [], producer=True, consumer=True)) == {
        *(rule("topic", "t", item) for item in ("write", "describe", "create", "read")),
        rule("group", "g", "read"),
        *(rule("transactional_id", "i", item) for item in ("write", "describe")),
    }


def test_prefix_does_not_apply_to_the_cluster() -> None:
    rules = bindings(Resources(topic=("t",), cluster=True), ["User:a"], ["alter"], prefixed=True)

    assert rules == [
        rule("topic", "t", "alter", "prefixed"),
        rule("broker", "kafka-cluster", "alter"),
    ]


@pytest.mark.parametrize(
    ("resources", "principals", "options", "words"),
    [
        (None, ["User:a"], {}, "name a resource"),
        (ORDERS, [], {}, "name a principal"),
        (ORDERS, ["alice"], {}, "expected TYPE:NAME"),
        (ORDERS, ["User:"], {}, "expected TYPE:NAME"),
        (ORDERS, ["User:a"], {"operations": []}, "name an operation"),
        (ORDERS, ["User:a"], {"consumer": True}, "--consumer needs --topic and --group"),
        (Resources(group=("g",)), ["User:a"], {"producer": True}, "--producer needs --topic"),
        (ORDERS, ["User:a"], {"producer": True, "deny": True}, "remove --deny"),
        (Resources(topic=("*",)), ["User:a"], {"prefixed": True}, "'\\*' is not a prefix"),
    ],
)
def test_rules_that_lack_something_are_refused(
    resources: Resources | None, principals: list[str], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        bindings(resources, principals, **{"operations": ["read"], **options})


def test_filter_of_a_principal_without_its_type_is_refused() -> None:
    with pytest.raises(UsageError, match="expected TYPE:NAME"):
        filters(None, Filter(principal=("alice",)))
