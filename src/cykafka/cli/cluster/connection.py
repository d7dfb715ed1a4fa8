"""The options with which every command finds its brokers, and clients with these options.

If several places set a property, the first one in this order takes precedence:

1. ``-b`` and ``-X`` on the command line
2. the ``-F`` file
3. the ``--profile`` profile
4. the variables ``CYKAFKA_BOOTSTRAP_SERVERS`` and ``CYKAFKA_SCHEMA_REGISTRY_URL``
5. the profile that the variable ``CYKAFKA_PROFILE`` names, or else the profile ``default``; not
   read if the command line has ``-F`` or ``--profile``

The properties that begin with ``schema.registry.`` are for Schema Registry: `registry`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from cyclopts import Group, Parameter, validators

from cykafka import (
    Consumer,
    IllegalStateException,
    KafkaError,
    KafkaException,
    Producer,
    ShareConsumer,
)
from cykafka.cli.cluster import profiles
from cykafka.cli.terminal.failures import Failed, UsageError, reason
from cykafka.cli.terminal.parameters import plain
from cykafka.internal import check_config
from cykafka.internal.command_lines import pairs

if TYPE_CHECKING:
    from cykafka.admin import AdminClient, ClusterMetadata

__all__ = ["GROUP", "Brokers", "Connection", "ConnectionOptions", "Settings"]

_Client = TypeVar("_Client")

GROUP = Group("Connection", sort_key=50)
_SERVERS = "bootstrap.servers"
_REGISTRY = "schema.registry."
_SLICE_S = 0.5
_TELL_AGAIN_S = 30.0
# librdkafka's level for emergencies only. The commands report errors themselves.
_QUIET = 0
# Errors that persist, so that waiting does not help.
_FINAL = (KafkaError._AUTHENTICATION, KafkaError._SSL)
_ADDRESS = re.compile(r"((PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?[^/\s]+", re.IGNORECASE)
_VARIABLES = {
    "CYKAFKA_BOOTSTRAP_SERVERS": _SERVERS,
    "CYKAFKA_SCHEMA_REGISTRY_URL": f"{_REGISTRY}url",
}
# Java client properties, and librdkafka's replacements.
_OF_JAVA = {
    "sasl.jaas.config": "use sasl.username and sasl.password",
    "basic.auth.credentials.source": "use schema.registry.basic.auth.user.info",
    "basic.auth.user.info": "use schema.registry.basic.auth.user.info",
    "ssl.truststore.location": "use ssl.ca.location, a PEM file",
    "ssl.truststore.password": "use ssl.ca.location, a PEM file",
    "ssl.truststore.type": "use ssl.ca.location, a PEM file",
    "ssl.keystore.type": "use ssl.keystore.location, a PKCS#12 file",
    "key.serializer": "remove it, and use --key-format",
    "value.serializer": "remove it, and use --value-format",
    "key.deserializer": "remove it, and use --key-format",
    "value.deserializer": "remove it, and use --value-format",
}


@dataclass(frozen=True, kw_only=True)
class _Addresses:
    """The option for the brokers' addresses."""

    bootstrap_servers: Annotated[
        str | None, Parameter(alias="-b", group=GROUP, metavar="HOST:PORT,...")
    ] = None
    """broker addresses; one reachable broker is enough"""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The options of all connections, also of those to Schema Registry, with their help."""

    overrides: Annotated[
        tuple[str, ...],
        Parameter(
            name=["--property", "-X"],
            group=GROUP,
            negative=(),
            metavar="KEY=VALUE",
            show_default=False,
            help="a librdkafka property, such as security.protocol=SSL, or one of Schema "
            "Registry, such as schema.registry.ssl.ca.location=ca.pem; repeatable. "
            "For passwords use @FILE or env:NAME as the value: other users can see the command.",
        ),
    ] = ()
    config: Annotated[Path | None, Parameter(alias="-F", group=GROUP, metavar="FILE")] = None
    """a file of properties: lines KEY=VALUE, or TOML if its name ends in .toml"""
    profile: Annotated[str | None, Parameter(group=GROUP, metavar="NAME")] = None
    """a profile of ~/.config/cykafka/config.toml (default: CYKAFKA_PROFILE, else "default")"""
    timeout: Annotated[
        float,
        Parameter(group=GROUP, metavar="S", validator=validators.Number(gt=0, lte=86_400)),
    ] = 10.0
    """seconds to wait for a connection and for the response to a request"""

    def registry(self) -> dict[str, str]:
        """Return the options of Schema Registry from all places, without ``schema.registry.``.

        Raises
        ------
        UsageError
            A file is not valid.
        """
        settings = _merged([*self._implicit(), *self._explicit()])
        return {
            key.removeprefix(_REGISTRY): value
            for key, value in settings.items()
            if key.startswith(_REGISTRY)
        }

    def _implicit(self) -> list[tuple[str, dict[str, str]]]:
        """Return the environment's properties, lowest precedence first."""
        places = []
        if self.config is None and self.profile is None:
            name = os.environ.get("CYKAFKA_PROFILE") or None
            places.append((f"profile {name or 'default'}", profiles.read_profile(name)))
        for variable, key in _VARIABLES.items():
            if value := os.environ.get(variable):
                places.append((variable, {key: value}))
        return places

    def _explicit(self) -> list[tuple[str, dict[str, str]]]:
        """Return the command line's properties, lowest precedence first."""
        places = []
        if self.profile is not None:
            place = f"profile {self.profile}"
            places.append((place, profiles.read_profile(self.profile)))
        if self.config is not None:
            places.append((str(self.config), profiles.read_file(self.config)))
        try:
            settings = {key: profiles.resolve(key, value) for key, value in pairs(self.overrides)}
        except ValueError as error:
            raise UsageError(f"-X: {error}") from None
        places.append(("-X", settings))
        return places


