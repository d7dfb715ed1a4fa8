"""Log lines of connections and queues."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from pip_services4_components.refer import Descriptor, References
from pip_services4_observability.log import Logger, LogLevel

from pip_services4_kafka._log import Log

pytestmark = pytest.mark.ours


class Recorder(Logger):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[tuple[int, str, Any]] = []

    def _write(self, level: int, context: Any, error: Any, message: str) -> None:
        self.lines.append((level, message, error))


def scrub(text: str) -> str:
    return text.replace("s3cret", "[hidden]")


def with_loggers(log: Log, *loggers: Logger) -> Log:
    names = [Descriptor("test", "logger", "test", str(i), "1.0") for i in range(len(loggers))]
    log.set_references(
        References.from_tuples(
            *(part for pair in zip(names, loggers, strict=True) for part in pair)
        )
    )
    return log


def test_errors_reach_loggers_unless_their_texts_have_secrets() -> None:
    logger = Recorder()
    log = with_loggers(Log(scrub), logger)
    harmless = ValueError("harmless")
    log.error("100% s3cret", harmless)
    log.error("failed", ValueError("for s3cret"))
    caused = ValueError("failed")
    caused.__context__ = ValueError("s3cret")
    log.error("caused", caused)

    assert logger.lines == [
        (LogLevel.Error, "100% [hidden]", harmless),
        (LogLevel.Error, "failed: for [hidden]", None),
        (LogLevel.Error, "caused: failed", None),
    ]


def test_without_loggers_no_traceback_has_secrets(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("failed")
    error.__cause__ = ValueError("s3cret")
    Log(scrub).error("text", error)
    Log().error("a queue's", error)

    connection, queue = caplog.records
    assert (connection.message, connection.exc_info) == ("text: failed", None)
    assert queue.exc_info is not None
    assert queue.exc_info[1] is error


def test_lines_of_clients() -> None:
    logger = Recorder()
    log = with_loggers(Log(scrub), logger)
    for level, facility, text in (
        (logging.ERROR, "FAIL", "Connection refused"),
        (logging.WARNING, "CONFWARN", "x is a consumer property and will be ignored by this y"),
        (logging.WARNING, "TERM", "s3cret"),
        (logging.CRITICAL, "FATAL", "fatal"),
    ):
        log.log(level, "%s [%s] %s", facility, "client", text)

    assert logger.lines == [
        (LogLevel.Debug, "FAIL [client] Connection refused", None),
        (LogLevel.Warn, "TERM [client] [hidden]", None),
        (LogLevel.Error, "FATAL [client] fatal", None),
    ]


def test_rare_errors_are_counted() -> None:
    logger = Recorder()
    log = with_loggers(Log(), logger)
    for kind in (1, 1, 2, 1):
        log.rare_error(kind, f"kind {kind}", None)
    log.rare_error(1, "kind 1", None, 0)

    assert [text for _, text, _ in logger.lines] == ["kind 1", "kind 2", "kind 1 (2 times more)"]


def test_debug_lines_are_formatted_only_for_a_logger_that_accepts_them() -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise AssertionError("formatted")

    logger = Recorder()
    log = with_loggers(Log(), logger)
    log.debug("%s", Unprintable())
    assert logger.lines == []

    logger.set_level(LogLevel.Debug)
    log.debug("%s", "text")
    assert logger.lines == [(LogLevel.Debug, "text", None)]


def test_exceptions_do_not_propagate(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Recorder):
        def get_level(self) -> Any:
            raise RuntimeError("no level")

        def _write(self, *_: Any) -> None:
            raise RuntimeError("s3cret")

    class Unprintable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    logger = Recorder()
    log = with_loggers(Log(scrub), Broken(), logger)
    caplog.set_level(logging.DEBUG, "cykafka")
    log.debug("text")
    log.warn("one")
    log.error("lost", Unprintable())
    log.rare_error("kind", "lost", Unprintable())
    log.log(logging.INFO, "%s [%s]", "a", "b", "c")
    log.log(logging.WARNING, "%s", Unprintable())

    assert [text for _, text, _ in logger.lines] == ["one", "%s [%s]", "%s"]
    assert "s3cret" not in caplog.text
