"""Partitions and names as arguments of the command ``cykafka``."""

from __future__ import annotations

import pytest

from cykafka import TopicPartition
from cykafka.cli.cluster.administration import select
from cykafka.cli.terminal.failures import Failed, UsageError
from cykafka.cli.terminal.parameters import choose_partitions, parse_partitions
from cykafka.cli.terminal.texts import counted

pytestmark = pytest.mark.ours


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("orders", ("orders", None)),
        ("orders:0", ("orders", [0])),
        ("orders:3,0-1,1", ("orders", [0, 1, 3])),
        ("a.b_c-d:10-12", ("a.b_c-d", [10, 11, 12])),
    ],
)
def test_partitions_are_numbers_and_ranges(
    text: str, expected: tuple[str, list[int] | None]
) -> None:
    assert parse_partitions(text) == expected


@pytest.mark.parametrize(
    "text", ["", ":0", "orders:", "orders:x", "orders:-1", "orders:2-1", "orders:0,", "t:0-999999"]
)
def test_partitions_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="orders:0,2-4"):
        parse_partitions(text)


def test_partitions_are_chosen_once_and_sorted() -> None:
    chosen = choose_partitions(["b:1", "a", "b:0-1"], {"a": 2, "b": 3})

    assert chosen == [TopicPartition(*item) for item in (("a", 0), ("a", 1), ("b", 0), ("b", 1))]


@pytest.mark.parametrize(
    ("argument", "words"),
    [("c", "topic 'c' does not exist"), ("a:2", "a has no partition 2; its last is 1")],
)
def test_partitions_that_are_missing_are_named(argument: str, words: str) -> None:
    with pytest.raises(Failed, match=words):
        choose_partitions([argument], {"a": 2})


NAMES = ["__internal", "bills", "orders", "orders-dlq", "pay"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        ([], NAMES[1:]),
        (["pay", "orders"], ["orders", "pay"]),
        (["orders*", "orders"], ["orders", "orders-dlq"]),
        (["?ay", "[ab]*"], ["bills", "pay"]),
        (["*"], NAMES[1:]),
        (["__internal"], ["__internal"]),
    ],
)
def test_patterns_select_names_that_are_not_hidden(
    patterns: list[str], expected: list[str]
) -> None:
    assert select(patterns, NAMES, "topic", {"__internal"}) == expected


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("ordres", "topic 'ordres' does not exist; did you mean \"orders\""),
        ("zzz", "topic 'zzz' does not exist$"),
        ("zzz*", r"no topic matches 'zzz\*'"),
        ("__int*", "no topic matches"),
    ],
)
def test_pattern_without_a_match_is_an_error(pattern: str, words: str) -> None:
    with pytest.raises(Failed, match=words):
        select(["pay", pattern], NAMES, "topic", {"__internal"})


def test_counts_have_singular_and_plural() -> None:
    assert [counted(item, "topic") for item in (0, 1, 2000)] == [
        "0 topics",
        "1 topic",
        "2,000 topics",
    ]
