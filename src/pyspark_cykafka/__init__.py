"""Makes ``format("cykafka")`` known to Spark, which looks for modules named ``pyspark_*``.

Spark imports every such module when a session looks for Python data sources, and one that fails to
import hides them all: nothing is imported here before Spark asks for the source itself.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cykafka.spark.data_source import CyKafkaDataSource as DefaultSource

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> object:
    if name == "DefaultSource":
        try:
            from cykafka.spark.data_source import CyKafkaDataSource
        except ImportError as error:
            # Spark's lookup expects nothing but this, and would find no other source either.
            raise AttributeError(str(error)) from error
        return CyKafkaDataSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
