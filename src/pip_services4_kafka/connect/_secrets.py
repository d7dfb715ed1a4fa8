"""Passwords and the like, kept out of everything that is printed."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pip_services4_commons.errors import ApplicationException
from pip_services4_components.config import ConfigParams

HIDDEN = "[hidden]"

# Keys of configurations and librdkafka's properties whose values are nobody's business.
_SECRET_KEY = re.compile(
    r"password|passphrase|\bpass$|token|secret|private\.key|key\.pem|access_key|oauthbearer\.config"
    r"|oauthbearer\.assertion\.private",
    re.IGNORECASE,
)
# In a URI the password is between a colon and the last "@" before the servers.
_URI_PASSWORD = re.compile(r"(://[^:/?#]*):.*(?=@)")
# Shorter ones would be found in every second word.
_SHORTEST = 3


class Secret(str):
    """A str that does not show when it is printed; whoever reads its characters gets them."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(HIDDEN)

    def __str__(self) -> str:
        return HIDDEN

    def __format__(self, spec: str) -> str:
        return format(HIDDEN, spec)

    def __reduce__(self) -> tuple[Any, ...]:
        return (str, (HIDDEN,))


def is_secret(key: str) -> bool:
    """Whether the value of this key must not be shown."""
    # The names of mechanisms and endpoints say nothing.
    return _SECRET_KEY.search(key) is not None and not key.endswith(("endpoint.url", "token_path"))


class Secrets:
    """The secrets a connection has met, to take them out of what others say."""

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()

    def add(self, values: Iterable[str | None]) -> None:
        """Remember secrets."""
        fresh = {str.__str__(value) for value in values if value and len(value) >= _SHORTEST}
        self._known |= fresh

    def scrub(self, text: str) -> str:
        """The text without the secrets."""
        for secret in sorted(self._known, key=len, reverse=True):
            if secret in text:
                text = text.replace(secret, HIDDEN)
        return text

    def clean(self, error: Exception) -> Exception:
        """The exception, or one with the same words without the secrets in them."""
        told = str(error)
        scrubbed = self.scrub(told)
        return error if scrubbed == told else type_of(error)(scrubbed)

    def clean_trace(self, exception: ApplicationException) -> ApplicationException:
        """Take them out of the trace an exception of pip-services made of the one before it."""
        return exception.with_stack_trace(self.scrub(exception.get_stack_trace_string() or ""))


def type_of(error: Exception) -> type[Exception]:
    """A type that takes a text, of the kind the exception is."""
    for kind in (ValueError, TypeError, RuntimeError, OSError):
        if isinstance(error, kind):
            return kind
    return Exception


class HiddenParams(ConfigParams):
    """Connection options: their values can be asked for, their secrets are not printed."""

    def __repr__(self) -> str:
        return repr({key: self._shown(key) for key in self})

    def __str__(self) -> str:
        return ";".join(f"{key}={self._shown(key) or ''}" for key in self)

    def _shown(self, key: str) -> Any:
        value = self[key]
        if value and is_secret(key):
            return HIDDEN
        return _URI_PASSWORD.sub(rf"\1:{HIDDEN}", value) if isinstance(value, str) else value
