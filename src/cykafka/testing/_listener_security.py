"""Listeners with TLS and SASL: settings for brokers and clients, and their files."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cykafka.testing._java import apt_command
from cykafka.testing._process import (
    HOST,
    KafkaClusterError,
    NoBrokerError,
    Port,
    ProcessGroup,
    run_program,
)
from cykafka.testing._server_properties import BrokerEndpoint

if TYPE_CHECKING:
    import trustme

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
_REALM = "CYKAFKA.TEST"
_PACKAGES = "krb5-kdc krb5-admin-server krb5-user libsasl2-modules-gssapi-mit"
# Debian installs the programs in these directories, which are not on every PATH.
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
_PROGRAMS = ("krb5kdc", "kadmin.local", "kdb5_util", "kinit")
_TIMEOUT_S = 60
_LOOK_S = 0.02


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


# -- Kerberos


class Kdc:
    """A Kerberos KDC with its own realm, from MIT Kerberos's programs; needs no privileges.

    If a test run is killed, the library k5test leaves its KDC and its directory behind. This class
    runs the programs in the test cluster's process group and directory.

    Parameters
    ----------
    folder : Path
        Directory for the database, configuration and keytabs; the KDC creates it.
    group : ProcessGroup
        The group that the KDC's process joins.
    cleaning : ExitStack
        Receives the clean-up to run at the end.

    Raises
    ------
    NoBrokerError
        If MIT Kerberos is not installed; the message says what to do.
    """

    SERVICE = "kafka/localhost"

    def __init__(self, folder: Path, group: ProcessGroup, cleaning: ExitStack) -> None:
        found = {name: shutil.which(name, path=_PATH) for name in _PROGRAMS}
        if missing := [name for name, path in found.items() if path is None]:
            raise NoBrokerError(
                f"Kerberos needs {', '.join(missing)}; on Debian or Ubuntu: "
                f"{apt_command(_PACKAGES)}"
            )
        self._programs = {name: path for name, path in found.items() if path is not None}
        folder.mkdir()
        self._folder = folder
        self._group = group
        self._cleaning = cleaning
        self._port = cleaning.enter_context(Port())
        self.config = folder / "krb5.conf"
        self.config.write_text(
            f"""\
[libdefaults]
    default_realm = {_REALM}
    default_ccache_name = FILE:{folder}/tickets
    dns_lookup_realm = false
    dns_lookup_kdc = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
[realms]
    {_REALM} = {{
        kdc = {self._port.address}
    }}
[domain_realm]
    localhost = {_REALM}
"""
        )
        (folder / "kdc.conf").write_text(
            f"""\
[kdcdefaults]
    kdc_listen = {self._port.address}
    kdc_tcp_listen = {self._port.address}
[realms]
    {_REALM} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        acl_file = {folder}/kadm5.acl
    }}
"""
        )
        self._run("kdb5_util", "create", "-s", "-r", _REALM, "-P", secrets.token_hex(12))

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which a client's Kerberos library finds the KDC."""
        return {"KRB5_CONFIG": str(self.config)}

    def principal(self, name: str) -> str:
        """Return a principal's full name."""
        return f"{name}@{_REALM}"

    def keytab(self, name: str) -> Path:
        """Return the file with a principal's keys."""
        return self._folder / f"{name.replace('/', '-')}.keytab"

    def add_principal(self, name: str) -> None:
        """Add a principal with random keys and write its keytab."""
        for query in (
            f"addprinc -randkey {name}",
            f"ktadd -norandkey -k {self.keytab(name)} {name}",
        ):
            self._run("kadmin.local", "-r", _REALM, "-q", query)
        if not self.keytab(name).exists():
            raise KafkaClusterError(f"kadmin.local wrote no keytab for {name}")

    def start(self) -> None:
        """Start the KDC and wait until it accepts connections."""
        log = self._folder / "kdc.log"
        command = [self._programs["krb5kdc"], "-n", "-r", _REALM]
        process = self._group.start(command, log, self._environment())
        self._cleaning.callback(_end, process)
        deadline = time.monotonic() + _TIMEOUT_S
        while not self._answers():
            if process.poll() is not None or time.monotonic() >= deadline:
                raise KafkaClusterError(
                    f"krb5kdc does not respond: {log.read_text(errors='replace').strip()}"
                )
            time.sleep(_LOOK_S)

    def _answers(self) -> bool:
        try:
            socket.create_connection((HOST, self._port.number)).close()
        except ConnectionRefusedError:
            return False
        return True

    def _environment(self) -> dict[str, str]:
        profile = {"KRB5_KDC_PROFILE": str(self._folder / "kdc.conf")}
        return {**os.environ, **self.environment, **profile, "LC_ALL": "C"}

    def _run(self, program: str, *args: str) -> None:
        command = [self._programs[program], *args]
        environment, group = self._environment(), self._group.number
        done = run_program(command, _TIMEOUT_S, env=environment, process_group=group)
        if done.returncode != 0:
            raise KafkaClusterError(f"{program} failed: {done.stdout.strip()}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
