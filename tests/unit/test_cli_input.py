"""What `cykafka produce` and `cykafka demo` read: lines, JSON, CSV and whole files, as columns."""

from __future__ import annotations

import gzip
import os
import signal
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cykafka.cli.commands.produce import _paced
from cykafka.cli.main import main
from cykafka.cli.records.chunks import Chunk, Input, limit_records
from cykafka.cli.terminal.failures import BadRecords, Failed, UsageError
from cykafka.cli.terminal.interrupts import Interrupts


class Reader:
    """Reads texts as files; `skipped` has the reports of bad lines."""

    def __init__(self, folder: Path, interrupts: Interrupts) -> None:
        self.folder = folder
        self.interrupts = interrupts
        self.skipped: list[str] = []

    def __call__(self, *contents: bytes, skip: bool = False, **options: object) -> Input:
        paths = []
        for number, content in enumerate(contents):
            paths.append(self.folder / f"file{number}")
            paths[-1].write_bytes(content)
        bad = BadRecords(skip, self.skipped.append, "; --skip-bad skips such lines")
        return Input(paths, bad, self.interrupts, **options)  # type: ignore[arg-type]


@pytest.fixture
def read(tmp_path: Path) -> Iterator[Reader]:
    with Interrupts() as interrupts:
        yield Reader(tmp_path, interrupts)


def column(chunks: Iterator[Chunk], name: str = "values") -> list[object]:
    found: list[object] = []
    for chunk in chunks:
        assert len(chunk.lines) == len(chunk.values)
        found += getattr(chunk, name) or [None] * len(chunk.values)
    return found


def lines_of(chunks: Iterator[Chunk]) -> list[tuple[str, int]]:
    return [(Path(c.source).name, line) for c in chunks for line in c.lines]


# -- lines


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\n\nb", [b"a", b"", b"b"]),
        (b"\n", [b""]),
        (b"\xff\0\r\n", [b"\xff\0\r"]),
    ],
)
def test_lines_keep_every_byte(read: Reader, content: bytes, expected: list[bytes]) -> None:
    assert column(read(content).lines()) == expected


