"""Clients for asyncio.

An event loop serves librdkafka while coroutines wait: librdkafka writes to a pipe, and the loop
reads the pipe (``rd_kafka_queue_io_event_enable``). The clients use neither a Python thread nor an
executor. A client belongs to one loop at a time: the loop of its first await, until that loop is
closed.

`AIOProducer` and `AIOConsumer` have the interface of confluent_kafka's classes.
"""

from cykafka.aio.admin import AsyncAdminClient
from cykafka.aio.confluent import AIOConsumer, AIOProducer
from cykafka.aio.consumer import AsyncConsumer
from cykafka.aio.producer import AsyncProducer
from cykafka.aio.serializing import AsyncDeserializingConsumer, AsyncSerializingProducer
from cykafka.aio.share_consumer import AsyncShareConsumer

__all__ = [
    "AIOConsumer",
    "AIOProducer",
    "AsyncAdminClient",
    "AsyncConsumer",
    "AsyncDeserializingConsumer",
    "AsyncProducer",
    "AsyncSerializingProducer",
    "AsyncShareConsumer",
]
