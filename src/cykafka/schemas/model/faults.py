"""Errors of the libraries that read and write values."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["is_fault", "needing_libraries", "shorten_error"]

_INSTALL = "pip install 'cykafka[schemas]'"

_MOST_LETTERS = 500


def is_fault(error: BaseException) -> bool:
    """Whether an error is about a library's input, and not a request to end the process."""
    # A Rust panic is not an Exception, and its class cannot be imported.
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def shorten_error(error: object) -> str:
    """Return an error as one line, truncated, because it may quote a whole record."""
    words = " ".join(str(error).split()) or type(error).__name__
    return words if len(words) <= _MOST_LETTERS else f"{words[:_MOST_LETTERS]} ..."


@contextmanager
def needing_libraries() -> Iterator[None]:
    """Add to the ImportError of a missing library the command that installs it."""
    try:
        yield
    except ImportError as error:
        if _INSTALL in str(error) or (error.name or "").startswith("cykafka"):
            raise
        kind = ModuleNotFoundError if isinstance(error, ModuleNotFoundError) else ImportError
        raise kind(f"{error}: {_INSTALL}", name=error.name, path=error.path) from error