@dataclass(frozen=True, kw_only=True)
class Connection(Settings, _Addresses):
    """The options of connections to brokers, with their help."""

    verbose: Annotated[bool, plain("-v", group=GROUP)] = False
    """show librdkafka's log"""

    def properties(self) -> dict[str, str]:
        """Return the client properties from all places.

        Raises
        ------
        UsageError
            A file is not valid, librdkafka rejects a property, or no brokers are set.
        """
        merged = _for_clients(_merged([*self._implicit(), *self._explicit()]))
        if not merged.get(_SERVERS):
            raise UsageError(
                "brokers are missing: use -b HOST:PORT, a profile with bootstrap.servers in "
                f"{profiles.profile_file()}, or the variable CYKAFKA_BOOTSTRAP_SERVERS"
            )
        return merged

    def explicit(self) -> dict[str, str]:
        """Return the properties from the command line, ``-F`` and ``--profile``.

        Raises
        ------
        UsageError
            A file is not valid, or librdkafka rejects a property.
        """
        return _for_clients(_merged(self._explicit()))

    def _explicit(self) -> list[tuple[str, dict[str, str]]]:
        places = super()._explicit()
        if self.bootstrap_servers is not None:
            places.append(("-b", {_SERVERS: self.bootstrap_servers}))
        return places

    def brokers(self, defaults: Mapping[str, Any] | None = None) -> Brokers:
        """Return the brokers for these options.

        Parameters
        ----------
        defaults : mapping, optional
            Default properties; the user's properties take precedence.

        Raises
        ------
        UsageError
            Like `properties`.
        """
        return Brokers({**(defaults or {}), **self.properties()}, self.timeout, self.verbose)


ConnectionOptions = Annotated[Connection | None, Parameter(name="*")]
"""Annotates a command's parameter: ``connection: ConnectionOptions = None``."""


