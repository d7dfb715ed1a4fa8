"""kafka-python 0.9.5's API on librdkafka, for code that was written for kafka-python.

    from cykafka.compat import kafka_python
    kafka_python.install()  # before anything imports kafka

or, without changing the code::

    python -m cykafka.compat.kafka_python script.py arguments ...

Then this package provides ``kafka`` and its modules. ``docs/kafka-python.md`` lists each name and
the differences.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cykafka.compat._alias import Alias
from cykafka.compat.kafka_python._handles import properties as _properties
from cykafka.compat.kafka_python._later import explain_missing_name as _explain_missing_name
from cykafka.compat.kafka_python._later import getattr_of as _getattr_of
from cykafka.compat.kafka_python.client import KafkaClient
from cykafka.compat.kafka_python.conn import KafkaConnection
from cykafka.compat.kafka_python.consumer import (
    KafkaConsumer,
    MultiProcessConsumer,
    SimpleConsumer,
)
from cykafka.compat.kafka_python.partitioner import (
    HashedPartitioner,
    Murmur2Partitioner,
    RoundRobinPartitioner,
)
from cykafka.compat.kafka_python.producer import KeyedProducer, SimpleProducer
from cykafka.compat.kafka_python.protocol import (
    create_gzip_message,
    create_message,
    create_snappy_message,
)
from cykafka.internal import OWN_KEYS, check_config

__all__ = [
    "HashedPartitioner",
    "KafkaClient",
    "KafkaConnection",
    "KafkaConsumer",
    "KeyedProducer",
    "MultiProcessConsumer",
    "Murmur2Partitioner",
    "RoundRobinPartitioner",
    "SimpleConsumer",
    "SimpleProducer",
    "create_gzip_message",
    "create_message",
    "create_snappy_message",
]

if not TYPE_CHECKING:  # type checkers would take any name for one of this module
    __getattr__ = _getattr_of("kafka")

__title__ = "kafka"
__version__ = "0.9.5"  # whose interface this is

_alias = Alias("kafka", "cykafka.compat.kafka_python.install()")
_MODULES = (
    "client",
    "codec",
    "common",
    "conn",
    "consumer",
    "consumer.base",
    "consumer.kafka",
    "consumer.multiprocess",
    "consumer.simple",
    "context",
    "partitioner",
    "partitioner.base",
    "partitioner.hashed",
    "partitioner.roundrobin",
    "producer",
    "producer.base",
    "producer.keyed",
    "producer.simple",
    "protocol",
    "util",
)


def install(properties: Mapping[str, Any] | None = None) -> None:
    """Make ``import kafka`` import this package in this process from now on.

    Calling it again changes only the properties.

    Parameters
    ----------
    properties : mapping of str to object, optional
        librdkafka properties for all clients, for settings that kafka-python lacked:
        ``{"security.protocol": "SSL", ...}``. They take precedence over a client's parameters.

    Raises
    ------
    ImportError
        Another kafka is already imported, and its users would keep using it.
    cykafka.KafkaException
        librdkafka does not know a property, or rejects its value.
    """
    if properties is not None:
        properties = dict(properties)
        # The others are cykafka's: callbacks, and a logger.
        check_config({k: v for k, v in properties.items() if k not in OWN_KEYS})
    _alias.check()
    if properties is not None:
        _properties.clear()
        _properties.update(properties)
    if _alias.is_installed():
        return
    _alias.uninstall()  # sys.modules may have been emptied
    modules: dict[str, ModuleType] = {"kafka": sys.modules[__name__]}
    for name in _MODULES:
        module = modules[f"kafka.{name}"] = importlib.import_module(f"{__name__}.{name}")
        if name.startswith("partitioner"):  # the document's misprint
            modules[f"kafka.partitionner{name.removeprefix('partitioner')}"] = module
    modules["kafka"].partitionner = modules["kafka.partitioner"]  # type: ignore[attr-defined]
    _alias.install(modules, _explain_missing_name)


def uninstall() -> None:
    """Undo install(): the next ``import kafka`` imports the installed package, if there is one."""
    _alias.uninstall()
