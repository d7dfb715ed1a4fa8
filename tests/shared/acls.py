"""Access rules (ACLs) for users of a secured cluster."""

from __future__ import annotations

import time

from machine import WAIT_S

from cykafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from cykafka.testing import KafkaCluster


def allow(
    cluster: KafkaCluster,
    user: str,
    kind: ResourceType,
    name: str,
    *operations: AclOperation,
    prefix: bool = False,
) -> None:
    """Allow a user operations on a resource, or on all with a prefix; wait until they apply."""
    pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
    rules = [
        (kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]
    with AdminClient({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        for future in admin.create_acls([AclBinding(*rule) for rule in rules]).values():
            future.result(WAIT_S)
        deadline = time.monotonic() + WAIT_S
        for rule in rules:
            while not admin.describe_acls(AclBindingFilter(*rule)).result(WAIT_S):
                assert time.monotonic() < deadline, f"{rule} was not created"
