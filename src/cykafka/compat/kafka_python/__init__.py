"""kafka-python 0.9.5's API on librdkafka, for code that was written for it.

    from cykafka.compat import kafka_python
    kafka_python.install()  # before anything imports kafka

or, without a change of the code::

    python -m cykafka.compat.kafka_python script.py arguments ...

``kafka`` and its modules are then those of this package. ``docs/kafka-python.md`` lists each name,
and what differs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from cykafka.compat._alias import Alias
from cykafka.compat.kafka_python._handles import properties as _properties
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

    Calling it again changes the properties only.

    Parameters
    ----------
    properties : mapping of str to object, optional
        Properties of librdkafka for all clients, which kafka-python had no parameters for:
        ``{"security.protocol": "SSL", ...}``. They replace what the parameters of a client say.

    Raises
    ------
    ImportError
        Another kafka is already imported; its users would go on using it.
    cykafka.KafkaException
        librdkafka does not have such a property, or refuses its value.
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
    _alias.install(modules, lambda name: f"{name} is not part of kafka-python {__version__}")


def uninstall() -> None:
    """Undo install(): the next ``import kafka`` imports the installed package, if there is one."""
    _alias.uninstall()
