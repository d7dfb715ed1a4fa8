"""OpenTelemetry spans for producers and consumers, which carry their context in record headers.

.. code-block:: python

    from cykafka import Consumer, Producer
    from cykafka.otel import TracedConsumer, TracedProducer

    producer = TracedProducer(Producer(config))
    producer.produce("orders", "order 1")  # span "send orders"

    consumer = TracedConsumer(Consumer(config))
    consumer.subscribe(["orders"])
    message = consumer.poll(1.0)  # span "poll orders", with a link to "send orders"
    with consumer.processing(message):  # span "process orders"
        ...

The spans follow OpenTelemetry's semantic conventions for Kafka. ``opentelemetry.propagate``
chooses the headers; by default ``traceparent`` and ``tracestate`` from W3C Trace Context, and
``baggage``. Unwrapped clients cost nothing.

The module needs the ``otel`` extra: ``pip install 'cykafka[otel]'``.
"""

try:
    import opentelemetry.trace  # noqa: F401
except ModuleNotFoundError as error:
    raise ImportError(f"{error}: pip install 'cykafka[otel]'") from error

from cykafka.otel._consumer import TracedConsumer, TracedShareConsumer
from cykafka.otel._producer import TracedProducer

__all__ = ["TracedConsumer", "TracedProducer", "TracedShareConsumer"]
