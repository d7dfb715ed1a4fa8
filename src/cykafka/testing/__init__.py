"""Kafka clusters for tests and demonstrations.

`MockCluster` starts in milliseconds inside this process; `KafkaCluster` is real Kafka in separate
Java processes. `SchemaRegistry` is a Schema Registry inside this process. The package includes the
pytest fixtures ``mock_cluster``, ``mock_cluster_factory``, ``kafka_cluster``, ``kafka_cluster_3``
and ``kafka_cluster_factory`` (see `cykafka.testing.plugin`). `live_handles` counts the clients
that a test has left open.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cykafka._core.common.library import live_handles
    from cykafka.testing.cluster import MockCluster, MockRequest
    from cykafka.testing.kafka import KafkaCluster, KafkaClusterError, KafkaNode, NoBrokerError
    from cykafka.testing.schema_registry import SchemaRegistry

__all__ = [
    "KafkaCluster",
    "KafkaClusterError",
    "KafkaNode",
    "MockCluster",
    "MockRequest",
    "NoBrokerError",
    "SchemaRegistry",
    "live_handles",
]


_MODULES = {
    "MockCluster": "cykafka.testing.cluster",
    "MockRequest": "cykafka.testing.cluster",
    "SchemaRegistry": "cykafka.testing.schema_registry",
    "live_handles": "cykafka._core.common.library",
}


# With __getattr__(), type checkers would accept any name of this module.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        # Import on demand, because pytest imports the plugin, and so this package, in every run.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(_MODULES.get(name, "cykafka.testing.kafka")), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
