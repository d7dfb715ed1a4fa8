"""What Spark's processes write to standard error, where nobody looks at it while all goes well."""

from __future__ import annotations

import fcntl
import os
import re
import tempfile
from collections import deque
from typing import BinaryIO, cast

__all__ = ["Log"]

_LAST, _WIDEST = 20, 300
_PIECE = 1 << 20
# So much of it is kept; a stream that goes on for weeks must not fill the disk with it.
_MOST = 16 << 20
# Lines of traces, which say where and not what.
_TRACE = re.compile(r"\s|Traceback \(|\.\.\. \d+ more|$")
_LOSS = "failOnDataLoss is false"
_WARNING = re.compile(r"\S*/cykafka/\S+:\d+: (?:User|Runtime)Warning: (.+)")


class Log:
    """A file without a name, to which a JVM writes, and its Python processes by it."""

    def __init__(self) -> None:
        self.file = cast(BinaryIO, tempfile.TemporaryFile("a+b"))  # noqa: SIM115
        # What is written after the file was cut goes to its beginning, whoever writes.
        flags = fcntl.fcntl(self.file, fcntl.F_GETFL)
        fcntl.fcntl(self.file, fcntl.F_SETFL, flags | os.O_APPEND)
        self._at = 0
        self._rest = b""
        self._last: deque[str] = deque(maxlen=_LAST)

    def close(self) -> None:
        """Close it; what was in it is gone."""
        self.file.close()

    def look(self) -> list[str]:
        """Read what is new; returns what the source and the sink warn of in it."""
        warnings = []
        while data := os.pread(self.file.fileno(), _PIECE, self._at):
            self._at += len(data)
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                words = line.decode(errors="replace").rstrip()
                if not _TRACE.match(words):
                    self._last.append(words[:_WIDEST])
                warning = _WARNING.match(words)
                if warning or _LOSS in words:
                    warnings.append(warning[1] if warning else words)
        if self._at > _MOST:
            os.ftruncate(self.file.fileno(), 0)
            self._at = 0
        return warnings

    def last(self) -> list[str]:
        """The last lines, but for those of traces."""
        self.look()
        return list(self._last)

    def first_error(self) -> str:
        """The first line that tells of an error, or nothing."""
        said = os.pread(self.file.fileno(), _PIECE, 0).decode(errors="replace")
        found = (line.strip() for line in said.splitlines())
        return next((line for line in found if "rror" in line or "xception" in line), "")
