"""AdminClient's methods for access control lists."""

from __future__ import annotations

from concurrent.futures import Future

from cykafka._core.admin.acls import CreateAcls, DeleteAcls, DescribeAcls
from cykafka._core.admin.client import Admin
from cykafka._core.model.acl import AclBinding, AclBindingFilter
from cykafka._core.model.check import expect_list, refuse_duplicates


def create_acls(
    self: Admin, acls: list[AclBinding], *, request_timeout: float | None = None
) -> dict[AclBinding, Future[None]]:
    """Create rules. Creating an existing rule is not an error.

    Parameters
    ----------
    acls : list of AclBinding
        All different.
    request_timeout : float, optional
        Seconds.

    Returns
    -------
    dict of AclBinding to Future of None
    """
    wanted = expect_list(acls, AclBinding, "acls")
    refuse_duplicates(wanted, "acls")
    return self._ask(CreateAcls(wanted), wanted, request_timeout=request_timeout)


def describe_acls(
    self: Admin, acl_binding_filter: AclBindingFilter, *, request_timeout: float | None = None
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
    return self._ask(DescribeAcls([acl_binding_filter]), None, request_timeout=request_timeout)


def delete_acls(
    self: Admin,
    acl_binding_filters: list[AclBindingFilter],
    *,
    request_timeout: float | None = None,
) -> dict[AclBindingFilter, Future[list[AclBinding]]]:
    """Delete the rules that match filters.

    Parameters
    ----------
    acl_binding_filters : list of AclBindingFilter
        All different.
    request_timeout : float, optional
        Seconds.

    Returns
    -------
    dict of AclBindingFilter to Future of list of AclBinding
        The deleted rules.
    """
    filters = expect_list(acl_binding_filters, AclBindingFilter, "acl_binding_filters")
    refuse_duplicates(filters, "acl_binding_filters")
    return self._ask(DeleteAcls(filters), filters, request_timeout=request_timeout)
