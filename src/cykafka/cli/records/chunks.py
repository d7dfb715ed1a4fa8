"""Reads records from files (lines, JSON, CSV, whole files) as columns for a producer."""

from __future__ import annotations

import csv
import fcntl
import gzip
import json
import os
import stat
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from json.encoder import encode_basestring
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from cykafka.cli.records.json_record import Headers, Parts, Writers, decode, parse, to_bytes
from cykafka.cli.terminal.failures import BadRecords, Failed, UsageError
from cykafka.cli.terminal.interrupts import Interrupts
from cykafka.internal import Pieces, did_you_mean, split

__all__ = ["STANDARD_INPUT", "Chunk", "Input", "limit_records"]

STANDARD_INPUT = Path("/dev/stdin")
_BLOCK = 1 << 20
_ROWS = 10_000
# librdkafka's largest message.max.bytes.
_MOST_BYTES = 1_000_000_000
_MAX_FIELD = 2**31 - 1
_BOM = b"\xef\xbb\xbf"
# RuntimeError: the file in the .zip has a password.
_UNPACK_ERRORS = (EOFError, NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error)
_Column: TypeAlias = Sequence[bytes | None] | Pieces
# File name, number of the first line, lines, and their bytes.
_Lines: TypeAlias = tuple[str, int, Pieces | list[bytes], int]


@dataclass
class Chunk:
    """Records that were read together, as columns for ``Producer.publish()``."""

    source: str
    """the file's name"""
    lines: Sequence[int]
    """each record's line number, from 1"""
    values: _Column
    keys: _Column | None = None
    headers: list[Headers | None] | None = None
    partitions: list[int | None] | None = None
    timestamps: list[int | None] | None = None
    topics: list[str | None] | None = None
    size: int = 0
    """how many bytes the records take in the file"""

    def part(self, start: int, stop: int) -> Chunk:
        """Return the records from `start` up to `stop`."""
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


def limit_records(chunks: Iterator[Chunk], count: int | None) -> Iterator[Chunk]:
    """Yield the first `count` records, or all if `count` is None."""
    left = count
    for chunk in chunks:
        if left is None:
            yield chunk
            continue
        size = len(chunk.lines)
        yield chunk if size <= left else chunk.part(0, left)
        left -= min(size, left)
        if not left:
            return


