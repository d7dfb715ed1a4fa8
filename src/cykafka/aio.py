"""The asyncio clients do not exist yet; importing one raises an ImportError that says so."""

from typing import NoReturn

_TO_COME = ("AIOConsumer", "AIOProducer", "AsyncDeserializingConsumer", "AsyncSerializingProducer")


def __getattr__(name: str) -> NoReturn:
    if name in _TO_COME:
        raise ImportError(
            f"cykafka has no {name} yet: await Producer.publish(), and use the rest from threads, "
            "for example await asyncio.to_thread(consumer.poll, 1.0)"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
