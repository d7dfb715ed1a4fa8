"""The log of a job as JSON: an object on each line of standard error."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from logging.handlers import BufferingHandler
from typing import Any

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
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(job, redact))
    root, own = logging.getLogger(), logging.getLogger("cykafka.spark.jobs")
    level = own.level
    root.addHandler(handler)
    own.setLevel(logging.INFO)
    logging.captureWarnings(True)
    try:
        yield own
    finally:
        logging.captureWarnings(False)
        own.setLevel(level)
        root.removeHandler(handler)
