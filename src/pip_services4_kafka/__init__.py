"""Kafka components for pip-services: message queues, connections and factories, built on cykafka.

This package replaces the distribution pip-services4-kafka and keeps its import paths.
"""

import importlib.util as _util
import warnings as _warnings
from importlib import metadata as _metadata

_NEEDED = ("commons", "components", "config", "data", "messaging", "observability")

_missing = [name for name in _NEEDED if _util.find_spec(f"pip_services4_{name}") is None]
if _missing:
    raise ImportError(
        "pip_services4_kafka needs "
        + ", ".join(f"pip-services4-{name}" for name in _missing)
        + ': run "pip install cykafka[pip-services]"'
    )

try:
    _metadata.distribution("pip-services4-kafka")
except _metadata.PackageNotFoundError:
    pass
else:
    _warnings.warn(
        "the distribution pip-services4-kafka is also installed, and installs its files into "
        'the same directory as cykafka: run "pip uninstall pip-services4-kafka", then '
        '"pip install --force-reinstall --no-deps cykafka"',
        RuntimeWarning,
        stacklevel=2,
    )
