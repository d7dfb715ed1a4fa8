"""AdminClient's methods for the configuration of topics, brokers and groups."""

from __future__ import annotations

import warnings
from concurrent.futures import Future

from cykafka._core.admin.client import Admin
from cykafka._core.admin.configs import AlterConfigs, DescribeConfigs, IncrementalAlterConfigs
from cykafka._core.model.check import expect_list
from cykafka._core.model.config import ConfigEntry, ConfigResource


def describe_configs(
    self: Admin,
    resources: list[ConfigResource],
    *,
    request_timeout: float | None = None,
    broker: int | None = None,
) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
    """Get configurations.

    Parameters
    ----------
    resources : list of ConfigResource
        At most one of them a broker: its request goes to that broker.
    request_timeout : float, optional
        Seconds.
    broker : int, optional
        The broker that gets the request; by default the controller.

    Returns
    -------
    dict of ConfigResource to Future of dict of str to ConfigEntry
        The entries are by property.
    """
    wanted = expect_list(resources, ConfigResource, "resources")
    return self._ask(
        DescribeConfigs(wanted), wanted, request_timeout=request_timeout, broker=broker
    )


def alter_configs(
    self: Admin,
    resources: list[ConfigResource],
    *,
    request_timeout: float | None = None,
    validate_only: bool = False,
    broker: int | None = None,
) -> dict[ConfigResource, Future[None]]:
    """Replace configurations: a property that is not set gets its default again.

    .. deprecated:: 0.2
        Use :meth:`incremental_alter_configs`.

    Parameters
    ----------
    resources : list of ConfigResource
        With `set_config`. At most one of them a broker.
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
    return self._ask(
        AlterConfigs(wanted),
        wanted,
        request_timeout=request_timeout,
        validate_only=validate_only,
        broker=broker,
    )


def incremental_alter_configs(
    self: Admin,
    resources: list[ConfigResource],
    *,
    request_timeout: float | None = None,
    validate_only: bool = False,
    broker: int | None = None,
) -> dict[ConfigResource, Future[None]]:
    """Change configurations (KIP-339): properties that are not named stay unchanged.

    Parameters
    ----------
    resources : list of ConfigResource
        With `incremental_configs`. At most one of them a broker.
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
    return self._ask(
        IncrementalAlterConfigs(wanted),
        wanted,
        request_timeout=request_timeout,
        validate_only=validate_only,
        broker=broker,
    )