@pytest.mark.parametrize("block", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("delimiter", [b"\n", b"--", b"-=-"])
def test_lines_do_not_depend_on_the_blocks(
    read: Reader, monkeypatch: pytest.MonkeyPatch, block: int, delimiter: bytes
) -> None:
    monkeypatch.setattr("cykafka.cli.records.chunks._BLOCK", block)
    expected = [b"first", b"", b"-", b"a longer line", b"x"]
    content = delimiter.join(expected)
    want = content.split(delimiter)

    chunks = list(read(content, delimiter=delimiter).lines())

    assert column(iter(chunks)) == want
    assert lines_of(iter(chunks)) == [("file0", at + 1) for at in range(len(want))]
    if block == 1:
        assert len(chunks) == len(want)  # each line as soon as it is there
    assert sum(chunk.size for chunk in chunks) == len(content)


def test_lines_are_numbered_in_each_file(read: Reader) -> None:
    chunks = read(b"a\nb", b"c\n").lines()
    assert lines_of(chunks) == [("file0", 1), ("file0", 2), ("file1", 1)]


def test_line_without_end_is_an_error_before_the_memory_is_full(
    read: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cykafka.cli.records.chunks._MOST_BYTES", 10)
    monkeypatch.setattr("cykafka.cli.records.chunks._BLOCK", 4)
    with pytest.raises(Failed, match="line 2: it is longer"):
        column(read(b"a\n" + b"x" * 20).lines())


def test_keys_are_before_the_first_delimiter(read: Reader) -> None:
    chunks = list(read(b"k:v:w\n:\n", key_delimiter=b":").lines())
    assert column(iter(chunks), "keys") == [b"k", b""]
    assert column(iter(chunks)) == [b"v:w", b""]


def test_headers_are_before_the_key(read: Reader) -> None:
    content = b"a=1,b,c=|k:v\n|x:y\n"
    (chunk,) = read(content, header_delimiter=b"|", key_delimiter=b":").lines()
    assert chunk.headers == [[("a", b"1"), ("b", None), ("c", b"")], []]
    assert (chunk.keys, chunk.values) == ([b"k", b"x"], [b"v", b"y"])


def test_header_that_librdkafka_cannot_send_is_a_bad_line(read: Reader) -> None:
    chunks = read(b"a=1|x\na\0=1|y\n", header_delimiter=b"|").lines()
    assert next(chunks).values == [b"x"]
    with pytest.raises(Failed, match=r"line 2: headers: .* NUL"):
        next(chunks)


def test_bad_line_ends_the_reading_after_the_records_before_it(read: Reader) -> None:
    chunks = read(b"k:v\nno key\nx:y\n", key_delimiter=b":").lines()
    assert next(chunks).values == [b"v"]
    with pytest.raises(Failed, match="file0, line 2: it has no key delimiter ':'; --skip-bad"):
        next(chunks)


def test_skipped_lines_are_counted_and_the_first_are_reported(read: Reader) -> None:
    source = read(b"k:v\n" + b"bad\n" * 9 + b"x:y\n", skip=True, key_delimiter=b":")
    assert column(source.lines()) == [b"v", b"y"]
    assert source.bad.count == 9
    assert len(read.skipped) == 5
    assert "line 2: it has no key delimiter" in read.skipped[0]


# -- NDJSON


def test_ndjson_sets_every_part(read: Reader) -> None:
    line = (
        b'\xef\xbb\xbf{"topic":"t","partition":3,"offset":9,"timestamp":5,"key":"k",'
        b'"value_base64":"/wA=","headers":[{"key":"h","value":null},{"key":"h","value":"x"}]}\n'
        b'\n{"value":null}'
    )
    chunks = list(read(line).ndjson())
    assert column(iter(chunks)) == [b"\xff\0", None]
    assert column(iter(chunks), "keys") == [b"k", None]
    assert column(iter(chunks), "headers") == [[("h", None), ("h", b"x")], None]
    assert column(iter(chunks), "partitions") == [3, None]
    assert column(iter(chunks), "timestamps") == [5, None]
    assert column(iter(chunks), "topics") == ["t", None]


@pytest.mark.parametrize(
    ("line", "value"),
    [
        (b'{"value":{"a":[1,2.5,true,null]}}', b'{"a":[1,2.5,true,null]}'),
        (b'{"value":0}', b"0"),
        (b'{"value":false}', b"false"),
        (b'{"value":""}', b""),
        ('{"value":"\u00fc"}'.encode(), "\u00fc".encode()),
    ],
)
def test_ndjson_value_that_is_no_string_becomes_json(
    read: Reader, line: bytes, value: bytes
) -> None:
    assert column(read(line).ndjson()) == [value]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"value":NaN}', "NaN is not JSON"),
        (b"[]", "expected a JSON object"),
        (b'{"vlaue":1}', 'did you mean "value"'),
        (b'{"id":1,"total":2}', "'id'; to send lines as they are, leave out --json"),
        (b"[1]", "expected a JSON object; to send lines as they are, leave out --json"),
        (b'{"key":"k"}', "the value of a tombstone is null"),
        (b'{"value":"a","value":"b"}', "two members with the same name"),
        (b'{"value":"a","value_base64":"YQ=="}', "both value and value_base64"),
        (b'{"value_base64":"Y"}', "expected a base64 string"),
        (b'{"value_base64":1}', "expected a base64 string"),
        (b'{"value":"\\ud800"}', "value: it cannot be encoded as UTF-8"),
        (b'{"value":1e999}', "value: it cannot be encoded as UTF-8"),
        (b'{"value":"\xff"}', "byte at index 10 is not UTF-8"),
        (b'{"value":1,"partition":-1}', "partition: expected an integer"),
        (b'{"value":1,"partition":true}', "partition: expected an integer"),
        (b'{"value":1,"timestamp":"now"}', "timestamp: expected an integer"),
        (b'{"value":1,"timestamp":0}', "timestamp: expected an integer from 1"),
        (b'{"value":1,"topic":1}', "topic: expected up to 249 letters"),
        (b'{"value":1,"topic":"a b"}', "topic: expected up to 249 letters"),
        (b'{"value":1,"headers":{"a\\u0000b":"x"}}', "a key with a NUL character"),
        (b'{"value":1,"headers":0}', "headers: expected an array"),
        (b'{"value":1,"headers":[1]}', "headers: expected objects"),
        (b'{"value":1,"headers":[{"value":"x"}]}', "a header key must be a string"),
        (b'{"value":1,"headers":[{"key":"x"}]}', "a header has no value"),
    ],
)
def test_ndjson_line_that_is_no_record_names_the_mistake(
    read: Reader, line: bytes, words: str
) -> None:
    chunks = read(b'{"value":"good"}\n' + line).ndjson()
    assert next(chunks).values == [b"good"]
    with pytest.raises(Failed) as error:
        next(chunks)
    assert "file0, line 2: " in str(error.value)
    assert words in str(error.value)


