"""Records out of files: lines, NDJSON, CSV, or whole files, as columns for a producer."""

from __future__ import annotations

import csv
import fcntl
import json
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from json.encoder import encode_basestring
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from cykafka.cli.failures import Failed, UsageError
from cykafka.cli.interrupts import Interrupts
from cykafka.cli.json_record import Headers, Parts, decode
from cykafka.internal import Pieces, did_you_mean, split

__all__ = ["STANDARD_INPUT", "BadLine", "BadLines", "Chunk", "Input"]

STANDARD_INPUT = Path("/dev/stdin")
_BLOCK = 1 << 20
_ROWS = 10_000
# The largest message.max.bytes of librdkafka.
_MOST_BYTES = 1_000_000_000
_MAX_FIELD = 2**31 - 1
_SHOWN = 5
_BOM = b"\xef\xbb\xbf"
_Item = TypeVar("_Item")
_Column: TypeAlias = Sequence[bytes | None] | Pieces


@dataclass
class Chunk:
    """Records that were read together, as the columns of ``Producer.publish()``."""

    source: str
    """the name of the file"""
    lines: Sequence[int]
    """the number of the line of each record, from 1"""
    values: _Column
    keys: _Column | None = None
    headers: list[Headers | None] | None = None
    partitions: list[int | None] | None = None
    timestamps: list[int | None] | None = None
    topics: list[str | None] | None = None
    size: int = 0
    """how many bytes of the file the records took"""

    def part(self, start: int, stop: int) -> Chunk:
        """Some of the records."""
        count = len(self.values)

        def cut(column: Any) -> Any:
            return column and column[start:stop]

        return Chunk(
            self.source,
            self.lines[start:stop],
            self.values[start:stop],
            cut(self.keys),
            cut(self.headers),
            cut(self.partitions),
            cut(self.timestamps),
            cut(self.topics),
            self.size * min(stop, count) // count - self.size * start // count,
        )


class BadLine(Failed):
    """A line that is no record."""


class BadLines:
    """Counts the lines that are no records, or raises at the first one.

    Parameters
    ----------
    skip : bool
        Whether to go on after them.
    report : callable
        Called with the texts of the first five.
    """

    def __init__(self, skip: bool, report: Callable[[str], None]) -> None:
        self.skip = skip
        self.count = 0
        self._report = report

    def add(self, source: str, line: int, why: str) -> None:
        """Note a bad line.

        Raises
        ------
        BadLine
            Bad lines are not skipped.
        """
        text = f"{source}, line {line}: {why}"
        if not self.skip:
            raise BadLine(f"{text}; --skip-bad skips such lines")
        self.count += 1
        if self.count <= _SHOWN:
            self._report(f"skipped {text}")


