"""`cykafka produce` and `cykafka consume` on a broker: round trips, places, groups, errors."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fixture_types import Fill, MakeProducer, Unique, WaitUntil
from machine import WAIT_S

from cykafka import TopicPartition
from cykafka.cli.main import main

pytestmark = pytest.mark.ours

HOSTILE = [
    (None, None, []),
    (b"", b"", []),
    (b"k", b"", [("h", b"")]),
    (None, b'text \xc3\xbc \xe2\x80\xa8 " \\ \n \r \0 \x1b[2J', [("h", None), ("h", b"\xff")]),
    (bytes(range(256)), b"\xff\xfe\0\n", [("\u00fc", b"\n,="), ("", b"x")]),
    (b"{}", b'{"base64":"x"}', []),
    (b"tombstone", None, [("why", b"gone")]),
]


class Result(NamedTuple):
    """A command that has ended."""

    status: int
    out: bytes
    err: str


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("CYKAFKA_BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    monkeypatch.delenv("CYKAFKA_PROFILE", raising=False)


@pytest.fixture
def run(capfdbinary: pytest.CaptureFixture[bytes]) -> Callable[..., Result]:
    def run(*arguments: str | Path) -> Result:
        capfdbinary.readouterr()
        status = main([str(item) for item in arguments])
        out, err = capfdbinary.readouterr()
        return Result(status, out, err.decode())

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(content: bytes, name: str = "input") -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


@pytest.fixture
def one(cluster: Any, unique: Unique) -> str:
    """A fresh topic of one partition."""
    name = unique("topic")
    cluster.create_topic(name, 1)
    return name


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start commands in processes, which are killed after the test."""
    started = []

    def start(*arguments: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-m", "cykafka", *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe is not None
            pipe.close()


def parts(lines: bytes) -> list[tuple[Any, ...]]:
    """What must survive a copy, of lines of JSON, by partition and in order."""
    records = [json.loads(line) for line in lines.splitlines()]
    for record in records:
        del record["topic"], record["offset"]
    return sorted(
        ((record["partition"], json.dumps(record)) for record in records), key=lambda pair: pair[0]
    )


# -- round trips


def test_json_copies_a_topic_without_loss(
    run: Callable[..., Result],
    write: Callable[..., Path],
    cluster: Any,
    topic: str,
    unique: Unique,
    make_producer: MakeProducer,
) -> None:
    copy = unique("copy")
    cluster.create_topic(copy, 4)
    producer = make_producer()
    for number in range(40):
        key, value, headers = HOSTILE[number % len(HOSTILE)]
        producer.produce(
            topic, value, key, partition=number % 4, headers=headers, timestamp=1_700_000_000_000
            + number,
        )  # fmt: skip
    assert producer.flush(WAIT_S) == 0

    dump = run("consume", topic, "-e", "--json", "-q")
    assert dump.status == 0, dump.err
    sent = run("produce", copy, "--json", write(dump.out))
    assert sent.status == 0, sent.err
    again = run("consume", copy, "-e", "--json", "-q")

    assert len(again.out.splitlines()) == 40
    assert parts(again.out) == parts(dump.out)


def test_lines_come_back_byte_for_byte(
    run: Callable[..., Result], write: Callable[..., Path], one: str
) -> None:
    content = b"".join(b"%d \xff\r\n" % number * (number % 3 + 1) for number in range(20_000))
    content = content.replace(b"7 ", b"\n")

    assert run("produce", one, write(content)).status == 0
    back = run("consume", one, "-e")

    assert back.status == 0
    assert back.out == content
    assert back.err.startswith(f"{one}: {content.count(bytes([10])):,} records, ")


def test_lines_with_headers_and_keys_come_back_by_a_template(
    run: Callable[..., Result], write: Callable[..., Path], one: str
) -> None:
    content = b"a=1,b=2|k:v\n|:\nx=|k2:v:2\n"
    sent = run("produce", one, "-K", ":", "--header-delimiter", "|", write(content))
    assert sent.status == 0
    assert run("consume", one, "-e", "-f", "%h|%k:%s\\n").out == content


def test_null_and_empty_are_told_apart(
    run: Callable[..., Result], write: Callable[..., Path], one: str
) -> None:
    file = write(b"k:\n:v\n")
    assert run("produce", one, "-K", ":", file).status == 0
    assert run("produce", one, "-K", ":", "-Z", file).status == 0
    back = run("consume", one, "-e", "-f", "%K %S,", "-q")
    assert back.out == b"1 0,0 1,1 -1,-1 1,"
    assert run("consume", one, "-e", "-Z", "-q").out == b"\nv\nNULL\nv\n"


def test_other_delimiters(
    run: Callable[..., Result], write: Callable[..., Path], one: str
) -> None:
    content = b"a\nb\0c\0"
    assert run("produce", one, "-D", "\\0", write(content)).status == 0
    assert run("consume", one, "-e", "-D", "\\0").out == content


def test_csv_becomes_json_with_the_columns_key(
    run: Callable[..., Result], write: Callable[..., Path], one: str
) -> None:
    file = write(b'id,note\n7,"a ""b"""\n8,\n')
    assert run("produce", one, "--csv", "--key-column", "id", file).status == 0
    assert run("consume", one, "-e", "-K", " ", "-q").out == (
        b'7 {"id":"7","note":"a \\"b\\""}\n8 {"id":"8","note":""}\n'
    )


def test_whole_files_are_records(
    run: Callable[..., Result], write: Callable[..., Path], one: str
) -> None:
    files = [write(b"a\nb", "one"), write(b"", "two")]
    assert run("produce", one, "--whole", *files).status == 0
    assert run("consume", one, "-e", "-f", "<%s>").out == b"<a\nb><>"


def test_constants_apply_to_all_records(
    run: Callable[..., Result], write: Callable[..., Path], topic: str
) -> None:
    sent = run(
        "produce", topic, "-k", "key", "-H", "a=1", "-H", "a=2", "-p", "2", "-z", "gzip",
        "--timestamp", "2026-01-01T00:00:00Z", write(b"x\ny\n"),
    )  # fmt: skip
    assert sent.status == 0
    records = [json.loads(line) for line in run("consume", topic, "-e", "-J").out.splitlines()]
    assert [record["value"] for record in records] == ["x", "y"]
    for record in records:
        assert (record["partition"], record["key"]) == (2, "key")
        assert record["timestamp"] == 1767225600000
        assert [item["value"] for item in record["headers"]] == ["1", "2"]


def test_json_names_topic_and_partition_if_the_options_allow(
    run: Callable[..., Result], write: Callable[..., Path], cluster: Any, one: str, unique: Unique
) -> None:
    other = unique("topic")
    cluster.create_topic(other, 1)
    line = json.dumps({"topic": other, "partition": 3, "value": "x"}).encode()

    refused = run("produce", one, "--json", write(line))
    assert refused.status == 1
    assert "line 1: Local: Unknown partition" in refused.err
    assert run("produce", one, "--json", "--any-partition", write(line)).status == 0
    kept = run("produce", one, "--json", "--any-partition", "--keep-topic", write(line))
    assert kept.status == 0
    out = run("consume", one, other, "-e", "-f", "%t ").out
    assert sorted(out.split()) == sorted([one.encode(), other.encode()])


# -- what fails


def test_failed_record_is_named_with_its_line_and_the_others_arrive(
    run: Callable[..., Result], write: Callable[..., Path], one: str
) -> None:
    content = b"a\n" + b"x" * 2_000_000 + b"\nb\n"
    sent = run("produce", one, write(content))
    assert sent.status == 1
    assert "input, line 2: Broker: Message size too large" in sent.err
    assert sent.err.splitlines()[-1].startswith(f"{one}: 2 records, ")
    assert sent.err.endswith("; 1 failed\n")
    assert run("consume", one, "-e").out == b"a\nb\n"


def test_many_failed_records_are_counted(
    run: Callable[..., Result], write: Callable[..., Path], one: str
) -> None:
    sent = run("produce", one, "-X", "message.max.bytes=1000", write(b"%s\n" % (b"x" * 2000) * 9))
    assert sent.status == 1
    assert sent.err.count("Message size too large") == 5
    assert "and 4 more records failed" in sent.err
    assert "0 records" in sent.err


def test_bad_line_stops_there_but_not_what_was_before_it(
    run: Callable[..., Result], write: Callable[..., Path], one: str
) -> None:
    file = write(b'{"value":"a"}\n{"value"}\n{"value":"b"}\n')
    sent = run("produce", one, "--json", file)
    assert sent.status == 1
    assert f"cykafka: {file}, line 2: not JSON" in sent.err
    assert run("consume", one, "-e").out == b"a\n"

    skipped = run("produce", one, "--json", "--skip-bad", file)
    assert skipped.status == 0
    assert "1 bad line skipped" in skipped.err
    assert run("consume", one, "-e").out == b"a\na\nb\n"


def test_single_hyphen_is_a_delimiter_and_a_file(
    run: Callable[..., Result], write: Callable[..., Path], one: str
) -> None:
    assert run("produce", one, "-K", "-", write(b"k-v\n")).status == 0
    line = b'{"key":"k","value":"w"}\n{"key":null,"value":"x"}\n'
    assert run("produce", one, "--json", "-k", "-", write(line)).status == 0
    assert run("consume", one, "-e", "-K", "-").out == b"k-v\n--w\n--x\n"
    assert run("consume", one, "-e", "-k", "-").out == b"w\nx\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["consume", "none-{topic}"], "topic 'none-{topic}' does not exist"),
        (["consume", "{topic}", "-p", "1,9"], "has no partition 9; the last is 3"),
        (["produce", "{topic}", "-p", "9"], "has no partition 9; the last is 3"),
        (["consume", "^x"], "regular expressions need a group"),
    ],
)
def test_missing_topic_or_partition_is_one_line(
    run: Callable[..., Result], topic: str, arguments: list[str], words: str
) -> None:
    result = run(*(item.format(topic=topic) for item in arguments))
    assert result.status in (1, 2)
    assert words.format(topic=topic) in result.err
    assert result.err.count("\n") == 1


