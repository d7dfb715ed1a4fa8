"""TLS and SASL: conversion of credential parameters to librdkafka's properties."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from pip_services4_components.config import ConfigParams

from pip_services4_kafka._errors import misconfigured

_FILES = {
    "ssl_ca_file": "ssl.ca.location",
    "ssl_crt_file": "ssl.certificate.location",
    "ssl_key_file": "ssl.key.location",
}
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI")

# The assumed lifetime of a token without an expiration time, s.
UNTOLD_S = 3600.0


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
    """The key and the path of an unreadable TLS file, to begin OpenSSL's error; or nothing."""
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
        raise misconfigured("UNKNOWN_MECHANISM", text, keys=["credential.mechanism"])
    has_token = token is not None or any("oauthbearer" in key for key in given)
    if mechanism == "OAUTHBEARER" and not has_token:
        text = "credential.token is not set: the mechanism oauthbearer needs it"
        raise misconfigured("NO_TOKEN", text, keys=["credential.token"])
    if mechanism in ("GSSAPI", "OAUTHBEARER"):
        return {"sasl.mechanism": mechanism}
    if user is not None and password is None and "sasl.password" not in given:
        text = "credential.password is not set: credential.username needs one"
        raise misconfigured("NO_PASSWORD", text, keys=["credential.password"])
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
        until = float(expires) if type(expires) in (int, float) else now + UNTOLD_S
        if until <= now:
            raise ValueError(f"credential.token expired {int(now - until)} s ago: replace it")
        subject = claims.get("sub")
        return token, until, subject if isinstance(subject, str) else ""

    return oauth_cb


def _claims(token: str) -> dict[str, Any]:
    """The claims of a JSON Web Token; an empty dict for any other token."""
    parts = token.split(".")
    if len(parts) != 3:
        return {}
    try:
        text = base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4))
        claims = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}
