"""Clients for asyncio.

An event loop serves librdkafka while coroutines wait: librdkafka writes to a pipe, and the loop
reads it (``rd_kafka_queue_io_event_enable``). There is no thread of Python, no executor and no
timer. For a loop without ``add_reader`` (Windows' proactor), one thread for each client wakes it.

`AIOProducer` and `AIOConsumer` have the interface of confluent_kafka's classes.
"""

from typing import NoReturn

from cykafka.aio.admin import AsyncAdminClient
from cykafka.aio.confluent import AIOConsumer, AIOProducer
from cykafka.aio.consumer import AsyncConsumer
from cykafka.aio.producer import AsyncProducer

__all__ = ["AIOConsumer", "AIOProducer", "AsyncAdminClient", "AsyncConsumer", "AsyncProducer"]

_TO_COME = ("AsyncDeserializingConsumer", "AsyncSerializingProducer")


def __getattr__(name: str) -> NoReturn:
    if name in _TO_COME:
        raise ImportError(
            f"cykafka has no {name} yet: serialize before AsyncProducer.produce(), and "
            "deserialize after AsyncConsumer.poll()"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
