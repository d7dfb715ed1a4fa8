"""TLS, certificates and passwords, by the same options for both connectors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from acls import allow
from jvm_options import PLAIN, certificate, login

JVM, OURS = "kafka", "cykafka"

LOGINS: dict[str, Callable[[Mapping[str, str]], dict[str, str]]] = {
    "sasl_plain_tls": lambda config: login(config, PLAIN),
    "mtls": certificate,
}


@pytest.mark.parametrize("listener", LOGINS)
def test_user_writes_and_reads(
    spark: Any,
    cluster: Any,
    twins: Callable[..., dict[str, str]],
    write: Callable[..., None],
    same: Callable[..., list[Any]],
    listener: str,
) -> None:
    from cykafka.admin import AclOperation, ResourceType

    options = LOGINS[listener](cluster.client_config(listener))
    topics = twins(1)
    frame = spark.sql("select 'k' as key, 'v' as value")
    for connector, topic in topics.items():
        allow(cluster, "alice", ResourceType.TOPIC, topic, AclOperation.ALL)
        write(connector, frame, topic=topic, **options)
    allow(cluster, "alice", ResourceType.GROUP, "spark-kafka", AclOperation.READ, prefix=True)

    assert len(same(subscribe=",".join(topics.values()), **options)) == 2