class Brokers:
    """Creates clients, and remembers the connection errors that they report.

    Parameters
    ----------
    config : mapping
        The client properties.
    timeout : float
        How long to wait for the brokers' response, s.
    verbose : bool
        Whether librdkafka writes its log to standard error.
    """

    def __init__(self, config: Mapping[str, Any], timeout: float, verbose: bool = False) -> None:
        quiet = {} if verbose or "debug" in config else {"log_level": _QUIET}
        self.config: dict[str, Any] = {**quiet, **config}
        self.timeout = timeout
        self._told_at = -_TELL_AGAIN_S
        self.heard: KafkaError | None = None
        """The last connection error."""
        self.tell: Callable[[str], None] | None = None
        """Called with a text when all brokers become unreachable."""

    @property
    def servers(self) -> str:
        """The addresses from the user."""
        return str(self.config[_SERVERS])

    def producer(self, **properties: Any) -> Producer:
        """Create a producer. `properties` take precedence over the user's.

        Raises
        ------
        UsageError
            librdkafka rejects the configuration.
        """
        return self._made(Producer, properties)

    def consumer(self, **properties: Any) -> Consumer:
        """Create a consumer. `properties` take precedence over the user's.

        Raises
        ------
        UsageError
            librdkafka rejects the configuration.
        """
        return self._made(Consumer, properties)

    def share_consumer(self, **properties: Any) -> ShareConsumer:
        """Create a share consumer. `properties` take precedence over the user's.

        Raises
        ------
        UsageError
            librdkafka rejects the configuration.
        """
        return self._made(ShareConsumer, properties)

    def admin(self, **properties: Any) -> AdminClient:
        """Create an administrative client. `properties` take precedence over the user's.

        Raises
        ------
        UsageError
            librdkafka rejects the configuration.
        """
        from cykafka.admin import AdminClient  # commands for records do not need it

        return self._made(AdminClient, properties)

    def _made(self, cls: type[_Client], properties: Mapping[str, Any]) -> _Client:
        try:
            return cls({**self.config, **properties, "error_cb": self.keep_error})  # type: ignore[call-arg]
        except (KafkaException, ValueError, TypeError) as error:
            raise UsageError(reason(error)) from None

    def keep_error(self, error: KafkaError) -> None:
        """Remember a connection error; an ``error_cb``."""
        # An error about one broker contains the cause. An error about all brokers does not.
        if error.code() != KafkaError._ALL_BROKERS_DOWN:
            self.heard = error
        elif self.tell is not None and time.monotonic() >= self._told_at + _TELL_AGAIN_S:
            self._told_at = time.monotonic()
            cause = f": {self.heard.str()}" if self.heard else ""
            self.tell(f"cannot reach any broker; retrying{cause}")

    def metadata(
        self, client: Producer | Consumer | ShareConsumer | AdminClient, topic: str | None = None
    ) -> ClusterMetadata:
        """Wait until a broker responds, and return the metadata of one topic or all topics.

        Call this before a consumer has partitions, because it runs the client's callbacks.

        Raises
        ------
        Failed
            No broker responded within the timeout, or the brokers reject the login.
        """
        deadline = time.monotonic() + self.timeout
        # Start with a short timeout, to report a failed login soon. A response after the timeout
        # is lost, so slow brokers need longer timeouts.
        patience = _SLICE_S
        while True:
            left = max(deadline - time.monotonic(), 0.001)
            try:
                return client.list_topics(topic, min(left, patience))
            except KafkaException as error:
                if error.args[0].code() not in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
                    raise
            patience *= 2
            with suppress(IllegalStateException):  # a share consumer without a subscription
                client.poll(0)  # runs keep_error()
            final = self.heard is not None and self.heard.code() in _FINAL
            if final or time.monotonic() >= deadline:
                raise self.unreachable()

    def unreachable(self) -> Failed:
        """Return the error for brokers that do not respond, with the last connection error."""
        cause = self.heard.str() if self.heard else "no response; check the address and the port"
        return Failed(f"cannot reach {self.servers} within {self.timeout:g} s: {cause}")


def _for_clients(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the properties that are librdkafka's."""
    return {key: value for key, value in settings.items() if not key.startswith(_REGISTRY)}


def _merged(places: list[tuple[str, dict[str, str]]]) -> dict[str, str]:
    """Merge the properties from all places, lowest precedence first."""
    merged: dict[str, str] = {}
    for place, settings in places:
        _check(place, settings)
        merged.update(settings)
    return merged


def _check(place: str, settings: Mapping[str, str]) -> None:
    for key, value in _for_clients(settings).items():
        if key in _OF_JAVA:
            raise UsageError(f"{place}: {key} is a Java client property; {_OF_JAVA[key]}")
        if key == _SERVERS:
            # librdkafka skips an address that it cannot read, and then waits for brokers forever.
            for address in value.split(","):
                if not _ADDRESS.fullmatch(address.strip()):
                    raise UsageError(f"{place}: expected HOST:PORT,..., got {value!r}")
        try:
            check_config({key: value})
        except (KafkaException, ValueError, TypeError) as error:
            raise UsageError(f"{place}: {reason(error)}") from None
