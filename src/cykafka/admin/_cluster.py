"""AdminClient's methods for the cluster: brokers, configurations, users and access rules."""

from __future__ import annotations

import warnings
from concurrent.futures import Future
from typing import overload

from cykafka._core.admin.client import Admin
from cykafka._core.admin.cluster import (
    AlterConfigs,
    AlterUserScramCredentials,
    CreateAcls,
    DeleteAcls,
    DescribeAcls,
    DescribeCluster,
    DescribeConfigs,
    DescribeUserScramCredentials,
    IncrementalAlterConfigs,
)
from cykafka._core.model.acl import AclBinding, AclBindingFilter
from cykafka._core.model.check import (
    expect_int,
    expect_list,
    expect_names,
    refuse_duplicates,
)
from cykafka._core.model.config import ConfigEntry, ConfigResource
from cykafka._core.model.scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)
from cykafka._core.model.topic import DescribeClusterResult


class ClusterRequests(Admin):
    """The requests for the cluster, its configurations, users and access rules."""

    def describe_cluster(
        self,
        *,
        include_authorized_operations: bool = False,
        request_timeout: float | None = None,
    ) -> Future[DescribeClusterResult]:
        """Describe the cluster: its id, controller and brokers.

        Parameters
        ----------
        include_authorized_operations : bool
            Also return the operations that this client may use on the cluster (KIP-430).
        request_timeout : float, optional
            Seconds.

        Returns
        -------
        Future of DescribeClusterResult
        """
        return self._send(
            DescribeCluster(),
            None,
            include_authorized_operations=include_authorized_operations,
            request_timeout=request_timeout,
        )

    # -- configurations

    def describe_configs(
        self,
        resources: list[ConfigResource],
        *,
        request_timeout: float | None = None,
        broker: int | None = None,
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        """Get configurations.

        Parameters
        ----------
        resources : list of ConfigResource
            At most one may be a broker: its request goes to that broker.
        request_timeout : float, optional
            Seconds.
        broker : int, optional
            The broker that gets the request; by default the controller.

        Returns
        -------
        dict of ConfigResource to Future of dict of str to ConfigEntry
            The keys of the inner dict are property names.
        """
        # librdkafka cannot parse the response to a request that contains a resource twice.
        wanted = list(dict.fromkeys(expect_list(resources, ConfigResource, "resources")))
        return self._send(
            DescribeConfigs(wanted), wanted, request_timeout=request_timeout, broker=broker
        )

    def alter_configs(
        self,
        resources: list[ConfigResource],
        *,
        request_timeout: float | None = None,
        validate_only: bool = False,
        broker: int | None = None,
    ) -> dict[ConfigResource, Future[None]]:
        """Replace configurations: properties that you do not set return to their defaults.

        .. deprecated:: 0.2
            Use :meth:`incremental_alter_configs`.

        Parameters
        ----------
        resources : list of ConfigResource
            With `set_config`. At most one may be a broker.
        request_timeout : float, optional
            Seconds.
        validate_only : bool
        broker : int, optional
            The broker that gets the request; by default the controller.

        Returns
        -------
        dict of ConfigResource to Future of None
        """
        warnings.warn(
            "alter_configs() is deprecated: use incremental_alter_configs()",
            DeprecationWarning,
            stacklevel=2,
        )
        wanted = expect_list(resources, ConfigResource, "resources")
        refuse_duplicates(wanted, "resources")  # the brokers would not respond
        return self._send(
            AlterConfigs(wanted),
            wanted,
            request_timeout=request_timeout,
            validate_only=validate_only,
            broker=broker,
        )

    def incremental_alter_configs(
        self,
        resources: list[ConfigResource],
        *,
        request_timeout: float | None = None,
        validate_only: bool = False,
        broker: int | None = None,
    ) -> dict[ConfigResource, Future[None]]:
        """Change configurations (KIP-339): properties that you do not name stay unchanged.

        Parameters
        ----------
        resources : list of ConfigResource
            With `incremental_configs`. At most one may be a broker.
        request_timeout : float, optional
            Seconds.
        validate_only : bool
        broker : int, optional
            The broker that gets the request; by default the controller.

        Returns
        -------
        dict of ConfigResource to Future of None
        """
        wanted = expect_list(resources, ConfigResource, "resources")
        return self._send(
            IncrementalAlterConfigs(wanted),
            wanted,
            request_timeout=request_timeout,
            validate_only=validate_only,
            broker=broker,
        )

    # -- users

    @overload
    def describe_user_scram_credentials(
        self, users: None = None, *, request_timeout: float | None = None
    ) -> Future[dict[str, UserScramCredentialsDescription]]: ...

    @overload
    def describe_user_scram_credentials(
        self, users: list[str], *, request_timeout: float | None = None
    ) -> dict[str, Future[UserScramCredentialsDescription]]: ...

    def describe_user_scram_credentials(
        self, users: list[str] | None = None, *, request_timeout: float | None = None
    ) -> (
        Future[dict[str, UserScramCredentialsDescription]]
        | dict[str, Future[UserScramCredentialsDescription]]
    ):
        """Describe users' SCRAM credentials (KIP-554).

        Parameters
        ----------
        users : list of str, optional
            Names without duplicates; all users by default.
        request_timeout : float, optional
            Seconds.

        Returns
        -------
        dict of str to Future of UserScramCredentialsDescription
            The keys are user names. Without `users`, a Future of such a dict.
        """
        if users is None:
            everybody = DescribeUserScramCredentials(None)
            return self._send(everybody, None, request_timeout=request_timeout)
        names = expect_names(users, "users", empty=True)
        return self._send(
            DescribeUserScramCredentials(names), names, request_timeout=request_timeout
        )

    def alter_user_scram_credentials(
        self,
        alterations: list[UserScramCredentialAlteration],
        *,
        request_timeout: float | None = None,
    ) -> dict[str, Future[None]]:
        """Add, change or delete users' SCRAM credentials (KIP-554).

        Parameters
        ----------
        alterations : list of UserScramCredentialUpsertion and UserScramCredentialDeletion
            Each pair of user and mechanism at most once.
        request_timeout : float, optional
            Seconds.

        Returns
        -------
        dict of str to Future of None
            The keys are user names.
        """
        wanted = expect_list(alterations, UserScramCredentialAlteration, "alterations")
        for alteration in wanted:
            _check_alteration(alteration)
        return self._send(
            AlterUserScramCredentials(wanted),
            {alteration.user for alteration in wanted},
            request_timeout=request_timeout,
        )

    # -- access rules

    def create_acls(
        self, acls: list[AclBinding], *, request_timeout: float | None = None
    ) -> dict[AclBinding, Future[None]]:
        """Create rules. Creating an existing rule is not an error.

        Parameters
        ----------
        acls : list of AclBinding
            Without duplicates.
        request_timeout : float, optional
            Seconds.

        Returns
        -------
        dict of AclBinding to Future of None
        """
        wanted = expect_list(acls, AclBinding, "acls")
        refuse_duplicates(wanted, "acls")
        return self._send(CreateAcls(wanted), wanted, request_timeout=request_timeout)

    def describe_acls(
        self, acl_binding_filter: AclBindingFilter, *, request_timeout: float | None = None
    ) -> Future[list[AclBinding]]:
        """List the rules that match a filter.

        Parameters
        ----------
        acl_binding_filter : AclBindingFilter
        request_timeout : float, optional
            Seconds.

        Returns
        -------
        Future of list of AclBinding
        """
        if not isinstance(acl_binding_filter, AclBindingFilter):
            raise TypeError(
                "acl_binding_filter: expected an AclBindingFilter, "
                f"got {type(acl_binding_filter).__name__}"
            )
        return self._send(
            DescribeAcls([acl_binding_filter]), None, request_timeout=request_timeout
        )

    def delete_acls(
        self,
        acl_binding_filters: list[AclBindingFilter],
        *,
        request_timeout: float | None = None,
    ) -> dict[AclBindingFilter, Future[list[AclBinding]]]:
        """Delete the rules that match filters.

        Parameters
        ----------
        acl_binding_filters : list of AclBindingFilter
            Without duplicates.
        request_timeout : float, optional
            Seconds.

        Returns
        -------
        dict of AclBindingFilter to Future of list of AclBinding
            The deleted rules.
        """
        filters = expect_list(acl_binding_filters, AclBindingFilter, "acl_binding_filters")
        refuse_duplicates(filters, "acl_binding_filters")
        return self._send(DeleteAcls(filters), filters, request_timeout=request_timeout)


def _check_alteration(alteration: UserScramCredentialAlteration) -> None:
    # The messages never contain the secret.
    if not isinstance(alteration.user, str):
        raise TypeError(f"user: expected a str, got {type(alteration.user).__name__}")
    if not alteration.user:
        raise ValueError("user: expected a str that is not empty")
    if isinstance(alteration, UserScramCredentialUpsertion):
        info = alteration.scram_credential_info
        for name, secret in (("password", alteration.password), ("salt", alteration.salt)):
            if secret is None and name == "salt":
                continue
            if not isinstance(secret, bytes):
                raise TypeError(f"{name}: expected bytes, got {type(secret).__name__}")
            if not secret:
                raise ValueError(f"{name}: expected bytes that are not empty")
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