# -- CSV


def test_csv_rows_are_objects_of_texts(read: Reader) -> None:
    content = '\ufeffid,"a%s"\r\n1,"x\n""y"\r\n\r\n007,\u00fc\r\n'.encode()
    chunks = list(read(content, key_column="id").csv())
    assert column(iter(chunks)) == [
        b'{"id":"1","a%s":"x\\n\\"y"}',
        '{"id":"007","a%s":"\u00fc"}'.encode(),
    ]
    assert column(iter(chunks), "keys") == [b"1", b"007"]
    assert [line for _, line in lines_of(iter(chunks))] == [2, 5]


def test_csv_value_column(read: Reader) -> None:
    assert column(read(b"a,b\n1,2\n3,4", value_column="b").csv()) == [b"2", b"4"]


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        (b"a,b\n1,2\n3\n", 3, "it has 1 fields, the first line has 2"),
        (b'a,b\n1,2\n"3"x,4\n', 3, "expected after"),
        (b'a,b\n1,2\n"3,4\n', 3, "unexpected end"),
        (b"a,b\n1,2\n\xff,4\n", 3, "not UTF-8"),
    ],
)
def test_csv_row_that_is_no_record_names_its_line(
    read: Reader, content: bytes, line: int, words: str
) -> None:
    chunks = read(content).csv()
    assert next(chunks).values == [b'{"a":"1","b":"2"}']
    with pytest.raises(Failed) as error:
        next(chunks)
    assert f"file0, line {line}: " in str(error.value)
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty"),
        (b"a,a\n", "column names must be unique"),
        (b'"a', "line 1: unexpected end"),
    ],
)
def test_csv_without_names_is_an_error(read: Reader, content: bytes, words: str) -> None:
    with pytest.raises(Failed, match=words):
        list(read(content).csv())


def test_csv_unknown_column_suggests(read: Reader) -> None:
    with pytest.raises(UsageError, match='did you mean "order_id"'):
        list(read(b"order_id,x\n", key_column="orderid").csv())


def test_csv_rows_of_a_pipe_do_not_wait_for_more(tmp_path: Path, read: Reader) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    source = read()
    source.files = [pipe]
    writer = os.open(pipe, os.O_RDWR)  # does not wait for a reader
    try:
        os.write(writer, b"a\n1\n2\n")
        assert next(source.csv()).values == [b'{"a":"1"}', b'{"a":"2"}']
    finally:
        os.close(writer)


# -- JSON objects


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf", b"\n \n"], ids=["", "mark", "blank"])
def test_objects_of_ndjson_are_their_lines(read: Reader, mark: bytes) -> None:
    content = mark + b'{"id": "k", "b": [1, {}]}\r\n\n {"b": 2.50, "id": 7}\n{"id": null}'
    chunks = list(read(content).objects())
    assert column(iter(chunks)) == [
        b'{"id": "k", "b": [1, {}]}', b'{"b": 2.50, "id": 7}', b'{"id": null}'
    ]  # fmt: skip
    assert column(iter(chunks), "keys") == [b"k", b"7", None]


