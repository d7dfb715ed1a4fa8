"""TLS and SASL: credential parameters as librdkafka properties, and secrets hidden in all text."""

from __future__ import annotations

import base64
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from pip_services4_commons.errors import ApplicationException
from pip_services4_components.config import ConfigParams

from pip_services4_kafka._errors import config_error, set_cause

_FILES = {
    "ssl_ca_file": "ssl.ca.location",
    "ssl_crt_file": "ssl.certificate.location",
    "ssl_key_file": "ssl.key.location",
}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

# The assumed lifetime of a token without an expiration time, in seconds.
DEFAULT_LIFETIME_S = 3600.0

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


def security_properties(
    resolved: ConfigParams, given: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    """The properties for TLS and SASL, and a list of warnings to log.

    Parameters
    ----------
    resolved : ConfigParams
        The resolver's result.
    given : mapping
        Properties set by `options.kafka.*`, which take precedence.

    Raises
    ------
    ConfigException
        NO_PASSWORD, NO_TOKEN or UNKNOWN_MECHANISM.
    """
    warnings: list[str] = []
    properties = {name: text for key, name in _FILES.items() if (text := _text(resolved, key))}
    tls = resolved.get_as_nullable_boolean("ssl")
    if tls is None:
        tls = bool(properties)
    elif properties and not tls:
        warnings.append("credential.ssl is false: ignoring the files of credential.ssl_*_file")
        properties = {}
    sasl = _sasl(resolved, given, warnings)
    protocol = ("SASL_" if sasl else "") + ("SSL" if tls else "PLAINTEXT")
    return {"security.protocol": protocol, **sasl, **properties}, warnings


def unreadable_file(properties: Mapping[str, Any]) -> str:
    """Name an unreadable TLS file, as a prefix for OpenSSL's error. Empty if there is none."""
    for key, name in _FILES.items():
        path = properties.get(name)
        if isinstance(path, str) and path != "probe" and not os.access(path, os.R_OK):
            return f'credential.{key}: "{path}" cannot be read: '
    return ""


def _sasl(resolved: ConfigParams, given: Mapping[str, str], warnings: list[str]) -> dict[str, str]:
    user, password = _text(resolved, "username"), _text(resolved, "password")
    token, named = _text(resolved, "token"), _text(resolved, "mechanism")
    mechanism = (named or ("OAUTHBEARER" if token and not user else "PLAIN")).upper()
    mechanism = mechanism.replace("_", "-")
    if mechanism not in _MECHANISMS:
        known = ", ".join(_MECHANISMS).lower()
        text = f'credential.mechanism: expected one of {known}, got "{named}"'
        raise config_error("UNKNOWN_MECHANISM", text, keys=["credential.mechanism"])
    has_token = token is not None or any("oauthbearer" in key for key in given)
    if mechanism == "OAUTHBEARER" and not has_token:
        text = "credential.token is not set: the mechanism oauthbearer needs it"
        raise config_error("NO_TOKEN", text, keys=["credential.token"])
    if mechanism in ("GSSAPI", "OAUTHBEARER"):
        return {"sasl.mechanism": mechanism}
    if user is not None and password is None and "sasl.password" not in given:
        text = "credential.password is not set: credential.username needs one"
        raise config_error("NO_PASSWORD", text, keys=["credential.password"])
    if user is None and "sasl.username" not in given:
        for key, value in (("password", password), ("token", token)):
            if value is not None:
                warnings.append(f"ignoring credential.{key}: credential.username is not set")
        return {}
    found = {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}
    return {key: value for key, value in found.items() if value is not None}


def _text(resolved: ConfigParams, key: str) -> str | None:
    return resolved.get_as_nullable_string(key) or None


# -- tokens


def token_source(find: Callable[[], str | None]) -> Callable[[str], tuple[str, float, str]]:
    """An ``oauth_cb`` for a configured token.

    librdkafka calls it again before the token expires. A credential store may then have a new
    token.

    Parameters
    ----------
    find : callable
        Returns the token, or None.
    """

    def oauth_cb(_: str) -> tuple[str, float, str]:
        token = find()
        if not token:
            raise ValueError("credential.token is no longer set")
        token = token.strip()
        claims = _claims(token)
        now = time.time()
        expires: Any = claims.get("exp")
        until = float(expires) if type(expires) in (int, float) else now + DEFAULT_LIFETIME_S
        if until <= now:
            raise ValueError(f"credential.token expired {int(now - until)} s ago: replace it")
        subject = claims.get("sub")
        return token, until, subject if isinstance(subject, str) else ""

    return oauth_cb


def _claims(token: str) -> dict[str, Any]:
    """The claims in a JSON Web Token. Any other token returns an empty dict."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        text = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


# -- secrets


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
    """A connection's secrets, and how to remove them from foreign errors and log lines."""

    def __init__(self) -> None:
        self._known: frozenset[str] = frozenset()

    def add(self, values: Iterable[str | None]) -> None:
        """Remember secrets."""
        fresh = {str.__str__(value) for value in values if value and len(value) >= _SHORTEST}
        self._known |= fresh | {quote(value, safe="") for value in fresh}

    def scrub(self, text: str) -> str:
        """Replace the secrets in a text."""
        for secret in sorted(self._known, key=len, reverse=True):
            if secret in text:
                text = text.replace(secret, HIDDEN)
        return text

    def clean(self, error: Exception) -> Exception:
        """The exception itself or, if its text contains secrets, a copy without them."""
        text = self.scrub(str(error))
        if text == str(error):
            return error
        # The constructors of these types take only a text.
        kinds: tuple[type[Exception], ...] = (ValueError, TypeError, RuntimeError, OSError)
        return next((kind for kind in kinds if isinstance(error, kind)), Exception)(text)

    def explain(self, exception: ApplicationException, cause: Exception) -> ApplicationException:
        """Set an exception's cause, and scrub both and the stack trace, which quotes the cause."""
        set_cause(exception, self.clean(cause))
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
