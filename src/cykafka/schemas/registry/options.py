"""The options of Schema Registry clients, with the names of Confluent's clients."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cykafka.internal import did_you_mean

__all__ = ["DEFAULTS", "is_address", "is_header", "mistakes", "read_options"]

# The options and their defaults. None means: not set.
DEFAULTS: dict[str, Any] = {
    "url": None,
    "basic.auth.credentials.source": "USER_INFO",
    "basic.auth.user.info": None,
    "bearer.auth.credentials.source": "STATIC_TOKEN",
    "bearer.auth.token": None,
    "bearer.auth.logical.cluster": None,
    "bearer.auth.identity.pool.id": None,
    "bearer.auth.client.id": None,
    "bearer.auth.client.secret": None,
    "bearer.auth.scope": None,
    "bearer.auth.issuer.endpoint.url": None,
    "bearer.auth.custom.provider.function": None,
    "bearer.auth.custom.provider.config": None,
    "ssl.ca.location": None,
    "ssl.certificate.location": None,
    "ssl.key.location": None,
    "ssl.key.password": None,
    "proxy": None,
    "timeout": 30.0,  # s
    "max.retries": 3,
    "retries.wait.ms": 1000,
    "retries.max.wait.ms": 20000,
    "cache.capacity": 1000,
    "cache.latest.ttl.sec": None,
}
_CHOICES = {
    "basic.auth.credentials.source": ("USER_INFO", "URL"),
    "bearer.auth.credentials.source": ("STATIC_TOKEN", "OAUTHBEARER", "CUSTOM"),
}
# The options that each way to get a token needs.
_NEEDS = {
    "STATIC_TOKEN": (),
    "OAUTHBEARER": (
        "bearer.auth.client.id",
        "bearer.auth.client.secret",
        "bearer.auth.scope",
        "bearer.auth.issuer.endpoint.url",
    ),
    "CUSTOM": ("bearer.auth.custom.provider.function",),
}
_WHOLE = ("max.retries", "retries.wait.ms", "retries.max.wait.ms", "cache.capacity")
_NUMBERS = (*_WHOLE, "timeout", "cache.latest.ttl.sec")
_POSITIVE = ("timeout", "cache.capacity")
_MOST = 1e9
# The options whose values become headers unchanged.
_HEADERS = ("bearer.auth.token", "bearer.auth.logical.cluster", "bearer.auth.identity.pool.id")
_NO_HEADER = re.compile(r"[^!-~]")
# Surrogates for bytes of the environment that are not UTF-8 (U+DC80 to U+DCFF) are encodable.
_SURROGATE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_FILES = ("ssl.certificate.location", "ssl.key.location")
# The options that are encoded. The error of the codec would contain the value.
_ENCODED = (
    "basic.auth.user.info",
    "bearer.auth.client.id",
    "bearer.auth.client.secret",
    "bearer.auth.issuer.endpoint.url",
    "bearer.auth.scope",
    "proxy",
    "url",
)
_URLS = ("url", "bearer.auth.issuer.endpoint.url", "proxy")


def mistakes(conf: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the wrong options, each with the reason. Reasons never contain secrets."""
    found = [
        (name, f"the registry has no such option{did_you_mean(name, DEFAULTS)}")
        for name in conf
        if name not in DEFAULTS
    ]
    given = _merged(conf)
    for look in (_urls, _credentials, _tls, _values):
        found += look(given)
    return found