@pytest.mark.parametrize(("name", "keys"), [(None, [b"1", b"3"]), ("b", [b"2", b"4"])])
def test_objects_of_csv_have_a_column_as_key(
    read: Reader, name: str | None, keys: list[bytes]
) -> None:
    chunks = list(read(b"\xef\xbb\xbfa,b\r\n1,2\r\n3,4", key_column=name).objects())
    assert column(iter(chunks)) == [b'{"a":"1","b":"2"}', b'{"a":"3","b":"4"}']
    assert column(iter(chunks), "keys") == keys


def test_given_form_of_objects_counts(read: Reader) -> None:
    assert column(read(b"{a,b\n1,2").objects("csv")) == [b'{"{a":"1","b":"2"}']
    with pytest.raises(Failed, match="line 1: not JSON"):
        list(read(b"a,b\n1,2").objects("ndjson"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"a": 1', "not JSON"),
        (b"[1]", "expected a JSON object with members"),
        (b"{}", "expected a JSON object with members"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"b": 1}', "no member 'a' for the key"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b"[" * 100_000, "not JSON"),
    ],
    ids=["cut", "list", "empty", "nan", "no key", "encoding", "deep"],
)
def test_line_that_is_no_object_names_the_mistake(read: Reader, line: bytes, words: str) -> None:
    chunks = read(b'{"a": 1}\n\n' + line + b"\n").objects()
    assert next(chunks).values == [b'{"a": 1}']
    with pytest.raises(Failed, match=f"line 3: .*{words}"):
        next(chunks)


def test_no_object_is_no_chunk(read: Reader) -> None:
    assert list(read(b"").objects()) == []


def packed(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    if name.lower().endswith(".gz"):
        path.write_bytes(gzip.compress(content))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.mkdir("folder")
            archive.writestr("folder/file", content)
    return path


@pytest.mark.parametrize("name", ["f.csv.gz", "f.GZ", "f.zip"])
def test_packed_file_is_read_if_that_is_wanted(
    read: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("cykafka.cli.records.chunks._BLOCK", 3)
    source = read(unpack=True)
    source.files = [packed(tmp_path, name, b"first\nsecond")]
    assert source.check() is None
    assert column(source.lines()) == [b"first", b"second"]
    source.unpack = False
    assert source.check() == source.files[0].stat().st_size
    assert column(source.lines()) != [b"first", b"second"]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("f.gz", b"a,b", "Not a gzipped file"),
        ("f.gz", gzip.compress(b"a,b" * 99)[:-9], "ended before"),
        ("f.zip", b"a,b", "not a zip file"),
    ],
    ids=["no gz", "cut", "no zip"],
)
def test_packed_file_that_is_broken_is_an_error(
    read: Reader, tmp_path: Path, name: str, content: bytes, words: str
) -> None:
    source = read(unpack=True)
    source.files = [tmp_path / name]
    source.files[0].write_bytes(content)
    with pytest.raises(Failed, match=f"cannot read .*{name}: .*{words}"):
        list(source.lines())


def test_zip_of_two_files_is_an_error(read: Reader, tmp_path: Path) -> None:
    source = read(unpack=True)
    source.files = [tmp_path / "f.zip"]
    with zipfile.ZipFile(source.files[0], "w") as archive:
        archive.writestr("a", "1")
        archive.writestr("b", "1")
    with pytest.raises(Failed, match=r"expected a .zip with one file, it has 2"):
        list(source.lines())


# -- files, signals, pace


