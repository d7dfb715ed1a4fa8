"""Passwords, tokens and keys, hidden from all printed text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

from pip_services4_commons.errors import ApplicationException
from pip_services4_components.config import ConfigParams

from pip_services4_kafka._errors import with_cause

HIDDEN = "[hidden]"

# Configuration keys and librdkafka properties with secret values.
_SECRET_KEY = re.compile(
    r"password|passphrase|\bpass$|token|secret|private\.key|key\.pem|access_key|oauthbearer\.config"
    r"|oauthbearer\.assertion\.private",
    re.IGNORECASE,
)
# In a URI the password stands between a colon and the last "@" before the servers.
_URI_PASSWORD = re.compile(r"(://[^:/?#]*):.*(?=@)")
# Shorter secrets would match parts of ordinary words.
_SHORTEST = 3


class Secret(str):
    """A str whose repr, str and format hide it. Code that reads its characters gets the secret."""

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
    """Whether the value of this key is a secret."""
    # URLs and paths of tokens are not secret.
    return _SECRET_KEY.search(key) is not None and not key.endswith(("endpoint.url", "token_path"))


class Secrets:
    """The secrets of a connection, to remove them from foreign errors and log lines."""

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()

    def add(self, values: Iterable[str | None]) -> None:
        """Remember secrets."""
        fresh = {str.__str__(value) for value in values if value and len(value) >= _SHORTEST}
        self._known |= fresh | {quote(value, safe="") for value in fresh}

    def scrub(self, text: str) -> str:
        """The text without the secrets."""
        for secret in sorted(self._known, key=len, reverse=True):
            if secret in text:
                text = text.replace(secret, HIDDEN)
        return text

    def clean(self, error: Exception) -> Exception:
        """The exception itself or, if its text has secrets, a copy without them."""
        text = self.scrub(str(error))
        if text == str(error):
            return error
        # These types can be made from a text alone.
        kinds: tuple[type[Exception], ...] = (ValueError, TypeError, RuntimeError, OSError)
        return next((kind for kind in kinds if isinstance(error, kind)), Exception)(text)

    def explain(self, exception: ApplicationException, cause: Exception) -> ApplicationException:
        """Set an exception's cause, and scrub both and the stack trace, which quotes the cause."""
        with_cause(exception, self.clean(cause))
        return exception.with_stack_trace(self.scrub(exception.stack_trace or ""))


class HiddenParams(ConfigParams):
    """Connection options. Access by key works as usual; printing hides the secrets."""

    def __repr__(self) -> str:
        return repr({key: self._shown(key) for key in self})

    def __str__(self) -> str:
        return ";".join(f"{key}={self._shown(key) or ''}" for key in self)

    def _shown(self, key: str) -> Any:
        value = self[key]
        if value and is_secret(key):
            return HIDDEN
        return _URI_PASSWORD.sub(rf"\1:{HIDDEN}", value) if isinstance(value, str) else value
