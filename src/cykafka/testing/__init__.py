"""An embedded Kafka cluster for tests and demonstrations.

`MockCluster` starts in milliseconds inside this process. The pytest fixtures ``mock_cluster`` and
``mock_cluster_factory`` come with the package (see `cykafka.testing.plugin`).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cykafka.testing.cluster import MockCluster, MockRequest

__all__ = ["MockCluster", "MockRequest"]


def __getattr__(name: str) -> Any:
    # On demand: pytest imports the plugin, and so this package, in every run.
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cykafka.testing import cluster

    return getattr(cluster, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
