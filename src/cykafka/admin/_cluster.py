"""AdminClient's methods for the cluster and its users."""

from __future__ import annotations

from concurrent.futures import Future
from typing import overload

from cykafka._core.admin.client import Admin
from cykafka._core.admin.cluster import (
    AlterUserScramCredentials,
    DescribeCluster,
    DescribeUserScramCredentials,
)
from cykafka._core.model.check import expect_int, expect_list, expect_names
from cykafka._core.model.scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)
from cykafka._core.model.topic import DescribeClusterResult


def describe_cluster(
    self: Admin,
    *,
    include_authorized_operations: bool = False,
    request_timeout: float | None = None,
) -> Future[DescribeClusterResult]:
    """Describe the cluster: its id, controller and brokers.

    Parameters
    ----------
    include_authorized_operations : bool
        Also return the operations that this client may use on it (KIP-430).
    request_timeout : float, optional
        Seconds.

    Returns
    -------
    Future of DescribeClusterResult
    """
    return self._ask(
        DescribeCluster(),
        None,
        include_authorized_operations=include_authorized_operations,
        request_timeout=request_timeout,
    )


@overload
def describe_user_scram_credentials(
    self: Admin, users: None = None, *, request_timeout: float | None = None
) -> Future[dict[str, UserScramCredentialsDescription]]: ...
@overload
def describe_user_scram_credentials(
    self: Admin, users: list[str], *, request_timeout: float | None = None
) -> dict[str, Future[UserScramCredentialsDescription]]: ...
def describe_user_scram_credentials(
    self: Admin, users: list[str] | None = None, *, request_timeout: float | None = None
) -> (
    Future[dict[str, UserScramCredentialsDescription]]
    | dict[str, Future[UserScramCredentialsDescription]]
):
    """Describe the SCRAM credentials of users (KIP-554).

    Parameters
    ----------
    users : list of str, optional
        All different; all users by default.
    request_timeout : float, optional
        Seconds.

    Returns
    -------
    dict of str to Future of UserScramCredentialsDescription
        By the user's name. Without `users` a Future of such a dict.
    """
    if users is None:
        everybody = DescribeUserScramCredentials(None)
        return self._ask(everybody, None, request_timeout=request_timeout)
    names = expect_names(users, "users", empty=True)
    return self._ask(DescribeUserScramCredentials(names), names, request_timeout=request_timeout)


def alter_user_scram_credentials(
    self: Admin,
    alterations: list[UserScramCredentialAlteration],
    *,
    request_timeout: float | None = None,
) -> dict[str, Future[None]]:
    """Add, change or delete users' SCRAM credentials (KIP-554).

    Parameters
    ----------
    alterations : list of UserScramCredentialUpsertion and UserScramCredentialDeletion
        Each pair of user and mechanism once.
    request_timeout : float, optional
        Seconds.

    Returns
    -------
    dict of str to Future of None
        By the user's name.
    """
    wanted = expect_list(alterations, UserScramCredentialAlteration, "alterations")
    for alteration in wanted:
        _check_alteration(alteration)
    return self._ask(
        AlterUserScramCredentials(wanted),
        {alteration.user for alteration in wanted},
        request_timeout=request_timeout,
    )


def _check_alteration(alteration: UserScramCredentialAlteration) -> None:
    # The messages never contain the secret.
    if not isinstance(alteration.user, str):
        raise TypeError(f"user: expected a str, got {type(alteration.user).__name__}")
    if not alteration.user:
        raise ValueError("user: it is empty")
    if isinstance(alteration, UserScramCredentialUpsertion):
        info = alteration.scram_credential_info
        for name, secret in (("password", alteration.password), ("salt", alteration.salt)):
            if secret is None and name == "salt":
                continue
            if not isinstance(secret, bytes):
                raise TypeError(f"{name}: expected bytes, got {type(secret).__name__}")
            if not secret:
                raise ValueError(f"{name}: it is empty")
        if not isinstance(info, ScramCredentialInfo):
            raise TypeError(
                f"scram_credential_info: expected a ScramCredentialInfo, got {type(info).__name__}"
            )
        expect_int(info.iterations, "iterations", low=1)
        mechanism = info.mechanism
    elif isinstance(alteration, UserScramCredentialDeletion):
        mechanism = alteration.mechanism
    else:
        raise TypeError(
            "alterations: expected UserScramCredentialUpsertion or UserScramCredentialDeletion, "
            f"got {type(alteration).__name__}"
        )
    if not isinstance(mechanism, ScramMechanism):
        raise TypeError(f"mechanism: expected a ScramMechanism, got {type(mechanism).__name__}")