def test_whole_file_is_one_record(read: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    assert column(read(b"a\nb", b"").whole()) == [b"a\nb", b""]
    monkeypatch.setattr("cykafka.cli.records.chunks._MOST_BYTES", 2)
    with pytest.raises(Failed, match="file0: it is longer than 1 GB"):
        column(read(b"a\nb").whole())


def test_check_finds_missing_files_before_anything_is_sent(read: Reader) -> None:
    source = read(b"abc", b"de")
    assert source.check() == 5
    source.files = [*source.files, Path("/none")]
    with pytest.raises(UsageError, match="cannot read /none: No such file"):
        source.check()


def test_check_does_not_open_pipes_and_refuses_folders(tmp_path: Path, read: Reader) -> None:
    source = read()
    os.mkfifo(tmp_path / "pipe")
    source.files = [tmp_path / "pipe"]
    assert source.check() is None  # opening it would wait for a writer
    source.files = [tmp_path]
    with pytest.raises(UsageError, match="it is a directory"):
        source.check()


def test_signal_ends_a_wait_for_input_and_drops_the_unfinished_line(
    tmp_path: Path, read: Reader
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    source = read()
    source.files = [pipe]
    writer = os.open(pipe, os.O_RDWR)
    try:
        os.write(writer, b"whole\nunfinished")
        chunks = source.lines()
        assert list(next(chunks).values) == [b"whole"]
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        assert list(chunks) == []
        timer.join()
        assert read.interrupts.requested
    finally:
        os.close(writer)


def test_signal_ends_the_wait_for_the_writer_of_a_pipe(tmp_path: Path, read: Reader) -> None:
    os.mkfifo(tmp_path / "pipe")
    source = read()
    source.files = [tmp_path / "pipe"]
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    assert list(source.lines()) == []
    timer.join()
    assert read.interrupts.requested


def test_second_signal_raises_and_the_handlers_return(read: Reader) -> None:
    before = signal.getsignal(signal.SIGINT)
    inner = Interrupts()
    with inner:
        signal.raise_signal(signal.SIGINT)
        assert inner.requested
        assert not inner.pause(60, lambda: None)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_pause_calls_a_function_meanwhile() -> None:
    with Interrupts() as interrupts:
        assert not interrupts.pause(60, lambda: signal.raise_signal(signal.SIGINT))


def test_limit_cuts_within_a_chunk() -> None:
    whole = Chunk("f", range(1, 4), [b"a", b"b", b"c"], [b"1", b"2", b"3"], size=6)
    cut = list(limit_records(iter([whole, whole]), 4))
    assert [chunk.values for chunk in cut] == [[b"a", b"b", b"c"], [b"a"]]
    assert (cut[1].keys, list(cut[1].lines), cut[1].size) == ([b"1"], [1], 2)


def test_rate_cuts_chunks_and_pauses_between_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]

    def pause(seconds: float) -> bool:
        now[0] += max(seconds, 0)
        return True

    monkeypatch.setattr("cykafka.cli.commands.produce.time.monotonic", lambda: now[0])
    chunk = Chunk("f", range(1, 101), [b"x"] * 100)
    parts = list(_paced(iter([chunk]), 50.0, pause))
    assert sum(len(part.values) for part in parts) == 100
    assert max(len(part.values) for part in parts) == 2
    assert now[0] == pytest.approx(100 + 98 / 50)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--json", "--csv"], "use only one of --json"),
        (["--json", "-K", ":"], "-K cannot be combined with this format"),
        (["--key-column", "a"], "--key-column cannot be combined"),
        (["-K", ":", "-k", "x"], "-k is the key of all records"),
        (["-D", ""], "-D: the delimiter is empty"),
        (["-D", "\\q"], "-D: unknown escape"),
        (["-H", "x"], "-H: expected NAME=VALUE"),
        (["-X", "transactional.id=x"], "transactional.id: this command does not use transactions"),
        (["--timestamp", "soon"], "--timestamp: 'soon' is not a time"),
        (["-c", "0"], "Must be > 0"),
        (["--rate", "0"], "Must be >= 0.001"),
        (["--rate", "inf"], "Must be <= "),
        (["--timestamp", "0"], "--timestamp: librdkafka cannot send 0"),
        (["-z", "zip"], "zip"),
        (["/none"], "cannot read /none"),
    ],
    ids=str,
)
def test_wrong_options_of_produce_exit_2(
    arguments: list[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["produce", "topic", "-b", "localhost:1", *arguments]) == 2
    assert words in capfd.readouterr().err
