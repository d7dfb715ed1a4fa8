"""The standard error of Spark's processes, which users need to see only if a job fails."""

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
# The log is cut at this size, so that a stream that runs for weeks does not fill the disk.
_MOST = 16 << 20
# Lines of tracebacks, which do not name the error.
_TRACE = re.compile(r"\s|Traceback \(|\.\.\. \d+ more|$")
_LOSS = "failOnDataLoss is false"
_WARNING = re.compile(r"\S*/cykafka/\S+:\d+: (?:User|Runtime)Warning: (.+)")


class Log:
    """A file without a name, to which a JVM and its Python processes write."""

    def __init__(self) -> None:
        self.file = cast(BinaryIO, tempfile.TemporaryFile("a+b"))  # noqa: SIM115
        # With O_APPEND every process writes at the beginning again after the file was cut.
        flags = fcntl.fcntl(self.file, fcntl.F_GETFL)
        fcntl.fcntl(self.file, fcntl.F_SETFL, flags | os.O_APPEND)
        self._at = 0
        self._rest = b""
        self._last: deque[str] = deque(maxlen=_LAST)

    def close(self) -> None:
        """Close the file, which deletes it."""
        self.file.close()

    def look(self) -> list[str]:
        """Read the new lines and return the source's and the sink's warnings among them."""
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
        """The last lines, without those of tracebacks."""
        self.look()
        return list(self._last)

    def first_error(self) -> str:
        """The first line with an error, or an empty text."""
        said = os.pread(self.file.fileno(), _PIECE, 0).decode(errors="replace")
        found = (line.strip() for line in said.splitlines())
        return next((line for line in found if "rror" in line or "xception" in line), "")
