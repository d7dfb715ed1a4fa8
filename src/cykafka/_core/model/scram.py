"""User SCRAM credentials (KIP-554)."""

from __future__ import annotations

from cykafka._core.common.naming import public
from cykafka._core.model import Shown, _OrderedEnum


@public("cykafka.admin")
class ScramMechanism(_OrderedEnum):
    """A SASL/SCRAM mechanism."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @classmethod
    def _missing_(cls, value: object) -> ScramMechanism | None:
        # A newer broker may know more mechanisms.
        return cls.UNKNOWN if isinstance(value, int) else None


@public("cykafka.admin")
class ScramCredentialInfo(Shown):
    """A credential without its secret: ``mechanism`` and ``iterations``."""

    def __init__(self, mechanism: ScramMechanism, iterations: int) -> None:
        self.mechanism = mechanism
        self.iterations = iterations


@public("cykafka.admin")
class UserScramCredentialsDescription(Shown):
    """A user's credentials: ``user`` and ``scram_credential_infos``."""

    def __init__(self, user: str, scram_credential_infos: list[ScramCredentialInfo]) -> None:
        self.user = user
        self.scram_credential_infos = scram_credential_infos


@public("cykafka.admin")
class UserScramCredentialAlteration:
    """A change to a user's credentials: ``user``."""

    def __init__(self, user: str) -> None:
        self.user = user


@public("cykafka.admin")
class UserScramCredentialUpsertion(UserScramCredentialAlteration):
    """Add or change a user's credential.

    Parameters
    ----------
    user : str
    scram_credential_info : ScramCredentialInfo
        The mechanism, and the number of iterations (brokers accept 4096 to 16384).
    password : bytes
        The password never leaves the process: the broker gets a hash derived from it.
    salt : bytes, optional
        The default is a random salt.
    """

    def __init__(
        self,
        user: str,
        scram_credential_info: ScramCredentialInfo,
        password: bytes,
        salt: bytes | None = None,
    ) -> None:
        super().__init__(user)
        self.scram_credential_info = scram_credential_info
        self.password = password
        self.salt = salt


@public("cykafka.admin")
class UserScramCredentialDeletion(UserScramCredentialAlteration):
    """Delete a user's credential for a ``mechanism``."""

    def __init__(self, user: str, mechanism: ScramMechanism) -> None:
        super().__init__(user)
        self.mechanism = mechanism
