"""Changes of configurations by the command ``cykafka``."""

from __future__ import annotations

from pathlib import Path

import pytest

from cykafka.admin import AlterConfigOpType, ConfigEntry, ConfigSource
from cykafka.cli.commands.configs import (
    HIDDEN,
    ChangeOptions,
    own_entries,
    parse_changes,
    redact,
    shown,
    source_name,
)
from cykafka.cli.terminal.failures import UsageError

pytestmark = pytest.mark.ours


def test_options_become_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_text("geheim\n")
    monkeypatch.setenv("SECRET", "geheimer")
    options = ChangeOptions(
        set_=("a=1=2", f"b=@{path}", "c=env:SECRET"),
        append=("d=x",),
        subtract=("e=y",),
        delete=("f",),
    )

    assert [(item.name, item.operation, item.value) for item in parse_changes(options)] == [
        ("a", AlterConfigOpType.SET, "1=2"),
        ("b", AlterConfigOpType.SET, "geheim"),
        ("c", AlterConfigOpType.SET, "geheimer"),
        ("d", AlterConfigOpType.APPEND, "x"),
        ("e", AlterConfigOpType.SUBTRACT, "y"),
        ("f", AlterConfigOpType.DELETE, None),
    ]


@pytest.mark.parametrize(
    ("options", "loses"),
    [
        (ChangeOptions(set_=("segment.bytes=1",), append=("x=y",)), False),
        (ChangeOptions(set_=("a=1", "retention.ms=1")), True),
        (ChangeOptions(set_=("log.retention.bytes=1",)), True),
        (ChangeOptions(append=("cleanup.policy=delete",)), True),
        (ChangeOptions(subtract=("x=y",)), True),
        (ChangeOptions(delete=("x",)), True),
    ],
)
def test_changes_that_remove_are_known(options: ChangeOptions, loses: bool) -> None:
    assert any(change.loses for change in parse_changes(options)) is loses


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (ChangeOptions(), "nothing to change"),
        (ChangeOptions(set_=("a",)), "--set: expected NAME=VALUE"),
        (ChangeOptions(append=("=a",)), "--append: expected NAME=VALUE"),
        (ChangeOptions(set_=("a=1",), delete=("a",)), "a has two changes"),
        (ChangeOptions(set_=("a=@/no/such/file",)), "cannot read the file"),
    ],
)
def test_changes_of_another_form_are_refused(options: ChangeOptions, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        parse_changes(options)


def test_values_of_secrets_and_of_unknown_properties_are_hidden() -> None:
    current = {
        "plain": ConfigEntry("plain", "old"),
        "secret": ConfigEntry("secret", None, is_sensitive=True),
    }
    changes = parse_changes(
        ChangeOptions(set_=("plain=new", "secret=geheim", "unknown=geheimer"), delete=("x",))
    )

    assert [change.row(current.get(change.name)) for change in changes] == [
        ("plain", "set", "old", "new"),
        ("secret", "set", HIDDEN, HIDDEN),
        ("unknown", "set", None, HIDDEN),
        ("x", "delete", None, None),
    ]
    text = "Invalid value geheim for secret, geheimer for unknown, new for plain"
    assert redact(text, changes, current) == (
        f"Invalid value {HIDDEN} for secret, {HIDDEN} for unknown, new for plain"
    )


def test_own_entries_are_those_without_the_default() -> None:
    entries = {
        name: ConfigEntry(name, "v", source.value)
        for name, source in (
            ("b", ConfigSource.DYNAMIC_TOPIC_CONFIG),
            ("a", ConfigSource.STATIC_BROKER_CONFIG),
            ("c", ConfigSource.DEFAULT_CONFIG),
        )
    }

    assert [item.name for item in own_entries(entries)] == ["a", "b"]


def test_secret_is_not_shown_even_if_the_broker_sends_it() -> None:
    assert shown(ConfigEntry("password", "geheim", is_sensitive=True)) == HIDDEN


@pytest.mark.parametrize(
    ("source", "name"),
    [(ConfigSource.DYNAMIC_TOPIC_CONFIG.value, "dynamic topic"), (99, "unknown")],
)
def test_source_of_a_value_has_a_name(source: int, name: str) -> None:
    assert source_name(ConfigEntry("a", "v", source)) == name
