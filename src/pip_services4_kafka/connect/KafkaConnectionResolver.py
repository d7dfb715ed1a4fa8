"""Resolves connection and credential parameters, with discovery and credential stores."""

from __future__ import annotations

import re
from urllib.parse import unquote

from pip_services4_components.config import ConfigParams, IConfigurable
from pip_services4_components.refer import IReferenceable, IReferences
from pip_services4_config.auth import CredentialParams, CredentialResolver
from pip_services4_config.connect import ConnectionParams, ConnectionResolver
from pip_services4_observability.log import CompositeLogger

from pip_services4_kafka._context import AnyContext, to_context
from pip_services4_kafka._errors import config_error, set_cause
from pip_services4_kafka.connect._security import HiddenParams
from pip_services4_kafka.connect._settings import parse_number

DEFAULT_PORT = 9092

_PROTOCOLS = ("tcp", "kafka")
# Commas separate servers. They may also separate whole URIs.
_SCHEME = re.compile(r"([A-Za-z][\w+.-]*)://(.*)", re.DOTALL)
_NEXT_URI = re.compile(r",(?=\s*\w+://)")
_ALIASES = {"user": "username", "pass": "password"}


class KafkaConnectionResolver(IReferenceable, IConfigurable):
    """Resolves and checks the parameters of a connection to Kafka.

    Configuration parameters:

    - ``connection(s)``: ``discovery_key`` (the connection's key in a discovery service),
      ``protocol`` (tcp), ``host``, ``port`` (default 9092), ``uri``
      (``scheme://user:password@host:port,host:port?ignored``; user and password percent-encoded),
      ``ssl`` (default false)
    - ``credential(s)``: ``store_key`` (the credential's key in a credential store),
      ``mechanism`` (default plain), ``username``, ``password``, ``token``, ``ssl``,
      ``ssl_ca_file``, ``ssl_crt_file``, ``ssl_key_file``

    References: ``*:logger:*:*:1.0``, ``*:discovery:*:*:1.0`` and ``*:credential-store:*:*:1.0``,
    all optional.
    """

    def __init__(self) -> None:
        self._logger: CompositeLogger = CompositeLogger()
        self._references: IReferences | None = None
        self._connection_resolver = ConnectionResolver()
        self._credential_resolver = CredentialResolver()

    def configure(self, config: ConfigParams) -> None:
        """Read connections and credentials from a configuration.

        If the configuration contains connections, they replace the earlier connections. The same
        applies to credentials.

        Parameters
        ----------
        config : ConfigParams
        """
        if _has(config, "connection") or not self._connection_resolver.get_all():
            self._connection_resolver = ConnectionResolver(config, self._references)
        if _has(config, "credential") or not self._credential_resolver.get_all():
            self._credential_resolver = CredentialResolver(config, self._references)

    def set_references(self, references: IReferences) -> None:
        """Get loggers, discovery services and credential stores from `references`.

        Parameters
        ----------
        references : IReferences
        """
        self._references = references
        self._logger.set_references(references)
        self._connection_resolver.set_references(references)
        self._credential_resolver.set_references(references)

    def resolve(self, context: AnyContext = None) -> ConfigParams:
        """Resolve the options of the connection.

        Parameters
        ----------
        context : IContext or str, optional

        Returns
        -------
        ConfigParams
            ``brokers`` (``host:port``, separated by commas), ``ssl`` if a connection sets it, and
            the credential's parameters. Printing it hides the secrets.

        Raises
        ------
        ConfigException
            NO_CONNECTION, NO_HOST, NO_PORT or NO_PROTOCOL; CANNOT_RESOLVE: no discovery service
            or credential store knows a key, or the store failed.
        """
        return self.compose(
            context, self._find_connections(context), self._find_credential(context)
        )

    def compose(
        self,
        context: AnyContext,
        connections: list[ConnectionParams] | None,
        credential: CredentialParams | None,
    ) -> ConfigParams:
        """Convert resolved parameters to connection options.

        Parameters
        ----------
        context : IContext or str, optional
        connections : list of ConnectionParams
        credential : CredentialParams, optional

        Returns
        -------
        ConfigParams
            Like :meth:`resolve`.

        Raises
        ------
        ConfigException
            NO_CONNECTION, NO_HOST, NO_PORT or NO_PROTOCOL.
        """
        options = HiddenParams(credential or {})
        for alias, key in _ALIASES.items():
            if not options.get(key) and options.get(alias):
                options.put(key, options[alias])
        given = [connection for connection in connections or () if connection]
        if not given:
            text = "no connection to Kafka is configured: set connection.host or connection.uri"
            raise config_error("NO_CONNECTION", text, context)
        brokers: list[str] = []
        for connection in given:
            uri = connection.get_as_nullable_string("uri")
            if uri:
                brokers += self._parse_uris(uri, options, context)
            else:
                brokers.append(self._parse_host(connection, context))
            if connection.get_as_boolean("ssl"):
                options.put("ssl", "true")
        options.put("brokers", ",".join(dict.fromkeys(brokers)))
        return options

    # -- discovery and credential stores

    def _find_connections(self, context: AnyContext) -> list[ConnectionParams]:
        connections = self._connection_resolver.get_all()
        keys = [item.get_discovery_key() for item in connections if item.use_discovery()]
        found: list[ConnectionParams] = []
        if not keys or self._references is not None:
            found = self._connection_resolver.resolve_all(to_context(context))
        if keys and not found:
            text = (
                f'no discovery service knows a connection "{keys[0]}": add one to the references'
            )
            raise config_error("CANNOT_RESOLVE", f"connection.discovery_key: {text}", context)
        return found

    def _find_credential(self, context: AnyContext) -> CredentialParams | None:
        credentials = self._credential_resolver.get_all()
        stored = [item for item in credentials if item.use_credential_store()]
        if not stored or len(stored) < len(credentials):
            return self._credential_resolver.lookup(to_context(context))
        key = stored[0].get_store_key()
        try:
            found = self._credential_resolver.lookup(to_context(context))
        except Exception as error:  # credential stores are foreign code
            text = f'credential.store_key: looking up "{key}" failed'
            raise set_cause(config_error("CANNOT_RESOLVE", text, context), error) from error
        if not found:
            text = f'credential.store_key: no credential store knows a credential "{key}"'
            raise config_error("CANNOT_RESOLVE", text, context)
        # Parameters beside the key, such as the mechanism, complement the stored ones.
        beside = {key: value for key, value in stored[0].items() if key != "store_key"}
        return CredentialParams({**beside, **found})

    # -- hosts and URIs

    def _parse_host(self, connection: ConnectionParams, context: AnyContext) -> str:
        protocol = connection.get_as_nullable_string("protocol")
        if protocol is not None and not protocol.strip():
            text = "connection.protocol is empty: set it to tcp or remove it"
            raise config_error("NO_PROTOCOL", text, context)
        self._check_protocol(protocol, context)
        host = (connection.get_host() or "").strip()
        if not host:
            raise config_error("NO_HOST", "connection.host is not set", context)
        if "@" in host:  # the error must not name the host, which may contain a password
            text = "connection.host: expected a host without a user; set credential.username"
            raise config_error("NO_HOST", text, context)
        where = f"connection to {host}"
        return f"{host}:{_parse_port(connection.get_as_nullable_string('port'), where, context)}"

    def _parse_uris(self, uris: str, options: ConfigParams, context: AnyContext) -> list[str]:
        brokers = []
        for uri in _NEXT_URI.split(uris):
            for piece in uri.partition("?")[0].split(","):
                # The pattern fits a leading scheme only: a password may contain "://" as well,
                # and the warning would log it as a protocol.
                rest = piece.strip()
                with_scheme = _SCHEME.fullmatch(rest)
                if with_scheme is not None:
                    scheme, rest = with_scheme.groups()
                    self._check_protocol(scheme, context)
                identity, found, server = rest.rpartition("@")
                if found:
                    user, found, password = identity.partition(":")
                    options.put("username", unquote(user))
                    if found:
                        options.put("password", unquote(password))
                brokers.append(_parse_server(server.partition("/")[0].strip(), context))
        return brokers

    def _check_protocol(self, protocol: str | None, context: AnyContext) -> None:
        if protocol is not None and protocol.strip().lower() not in _PROTOCOLS:
            text = f'connection: unknown protocol "{protocol}", using tcp; for TLS set "ssl" to '
            text += "true in the connection or the credential"
            self._logger.warn(to_context(context), text)


def _has(config: ConfigParams, section: str) -> bool:
    return any(key.startswith((f"{section}.", f"{section}s.")) for key in config)


def _parse_server(server: str, context: AnyContext) -> str:
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):  # [::1] without a port
        host, port = server, ""
    if not host:
        raise config_error("NO_HOST", "connection.uri: expected a host for every server", context)
    # The error must not name the host: in a malformed URI it may be a part of the password.
    return f"{host}:{_parse_port(port, 'connection.uri', context)}"


def _parse_port(port: str | None, where: str, context: AnyContext) -> int:
    if port is None or not port.strip():
        return DEFAULT_PORT
    number = parse_number(port, 1, 65535)
    if number is None:
        raise config_error("NO_PORT", f"{where}: expected a port from 1 to 65535", context)
    return number