@dataclass
class Input:
    """Files, and how to read records from them."""

    files: Sequence[Path]
    bad: BadLines
    interrupts: Interrupts
    delimiter: bytes = b"\n"
    key_delimiter: bytes | None = None
    header_delimiter: bytes | None = None
    key_column: str | None = None
    value_column: str | None = None
    meanwhile: Callable[[], object] = lambda: None
    """called every 0.2 s while a file, such as a pipe, has nothing"""

    def check(self) -> int | None:
        """Look at each file; the bytes of all, None if one is no regular file.

        Raises
        ------
        UsageError
            A file is not readable.
        """
        total: int | None = 0
        for path in self.files:
            if path == STANDARD_INPUT:
                total = None
                continue
            try:
                status = os.stat(path)
                if stat.S_ISREG(status.st_mode):  # opening a pipe would disturb its writer
                    with _opened(path):
                        pass
            except OSError as error:
                raise UsageError(f"cannot read {path}: {error.strerror}") from None
            if stat.S_ISDIR(status.st_mode):
                raise UsageError(f"cannot read {path}: it is a folder; name its files")
            regular = stat.S_ISREG(status.st_mode)
            total = total + status.st_size if regular and total is not None else None
        return total

    def lines(self) -> Iterator[Chunk]:
        """A record for each line, with a key and headers if there are delimiters for them."""
        for path in self.files:
            for source, first, pieces, size in self._pieces(path, self.delimiter):
                if self.header_delimiter is not None:
                    yield from self._parsed(source, first, pieces, size, self._line_with_headers)
                elif self.key_delimiter is not None:
                    yield from self._keyed(source, first, pieces, size, self.key_delimiter)
                else:
                    numbers = range(first, first + len(pieces))
                    yield Chunk(source, numbers, pieces, size=size)

    def ndjson(self) -> Iterator[Chunk]:
        """A record for each line of JSON; `json_record` describes them."""
        for path in self.files:
            for source, first, pieces, size in self._pieces(path, b"\n"):
                lines = list(pieces)
                if first == 1:
                    lines[0] = lines[0].removeprefix(_BOM)
                yield from self._parsed(source, first, lines, size, _json_line)

    def whole(self) -> Iterator[Chunk]:
        """One record for each file."""
        for path in self.files:
            blocks: list[bytes] = []
            size = 0
            for block in self._blocks(path):
                blocks.append(block)
                size += len(block)
                if size > _MOST_BYTES:
                    raise Failed(f"{_name(path)}: it is longer than 1 GB")
            if self.interrupts.requested:
                return  # a part of a file is no record
            yield Chunk(_name(path), range(1, 2), [b"".join(blocks)], size=size)

    def csv(self) -> Iterator[Chunk]:
        """A record for each row of files that begin with a line of names."""
        for path in self.files:
            yield from self._csv(path)

    # -- bytes

    def _blocks(self, path: Path) -> Iterator[bytes]:
        """What the file has, as soon as it has it; up to a signal."""
        try:
            with _opened(path) as file:
                while self.interrupts.readable(file, self.meanwhile):
                    block = os.read(file, _BLOCK)
                    if not block:
                        return
                    yield block
        except OSError as error:
            raise Failed(f"cannot read {_name(path)}: {error.strerror}") from None

    def _pieces(
        self, path: Path, delimiter: bytes
    ) -> Iterator[tuple[str, int, Pieces | list[bytes], int]]:
        """The name of the file, the number of the first line, lines, and their bytes."""
        source = _name(path)
        first = 1
        parts: list[bytes] = []  # of a line without an end
        held = 0
        # Their last bytes, which may be the beginning of a delimiter.
        keep = len(delimiter) - 1
        seam = b""
        for block in self._blocks(path):
            parts.append(block)
            held += len(block)
            near = seam + block
            if delimiter not in near:
                seam = near[-keep:] if keep else b""
                if held > _MOST_BYTES:
                    raise Failed(f"{source}, line {first}: it is longer than 1 GB; check -D")
                continue
            text = b"".join(parts)
            pieces, end = split(text, delimiter)
            yield source, first, pieces, end
            first += len(pieces)
            rest = text[end:]
            parts, held = [rest] if rest else [], len(rest)
            seam = rest[-keep:] if keep else b""
        if parts and not self.interrupts.requested:  # a part of a line is no record
            yield source, first, [b"".join(parts)], held

    # -- lines

    def _keyed(
        self,
        source: str,
        first: int,
        pieces: Pieces | list[bytes],
        size: int,
        delimiter: bytes,
    ) -> Iterator[Chunk]:
        parts = pieces.partition(delimiter) if isinstance(pieces, Pieces) else None
        if parts is None:
            yield from self._parsed(source, first, pieces, size, self._line_with_key)
            return
        keys, values = parts
        yield Chunk(source, range(first, first + len(pieces)), values, keys, size=size)

    def _line_with_key(self, line: bytes) -> Parts:
        assert self.key_delimiter is not None
        key, separator, value = line.partition(self.key_delimiter)
        if not separator:
            raise ValueError(f"it has no key delimiter {_shown(self.key_delimiter)}")
        return Parts(key, value, None, None, None, None)

    def _line_with_headers(self, line: bytes) -> Parts:
        assert self.header_delimiter is not None
        text, separator, rest = line.partition(self.header_delimiter)
        if not separator:
            raise ValueError(f"it has no header delimiter {_shown(self.header_delimiter)}")
        headers: Headers = []
        for each in text.split(b",") if text else ():
            name, equals, value = each.partition(b"=")
            if not name:
                raise ValueError("headers: expected NAME=VALUE,...")
            if b"\0" in name:
                raise ValueError("headers: librdkafka cannot send a name with a NUL character")
            try:
                headers.append((name.decode(), value if equals else None))
            except UnicodeDecodeError:
                raise ValueError("headers: a name is not UTF-8") from None
        if self.key_delimiter is None:
            return Parts(None, rest, headers, None, None, None)
        return self._line_with_key(rest)._replace(headers=headers)

    def _parsed(
        self,
        source: str,
        first: int,
        pieces: Iterable[bytes],
        size: int,
        parse: Callable[[bytes], Parts | None],
    ) -> Iterator[Chunk]:
        """The records before a bad line that is not skipped, and then its error."""
        rows: list[Parts] = []
        numbers: list[int] = []
        failure: BadLine | None = None
        for number, line in enumerate(pieces, first):
            try:
                parts = parse(line)
            except ValueError as error:
                try:
                    self.bad.add(source, number, str(error))
                except BadLine as bad:
                    failure = bad
                    break
                continue
            if parts is not None:
                rows.append(parts)
                numbers.append(number)
        if rows:
            yield _columns(source, numbers, rows, size)
        if failure is not None:
            raise failure

    # -- CSV

    def _csv(self, path: Path) -> Iterator[Chunk]:
        csv.field_size_limit(_MAX_FIELD)
        source = _name(path)
        lines = _TextLines(self._pieces(path, b"\n"))
        reader = csv.reader(lines, strict=True)
        try:
            names = next(reader, None)
        except csv.Error as error:
            raise BadLine(f"{source}, line 1: {error}") from None
        if names is None:
            if self.interrupts.requested:
                return
            raise Failed(f"{source}: expected a line with the names of the columns, it is empty")
        if len(set(names)) != len(names) or not names:
            raise Failed(f"{source}, line 1: each column needs a name of its own")
        row_to_parts = self._row_parser(source, names)
        rows: list[Parts] = []
        numbers: list[int] = []
        failure: BadLine | None = None
        while failure is None:
            number = reader.line_num + 1
            try:
                row = next(reader)
                if row:
                    rows.append(row_to_parts(row))
                    numbers.append(number)
            except StopIteration:
                break
            except (csv.Error, ValueError) as error:
                if self.interrupts.requested and not lines.left:
                    break  # a signal has cut the row
                try:
                    self.bad.add(source, number, str(error))
                except BadLine as bad:
                    failure = bad
            if rows and (not lines.left or len(rows) >= _ROWS):
                yield _columns(source, numbers, rows, lines.taken())
                rows, numbers = [], []
        if rows:
            yield _columns(source, numbers, rows, lines.taken())
        if failure is not None:
            raise failure

    def _row_parser(self, source: str, names: list[str]) -> Callable[[list[str]], Parts]:
        key = None if self.key_column is None else _column(source, names, self.key_column)
        value = None if self.value_column is None else _column(source, names, self.value_column)
        members = (json.dumps(name, ensure_ascii=False).replace("%", "%%") for name in names)
        template = "{" + ",".join(f"{member}:%s" for member in members) + "}"
        count = len(names)

        def parse(row: list[str]) -> Parts:
            if len(row) != count:
                raise ValueError(f"it has {len(row)} fields, the first line has {count}")
            try:
                return Parts(
                    None if key is None else row[key].encode(),
                    (
                        template % tuple(map(encode_basestring, row))
                        if value is None
                        else row[value]
                    ).encode(),
                    None,
                    None,
                    None,
                    None,
                )
            except UnicodeEncodeError:
                raise ValueError("it is not UTF-8; convert the file, as with iconv") from None

        return parse