def read_options(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options, with numbers as numbers.

    Raises
    ------
    TypeError
        `conf` is not a mapping.
    ValueError
        An option is wrong. The message names each wrong option, without secrets.
    """
    if not isinstance(conf, Mapping):
        # A URL may contain a password.
        raise TypeError(
            'conf: expected a dict such as {"url": "http://localhost:8081"}, got '
            f"{type(conf).__name__}"
        )
    found = mistakes(conf)
    if found:
        # "is missing" continues the option's name.
        raise ValueError(
            "; ".join(
                f'"{name}"{"" if words.startswith("is missing") else ":"} {words}'
                for name, words in found
            )
        )
    options = _merged(conf)
    for name in _NUMBERS:
        if options[name] is not None:
            options[name] = (int if name in _WHOLE else float)(options[name])
    return options


def _merged(conf: Mapping[str, Any]) -> dict[str, Any]:
    # An empty text is not set, because a variable in a file may be empty.
    return {**DEFAULTS, **{name: conf[name] for name in conf if conf[name] not in (None, "")}}


def _urls(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if given["url"] is None:
        yield "url", 'is missing: the address of Schema Registry, such as "http://host:8081"'
    for name in _URLS:
        if given[name] is not None and not isinstance(given[name], str):
            yield name, f"expected a str, got {type(given[name]).__name__}"
            continue
        several = (given[name] or "").split(",") if name == "url" else [given[name] or ""]
        for url in several if given[name] else []:
            if url.strip().startswith("mock://"):
                yield name, "for tests use the url of a cykafka.testing.SchemaRegistry"
            # A query may contain a secret, and messages contain the address.
            elif not is_address(url.strip()) or (name == "url" and urlsplit(url.strip()).query):
                words = "expected http:// or https:// and a host, without a query or a fragment"
                yield name, f'{words}; in a password write %2F for "/" and %40 for "@"'


def is_address(url: str) -> bool:
    """Whether a text is an HTTP address. A password with a slash would be taken for a path."""
    try:
        parts = urlsplit(url)
        is_complete = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # the host or the port
        return False
    return bool(is_complete) and "@" not in parts.path + parts.query and not parts.fragment


def _credentials(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    user, source = given["basic.auth.user.info"], given["bearer.auth.credentials.source"]
    has_user = user is not None
    if has_user and (not isinstance(user, str) or ":" not in user):
        yield "basic.auth.user.info", "expected USER:PASSWORD"
    if "@" in str(given["url"]):
        if has_user:
            yield "url", 'it has a user, and "basic.auth.user.info" is also set: expected one'
        has_user = True
    # The default source has an effect only with a token.
    bearer = "bearer.auth.credentials.source"
    if source == DEFAULTS[bearer] and given["bearer.auth.token"] is not None:
        bearer = "bearer.auth.token"
    if has_user and (bearer == "bearer.auth.token" or source != DEFAULTS[bearer]):
        yield bearer, '"basic.auth.user.info" or a user in "url" is also set: expected one'
    for name in _NEEDS.get(source, ()) if isinstance(source, str) else ():
        if given[name] is None:
            yield name, f'is missing: "bearer.auth.credentials.source" is {source}'
    function = given["bearer.auth.custom.provider.function"]
    if function is not None and (not callable(function) or iscoroutinefunction(function)):
        # The awaited client calls it in a thread, which has no event loop.
        yield "bearer.auth.custom.provider.function", "expected a function without async"
    for name in _ENCODED:
        if isinstance(given[name], str) and _SURROGATE.search(given[name]):
            yield name, "expected a text that UTF-8 can encode"
    for name in _HEADERS:
        # The error of the HTTP library would quote the value.
        if not is_header(given[name]):
            yield name, "expected printable ASCII, without spaces and line breaks"


def is_header(value: Any) -> bool:
    """Whether a value is None or can be a header: a text, or for several a list of texts."""
    if isinstance(value, list | tuple):
        return all(map(is_header, value))
    return value is None or (isinstance(value, str) and not _NO_HEADER.search(value))


def _tls(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if given["ssl.key.location"] and not given["ssl.certificate.location"]:
        yield "ssl.key.location", '"ssl.certificate.location" is missing'
    authority = given["ssl.ca.location"]
    if not (authority is None or isinstance(authority, bool) or Path(str(authority)).exists()):
        yield "ssl.ca.location", f"the file {authority} does not exist"
    for name in _FILES:
        if given[name] and not Path(str(given[name])).is_file():
            yield name, f"the file {given[name]} does not exist"


def _values(given: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name in _NUMBERS:
        value, least = given[name], "greater than 0" if name in _POSITIVE else "0 or more"
        if value is not None and not _is_number(value, name):
            what = "a whole number" if name in _WHOLE else "a number"
            yield name, f"expected {what}, {least}"
    for name, choices in _CHOICES.items():
        if given[name] not in choices:
            yield name, f"expected {' or '.join(choices)}"


def _is_number(value: Any, name: str) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return False
    least = 0 if name not in _POSITIVE else 1 if name in _WHOLE else 1e-3
    is_whole = value.strip().isdigit() if isinstance(value, str) else number.is_integer()
    return least <= number <= _MOST and (is_whole or name not in _WHOLE)