@dataclass
class Input:
    """Files, and how to read records from them."""

    files: Sequence[Path]
    bad: BadRecords
    interrupts: Interrupts
    delimiter: bytes = b"\n"
    key_delimiter: bytes | None = None
    header_delimiter: bytes | None = None
    key_column: str | None = None
    value_column: str | None = None
    writers: Writers | None = None
    """what makes bytes of JSON, in lines, in JSON lines and in whole files"""
    skips_empty: bool = False
    """whether `writers` leave empty keys and values as they are"""
    unpack: bool = False
    """whether to read the contents of .gz and .zip files"""
    meanwhile: Callable[[], object] = lambda: None
    """called every 0.2 s while waiting for a file's data, such as a pipe's"""

    def check(self) -> int | None:
        """Check each file. Returns the total bytes, or None if unknown.

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
                raise UsageError(f"cannot read {path}: it is a directory; name its files")
            known = stat.S_ISREG(status.st_mode) and not self._is_packed(path)
            total = total + status.st_size if known and total is not None else None
        return total

    def lines(self) -> Iterator[Chunk]:
        """Yield one record per line, with a key and headers if their delimiters are set."""
        key_delimiter = self.key_delimiter
        plain = self.header_delimiter is None and self.writers is None
        for path in self.files:
            for source, first, pieces, size in self._pieces(path, self.delimiter):
                numbers = range(first, first + len(pieces))
                parts = None
                if plain and key_delimiter is not None and isinstance(pieces, Pieces):
                    parts = pieces.partition(key_delimiter)
                if parts is not None:
                    keys, values = parts
                    yield Chunk(source, numbers, values, keys, size=size)
                elif plain and key_delimiter is None:
                    yield Chunk(source, numbers, pieces, size=size)
                else:
                    yield from self._parsed(source, first, pieces, size, self._line)

    def ndjson(self) -> Iterator[Chunk]:
        """Yield one record per line of JSON; `json_record` describes the format."""
        for path in self.files:
            yield from self._json(self._pieces(path, b"\n"), self._json_line)

    def whole(self) -> Iterator[Chunk]:
        """Yield one record per file."""
        for path in self.files:
            blocks: list[bytes] = []
            size = 0
            for block in self._blocks(path):
                blocks.append(block)
                size += len(block)
                if size > _MOST_BYTES:
                    raise Failed(f"{_name(path)}: it is longer than 1 GB")
            if self.interrupts.requested:
                return  # part of a file is not a record
            yield from self._parsed(_name(path), 1, [b"".join(blocks)], size, self._line)

    def csv(self) -> Iterator[Chunk]:
        """Yield one record per row, from files that begin with a header line."""
        for path in self.files:
            yield from self._csv(_name(path), self._pieces(path, b"\n"))

    def objects(self, form: Literal["csv", "ndjson"] | None = None) -> Iterator[Chunk]:
        """Yield one record per JSON object: NDJSON lines unchanged, or CSV rows.

        The key is the member `key_column`, or by default the first object's first member.

        Parameters
        ----------
        form : {"csv", "ndjson"}, optional
            None: a file whose first character is ``{`` is NDJSON.
        """
        for path in self.files:
            pieces = self._pieces(path, b"\n")
            begin = next(pieces, None)
            if begin is not None:
                text = b"".join(begin[2]).removeprefix(_BOM)
                pieces = chain([begin], pieces)
                is_json = text.lstrip().startswith(b"{") if form is None else form == "ndjson"
                if is_json:
                    yield from self._json(pieces, self._object_parser())
                else:
                    yield from self._csv(begin[0], pieces, first_is_key=True)

    # -- bytes

    def _blocks(self, path: Path) -> Iterator[bytes]:
        """Yield the file's data as soon as it is available, until a signal."""
        try:
            if self._is_packed(path):
                with _unpacked(path) as member:
                    while block := member.read(_BLOCK):
                        yield block
                return
            with _opened(path) as file:
                while self.interrupts.wait_readable(file, self.meanwhile):
                    block = os.read(file, _BLOCK)
                    if not block:
                        return
                    yield block
        except OSError as error:
            raise Failed(f"cannot read {_name(path)}: {error.strerror or error}") from None
        except _UNPACK_ERRORS as error:
            raise Failed(f"cannot read {_name(path)}: {error}") from None

    def _is_packed(self, path: Path) -> bool:
        return self.unpack and path.suffix.lower() in (".gz", ".zip")

    def _pieces(self, path: Path, delimiter: bytes) -> Iterator[_Lines]:
        source = _name(path)
        first = 1
        parts: list[bytes] = []  # of a line without an end
        held = 0
        # Their last bytes, which may begin a delimiter.
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
        if parts and not self.interrupts.requested:  # part of a line is not a record
            yield source, first, [b"".join(parts)], held

    # -- lines

    def _line(self, line: bytes) -> Parts:
        if self.header_delimiter is not None:
            parts = self._line_with_headers(line)
        elif self.key_delimiter is not None:
            parts = self._line_with_key(line)
        else:
            parts = Parts(value=line)
        if self.writers is None:
            return parts
        return self.writers.encode(parts, skips_empty=self.skips_empty)

    def _line_with_key(self, line: bytes) -> Parts:
        assert self.key_delimiter is not None
        key, separator, value = line.partition(self.key_delimiter)
        if not separator:
            raise ValueError(f"it has no key delimiter {_shown(self.key_delimiter)}")
        return Parts(key, value)

    def _line_with_headers(self, line: bytes) -> Parts:
        assert self.header_delimiter is not None
        text, separator, rest = line.partition(self.header_delimiter)
        if not separator:
            raise ValueError(f"it has no header delimiter {_shown(self.header_delimiter)}")
        headers: Headers = []
        for pair in text.split(b",") if text else ():
            name, equals, value = pair.partition(b"=")
            if not name:
                raise ValueError("headers: expected NAME=VALUE,...")
            if b"\0" in name:
                raise ValueError("headers: librdkafka cannot send a name with a NUL character")
            try:
                headers.append((name.decode(), value if equals else None))
            except UnicodeDecodeError:
                raise ValueError("headers: a name is not UTF-8") from None
        if self.key_delimiter is None:
            return Parts(value=rest, headers=headers)
        return self._line_with_key(rest)._replace(headers=headers)

    def _parsed(
        self,
        source: str,
        first: int,
        pieces: Iterable[bytes],
        size: int,
        parse: Callable[[bytes], Parts | None],
    ) -> Iterator[Chunk]:
        """Yield records. If a bad line ends the work, first yield the records before that line."""
        rows: list[Parts] = []
        numbers: list[int] = []
        failure: Failed | None = None
        for number, line in enumerate(pieces, first):
            try:
                parts = parse(line)
            except ValueError as error:
                failure = self.bad.add(f"{source}, line {number}", str(error))
                if failure is not None:
                    break
                continue
            if parts is not None:
                rows.append(parts)
                numbers.append(number)
        if rows:
            yield _columns(source, numbers, rows, size)
        if failure is not None:
            raise failure

    # -- JSON

    def _json(
        self, pieces: Iterable[_Lines], parse_line: Callable[[bytes], Parts | None]
    ) -> Iterator[Chunk]:
        for source, first, found, size in pieces:
            lines = list(found)
            if first == 1:
                lines[0] = lines[0].removeprefix(_BOM)
            yield from self._parsed(source, first, lines, size, parse_line)

    def _json_line(self, line: bytes) -> Parts | None:
        return decode(line, self.writers or Writers()) if line.strip() else None

    def _object_parser(self) -> Callable[[bytes], Parts | None]:
        key = self.key_column

        def parse_line(line: bytes) -> Parts | None:
            nonlocal key
            text = line.strip()
            if not text:
                return None
            members = parse(text)
            if not isinstance(members, dict) or not members:
                raise ValueError("expected a JSON object with members")
            if key is None:
                key = next(iter(members))
            if key not in members:
                hint = did_you_mean(key, members) or f"; it has {', '.join(members)}"
                raise ValueError(f"no member {key!r} for the key{hint}")
            return Parts(to_bytes(key, members[key]), text)

        return parse_line

    # -- CSV

    def _csv(
        self, source: str, pieces: Iterator[_Lines], first_is_key: bool = False
    ) -> Iterator[Chunk]:
        csv.field_size_limit(_MAX_FIELD)
        lines = _TextLines(pieces)
        reader = csv.reader(lines, strict=True)
        try:
            names = next(reader, None)
        except csv.Error as error:
            raise Failed(f"{source}, line 1: {error}") from None
        if names is None:
            if self.interrupts.requested:
                return
            raise Failed(f"{source}: expected a line with the column names, but it is empty")
        if len(set(names)) != len(names) or not names:
            raise Failed(f"{source}, line 1: column names must be unique")
        key = names[0] if first_is_key and self.key_column is None else self.key_column
        row_to_parts = self._row_parser(source, names, key)
        rows: list[Parts] = []
        numbers: list[int] = []
        failure: Failed | None = None
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
                    break  # a signal cut the row off
                failure = self.bad.add(f"{source}, line {number}", str(error))
            if rows and (not lines.left or len(rows) >= _ROWS):
                yield _columns(source, numbers, rows, lines.taken())
                rows, numbers = [], []
        if rows:
            yield _columns(source, numbers, rows, lines.taken())
        if failure is not None:
            raise failure

    def _row_parser(
        self, source: str, names: list[str], key_column: str | None
    ) -> Callable[[list[str]], Parts]:
        key = None if key_column is None else _column(source, names, key_column)
        value = None if self.value_column is None else _column(source, names, self.value_column)
        members = (json.dumps(name, ensure_ascii=False).replace("%", "%%") for name in names)
        template = "{" + ",".join(f"{member}:%s" for member in members) + "}"
        count = len(names)

        def parse(row: list[str]) -> Parts:
            if len(row) != count:
                raise ValueError(f"it has {len(row)} fields, the first line has {count}")
            try:
                text = (
                    template % tuple(map(encode_basestring, row)) if value is None else row[value]
                )
                return Parts(None if key is None else row[key].encode(), text.encode())
            except UnicodeEncodeError:
                raise ValueError("it is not UTF-8; convert the file, as with iconv") from None

        return parse


class _TextLines:
    """A file's lines as texts for ``csv.reader``; `left` tells when the next line may block."""

    def __init__(self, pieces: Iterator[_Lines]) -> None:
        self._pieces = pieces
        self._lines: Iterator[bytes] = iter(())
        self._size = 0
        self._first = True
        self.left = 0
        """the number of lines read but not taken"""

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
        """Return the bytes in the blocks read since the last call."""
        size, self._size = self._size, 0
        return size


def _columns(source: str, numbers: list[int], rows: list[Parts], size: int) -> Chunk:
    columns = map(list, zip(*rows, strict=True))
    keys, values, headers, partitions, timestamps, topics = (
        None if column.count(None) == len(column) else column for column in columns
    )
    values = values or [None] * len(rows)
    return Chunk(source, numbers, values, keys, headers, partitions, timestamps, topics, size)


def _column(source: str, names: list[str], name: str) -> int:
    if name not in names:
        hint = did_you_mean(name, names) or f"; it has {', '.join(names)}"
        raise UsageError(f"{source} has no column {name!r}{hint}")
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


@contextmanager
def _unpacked(path: Path) -> Iterator[gzip.GzipFile | IO[bytes]]:
    if path.suffix.lower() == ".gz":
        with gzip.open(path) as file:
            yield file
        return
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        if len(members) != 1:
            raise Failed(f"{path}: expected a .zip with one file, it has {len(members)}")
        with archive.open(members[0]) as file:
            yield file


def _name(path: Path) -> str:
    return "standard input" if path == STANDARD_INPUT else str(path)


def _shown(delimiter: bytes) -> str:
    return repr(delimiter)[1:]
