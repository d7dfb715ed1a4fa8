"""What the Python data source API of the installed PySpark has."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

from pyspark.sql import datasource

__all__ = ["HAS_FILTERS", "HAS_READ_LIMITS", "HAS_STREAM_ARROW_WRITER", "SimpleReader"]

SimpleReader: Any
try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper as SimpleReader
except ImportError:  # it is no public interface
    SimpleReader = None

# PySpark 4.1: a batch reader gets filters; a stream's writer gets Arrow batches.
HAS_FILTERS = hasattr(datasource, "Filter")
HAS_STREAM_ARROW_WRITER = hasattr(datasource, "DataSourceStreamArrowWriter")
# PySpark 4.2: a stream's reader gets the start and the limit of a micro-batch.
HAS_READ_LIMITS = find_spec("pyspark.sql.streaming.datasource") is not None