# -- places


@pytest.fixture
def ten(one: str, make_producer: MakeProducer) -> str:
    """A topic with the values 0 to 9, a second apart, from 1,000 s after the epoch on."""
    producer = make_producer()
    for number in range(10):
        producer.produce(
            one, str(number), key=f"key-{number % 2}", timestamp=1_000_000 + number * 1000
        )
    assert producer.flush(WAIT_S) == 0
    return one


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["-e"], "0123456789"),
        (["-o", "4", "-e"], "456789"),
        (["-o", "-3", "-e"], "789"),
        (["-o", "-30", "-e"], "0123456789"),
        (["-o", "end", "-e"], ""),
        (["-o", "100", "-e"], ""),
        (["--until", "3"], "012"),
        (["-o", "2", "--until", "-4"], "2345"),
        (["-o", "5", "--until", "2"], ""),
        (["-o", "@1003000", "--until", "@1006500"], "3456"),
        (["-o", "@1970-01-01T00:16:48Z", "-e"], "89"),
        (["-o", "@-1h", "-e"], ""),
        (["--until", "@now"], "0123456789"),
        (["-c", "4"], "0123"),
        (["-k", "key-1", "-e"], "13579"),
        (["-k", "key-1", "-c", "2"], "13"),
    ],
    ids=str,
)
def test_places_and_limits(
    run: Callable[..., Result], ten: str, arguments: list[str], expected: str
) -> None:
    result = run("consume", ten, "-D", "", *arguments)
    assert result.status == 0
    assert result.out.decode() == expected


