"""Clients for asyncio.

An event loop serves librdkafka while coroutines wait: librdkafka writes to a pipe, and the loop
reads the pipe (``rd_kafka_queue_io_event_enable``). The clients use neither a Python thread nor an
executor. A client belongs to one loop at a time: the loop of its first await, until that loop is
closed.

`AIOProducer` and `AIOConsumer` have the interface of confluent_kafka's classes.
"""

from typing import TYPE_CHECKING, NoReturn

from cykafka.aio.admin import AsyncAdminClient
from cykafka.aio.confluent import AIOConsumer, AIOProducer
from cykafka.aio.consumer import AsyncConsumer
from cykafka.aio.producer import AsyncProducer
from cykafka.aio.share_consumer import AsyncShareConsumer

__all__ = [
    "AIOConsumer",
    "AIOProducer",
    "AsyncAdminClient",
    "AsyncConsumer",
    "AsyncProducer",
    "AsyncShareConsumer",
]

_TO_COME = ("AsyncDeserializingConsumer", "AsyncSerializingProducer")


# With __getattr__, type checkers would accept any name.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        if name in _TO_COME:
            raise ImportError(
                f"cykafka has no {name} yet: serialize before AsyncProducer.produce(), and "
                "deserialize after AsyncConsumer.poll()"
            )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
