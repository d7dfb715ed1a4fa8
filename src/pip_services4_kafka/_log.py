"""The log of connections and queues."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

from pip_services4_components.context import IContext
from pip_services4_components.refer import Descriptor, IReferences
from pip_services4_observability.log import ILogger, LogLevel

_python = logging.getLogger("cykafka")

# Higher levels are errors.
_LEVELS = {
    logging.DEBUG: LogLevel.Debug,
    logging.INFO: LogLevel.Info,
    logging.WARNING: LogLevel.Warn,
}

# Every client gets all properties in options.kafka. librdkafka then warns about properties for
# other kinds of clients.
_OF_OTHERS = "property and will be ignored by this"

# librdkafka also reports these errors, about unreachable brokers, to error_cb.
_REPORTED = ("FAIL [", "ERROR [")

# The shortest time between two log lines for the same kind of error, in seconds.
QUIET_S = 10.0


class Log:
    """Writes to the loggers of pip-services or, without any, to Python's logger "cykafka".

    Exceptions of loggers do not propagate. Thread-safe.

    Parameters
    ----------
    scrub : callable, optional
        Removes a connection's secrets from a text.
    """

    def __init__(self, scrub: Callable[[str], str] | None = None) -> None:
        self._scrub = scrub
        self._loggers: list[ILogger] = []
        self._lock = threading.RLock()  # a signal handler may log in the thread that holds it
        # Kind of error -> the time of its last line, and how many errors it left out since then.
        self._rare: dict[Hashable, tuple[float, int]] = {}

    def set_references(self, references: IReferences) -> None:
        """Add the loggers, as CompositeLogger does."""
        found = references.get_optional(Descriptor(None, "logger", None, None, None))
        self._loggers += [logger for logger in found if isinstance(logger, ILogger)]

    def accepts_debug(self) -> bool:
        """Whether a logger of pip-services accepts lines at debug level."""
        try:
            return any(logger.get_level() >= LogLevel.Debug for logger in self._loggers)
        except Exception:  # foreign code must not stop messages
            return False

    def debug(self, text: str, *args: Any, context: IContext | None = None) -> None:
        """Log at debug level. Formats the arguments only if a logger accepts that level."""
        if self.accepts_debug():
            self.write(logging.DEBUG, _formatted(text, args), None, context)

    def warn(self, text: str, context: IContext | None = None) -> None:
        """Log a warning."""
        self.write(logging.WARNING, text, None, context)

    def error(
        self, text: str, error: BaseException | None, context: IContext | None = None
    ) -> None:
        """Log an error."""
        self.write(logging.ERROR, text, error, context)

    def rare_error(
        self, kind: Hashable, text: str, error: BaseException | None, quiet: float = QUIET_S
    ) -> None:
        """Log an error, unless one of the same kind was logged within `quiet` s.

        The line says how many errors were left out before it.
        """
        now = time.monotonic()
        with self._lock:
            last, left_out = self._rare.get(kind, (-quiet, 0))
            if now - last < quiet:
                self._rare[kind] = last, left_out + 1
                return
            self._rare[kind] = now, 0
        self.error(f"{text} ({left_out} times more)" if left_out else text, error)

    def log(self, level: int, text: str, *args: Any) -> None:
        """Log a line from a cykafka client that has this object as its ``logger``."""
        line = _formatted(text, args)
        if _OF_OTHERS not in line:
            self.write(logging.DEBUG if line.startswith(_REPORTED) else level, line)

    def write(
        self,
        level: int,
        text: str,
        error: BaseException | None = None,
        context: IContext | None = None,
    ) -> None:
        """Log a line at a level of Python's logging."""
        try:
            if self._scrub is not None:
                # Errors that contain a secret become text. For Python's logger all errors do,
                # because it would also write their causes.
                if error is not None and (not self._loggers or self._has_secrets(error)):
                    text, error = f"{text}: {error}", None
                text = self._scrub(text)
            if not self._loggers:
                _python.log(level, "%s", text, exc_info=error)
        except Exception as raised:
            _python.debug("a line was not logged: %s", type(raised).__name__)
            return
        for logger in self._loggers:  # without arguments, they leave a "%" in the text alone
            try:
                logger.log(_LEVELS.get(level, LogLevel.Error), context, error, text)
            except Exception as raised:  # without its text, which may contain a secret
                _python.debug("a logger raised %s", type(raised).__name__)

    def _has_secrets(self, error: BaseException | None) -> bool:
        """Whether an error, its stack trace or one of its causes contains a secret."""
        assert self._scrub is not None
        while error is not None:
            shown = f"{error} {getattr(error, 'stack_trace', '')}"
            if self._scrub(shown) != shown:
                return True
            error = error.__cause__ or error.__context__
        return False


def _formatted(text: str, args: tuple[Any, ...]) -> str:
    try:
        return text % args if args else text
    except Exception:  # raised by an argument's __str__, or the text is no format
        return text
