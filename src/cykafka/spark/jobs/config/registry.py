"""The table [registry]: the options of Schema Registry's client and serializers, as texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cykafka.internal import did_you_mean
from cykafka.schemas import options
from cykafka.schemas.shared import SERIALIZER_DEFAULTS, SHARED_DEFAULTS

__all__ = ["DEFAULTS", "mistakes"]

# A table cannot contain a function.
_CUSTOM = "bearer.auth.custom.provider."
# What to do with a user in a URL, which the job's log would show.
_URLS = {
    "url": 'put the user and the password into "basic.auth.user.info"',
    "bearer.auth.issuer.endpoint.url": 'put the user into "bearer.auth.client.id"',
    "proxy": "expected a URL without a user",
}
_CHOICES = {
    "auto.register.schemas": ("true", "false"),
    "subject.name.strategy.type": ("TOPIC", "RECORD", "TOPIC_RECORD"),
}
# The options and their defaults.
DEFAULTS = {
    name: f"{value:g}" if isinstance(value, float) else str("" if value is None else value)
    for name, value in {**options.DEFAULTS, **SHARED_DEFAULTS, **SERIALIZER_DEFAULTS}.items()
    if not name.startswith(_CUSTOM)
}


def mistakes(given: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the wrong options, each with the reason. Reasons never contain secrets."""
    found = [
        (name, f"the registry has no such option{did_you_mean(name, DEFAULTS)}")
        for name in given
        if name not in DEFAULTS
    ]
    known = {name: given[name] for name in given if name in options.DEFAULTS and name in DEFAULTS}
    found += options.mistakes(known)
    for name, words in _URLS.items():
        urls = str(given.get(name, "")).split(",")
        if any("@" in url.partition("//")[2].partition("/")[0] for url in urls):
            found.append((name, words))
    for name, choices in _CHOICES.items():
        if given.get(name, DEFAULTS[name]) not in choices:
            found.append((name, f"expected {' or '.join(choices)}"))
    return found