def test_deleted_beginning_is_a_warning(
    run: Callable[..., Result], ten: str, delete_records: Callable[[Any, int], None]
) -> None:
    delete_records(TopicPartition(ten, 0), 6)
    result = run("consume", ten, "-D", "", "-o", "2", "-e")
    assert (result.status, result.out) == (0, b"6789")
    assert f"{ten}[0]: offset 2 was deleted; reading begins at 6" in result.err
    assert (
        f"{ten}[0]: offset 11 is after the end; reading begins at 10"
        in run("consume", ten, "-o", "11", "-e").err
    )


def test_partitions_are_chosen(run: Callable[..., Result], topic: str, fill: Fill) -> None:
    for partition in range(4):
        fill(topic, 1, partition)
    out = run("consume", topic, "-p", "2-3,2", "-p", "0", "-e", "-f", "%p ").out
    assert sorted(out.split()) == [b"0", b"2", b"3"]


def test_aborted_records_are_not_printed(
    run: Callable[..., Result], one: str, make_transactional: MakeProducer
) -> None:
    producer = make_transactional()
    producer.init_transactions(WAIT_S)
    for value, commit in (("kept", True), ("aborted", False)):
        producer.begin_transaction()
        producer.produce(one, value)
        (producer.commit_transaction if commit else producer.abort_transaction)(WAIT_S)
    assert run("consume", one, "-e").out == b"kept\n"


# -- groups


def test_group_commits_what_was_printed(
    run: Callable[..., Result], ten: str, unique: Unique
) -> None:
    group = unique("group")
    first = run("consume", ten, "-D", "", "-G", group, "-c", "4")
    assert (first.status, first.out) == (0, b"0123")
    stored = run("consume", ten, "-D", "", "-o", "stored", "-X", f"group.id={group}", "-e")
    assert stored.out == b"456789"
    assert run("consume", ten, ten, "-D", "", "-G", group, "-e").out == b"456789"
    assert run("consume", ten, "-D", "", "-G", group, "-e").out == b""


