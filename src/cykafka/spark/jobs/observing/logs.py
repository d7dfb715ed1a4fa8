"""A job's logs on standard error: JSON lines, and the log of Spark's processes."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import re
import sys
import tempfile
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import BufferingHandler
from typing import Any, BinaryIO, TextIO, cast

__all__ = ["JsonFormatter", "SparkStderr", "buffer_log", "log_as_json"]


# -- as JSON

# What each record has; other attributes are fields of `extra`.
_OWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_MOST_HELD = 10_000


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object on one line.

    The object contains the time (ISO 8601, UTC), the level, the logger, the message, the job, the
    fields that the caller passed as ``extra``, and an exception's traceback.

    Parameters
    ----------
    job : str
    redact : callable
        Returns a text without the secrets in it.
    """

    def __init__(self, job: str, redact: Callable[[str], str] = str) -> None:
        super().__init__()
        self._job = job
        self._redact = redact

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": time.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "job": self._job,
            **{name: value for name, value in vars(record).items() if name not in _OWN},
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(self._clean(line), ensure_ascii=False, default=str)

    def _clean(self, value: Any) -> Any:
        """Remove secrets from `value` first, because JSON might spell them differently."""
        if isinstance(value, Mapping):
            return {str(name): self._clean(item) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [self._clean(item) for item in value]
        return self._redact(value) if isinstance(value, str) else value


@contextmanager
def buffer_log() -> Iterator[list[logging.LogRecord]]:
    """Buffer the block's log records, because the log format is not known yet."""
    handler = BufferingHandler(_MOST_HELD)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler.buffer
    finally:
        root.removeHandler(handler)


@contextmanager
def log_as_json(job: str, redact: Callable[[str], str] = str) -> Iterator[logging.Logger]:
    """Write the log of this process as JSON during the block; yield the job's own logger."""
    sys.stderr.flush()
    stream = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace")
    handler = _JsonHandler(stream)
    handler.setFormatter(JsonFormatter(job, redact))
    root, own = logging.getLogger(), logging.getLogger("cykafka.spark.jobs")
    level = own.level
    root.addHandler(handler)
    own.setLevel(logging.INFO)
    logging.captureWarnings(True)
    try:
        with _log_stderr(own.getChild("stderr")):
            yield own
    finally:
        logging.captureWarnings(False)
        own.setLevel(level)
        root.removeHandler(handler)
        stream.close()


class _JsonHandler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:
        # If nothing reads standard error any more, a report there would be the next error.
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


@contextmanager
def _log_stderr(log: logging.Logger) -> Iterator[None]:
    """Log each line that anything writes to standard error as a message in `log`."""
    real = os.dup(2)
    source, sink = os.pipe()
    os.dup2(sink, 2)
    os.close(sink)
    # Spark's JVM may keep the pipe open. So a line marks the end.
    end = f"{uuid.uuid4().hex}\n".encode()

    def pass_on() -> None:
        with open(source, "rb") as lines:
            for line in lines:
                text = line.removesuffix(end).decode(errors="replace").rstrip()
                if text:
                    log.info(text)
                if line.endswith(end):
                    return

    thread = threading.Thread(target=pass_on, name="cykafka-stderr", daemon=True)
    thread.start()
    try:
        yield
    finally:
        sys.stderr.flush()
        os.write(2, end)
        thread.join()
        os.dup2(real, 2)
        os.close(real)


# -- of Spark

_LAST, _WIDEST = 20, 300
_PIECE = 1 << 20
# The job truncates the log at this size, so that a stream that runs for weeks does not fill the
# disk.
_MOST = 16 << 20
# Lines of tracebacks, which do not name the error.
_TRACE = re.compile(r"\s|Traceback \(|\.\.\. \d+ more|$")
_EXCEPTION = re.compile(r"(?:Caused by: )?(?:\w+\.)+\w*(?:Exception|Error): ")
_LOSS = "failOnDataLoss is false"
_WARNING = re.compile(r"\S*/cykafka/\S+:\d+: (?:User|Runtime)Warning: (.+)")


class SparkStderr:
    """An unnamed file to which a JVM and its Python processes write."""

    def __init__(self) -> None:
        self.file = cast(BinaryIO, tempfile.TemporaryFile("a+b"))  # noqa: SIM115
        # With O_APPEND every process writes at the beginning again after the file is truncated.
        flags = fcntl.fcntl(self.file, fcntl.F_GETFL)
        fcntl.fcntl(self.file, fcntl.F_SETFL, flags | os.O_APPEND)
        self._at = 0
        self._rest = b""
        self._last: deque[str] = deque(maxlen=_LAST)

    def close(self) -> None:
        """Close the file, which deletes it."""
        self.file.close()

    def read_warnings(self) -> list[str]:
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
        self.read_warnings()
        return list(self._last)

    def first_error(self) -> str:
        """The first line with an exception, else with an error, or an empty text."""
        said = os.pread(self.file.fileno(), _PIECE, 0).decode(errors="replace")
        lines = [line.strip() for line in said.splitlines()]
        found = [line for line in lines if "rror" in line or "xception" in line]
        return next((line for line in found if _EXCEPTION.match(line)), next(iter(found), ""))
