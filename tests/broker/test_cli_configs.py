"""``cykafka configs`` on a real broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from command_line import Run
from fixture_types import Unique, WaitUntil

pytestmark = pytest.mark.ours


@pytest.fixture
def value(run_cli: Run) -> Callable[[str, str, str], Any]:
    """The value and the source of a property; None if it has its default."""

    def value(kind: str, name: str, config: str) -> Any:
        rows = run_cli("configs", "describe", kind, name, "--json").rows
        found = [row for row in rows if row["config"] == config]
        return (found[0]["value"], found[0]["source"]) if found else None

    return value


def test_topic_properties_are_set_appended_subtracted_and_deleted(
    run_cli: Run, topic: str, value: Callable[..., Any], wait_until: WaitUntil
) -> None:
    def policy(expected: str | None) -> None:
        source = "dynamic topic"
        wanted = None if expected is None else (expected, source)
        wait_until(lambda: value("topic", topic, "cleanup.policy") == wanted)

    change = ("configs", "alter", "topic", topic)
    rows = run_cli(*change, "--append", "cleanup.policy=compact", "--dry-run", "--json").rows
    assert rows == [
        {
            "type": "topic",
            "name": topic,
            "config": "cleanup.policy",
            "operation": "append",
            "before": "delete",
            "value": "compact",
        }
    ]
    policy(None)
    run_cli(*change, "--append", "cleanup.policy=compact", "--yes")
    policy("delete,compact")
    run_cli(*change, "--subtract", "cleanup.policy=delete", "--yes")
    policy("compact")
    run_cli(*change, "--delete", "cleanup.policy", "--yes")
    policy(None)
    run_cli(*change, "--set", "segment.ms=7000", "--set", "max.message.bytes=2000")
    wait_until(lambda: value("topic", topic, "segment.ms") == ("7000", "dynamic topic"))
    assert value("topic", topic, "max.message.bytes") == ("2000", "dynamic topic")


def test_wrong_value_is_an_error_of_the_broker(run_cli: Run, topic: str) -> None:
    wrong = run_cli("configs", "alter", "topic", topic, "--set", "segment.ms=soon", status=1)

    assert wrong.out == ""
    assert f"cannot change the configuration of topic {topic}: " in wrong.error
    assert "segment.ms" in wrong.error


def test_broker_properties_are_shown_with_their_source(
    run_cli: Run, value: Callable[..., Any], wait_until: WaitUntil
) -> None:
    rows = run_cli("configs", "describe", "broker", "--json").rows
    number = rows[0]["name"]
    everything = run_cli("configs", "describe", "broker", number, "--all", "--json").rows

    assert {row["source"] for row in rows} >= {"static broker"}
    assert "default" not in {row["source"] for row in rows}
    assert len(everything) > len(rows)
    assert any(row["read_only"] for row in rows)
    (password,) = (row for row in everything if row["config"] == "ssl.keystore.password")
    assert (password["value"], password["sensitive"]) == (None, True)
    change = ("configs", "alter", "broker", number)
    run_cli(*change, "--set", "log.cleaner.io.buffer.load.factor=0.8")
    name = "log.cleaner.io.buffer.load.factor"
    wait_until(lambda: value("broker", number, name) == ("0.8", "dynamic broker"))
    run_cli(*change, "--delete", name, "--yes")
    wait_until(lambda: value("broker", number, name) is None)


def test_secret_is_in_no_output(
    run_cli: Run, monkeypatch: pytest.MonkeyPatch, value: Callable[..., Any]
) -> None:
    monkeypatch.setenv("SECRET", "geheim7")
    number = run_cli("configs", "describe", "broker", "--json").rows[0]["name"]
    setting = ("--set", "listener.name.plaintext.ssl.keystore.password=env:SECRET")
    command = ("configs", "alter", "broker", number, *setting)

    texts = [run_cli(*command, "--dry-run"), run_cli(*command)]
    undone = run_cli("configs", "alter", "broker", number, "--delete",
                     "listener.name.plaintext.ssl.keystore.password", "--yes")  # fmt: skip

    for ran in (*texts, undone):
        assert "geheim7" not in ran.out + ran.error
    assert "(hidden)" in texts[0].out


def test_group_properties_are_changed(
    run_cli: Run, unique: Unique, value: Callable[..., Any], wait_until: WaitUntil
) -> None:
    group, name = unique("tuned"), "consumer.session.timeout.ms"
    run_cli("configs", "alter", "group", group, "--set", f"{name}=50000")
    wait_until(lambda: value("group", group, name) == ("50000", "group"))
    run_cli("configs", "alter", "group", group, "--delete", name, "--yes")
    wait_until(lambda: value("group", group, name) != ("50000", "group"))


def test_unknown_resources_are_named(run_cli: Run, unique: Unique) -> None:
    name = unique("missing")

    assert (
        f"topic '{name}' does not exist"
        in run_cli("configs", "describe", "topic", name, status=1).error
    )
    assert (
        "broker '99' does not exist"
        in run_cli("configs", "describe", "broker", 99, status=1).error
    )
    assert "nothing to change" in run_cli("configs", "alter", "topic", name, status=2).error
