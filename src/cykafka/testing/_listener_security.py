"""Listeners with TLS and SASL: settings for brokers and clients, and their files."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cykafka.testing._process import HOST, NoBrokerError, ProcessGroup
from cykafka.testing._server_properties import BrokerEndpoint

if TYPE_CHECKING:
    import trustme

    from cykafka.testing._kdc import Kdc

_MECHANISMS = {
    "sasl_plain": "PLAIN",
    "sasl_scram_sha_256": "SCRAM-SHA-256",
    "sasl_scram_sha_512": "SCRAM-SHA-512",
    "sasl_oauthbearer": "OAUTHBEARER",
    "sasl_gssapi": "GSSAPI",
}
_NAME = "localhost"
_LOGIN = "org.apache.kafka.common.security"
# Take the user's name from the certificate's common name.
_COMMON_NAME = "RULE:^.*CN=([^,]+).*$/$1/,DEFAULT"


@dataclass(frozen=True)
class Method:
    """How a listener is secured."""

    protocol: str
    mechanism: str = ""
    client_certificate: bool = False

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")


METHODS = {
    "tls": Method("SSL"),
    "mtls": Method("SSL", client_certificate=True),
    **{name: Method("SASL_PLAINTEXT", mechanism) for name, mechanism in _MECHANISMS.items()},
    **{f"{name}_tls": Method("SASL_SSL", mechanism) for name, mechanism in _MECHANISMS.items()},
}


class Security:
    """A cluster's secured listeners, its users and their credentials.

    Parameters
    ----------
    listeners : sequence of str
        Names from `METHODS`.
    users : sequence of str
        Names of the users, the same for every listener.
    folder : Path
        Directory for the files.
    """

    def __init__(self, listeners: Sequence[str], users: Sequence[str], folder: Path) -> None:
        for argument, names in (("listeners", listeners), ("users", users)):
            if isinstance(names, str):
                raise TypeError(f"{argument} must be a list, such as [{names!r}], not a str")
        unknown = [name for name in listeners if name not in METHODS]
        if unknown:
            raise ValueError(f"listeners must be some of {', '.join(METHODS)}, not {unknown[0]!r}")
        if len(set(listeners)) < len(listeners):
            raise ValueError(f"listeners must differ: {', '.join(listeners)}")
        if listeners and not users:
            raise ValueError("users: the secured listeners need at least one user")
        for user in users:
            if not user.isidentifier():
                raise ValueError(f"users must be letters, digits and _, not {user!r}")
        self._listeners = {name: METHODS[name] for name in listeners}
        self._passwords = {user: secrets.token_hex(12) for user in users}
        self._folder = folder
        self._kdc: Kdc | None = None

    def start(self, group: ProcessGroup, cleaning: ExitStack) -> None:
        """Create the certificates and start the Kerberos KDC, if a listener needs them."""
        methods = self._listeners.values()
        if any(method.tls for method in methods):
            self._make_certificates()
        if any(method.mechanism == "GSSAPI" for method in methods):
            from cykafka.testing._kdc import Kdc

            self._kdc = Kdc(self._folder / "kerberos", group, cleaning)
            self._kdc.add_principal(self._kdc.SERVICE)
            for user in self._passwords:
                self._kdc.add_principal(user)
            self._kdc.start()

    def endpoints(self, ports: Mapping[str, int]) -> list[BrokerEndpoint]:
        """Return one node's secured endpoints; `ports` maps listeners to ports."""
        return [
            # Kerberos needs names, not addresses.
            BrokerEndpoint(
                name, method.protocol, _NAME if method.mechanism == "GSSAPI" else HOST, port
            )
            for name, port in ports.items()
            for method in (self._listeners[name],)
        ]

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables for processes with clients."""
        return {} if self._kdc is None else self._kdc.environment

    @property
    def java_options(self) -> list[str]:
        """Options for the brokers' Java."""
        return [] if self._kdc is None else [f"-Djava.security.krb5.conf={self._kdc.config}"]

    @property
    def format_arguments(self) -> list[str]:
        """Arguments for formatting the storage, which contains the SCRAM users."""
        return [
            argument
            for mechanism in sorted({method.mechanism for method in self._listeners.values()})
            if mechanism.startswith("SCRAM")
            for user, password in self._passwords.items()
            for argument in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
        ]

    def broker_properties(self) -> dict[str, str]:
        """Return the brokers' settings for the listeners."""
        settings: dict[str, str] = {}
        for name, method in self._listeners.items():
            own: dict[str, str] = {}
            if method.tls:
                own |= {
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.location": str(self._folder / "server.pem"),
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": str(self._folder / "ca.pem"),
                    "ssl.client.auth": "required" if method.client_certificate else "none",
                    "ssl.principal.mapping.rules": _COMMON_NAME,
                }
            if mechanism := method.mechanism:
                own["sasl.enabled.mechanisms"] = mechanism
                own[f"{mechanism.lower()}.sasl.jaas.config"] = self._login(mechanism)
                if mechanism == "GSSAPI":
                    own["sasl.kerberos.service.name"] = "kafka"
            settings |= {f"listener.name.{name}.{key}": value for key, value in own.items()}
        return settings

    def client_config(self, listener: str, user: str | None) -> dict[str, str]:
        """Return the settings for a listener's client, as a user; by default the first user."""
        method = self._listeners[listener]
        user = next(iter(self._passwords)) if user is None else user
        if user not in self._passwords:
            raise ValueError(f"user must be one of {', '.join(self._passwords)}, not {user!r}")
        config = {"security.protocol": method.protocol}
        if method.tls:
            config["ssl.ca.location"] = str(self._folder / "ca.pem")
        if method.client_certificate:
            config["ssl.certificate.location"] = str(self._folder / f"{user}.pem")
            config["ssl.key.location"] = str(self._folder / f"{user}.pem")
        if mechanism := method.mechanism:
            config["sasl.mechanism"] = mechanism
            config |= self._credentials(mechanism, user)
        return config

    def _credentials(self, mechanism: str, user: str) -> dict[str, str]:
        if mechanism == "GSSAPI":
            assert self._kdc is not None
            return {
                "sasl.kerberos.service.name": "kafka",
                "sasl.kerberos.principal": self._kdc.principal(user),
                "sasl.kerberos.keytab": str(self._kdc.keytab(user)),
                "broker.address.family": "v4",  # where the brokers listen
            }
        if mechanism == "OAUTHBEARER":
            return {
                "enable.sasl.oauthbearer.unsecure.jwt": "true",
                "sasl.oauthbearer.config": f"principal={user}",
            }
        return {"sasl.username": user, "sasl.password": self._passwords[user]}

    def _login(self, mechanism: str) -> str:
        """The broker's JAAS entry."""
        if mechanism == "PLAIN":
            users = {f"user_{user}": password for user, password in self._passwords.items()}
            return _jaas(f"{_LOGIN}.plain.PlainLoginModule", users)
        if mechanism == "OAUTHBEARER":
            return _jaas(
                f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule",
                {"unsecuredLoginStringClaim_sub": "broker"},
            )
        if mechanism == "GSSAPI":
            assert self._kdc is not None
            return _jaas(
                "com.sun.security.auth.module.Krb5LoginModule",
                {
                    "useKeyTab": "true",
                    "storeKey": "true",
                    "keyTab": str(self._kdc.keytab(self._kdc.SERVICE)),
                    "principal": self._kdc.principal(self._kdc.SERVICE),
                },
            )
        return _jaas(f"{_LOGIN}.scram.ScramLoginModule", {})

    def _make_certificates(self) -> None:
        try:
            import trustme
        except ImportError:
            raise NoBrokerError(
                "listeners with TLS need certificates: pip install 'cykafka[testing]'"
            ) from None
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self._folder / "ca.pem")
        self._write(authority.issue_cert(_NAME, HOST), "server.pem")
        for user in self._passwords:
            # Java rejects a certificate that has only a common name.
            self._write(authority.issue_cert(_NAME, common_name=user), f"{user}.pem")

    def _write(self, certificate: trustme.LeafCert, name: str) -> None:
        """Write the key, in the only format that Kafka reads, and the certificates."""
        from cryptography.hazmat.primitives import serialization

        key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
        path = self._folder / name
        path.touch(mode=0o600)
        path.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + b"".join(blob.bytes() for blob in certificate.cert_chain_pems)
        )


def _jaas(module: str, options: Mapping[str, str]) -> str:
    words = (f'{name}="{value}"' for name, value in options.items())
    return f"{' '.join((module, 'required', *words))};"
