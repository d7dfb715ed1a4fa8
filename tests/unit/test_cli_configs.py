"""Changes of configurations by the command ``cykafka``."""

from __future__ import annotations

from pathlib import Path

import pytest

from cykafka.admin import AlterConfigOpType, ConfigEntry, ConfigSource
from cykafka.cli.configs import HIDDEN, ChangeOptions, Changes, own_entries, shown
from cykafka.cli.failures import UsageError

pytestmark = pytest.mark.ours


def test_changes_become_entries_of_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secret"
    path.write_text("geheim\n")
    monkeypatch.setenv("SECRET", "geheimer")
    options = ChangeOptions(
        set_=("a=1=2", f"b=@{path}", "c=env:SECRET"),
        append=("d=x",),
        subtract=("e=y",),
        delete=("f",),
    )

    entries = Changes(options).entries()

    assert [(each.name, each.incremental_operation, each.value) for each in entries] == [
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
        (ChangeOptions(), False),
        (ChangeOptions(set_=("segment.bytes=1",), append=("x=y",)), False),
        (ChangeOptions(set_=("retention.ms=1",)), True),
        (ChangeOptions(append=("cleanup.policy=delete",)), True),
        (ChangeOptions(subtract=("x=y",)), True),
        (ChangeOptions(delete=("x",)), True),
    ],
)
def test_changes_that_remove_are_known(options: ChangeOptions, loses: bool) -> None:
    assert Changes(options).loses is loses


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (ChangeOptions(set_=("a",)), "--set: expected NAME=VALUE"),
        (ChangeOptions(append=("=a",)), "--append: expected NAME=VALUE"),
        (ChangeOptions(set_=("a=1",), delete=("a",)), "a has two changes"),
        (ChangeOptions(set_=("a=@/no/such/file",)), "cannot read the file"),
    ],
)
def test_changes_of_another_form_are_refused(options: ChangeOptions, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Changes(options)


def test_plan_hides_values_of_secrets_and_of_unknown_properties() -> None:
    current = {
        "plain": ConfigEntry("plain", "old"),
        "secret": ConfigEntry("secret", None, is_sensitive=True),
    }
    changes = Changes(
        ChangeOptions(set_=("plain=new", "secret=geheim", "unknown=geheimer"), delete=("x",))
    )

    assert changes.plan(current) == [
        ("plain", "set", "old", "new"),
        ("secret", "set", HIDDEN, HIDDEN),
        ("unknown", "set", None, HIDDEN),
        ("x", "delete", None, None),
    ]
    text = "Invalid value geheim for secret, geheimer for unknown, new for plain"
    redacted = changes.redacted(text, current)
    assert "geheim" not in redacted
    assert "new for plain" in redacted


def test_own_entries_are_those_without_the_default() -> None:
    entries = {
        name: ConfigEntry(name, "v", source.value)
        for name, source in (
            ("b", ConfigSource.DYNAMIC_TOPIC_CONFIG),
            ("a", ConfigSource.STATIC_BROKER_CONFIG),
            ("c", ConfigSource.DEFAULT_CONFIG),
        )
    }

    assert [each.name for each in own_entries(entries)] == ["a", "b"]


def test_secret_is_not_shown_even_if_the_broker_sends_it() -> None:
    assert shown(ConfigEntry("password", "geheim", is_sensitive=True)) == HIDDEN