def test_group_without_offsets_begins_where_asked(
    run: Callable[..., Result], ten: str, unique: Unique
) -> None:
    assert run("consume", ten, "-D", "", "-G", unique("group"), "-o", "end", "-e").out == b""
    assert run("consume", ten, "-D", "", "-G", unique("group"), "-e").out == b"0123456789"


def test_group_with_a_pattern_reads_all_topics(
    run: Callable[..., Result], cluster: Any, unique: Unique
) -> None:
    prefix = unique("pattern")
    for name in ("a", "b"):
        cluster.create_topic(f"{prefix}-{name}", 1)
    out = run("consume", f"^{prefix}-.*", "-G", unique("group"), "-e", "-q")
    assert (out.status, out.out) == (0, b"")


# -- processes


def test_pipe_copies_and_follows(start: Callable[..., subprocess.Popen[bytes]], one: str) -> None:
    reader = start("consume", one, "-o", "beginning", "-q")
    writer = start("produce", one, "-q")
    assert writer.stdin is not None
    assert reader.stdout is not None
    for text in (b"first\n", b"second\n"):  # each one arrives before the next is written
        writer.stdin.write(text)
        writer.stdin.flush()
        assert reader.stdout.readline() == text
    writer.stdin.close()
    assert writer.wait(WAIT_S) == 0

    reader.send_signal(signal.SIGINT)
    assert reader.wait(WAIT_S) == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_sends_what_was_read_and_reports_it(
    start: Callable[..., subprocess.Popen[bytes]],
    run: Callable[..., Result],
    one: str,
    wait_until: WaitUntil,
    number: signal.Signals,
) -> None:
    writer = start("produce", one)
    assert writer.stdin is not None
    writer.stdin.write(b"a\nb\nunfinished")
    writer.stdin.flush()
    wait_until(lambda: run("consume", one, "-e", "-q").out)

    writer.send_signal(number)
    _, err = writer.communicate(timeout=WAIT_S)

    assert writer.returncode == 130
    assert b"interrupted after standard input, line 2" in err
    assert b"2 records" in err.splitlines()[-1]
    assert run("consume", one, "-e", "-q").out == b"a\nb\n"


def test_closed_pipe_ends_the_consumer_quietly(ten: str) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        result = subprocess.run(
            [sys.executable, "-m", "cykafka", "consume", ten, "-e"],
            stdout=write_end, stderr=subprocess.PIPE, timeout=WAIT_S, check=False,
        )  # fmt: skip
    finally:
        os.close(write_end)
    assert result.returncode == 141
    assert result.stderr == b""


def test_closed_input_is_an_error(one: str) -> None:
    result = subprocess.run(
        ["sh", "-c", 'exec "$0" -m cykafka produce "$1" -q <&-', sys.executable, one],
        stderr=subprocess.PIPE, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert result.returncode == 1
    assert result.stderr == b"cykafka: cannot read standard input: Bad file descriptor\n"


def test_full_disk_is_an_error(ten: str) -> None:
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [sys.executable, "-m", "cykafka", "consume", ten, "-e"],
            stdout=full, stderr=subprocess.PIPE, timeout=WAIT_S, check=False,
        )  # fmt: skip
    assert result.returncode == 1
    assert result.stderr == b"cykafka: cannot write the output: No space left on device\n"


def test_pipe_that_does_not_block_gets_every_byte(
    one: str, run: Callable[..., Result], write: Callable[..., Path],
    wait_until: WaitUntil,
) -> None:  # fmt: skip
    content = b"".join(b"%d\n" % number for number in range(100_000))
    assert run("produce", one, write(content)).status == 0
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    with subprocess.Popen(
        [sys.executable, "-m", "cykafka", "consume", one, "-e", "-q"], stdout=write_end
    ) as process:
        os.close(write_end)
        with open(read_end, "rb") as pipe:
            size = fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ)
            waiting = bytearray(4)

            def full() -> bool:
                fcntl.ioctl(pipe, termios.FIONREAD, waiting)
                return int.from_bytes(waiting, sys.byteorder) > size - 4096  # in pages

            wait_until(full)
            assert pipe.read() == content
        assert process.wait(WAIT_S) == 0


def test_rate_limits_the_pace(
    run: Callable[..., Result], write: Callable[..., Path], one: str
) -> None:
    begun = time.monotonic()
    sent = run("produce", one, "--rate", "20", "-c", "15", write(b"x\n" * 100))
    assert sent.status == 0
    assert time.monotonic() - begun > 0.6
    assert len(run("consume", one, "-e").out) == 30
