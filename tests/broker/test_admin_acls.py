"""AdminClient and ACLs: create, list and delete."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
from fixture_types import CodeOf, Unique, WaitUntil
from machine import WAIT_S


@pytest.fixture
def lists(admin: Any, wait_until: WaitUntil) -> Any:
    """Wait until the queried broker lists exactly these ACLs for a filter."""

    def wait(acl_filter: Any, *expected: Any) -> None:
        def listed() -> set[Any]:
            return set(admin.describe_acls(acl_filter).result(WAIT_S))

        wait_until(lambda: listed() == set(expected), lambda: None)

    return wait


@pytest.fixture
def rule(api: ModuleType) -> Any:
    """Make an ACL of a topic."""

    def make(topic: str, principal: str = "User:alice", operation: str = "READ") -> Any:
        return api.AclBinding("topic", topic, "literal", principal, "*", operation, "allow")

    return make


@pytest.fixture
def on(api: ModuleType) -> Any:
    """Make a filter for all ACLs of a topic."""

    def make(topic: str | None, operation: str = "ANY", pattern: str = "ANY") -> Any:
        return api.AclBindingFilter("topic", topic, pattern, None, None, operation, "any")

    return make


def test_acls_are_created_and_listed(
    api: ModuleType, admin: Any, topic: str, rule: Any, on: Any, lists: Any
) -> None:
    rules = [rule(topic), rule(topic, "User:bob", "WRITE")]

    futures = admin.create_acls(rules, request_timeout=WAIT_S)

    assert list(futures) == rules
    assert [future.result(WAIT_S) for future in futures.values()] == [None, None]
    # It exists already: no error.
    assert admin.create_acls(rules[:1])[rules[0]].result(WAIT_S) is None
    lists(on(topic), *rules)
    listed = admin.describe_acls(on(topic), request_timeout=WAIT_S).result(WAIT_S)
    assert sorted(listed) == sorted(rules)
    assert {type(acl) for acl in listed} == {api.AclBinding}
    assert admin.describe_acls(on(topic, "WRITE")).result(WAIT_S) == rules[1:]


def test_filter_matches_by_pattern(
    api: ModuleType, admin: Any, topic: str, rule: Any, on: Any, lists: Any
) -> None:
    literal = rule(topic)
    prefixed = api.AclBinding("topic", topic[:-1], "prefixed", "User:eve", "*", "ALL", "deny")
    for future in admin.create_acls([literal, prefixed]).values():
        future.result(WAIT_S)

    lists(on(topic, pattern="LITERAL"), literal)
    lists(on(topic, pattern="MATCH"), literal, prefixed)
    lists(on(topic[:-1], pattern="PREFIXED"), prefixed)


def test_filter_without_matches_returns_no_acls(admin: Any, topic: str, on: Any) -> None:
    assert admin.describe_acls(on(topic)).result(WAIT_S) == []


def test_acls_are_deleted_filter_by_filter(
    admin: Any, topic: str, unique: Unique, rule: Any, on: Any, lists: Any
) -> None:
    read, write = rule(topic), rule(topic, "User:bob", "WRITE")
    for future in admin.create_acls([read, write]).values():
        future.result(WAIT_S)
    lists(on(topic), read, write)
    reads, elsewhere = on(topic, "READ"), on(unique("missing"))

    futures = admin.delete_acls([reads, elsewhere], request_timeout=WAIT_S)

    assert list(futures) == [reads, elsewhere]
    assert futures[reads].result(WAIT_S) == [read]
    assert futures[elsewhere].result(WAIT_S) == []
    lists(on(topic), write)


def test_acls_fail_one_by_one(
    kafka: ModuleType, api: ModuleType, admin: Any, topic: str, rule: Any, code_of: CodeOf
) -> None:
    good = rule(topic)
    # The broker requires a type in the principal.
    bad = api.AclBinding("topic", topic, "literal", "nobody", "*", "read", "allow")

    futures = admin.create_acls([good, bad])

    assert futures[good].result(WAIT_S) is None
    assert code_of(futures[bad]) == kafka.KafkaError.INVALID_REQUEST


def test_acls_apply_to_groups_and_the_cluster(
    api: ModuleType, admin: Any, unique: Unique, lists: Any
) -> None:
    group = api.AclBinding("group", unique("g"), "literal", "User:a", "1.2.3.4", "read", "deny")
    cluster = api.AclBinding(
        "broker",
        "kafka-cluster",
        "literal",
        f"User:{unique('u')}",
        "*",
        "idempotent_write",
        "allow",
    )
    writer = api.AclBinding(
        api.ResourceType.TRANSACTIONAL_ID, unique("t"), "literal", "User:a", "*", "write", "allow"
    )

    for future in admin.create_acls([group, cluster, writer]).values():
        future.result(WAIT_S)

    for made in (group, cluster, writer):
        same = api.AclBindingFilter(*made._to_tuple())
        lists(same, made)
        assert admin.delete_acls([same])[same].result(WAIT_S) == [made]
