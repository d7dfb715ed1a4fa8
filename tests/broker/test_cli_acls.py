"""``cykafka acls`` on a real broker with an authorizer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from command_line import Run, runner
from fixture_types import Unique, WaitUntil

from cykafka import Producer
from cykafka.testing import KafkaCluster

pytestmark = pytest.mark.ours


@pytest.fixture
def rules(run_cli: Run, wait_until: WaitUntil) -> Callable[..., None]:
    """Wait until the listed rules, as (name, operation, permission), are exactly these."""

    def wait(options: tuple[object, ...], *expected: tuple[str, str, str]) -> None:
        def listed() -> list[tuple[str, str, str]]:
            rows = run_cli("acls", "list", *options, "--json").rows
            return sorted((row["name"], row["operation"], row["permission"]) for row in rows)

        wait_until(lambda: listed() == sorted(expected))

    return wait


def test_rules_are_created_listed_and_deleted(
    run_cli: Run, unique: Unique, rules: Callable[..., None]
) -> None:
    name, user = unique("orders"), f"User:{unique('alice')}"
    everything = ("--principal", user)

    command = ("acls", "create", "--topic", name, *everything, "--operation", "read",
               "--operation", "write")  # fmt: skip
    planned = run_cli(*command, "--dry-run", "--json").rows
    rules(everything)
    created = run_cli(*command, "--json").rows
    assert created == planned
    assert created[0] == {
        "type": "topic",
        "name": name,
        "pattern": "literal",
        "principal": user,
        "host": "*",
        "operation": "read",
        "permission": "allow",
    }
    run_cli("acls", "create", "--topic", name, *everything, "--operation", "delete", "--deny")
    rules(everything, (name, "read", "allow"), (name, "write", "allow"), (name, "delete", "deny"))
    rules((*everything, "--permission", "deny"), (name, "delete", "deny"))
    rules(("--topic", name, "--operation", "write"), (name, "write", "allow"))

    command = ("acls", "delete", *everything, "--operation", "write", "--json")
    assert (
        run_cli(*command, "--dry-run").rows
        == run_cli(*command, "--yes").rows
        == [{**created[0], "operation": "write"}]
    )
    rules(everything, (name, "read", "allow"), (name, "delete", "deny"))
    assert run_cli(*command, "--yes").rows == []
    assert len(run_cli("acls", "delete", *everything, "--yes", "--json").rows) == 2
    rules(everything)


def test_rules_with_prefixes_match_names(
    run_cli: Run, unique: Unique, rules: Callable[..., None]
) -> None:
    prefix, user = unique("team"), f"User:{unique('bob')}"
    run_cli("acls", "create", "--topic", prefix, "--group", prefix, "--pattern", "prefixed",
            "--consumer", "--principal", user)  # fmt: skip

    of_topic = [(prefix, "read", "allow"), (prefix, "describe", "allow")]
    rules(("--principal", user), *of_topic, (prefix, "read", "allow"))
    rules(("--topic", f"{prefix}-orders", "--pattern", "match", "--principal", user), *of_topic)
    rules(("--topic", f"{prefix}-orders", "--pattern", "literal"))
    assert len(run_cli("acls", "delete", "--principal", user, "-y", "--json").rows) == 3


def test_rule_decides_what_a_user_may_do(
    secured: KafkaCluster, capsys: pytest.CaptureFixture[str], own_profiles: None,
    unique: Unique, wait_until: WaitUntil,
) -> None:  # fmt: skip
    admin = runner(secured.bootstrap_servers, capsys)
    login = secured.client_config("sasl_plain", "mallory")
    servers = str(login.pop("bootstrap.servers"))
    mallory = runner(servers, capsys)
    options = [word for key, text in login.items() for word in ("-X", f"{key}={text}")]
    name = unique("closed")
    secured.create_topic(name, 1)
    admin("acls", "create", "--topic", name, "--principal", "User:alice", "--operation", "all")

    # Without a right to describe the topic, brokers hide it.
    def hidden() -> bool:
        return bool(mallory("topics", "describe", name, *options, status=1).error)

    wait_until(hidden)
    admin("acls", "create", "--topic", name, "--principal", "User:mallory", "--consumer",
          "--group", name)  # fmt: skip
    wait_until(lambda: name in admin("acls", "list", "--topic", name, "--operation", "read").out)
    delivery = secured.client_config("sasl_plain", "alice")
    with Producer({**delivery}) as producer:
        producer.publish(name, [b"x"]).wait()
    command = ("topics", "delete-records", name, "--before", "end", "--yes", *options)
    denied = mallory(*command, status=1)
    assert f"cannot delete records of {name}[0]" in denied.error
    assert "authorization failed" in denied.error.lower()
    assert str(login["sasl.password"]) not in denied.error
    admin("acls", "delete", "--topic", name, "--group", name, "--yes")
