"""Kafka clusters for tests and demonstrations.

`MockCluster` starts in milliseconds inside this process; `KafkaCluster` is real Kafka, in Java
processes of its own. The pytest fixtures ``mock_cluster``, ``mock_cluster_factory``,
``kafka_cluster``, ``kafka_cluster_3`` and ``kafka_cluster_factory`` come with the package (see
`cykafka.testing.plugin`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cykafka.testing.cluster import MockCluster, MockRequest
    from cykafka.testing.kafka import KafkaCluster, KafkaClusterError, KafkaNode, NoBrokerError

__all__ = [
    "KafkaCluster",
    "KafkaClusterError",
    "KafkaNode",
    "MockCluster",
    "MockRequest",
    "NoBrokerError",
]


def __getattr__(name: str) -> Any:
    # On demand: pytest imports the plugin, and so this package, in every run.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "cluster" if name.startswith("Mock") else "kafka"
    return getattr(import_module(f"cykafka.testing.{module}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
