"""The log of a job as JSON: an object on each line of standard error.

librdkafka and, with ``--verbose``, Spark's JVM write text there. Their lines become messages.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import BufferingHandler
from typing import Any, TextIO

__all__ = ["JsonFormatter", "held_back", "json_lines"]

# What each record has; other attributes are fields of `extra`.
_OWN = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_MOST_HELD = 10_000


class JsonFormatter(logging.Formatter):
    """Formats a record as a JSON object on one line.

    It has the time (ISO 8601, UTC), the level, the logger, the message, the job, the fields that
    the caller gave as ``extra``, and for an exception its traceback.

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
        """`value` without secrets, which JSON might spell in another way."""
        if isinstance(value, Mapping):
            return {str(name): self._clean(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._clean(each) for each in value]
        return self._redact(value) if isinstance(value, str) else value


@contextmanager
def held_back() -> Iterator[list[logging.LogRecord]]:
    """Hold the log of the block back, because its form is not known yet."""
    handler = BufferingHandler(_MOST_HELD)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield handler.buffer
    finally:
        root.removeHandler(handler)


@contextmanager
def json_lines(job: str, redact: Callable[[str], str] = str) -> Iterator[logging.Logger]:
    """Write the log of this process as JSON during the block; yield the job's own logger."""
    sys.stderr.flush()
    stream = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="backslashreplace")
    handler = _Handler(stream)
    handler.setFormatter(JsonFormatter(job, redact))
    root, own = logging.getLogger(), logging.getLogger("cykafka.spark.jobs")
    level = own.level
    root.addHandler(handler)
    own.setLevel(logging.INFO)
    logging.captureWarnings(True)
    try:
        with _stray_lines(own.getChild("stderr")):
            yield own
    finally:
        logging.captureWarnings(False)
        own.setLevel(level)
        root.removeHandler(handler)
        stream.close()


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:
        # If nothing reads standard error any more, a report there would be the next error.
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


@contextmanager
def _stray_lines(log: logging.Logger) -> Iterator[None]:
    """Make each line that is written to standard error a message of `log`."""
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
