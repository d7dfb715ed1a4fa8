"""What `cykafka consume` prints, and the places and times that it takes."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest

from cykafka.cli.main import main
from cykafka.cli.records import line_formats
from cykafka.cli.records.json_record import decode
from cykafka.cli.records.places import Place, parse_place
from cykafka.cli.terminal import output
from cykafka.cli.terminal.parameters import milliseconds, unescape
from cykafka.cli.terminal.texts import iso

HEADERS = [("a", b"1"), ("b", None)]


class Batch(SimpleNamespace):
    """The columns of a MessageBatch: text, null and bytes that are no UTF-8."""

    def __len__(self) -> int:
        return 3

    def values(self) -> list[bytes | None]:
        return [b"value", None, b"\xff\n"]

    def keys(self) -> list[bytes | None]:
        return [None, b"k", b"\x1b[2J"]

    def headers(self) -> list[list[tuple[str, bytes | None]] | None]:
        return [None, HEADERS, []]


@pytest.fixture
def batch() -> Any:
    return Batch(
        topics=["t", "t", "u"], partitions=[0, 1, 2], offsets=[7, 8, 9], timestamps=[5, -1, 6]
    )


def test_values_are_bytes_with_nothing_or_a_word_for_null(batch: Any) -> None:
    assert line_formats.values(b"")(batch) == [b"value", b"", b"\xff\n"]
    assert line_formats.values(b"NULL", b":")(batch) == [
        b"NULL:value",
        b"k:NULL",
        b"\x1b[2J:\xff\n",
    ]


def test_template_has_kcats_tokens(batch: Any) -> None:
    form = line_formats.template(r"100%% %t %p %o %T %k %K %s %S %h\x21\n", b"")
    assert form(batch) == [
        b"100% t 0 7 5  -1 value 5 !\n",
        b"100% t 1 8 -1 k 1  -1 a=1,b=NULL!\n",
        b"100% u 2 9 6 \x1b[2J 4 \xff\n 2 !\n",
    ]


def test_template_packs_sizes(batch: Any) -> None:
    assert line_formats.template("%R", b"")(batch) == [
        b"\0\0\0\x05",
        b"\xff\xff\xff\xff",
        b"\0\0\0\x02",
    ]


def test_template_without_tokens_is_printed_for_each_record(batch: Any) -> None:
    assert line_formats.template("100%% ", b"")(batch) == [b"100% "] * 3


@pytest.mark.parametrize("text", ["%x", "%", "\\q", ""])
def test_template_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"unknown|empty"):
        line_formats.template(text, b"")


def test_json_is_read_back_without_loss(batch: Any) -> None:
    lines = line_formats.json_lines()(batch)
    assert json.loads(lines[1]) == {
        "topic": "t",
        "partition": 1,
        "offset": 8,
        "timestamp": None,
        "key": "k",
        "value": None,
        "headers": [{"key": "a", "value": "1"}, {"key": "b", "value": None}],
    }
    records = [decode(line) for line in lines]
    assert [record.value for record in records] == batch.values()
    assert [record.key for record in records] == batch.keys()
    assert [record.headers for record in records] == [None, HEADERS, None]
    assert [record.timestamp for record in records] == [5, None, 6]
    assert [record.partition for record in records] == [0, 1, 2]
    assert [record.topic for record in records] == ["t", "t", "u"]


def test_dump_shows_bytes_in_hexadecimal(batch: Any) -> None:
    second, third = line_formats.dump(batch)[1:]
    assert second.decode().splitlines() == [
        "t[1]@8",
        "key: 1 byte",
        "00000000  6b                                               |k|",
        "value: null",
    ]
    assert b"00000000  1b 5b 32 4a " in third
    assert b"|.[2J|" in third


def test_escaped_forms_keep_lines_but_no_controls(batch: Any) -> None:
    assert line_formats.values(b"", b":", escaped=True)(batch) == [
        b":value",
        b"k:",
        b"\\x1b[2J:\\xff\n",
    ]
    assert line_formats.template(r"\x1b%k\n", b"", escaped=True)(batch) == [
        b"\x1b\n",
        b"\x1bk\n",
        b"\x1b\\x1b[2J\n",
    ]


def test_escaped_json_is_the_same_json() -> None:
    value = '\u202e\x7f\x9b"\\ \u00e4\n'
    batch: Any = Batch(topics=["t"] * 3, partitions=[0] * 3, offsets=[0] * 3, timestamps=[0] * 3)
    batch.values = lambda: [value.encode()] * 3

    plain, escaped = line_formats.json_lines()(batch), line_formats.json_lines(escaped=True)(batch)

    assert [json.loads(line) for line in plain] == [json.loads(line) for line in escaped]
    assert json.loads(escaped[0])["value"] == value
    assert "\u202e" in plain[0].decode()
    assert "\x9b" in plain[0].decode()
    assert not {"\u202e", "\x7f", "\x9b"} & set(escaped[0].decode())


def test_pretty_escapes_what_controls_terminals(batch: Any) -> None:
    lines = line_formats.pretty(False)(batch)
    assert lines[0] == b"t[0]@7  1970-01-01T00:00:00.005Z  value"
    assert lines[1] == b"t[1]@8  k:  null  {a=1,b=NULL}"
    assert b"\x1b" not in lines[2]
    assert b"\\x1b[2J:" in lines[2]
    assert b"\\xff\\n" in lines[2]


# -- places, times, delimiters


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("beginning", Place("beginning")),
        ("end", Place("end")),
        ("stored", Place("stored")),
        ("0", Place("offset", 0)),
        ("42", Place("offset", 42)),
        ("-10", Place("last", 10)),
        ("@1500", Place("time", 1500)),
    ],
)
def test_place_is_read(text: str, place: Place) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize("text", ["", "x", "-", "--1", "1.5", "@", "9" * 30, "-1h"])
def test_place_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_place(text)


def test_time_without_at_is_hinted() -> None:
    with pytest.raises(ValueError, match="begins with @: @-1h"):
        parse_place("-1h")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("1767225600000", 1767225600000),
        ("2026-01-01T00:00:00Z", 1767225600000),
        ("2026-01-01T01:00:00.5+01:00", 1767225600500),
        ("1960-01-01T00:00:00Z", 0),
    ],
)
def test_time_is_read(text: str, expected: int) -> None:
    assert milliseconds(text) == expected


def test_time_without_offset_is_local(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert milliseconds("2026-01-01") == 1767225600000 - 9 * 3_600_000
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("text", "ago_ms"),
    [("now", 0), ("-90s", 90_000), ("-1d12h", 129_600_000), ("+1m", -60_000), ("-5ms", 5)],
)
def test_time_is_relative_to_now(monkeypatch: pytest.MonkeyPatch, text: str, ago_ms: int) -> None:
    monkeypatch.setattr("cykafka.cli.terminal.parameters.time.time_ns", lambda: 10**18)
    assert milliseconds(text) == 10**12 - ago_ms


def test_time_beyond_the_range_is_the_last() -> None:
    assert milliseconds(f"+{10**12}w") == 2**63 - 1


@pytest.mark.parametrize("text", ["", "soon", "-1", "-1y", "2026-13-01", "12:00", "9" * 20])
def test_time_that_is_none_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time"):
        milliseconds(text)


@pytest.mark.parametrize(
    ("timestamp", "text"),
    [(0, "1970-01-01T00:00:00.000Z"), (2**62, str(2**62))],
)
def test_timestamp_is_shown_in_utc(timestamp: int, text: str) -> None:
    assert iso(timestamp) == text


def test_delimiter_escapes() -> None:
    assert unescape(r"\n\r\t\0\\\x1e|ü") == b"\n\r\t\0\\\x1e|" + "ü".encode()
    for text in ("\\", "\\q", "\\x1"):
        with pytest.raises(ValueError, match="unknown escape"):
            unescape(text)


# -- tables


def test_table_in_a_pipe_is_aligned_text(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(("name", "count"), [("a[b]", 7), ("longer", 1234), ("x", None)])
    assert capsys.readouterr().out == (
        "name    count\na[b]        7\nlonger   1234\nx           -\n"
    )


def test_table_as_json_is_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.show(("name", "ok"), [("ü", True), ("x", None)], as_json=True)
    assert capsys.readouterr().out == '{"name":"ü","ok":true}\n{"name":"x","ok":null}\n'


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "x"], "-o: 'x' is not beginning"),
        (["-o", "@soon"], "-o: '@soon' is not a time: write @now, @1767225600000 "),
        (["--until", "beginning"], "--until: expected end, N, -N or @TIME, got beginning"),
        (["-e", "--until", "end"], "cannot be combined"),
        (["-o", "stored"], "-o stored needs a group"),
        (["-G", "g", "-o", "5"], "with -G the group's offsets decide"),
        (["-G", "g", "-p", "0"], "-G cannot be combined with -p"),
        (["-G", " "], "the group name must not be blank"),
        (["-G", ""], "the group name must not be blank"),
        (["-p", "x"], "-p: expected numbers"),
        (["--json", "--hex"], "use only one of --json"),
        (["--json", "-D", ","], "-D and -K cannot be combined with"),
        (["-f", "%q"], "-f: unknown token '%q'"),
        (["-c", "0"], "Must be > 0"),
    ],
    ids=str,
)
def test_wrong_options_of_consume_exit_2(
    arguments: list[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["consume", "topic", "-b", "localhost:1", *arguments]) == 2
    assert words in capfd.readouterr().err
