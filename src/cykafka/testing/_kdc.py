"""Runs a Kerberos KDC on loopback with MIT Kerberos's programs; needs no privileges.

If a test run is killed, the library k5test leaves its KDC and its directory behind. This module
runs the programs in the test cluster's process group and directory.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

from cykafka.testing._java import apt_command
from cykafka.testing._process import (
    HOST,
    KafkaClusterError,
    NoBrokerError,
    Port,
    ProcessGroup,
    run_program,
)

_REALM = "CYKAFKA.TEST"
_PACKAGES = "krb5-kdc krb5-admin-server krb5-user libsasl2-modules-gssapi-mit"
# Debian installs the programs in these directories, which are not on every PATH.
_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
_PROGRAMS = ("krb5kdc", "kadmin.local", "kdb5_util", "kinit")
_TIMEOUT_S = 60
_LOOK_S = 0.02


class Kdc:
    """A KDC with its own realm.

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