class _TextLines:
    """The lines of a file as texts for ``csv.reader``; it knows when it has to wait for more."""

    def __init__(self, pieces: Iterator[tuple[str, int, Iterable[bytes], int]]) -> None:
        self._pieces = pieces
        self._lines: Iterator[bytes] = iter(())
        self._size = 0
        self._first = True
        self.left = 0
        """how many lines were read but not taken"""

    def __iter__(self) -> _TextLines:
        return self

    def __next__(self) -> str:
        while not self.left:
            _, _, pieces, size = next(self._pieces)
            lines = list(pieces)
            if self._first:
                lines[0] = lines[0].removeprefix(_BOM)
                self._first = False
            self._lines = iter(lines)
            self._size += size
            self.left = len(lines)
        self.left -= 1
        return next(self._lines).decode("utf-8", "surrogateescape") + "\n"

    def taken(self) -> int:
        """The bytes of the blocks read since the last call."""
        size, self._size = self._size, 0
        return size


def _json_line(line: bytes) -> Parts | None:
    return decode(line) if line.strip() else None


def _columns(source: str, numbers: list[int], rows: list[Parts], size: int) -> Chunk:
    keys, values, headers, partitions, timestamps, topics = map(list, zip(*rows, strict=True))
    return Chunk(
        source,
        numbers,
        values,
        _unless_empty(keys),
        _unless_empty(headers),
        _unless_empty(partitions),
        _unless_empty(timestamps),
        _unless_empty(topics),
        size,
    )


def _unless_empty(column: list[_Item | None]) -> list[_Item | None] | None:
    return None if column.count(None) == len(column) else column


def _column(source: str, names: list[str], name: str) -> int:
    if name not in names:
        hint = did_you_mean(name, names) or f"; there are {', '.join(names)}"
        raise UsageError(f"{source}: there is no column {name!r}{hint}")
    return names.index(name)


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    if path == STANDARD_INPUT:
        with suppress(OSError):  # only pipes have a size; a larger one needs fewer reads
            fcntl.fcntl(0, fcntl.F_SETPIPE_SZ, _BLOCK)
        yield 0
        return
    # Opening a named pipe would otherwise wait for its writer, and Ctrl-C could not end the wait.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        yield file
    finally:
        os.close(file)


def _name(path: Path) -> str:
    return "standard input" if path == STANDARD_INPUT else str(path)


def _shown(delimiter: bytes) -> str:
    return repr(delimiter)[1:]
